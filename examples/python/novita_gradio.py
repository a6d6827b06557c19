"""The agent of `novita_loop.py` with a page: a chat, and a panel that runs commands in the same sandbox.

    python novita_gradio.py             # with the variables of novita_loop.py; prints the address of the page
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
from novita_loop import PROMPT, run, turns
from novita_sandbox.core import Sandbox
from openai import OpenAI


class Session:
    """A sandbox and the conversation about it. The sandbox is made when it is needed."""

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None
        self.messages: list[Any] = [{"role": "system", "content": PROMPT}]

    def opened(self) -> Sandbox:
        if self.sandbox is None or not self.sandbox.is_running():
            self.sandbox = Sandbox.create(timeout=3600)
        return self.sandbox

    def close(self) -> None:
        if self.sandbox is not None:
            self.sandbox.kill()


def chat(prompt: str, _shown: list[Any], session: Session) -> Iterator[str]:
    session.messages.append({"role": "user", "content": prompt})
    text = ""
    for what, result in turns(OpenAI(), session.opened(), session.messages):
        text += result if what == "answer" else f"`{what[:200]}`\n```\n{result[:2000]}\n```\n"
        yield text


def command(line: str, session: Session) -> str:
    return run(session.opened(), line)


def page() -> gr.Blocks:
    with gr.Blocks(title="A sandbox and a model") as blocks:
        # One for each visitor; its sandbox ends with it.
        session = gr.State(Session, delete_callback=lambda session: session.close(), time_to_live=3600)
        with gr.Row():
            with gr.Column(scale=3):
                gr.ChatInterface(chat, additional_inputs=[session], api_name="chat")
            with gr.Column(scale=2):
                line = gr.Textbox(label="Command", placeholder="ls -la")
                output = gr.Code(label="Output", lines=20)
                line.submit(command, [line, session], output, api_name="command")
    return blocks


if __name__ == "__main__":
    page().launch(server_name="127.0.0.1")
