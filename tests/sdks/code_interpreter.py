"""What programs do with E2B's code interpreter, against `agent serve`."""

import threading

from e2b import TimeoutException
from e2b_code_interpreter import Sandbox

with Sandbox.create(timeout=600) as sandbox:
    execution = sandbox.run_code("x = 20\nprint('out')\nx + 1")
    assert (execution.text, "".join(execution.logs.stdout)) == ("21", "out\n"), execution
    assert execution.results[0].is_main_result and execution.execution_count == 1
    assert sandbox.run_code("x * 2").text == "40"
    failed = sandbox.run_code("1 / 0")
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero"), failed.error
    assert "Traceback" in failed.error.traceback
    assert sandbox.run_code("import os; os.environ['A'] + os.getcwd()", envs={"A": "a:"}).text == "a:/home/user"
    assert sandbox.run_code("os.environ.get('A')").text is None
    lines = []
    sandbox.run_code("for i in range(3): print(i)", on_stdout=lambda message: lines.append(message.line))
    assert "".join(lines) == "0\n1\n2\n", lines
    context = sandbox.create_code_context(cwd="/tmp")
    assert (context.language, context.cwd) == ("python", "/tmp"), context
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    sandbox.run_code("y = 1", context=context)
    sandbox.restart_code_context(context)
    # An interpreter that was started for an execution kept its variables.
    assert sandbox.run_code("import os; os.environ['B']", envs={"B": "b"}, context=context).text == "b"
    assert sandbox.run_code("os.environ.get('B')", context=context).text is None
    assert sandbox.run_code("y", context=context).error.name == "NameError"
    assert context.id in [other.id for other in sandbox.list_code_contexts()]
    sandbox.remove_code_context(context)
    assert context.id not in [other.id for other in sandbox.list_code_contexts()]
    # A cell of each other language has a value, where the sandbox has the language.
    for language, code in [("ts", "const n: number = 6; n * 7"), ("r", "6 * 7"), ("java", "6 * 7")]:
        cell = sandbox.run_code(code, language=language)
        is_missing = cell.error and "cannot run" in cell.error.value
        assert is_missing or "42" in (cell.text or ""), (language, cell)
    shell = sandbox.run_code("echo $((6 * 7)); pwd; echo err >&2; exit 3", language="bash")
    assert "".join(shell.logs.stdout) == "42\n/home/user\n", shell
    assert "".join(shell.logs.stderr) == "err\n" and shell.error, shell
    table = sandbox.run_code("class T:\n    def _repr_html_(self): return '<b>t</b>'\nT()")
    assert table.results[0].html == "<b>t</b>" and table.results[0].is_main_result, table
    # Cells were refused where they are indented or hold more than Python, and all they wrote was standard output.
    assert sandbox.run_code("\n    z = 6\n    z * 7\n").text == "42"
    assert sandbox.run_code("'text'").text == "text"
    both = sandbox.run_code("import sys\nprint('a')\nprint('b', file=sys.stderr)")
    assert ("".join(both.logs.stdout), "".join(both.logs.stderr)) == ("a\n", "b\n"), both
    assert "".join(sandbox.run_code("!echo {z} and $((1 + 1))").logs.stdout) == "6 and 2\n"
    assert sandbox.run_code("lines = !printf 'a\\nb\\n'\nlines").text == "['a', 'b']"
    assert "".join(sandbox.run_code("%%bash\necho $0").logs.stdout) == "bash\n"
    assert "per loop" in "".join(sandbox.run_code("%timeit -n 1 -r 1 z").logs.stdout)
    assert sandbox.run_code("%nothing").error.name == "UsageError"
    shown = sandbox.run_code(
        "from IPython.display import HTML, JSON, Latex, display\ndisplay(HTML('<b>'), JSON({'a': 1}))\nLatex('x')"
    )
    assert [result.formats() for result in shown.results] == [["text", "html"], ["text", "json"], ["text", "latex"]]
    assert shown.results[2].is_main_result and not shown.logs.stdout, shown
    # A library could not be imported when its directory was made after the interpreter had started.
    assert sandbox.run_code("import late_library").error.name == "ModuleNotFoundError"
    sandbox.commands.run("d=$(python3 -m site --user-site); mkdir -p $d && echo 'value = 7' >$d/late_library.py")
    assert sandbox.run_code("import late_library; late_library.value").text == "7"
    if sandbox.run_code("import matplotlib").error is None:
        drawn = sandbox.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='a')\nplt.show()")
        chart = drawn.results[0].chart
        assert drawn.results[0].png and chart.elements[0].points == [(1, 3), (2, 4)], drawn.results[0].raw
    assert {"python", "javascript"} <= {other.language for other in sandbox.list_code_contexts()}
    sandbox.files.write("script.py", "print('from a file')")
    assert "".join(sandbox.run_code("exec(open('script.py').read())").logs.stdout) == "from a file\n"
with Sandbox.create(timeout=600) as sandbox:
    # Its execution came to its end as if nothing had happened.
    threading.Timer(2, sandbox.kill).start()
    try:
        sandbox.run_code("import time; time.sleep(300)", timeout=120)
    except TimeoutException as error:
        assert "killed" in str(error), error
    else:
        raise AssertionError("the execution ended")
print("passed")
