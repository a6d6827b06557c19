"""The package on its own, with the program that AGENT_BINARY names."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentsandbox import AgentError, Sandbox
from agentsandbox.langchain import run_code_tool
from agentsandbox.llm_sandbox import ConsoleOutput, SandboxBackend, SandboxSession
from agentsandbox.minisweagent import AgentEnvironment


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "old.txt").write_text("before\n")
    return tmp_path


def test_commands_run_in_a_copy_of_the_directory(project: Path) -> None:
    with Sandbox(project) as sandbox:
        result = sandbox.run("cat old.txt; echo more >&2; echo new > new.txt; exit 3")
        assert (result.output, result.exit_code, result.ok) == ("before\nmore\n", 3, False)
        assert sandbox.run("sleep 60", timeout=0.5).timed_out
        assert sandbox.run("echo $GREETING", env={"GREETING": "hello"}).output == "hello\n"
        assert [file["path"] for file in sandbox.diff().files] == ["new.txt"]
    assert not (project / "new.txt").exists()


def test_changes_are_applied_and_taken_back(project: Path) -> None:
    with Sandbox(project, allow_apply=True) as sandbox:
        sandbox.files.write("old.txt", "after\n")
        sandbox.files.write("other.txt", b"\x00\xff")
        assert sandbox.apply(["old.txt"]).files == ["old.txt"]
        assert (project / "old.txt").read_text() == "after\n"
        assert not (project / "other.txt").exists()
        sandbox.undo_apply()
        assert (project / "old.txt").read_text() == "before\n"


def test_nothing_is_applied_without_leave(project: Path) -> None:
    with Sandbox(project) as sandbox:
        sandbox.files.write("new.txt", "x")
        with pytest.raises(AgentError, match="agent apply"):
            sandbox.apply()


def test_checkpoints_and_forks(project: Path) -> None:
    with Sandbox(project) as sandbox:
        sandbox.files.write("a.txt", "1")
        sandbox.checkpoint()
        sandbox.run("rm old.txt a.txt")
        assert sorted(sandbox.undo()) == ["a.txt", "old.txt"]
        with sandbox.fork() as fork:
            assert fork.files.read("a.txt") == "1"
            fork.files.write("a.txt", "2")
            assert fork.id != sandbox.id
        assert sandbox.files.read("a.txt") == "1"


def test_code_keeps_its_state(project: Path) -> None:
    with Sandbox(project) as sandbox:
        assert sandbox.run_code("python", "x = 6 * 7").ok
        assert "42" in sandbox.run_code("python", "print(x)").stdout
        assert not sandbox.run_code("python", "1 / 0").ok
        assert "42" in run_code_tool(sandbox).invoke({"lang": "python", "code": "print(x)"})


def test_a_key_finds_the_workspace_again(project: Path) -> None:
    key = f"test {project}"
    with Sandbox(project, key=key) as sandbox:
        sandbox.files.write("kept.txt", "kept")
        first = sandbox.id
    with Sandbox(project, key=key) as sandbox:
        assert sandbox.files.read("kept.txt") == "kept"
        assert sandbox.id == first


def test_calls_of_many_threads_at_once(project: Path) -> None:
    with Sandbox(project) as sandbox, ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda number: sandbox.run(f"head -c 500000 /dev/zero | tr '\\0' {number % 10}"), range(16))
        assert [len(result.output) for result in results] == [500_000] * 16


def test_a_child_that_dies_is_an_error_and_no_hang(project: Path) -> None:
    sandbox = Sandbox(project)
    assert sandbox.run("true").ok
    process = sandbox._shared.child._process
    timer = threading.Timer(0.5, process.kill)
    timer.start()
    with pytest.raises(AgentError, match="has ended"):
        sandbox.run("sleep 60")
    with pytest.raises(AgentError):
        sandbox.run("true")
    sandbox.close()


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(AgentError, match="could not be started"):
        Sandbox(program="/does/not/exist")


def test_programs_written_for_llm_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    with SandboxSession(lang="python", workdir="work", default_timeout=60, verbose=True) as session:
        assert session.run("print('hello')") == ConsoleOutput(0, "", "hello\n")
        # What a run printed before it failed stays what it printed.
        failed = session.run("print('so far'); import sys; print('sorry', file=sys.stderr); sys.exit(3)")
        assert failed == ConsoleOutput(3, "sorry\n", "so far\n")
        assert session.execute_command("pwd").stdout.endswith("/work\n")
        assert session.run("while True: pass", timeout=1).exit_code == 124
        heard: list[str] = []
        session.run("print('loud')", on_stdout=heard.append)
        assert heard == ["loud\n"]
    assert "$ python3 code.py" in capsys.readouterr().err
    assert SandboxBackend.KUBERNETES == "kubernetes"


def test_options_of_llm_sandbox_without_a_counterpart_are_named() -> None:
    with pytest.warns(UserWarning, match="security_policy of llm-sandbox"):
        SandboxSession(lang="PYTHON", security_policy=object(), keep_template=True).close()
    with pytest.warns(UserWarning, match="runtime_configs\\['cap_add'\\]"):
        SandboxSession(runtime_configs={"mem_limit": "512m", "cap_add": ["SYS_ADMIN"]}).close()


def test_the_environment_of_mini_swe_agent(project: Path) -> None:
    from minisweagent.environments import get_environment
    from minisweagent.exceptions import Submitted

    settings = {"environment_class": "agentsandbox.minisweagent.AgentEnvironment", "workspace": str(project)}
    environment = get_environment(settings)
    assert isinstance(environment, AgentEnvironment)
    result = environment.execute({"command": "cat old.txt"})
    assert (result["output"], result["returncode"]) == ("before\n", 0)
    assert environment.execute({"command": "sleep 60"}, timeout=1)["returncode"] == -1
    with pytest.raises(Submitted):
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"})
    environment.cleanup()
