#!/usr/bin/env python3
"""Runs mini-swe-agent on the tasks of `run.py` against the same endpoint, and prints the same table.

    python examples/evals/mini.py TASKS BASE_URL MODEL [--only SUBSTRING] [--steps N]

It needs mini-swe-agent and agentsandbox in its Python (`pip install 'agentsandbox[mini-swe-agent]'`). Its commands run in a sandbox of `agent` with a
copy of the task's files, and its change is checked as that of `agent` is, so that only the agents differ. AGENT_API_KEY is the endpoint's key.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

# Prices are those of nobody here, and are not fetched.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
from agentsandbox.minisweagent import AgentEnvironment
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.models.litellm_model import LitellmModel

from run import COLUMNS, passes_in, read, row, write


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("--agent", default="agent")
    parser.add_argument("--only", default="", help="run the tasks whose name contains this")
    parser.add_argument("--steps", type=int, default=100, help="requests for one task")
    parser.add_argument("--seconds", type=int, default=900, help="what one task may take")
    options = parser.parse_args()
    print(COLUMNS)
    results = []
    for task in (task for task in read(options.tasks) if options.only in task["id"]):
        results.append(run(task, options))
        print(row(task["id"], results[-1]), flush=True)
    total = {key: sum(result[key] for result in results) for key in ("turns", "in", "out", "cached", "seconds")}
    print(row("all", {**total, "solved": f"{sum(result['solved'] for result in results)}/{len(results)}", "exit": ""}))


def run(task, options):
    settings = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
    endpoint = {"api_base": options.base_url, "api_key": os.environ.get("AGENT_API_KEY", "none")}
    of_model = settings["model"]
    of_model |= {"cost_tracking": "ignore_errors", "model_kwargs": {**of_model.get("model_kwargs", {}), **endpoint}}
    model = LitellmModel(**{**of_model, "model_name": f"openai/{options.model}"})
    limits = {"step_limit": options.steps, "wall_time_limit_seconds": options.seconds, "cost_limit": 0}
    with tempfile.TemporaryDirectory() as directory:
        write(task.get("files", {}), directory)
        environment = AgentEnvironment(workspace=directory)
        agent = DefaultAgent(model, environment, **{**settings["agent"], **limits})
        started = time.monotonic()
        try:
            status = agent.run(task["prompt"]).get("exit_status", "")
        except Exception as error:
            # One task's failure is its result.
            status = type(error).__name__
        seconds = time.monotonic() - started
        patch = environment.sandbox.diff().patch
        environment.cleanup()
        if patch:
            subprocess.run(["git", "apply", "-"], cwd=directory, input=patch, text=True, check=True)
        return {
            **usage(agent.messages),
            "solved": passes_in(directory, task["check"], options.agent),
            "exit": 0 if status == "Submitted" else 1,
            "turns": agent.n_calls,
            "seconds": seconds,
        }


def usage(messages):
    """The tokens of all answers."""
    total = {"in": 0, "out": 0, "cached": 0}
    for message in messages:
        used = (message.get("extra", {}).get("response") or {}).get("usage") or {}
        total["in"] += used.get("prompt_tokens") or 0
        total["out"] += used.get("completion_tokens") or 0
        total["cached"] += (used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return total


if __name__ == "__main__":
    sys.exit(main())
