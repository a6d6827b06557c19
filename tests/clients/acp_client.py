"""Drives `agent acp` with the Python SDK of the Agent Client Protocol, which validates every message."""

import asyncio
import os
import sys
from pathlib import Path

from acp import PROTOCOL_VERSION, RequestPermissionResponse, RequestError, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, ClientCapabilities, FileSystemCapabilities, ReadTextFileResponse

TIMEOUT = 90
AGENT = os.environ["AGENT_BINARY"]


class Client:
    """Records what it is sent, and answers questions with the option of `choice`."""

    def __init__(self, choice="apply"):
        self.choice, self.seen, self.asked, self.written, self.unsaved = choice, [], [], {}, {}
        self.output = asyncio.Event()
        self.never = asyncio.Event()

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        self.asked.append((session_id, tool_call, [option.option_id for option in options]))
        self.output.set()
        if self.choice is None:
            await self.never.wait()
        outcome = AllowedOutcome(outcome="selected", option_id=self.choice)
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id, update, **kwargs):
        self.seen.append((session_id, update))
        if update.session_update == "tool_call_update" and update.status is None:
            self.output.set()

    async def write_text_file(self, session_id, path, content, **kwargs):
        self.written[path] = content
        Path(path).write_text(content)

    async def read_text_file(self, session_id, path, **kwargs):
        return ReadTextFileResponse(content=self.unsaved.get(path, Path(path).read_text()))

    def kinds(self, session=None):
        return [update.session_update for id, update in self.seen if session in (None, id)]

    def text(self, kind="agent_message_chunk"):
        return "".join(update.content.text for _, update in self.seen if update.session_update == kind)

    def on_connect(self, connection):
        pass


def agent(client, *arguments):
    return spawn_agent_process(client, AGENT, "acp", *arguments, env=dict(os.environ))


async def connect(connection, **fs):
    capabilities = ClientCapabilities(fs=FileSystemCapabilities(**fs)) if fs else None
    answer = await connection.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities)
    assert answer.protocol_version == 1 and answer.agent_capabilities.load_session
    return answer


async def apply():
    """One turn with an edit, whose changes are applied."""
    client = Client()
    async with agent(client) as (connection, _):
        await connect(connection)
        session = await connection.new_session(cwd=os.getcwd(), mcp_servers=[])
        answer = await connection.prompt(session_id=session.session_id, prompt=[text_block("write it")])
        assert answer.stop_reason == "end_turn", answer
        assert "available_commands_update" in client.kinds()
        assert "Done." in client.text()
        calls = [update for _, update in client.seen if update.session_update == "tool_call"]
        assert calls[0].title == "in the sandbox: new.txt" and calls[0].kind == "edit", calls[0]
        assert calls[0].content[0].path == str(Path("new.txt").absolute()), calls[0]
        assert calls[-1].title == "Apply 1 file (+1 −0)", calls[-1]
        (asked,) = client.asked
        assert asked[2] == ["apply", "apply_always", "keep", "undo_turn"], asked
        assert asked[1].content[0].new_text == "hello\n" and asked[1].content[0].old_text is None
        updates = [update for _, update in client.seen if update.session_update == "tool_call_update"]
        assert updates[-1].status == "completed", updates[-1]
    assert Path("new.txt").read_text() == "hello\n"


async def keep():
    """What the user keeps is not written, is not asked about again, and /apply writes it."""
    client = Client("keep")
    async with agent(client) as (connection, _):
        await connect(connection)
        session = (await connection.new_session(cwd=os.getcwd(), mcp_servers=[])).session_id
        await connection.prompt(session_id=session, prompt=[text_block("write it")])
        assert not Path("new.txt").exists()
        await connection.prompt(session_id=session, prompt=[text_block("go on")])
        assert len(client.asked) == 1, client.asked
        await connection.prompt(session_id=session, prompt=[text_block("/diff")])
        assert "new.txt" in client.text() and "+hello" in client.text().replace("+ ", "+"), client.text()
        await connection.prompt(session_id=session, prompt=[text_block("/apply")])
    assert Path("new.txt").read_text() == "hello\n"


async def in_editor():
    """The editor writes; text that is not saved there is a conflict of an ordinary apply."""
    client = Client("apply_in_editor")
    async with agent(client) as (connection, _):
        await connect(connection, read_text_file=True, write_text_file=True)
        session = (await connection.new_session(cwd=os.getcwd(), mcp_servers=[])).session_id
        path = str(Path("old.txt").absolute())
        await connection.prompt(session_id=session, prompt=[text_block("change it")])
        assert client.asked[0][2][2] == "apply_in_editor", client.asked
        assert client.written == {path: "after\n"}, client.written
        client.choice, client.unsaved = "apply", {path: "typed and not saved\n"}
        await connection.prompt(session_id=session, prompt=[text_block("change it again")])
        last = [update for _, update in client.seen if update.session_update == "tool_call_update"][-1]
        assert last.status == "failed" and "old.txt" in last.content[0].content.text, last
    assert Path("old.txt").read_text() == "after\n"


async def cancel():
    """A cancelled prompt is answered as cancelled, while a command runs and while a question is open."""
    client = Client(None)
    async with agent(client) as (connection, _):
        await connect(connection)
        session = (await connection.new_session(cwd=os.getcwd(), mcp_servers=[])).session_id
        prompt = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("run it")]))
        await client.output.wait()
        await connection.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"
        client.output.clear()
        prompt = asyncio.create_task(connection.prompt(session_id=session, prompt=[text_block("write it")]))
        while not client.asked:
            await client.output.wait()
            client.output.clear()
        await connection.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"
        answer = await connection.prompt(session_id=session, prompt=[text_block("/usage")])
        assert answer.stop_reason == "end_turn"
    assert not Path("new.txt").exists()


async def sessions():
    """Two sessions with directories of their own in one process; they are listed and loaded."""
    client = Client("keep")
    roots = [Path(name).absolute() for name in ("one", "two")]
    async with agent(client) as (connection, _):
        await connect(connection)
        for root in roots:
            root.mkdir()
        ids = [(await connection.new_session(cwd=str(root), mcp_servers=[])).session_id for root in roots]
        prompts = [connection.prompt(session_id=id, prompt=[text_block("where are you?")]) for id in ids]
        answers = await asyncio.gather(*prompts)
        assert [answer.stop_reason for answer in answers] == ["end_turn", "end_turn"]
        for id in ids:
            assert "agent_message_chunk" in client.kinds(id)
        for refused in ("relative", str(roots[0] / "missing")):
            try:
                await connection.new_session(cwd=refused, mcp_servers=[])
                raise SystemExit(f"{refused} was taken")
            except RequestError:
                pass
        listed = await connection.list_sessions(cwd=str(roots[0]))
        assert [session.session_id for session in listed.sessions] == [ids[0]], listed
        await connection.close_session(session_id=ids[0])
    client = Client("keep")
    async with agent(client) as (connection, _):
        await connect(connection)
        await connection.load_session(cwd=str(roots[0]), session_id=ids[0], mcp_servers=[])
        assert client.text("user_message_chunk") == "where are you?", client.seen
        assert "I am here." in client.text(), client.seen
        answer = await connection.prompt(session_id=ids[0], prompt=[text_block("and now?")])
        assert answer.stop_reason == "end_turn"


asyncio.run(asyncio.wait_for(globals()[sys.argv[1]](), TIMEOUT))
