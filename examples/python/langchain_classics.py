"""A LangChain agent with one tool, `run_code`, doing the four classic tasks in a sandbox.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python langchain_classics.py [BACKEND] [IMAGE]

BACKEND is one of `agent`'s: local, docker, kubernetes, … An image has to have the languages (`python:3.12`).
"""

from __future__ import annotations

import os
import sys

from agentsandbox import Sandbox
from agentsandbox.langchain import run_code_tool
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

TASKS = [
    "Estimate pi with the Monte Carlo method and a fixed seed.",
    "Compute 20 factorial.",
    "List the first 20 numbers of the Fibonacci sequence.",
    "Add the numbers from 1 to 10000.",
]
PROMPT = "Answer with code that you run with run_code, and then in one sentence."


def main() -> None:
    backend = sys.argv[1] if len(sys.argv) > 1 else None
    image = sys.argv[2] if len(sys.argv) > 2 else None
    model = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"))
    with Sandbox(backend=backend, image=image) as sandbox:
        agent = create_agent(model, tools=[run_code_tool(sandbox, timeout=120)], system_prompt=PROMPT)
        for task in TASKS:
            messages = agent.invoke({"messages": [("user", task)]})["messages"]
            ran = [message.text for message in messages if message.type == "tool"]
            print(f"{task}\n  {' | '.join(text.strip() for text in ran)}\n  {messages[-1].text}")


if __name__ == "__main__":
    main()
