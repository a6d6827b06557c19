"""What programs do with E2B's code interpreter, against `agent serve`."""

from e2b_code_interpreter import Sandbox

with Sandbox.create(timeout=600) as sandbox:
    execution = sandbox.run_code("x = 20\nprint('out')\nx + 1")
    assert (execution.text, "".join(execution.logs.stdout)) == ("21", "out\n"), execution
    assert execution.results[0].is_main_result and execution.execution_count == 1
    assert sandbox.run_code("x * 2").text == "40"
    failed = sandbox.run_code("1 / 0")
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero"), failed.error
    assert "Traceback" in failed.error.traceback
    assert sandbox.run_code("import os; os.environ['A'] + os.getcwd()", envs={"A": "a:"}).text == "'a:/home/agent'"
    lines = []
    sandbox.run_code("for i in range(3): print(i)", on_stdout=lambda message: lines.append(message.line))
    assert "".join(lines) == "0\n1\n2\n", lines
    context = sandbox.create_code_context(cwd="/tmp")
    assert (context.language, context.cwd) == ("python", "/tmp"), context
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "'/tmp'"
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    sandbox.run_code("y = 1", context=context)
    sandbox.restart_code_context(context)
    assert sandbox.run_code("y", context=context).error.name == "NameError"
    assert context.id in [other.id for other in sandbox.list_code_contexts()]
    sandbox.remove_code_context(context)
    assert context.id not in [other.id for other in sandbox.list_code_contexts()]
    shell = sandbox.run_code("echo $((6 * 7)); pwd; echo err >&2; exit 3", language="bash")
    assert "".join(shell.logs.stdout) == "42\n/home/agent\n", shell
    assert "".join(shell.logs.stderr) == "err\n" and shell.error, shell
    table = sandbox.run_code("class T:\n    def _repr_html_(self): return '<b>t</b>'\nT()")
    assert table.results[0].html == "<b>t</b>" and table.results[0].is_main_result, table
    sandbox.files.write("script.py", "print('from a file')")
    assert "".join(sandbox.run_code("exec(open('script.py').read())").logs.stdout) == "from a file\n"
print("passed")
