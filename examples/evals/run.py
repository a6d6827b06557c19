#!/usr/bin/env python3
"""Runs the tasks of a file with `agent` against an endpoint, and prints what was solved.

    examples/evals/run.py http://127.0.0.1:8080/v1 MODEL [--tasks FILE] [--agent PATH] [--only SUBSTRING]

Each task has files, a prompt and a check: a shell command that passes if the task is solved. The check runs in a sandbox of
its own (`agent exec`), because the model wrote what it executes.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

TASK_SECONDS = 600


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("--tasks", default=Path(__file__).with_name("small.jsonl"))
    parser.add_argument("--agent", default="agent")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    lines = Path(options.tasks).read_text().splitlines()
    tasks = [task for task in map(json.loads, lines) if options.only in task["id"]]
    print(f"{'task':24} {'solved':7} {'exit':>4} {'turns':>5} {'tokens':>7} {'cached':>7} {'seconds':>7}")
    results = []
    for task in tasks:
        result = run(task, options)
        results.append(result)
        solved = "yes" if result["solved"] else "no"
        print(
            f"{task['id']:24} {solved:7} {result['exit']:4} {result['turns']:5} {result['tokens']:7}"
            f" {result['cached']:7} {result['seconds']:7.1f}",
            flush=True,
        )
    solved = sum(result["solved"] for result in results)
    seconds = sum(result["seconds"] for result in results)
    print(f"solved {solved} of {len(results)} in {seconds:.0f} s")


def run(task, options):
    with tempfile.TemporaryDirectory() as directory:
        for path, content in task["files"].items():
            file = Path(directory, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        environment = {**os.environ, "AGENT_BASE_URL": options.base_url, "AGENT_MODEL": options.model}
        command = [options.agent, "run", "--json", "--apply", "-C", directory, task["prompt"]]
        started = time.monotonic()
        try:
            finished = subprocess.run(command, env=environment, capture_output=True, timeout=TASK_SECONDS)
            code, output = finished.returncode, finished.stdout
        except subprocess.TimeoutExpired as expired:
            code, output = -1, expired.stdout or b""
        seconds = time.monotonic() - started
        last = last_event(output)
        usage = last.get("usage", {})
        check = [options.agent, "exec", "-q", "-C", directory, "--", "sh", "-c", task["check"]]
        solved = subprocess.run(check, capture_output=True).returncode == 0
        return {
            "solved": solved,
            "exit": code,
            "turns": last.get("turns", 0),
            "tokens": usage.get("input", 0) + usage.get("output", 0),
            "cached": usage.get("cached", 0),
            "seconds": seconds,
        }


def last_event(output):
    for line in reversed(output.splitlines()):
        if b'"session_finished"' in line:
            return json.loads(line)
    return {}


if __name__ == "__main__":
    main()
