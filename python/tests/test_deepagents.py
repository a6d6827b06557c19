"""LangChain's suite for sandboxes, and what is beside it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from agentsandbox import Sandbox
from agentsandbox.deepagents import AgentProvider, AgentSandbox, ThreadSandboxes

DRIFT = "langchain-tests 1.1.9 predates deepagents 0.7"


class TestAgentSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentSandbox]:
        backend = AgentSandbox(sandbox=Sandbox(tmp_path_factory.mktemp("project")))
        # The suite calls it by this name, which Debian's package does not have.
        linked = backend.execute('mkdir -p ~/.local/bin && ln -sf "$(command -v python3)" ~/.local/bin/python')
        assert linked.exit_code == 0, linked
        yield backend
        backend.close()

    @pytest.mark.xfail(reason=DRIFT)
    def test_glob(self, sandbox_backend, sandbox_test_root):
        super().test_glob(sandbox_backend, sandbox_test_root)

    @pytest.mark.xfail(reason=DRIFT)
    def test_glob_basic_pattern(self, sandbox_backend, sandbox_test_root):
        super().test_glob_basic_pattern(sandbox_backend, sandbox_test_root)

    @pytest.mark.xfail(reason=DRIFT)
    def test_glob_with_directories(self, sandbox_backend, sandbox_test_root):
        super().test_glob_with_directories(sandbox_backend, sandbox_test_root)

    @pytest.mark.xfail(reason=DRIFT)
    def test_glob_hidden_files_explicitly(self, sandbox_backend, sandbox_test_root):
        super().test_glob_hidden_files_explicitly(sandbox_backend, sandbox_test_root)

    @pytest.mark.xfail(reason=DRIFT)
    def test_glob_with_character_class(self, sandbox_backend, sandbox_test_root):
        super().test_glob_with_character_class(sandbox_backend, sandbox_test_root)

    @pytest.mark.xfail(reason=DRIFT)
    def test_glob_with_question_mark(self, sandbox_backend, sandbox_test_root):
        super().test_glob_with_question_mark(sandbox_backend, sandbox_test_root)

    @pytest.mark.xfail(reason=DRIFT)
    def test_write_existing_file_fails(self, sandbox_backend, sandbox_test_root):
        super().test_write_existing_file_fails(sandbox_backend, sandbox_test_root)


def test_first_calls_of_a_thread_meet_in_one_sandbox(tmp_path: Path) -> None:
    threads = ThreadSandboxes(workspace=tmp_path)
    runtime = SimpleNamespace(config={"configurable": {"thread_id": "one"}})
    other = SimpleNamespace(config={"configurable": {"thread_id": "two"}})
    with ThreadPoolExecutor(4) as pool:
        backends = list(pool.map(threads, [runtime] * 4))
    assert len({id(backend) for backend in backends}) == 1
    assert threads(other).id != backends[0].id
    threads.close()


def test_the_provider_finds_a_sandbox_again(tmp_path: Path) -> None:
    provider = AgentProvider()
    backend = provider.get_or_create(workspace=tmp_path)
    assert provider.get_or_create(sandbox_id=backend.id) is backend
    with pytest.raises(KeyError):
        provider.get_or_create(sandbox_id="unknown")
    provider.delete(sandbox_id=backend.id)
