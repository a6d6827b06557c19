"""A deepagents agent whose threads have a sandbox each, over a copy of the directory that it is started in.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… OPENAI_MODEL=… python deepagents_threads.py "prompt of thread 1" "prompt of thread 2" …

Nothing is written to the directory: what each thread changed is printed as a patch.
"""

from __future__ import annotations

import os
import sys

from agentsandbox.deepagents import ThreadSandboxes
from deepagents import create_deep_agent
from langchain_openai import ChatOpenAI


def main() -> None:
    model = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"))
    sandboxes = ThreadSandboxes(workspace=".")
    try:
        agent = create_deep_agent(model, backend=sandboxes)
        for number, prompt in enumerate(sys.argv[1:], 1):
            config = {"configurable": {"thread_id": f"thread-{number}"}}
            answer = agent.invoke({"messages": [("user", prompt)]}, config)["messages"][-1].text
            print(f"thread {number}: {answer}")
            print(sandboxes.get(f"thread-{number}").sandbox.diff().patch)
    finally:
        sandboxes.close()


if __name__ == "__main__":
    main()
