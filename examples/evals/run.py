#!/usr/bin/env python3
"""Runs the tasks of a file with `agent` against an endpoint, and prints what was solved.

    examples/evals/run.py http://127.0.0.1:8080/v1 MODEL [--tasks FILE] [--agent PATH] [--only SUBSTRING] [--record DIR]
        [--parallel N]

Each task has files, a prompt and a check: a shell command that passes if the task is solved. The check runs in a sandbox of
its own (`agent exec`), because the model wrote what it executes. A task `list-write-run-…` is solved only if a command with
the program that its check names succeeded in the session as well. With `--give-check` the agent has it as `--check` too, so
that it learns what fails. Nothing else is configured.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COLUMNS = f"{'task':24} {'solved':7} {'exit':>4} {'turns':>5} {'in':>7} {'out':>6} {'cached':>7} {'seconds':>7}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("--tasks", default=Path(__file__).with_name("small.jsonl"))
    parser.add_argument("--agent", default="agent")
    parser.add_argument("--only", default="", help="run the tasks whose name contains this")
    parser.add_argument("--give-check", action="store_true", help="give the check to the agent")
    parser.add_argument("--record", help="keep each session's events in this directory")
    parser.add_argument("--seconds", type=int, default=900, help="what one task may take")
    parser.add_argument("--parallel", type=int, default=1, help="tasks at the same time")
    options = parser.parse_args()
    lines = Path(options.tasks).read_text().splitlines()
    tasks = [task for task in map(json.loads, lines) if options.only in task["id"]]
    print(COLUMNS)
    results = []
    with ThreadPoolExecutor(options.parallel) as pool:
        for task, result in zip(tasks, pool.map(lambda task: run(task, options), tasks)):
            results.append(result)
            print(row(task["id"], result), flush=True)
    solved = sum(result["solved"] for result in results)
    wrong = sum(not result["solved"] and result["exit"] == 0 for result in results)
    total = {key: sum(result[key] for result in results) for key in ("turns", "in", "out", "cached", "seconds")}
    print(row("all", {**total, "solved": f"{solved}/{len(results)}", "exit": ""}))
    print(f"{wrong} were reported as finished without being solved")


def row(name, result):
    solved = {True: "yes", False: "no"}.get(result["solved"], result["solved"])
    cached = f"{100 * result['cached'] // max(result['in'], 1)} %"
    return (
        f"{name:24} {solved:7} {result['exit']:>4} {result['turns']:5} {result['in']:7} {result['out']:6}"
        f" {cached:>7} {result['seconds']:7.1f}"
    )


def run(task, options):
    with tempfile.TemporaryDirectory() as directory:
        for path, content in task.get("files", {}).items():
            file = Path(directory, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        environment = {**os.environ, "AGENT_BASE_URL": options.base_url, "AGENT_MODEL": options.model}
        command = [options.agent, "run", "--json", "--apply", "-C", directory, "--max-time", f"{options.seconds}s"]
        if options.give_check:
            command += ["--check", task["check"]]
        if options.record:
            Path(options.record).mkdir(parents=True, exist_ok=True)
            command += ["--record", str(Path(options.record, f"{task['id']}.jsonl"))]
        started = time.monotonic()
        finished = subprocess.run([*command, task["prompt"]], env=environment, capture_output=True)
        seconds = time.monotonic() - started
        events = [json.loads(line) for line in finished.stdout.splitlines()]
        last = next((event for event in reversed(events) if event["type"] == "session_finished"), {})
        usage = last.get("usage", {})
        check = [options.agent, "exec", "-q", "-C", directory, "--", "sh", "-c", task["check"]]
        solved = subprocess.run(check, capture_output=True).returncode == 0
        if task["id"].startswith("list-write-run-"):
            solved &= ran(events, re.search(r"\w+\.(py|sh)", task["check"]).group())
        return {
            "solved": solved,
            "exit": finished.returncode,
            "turns": last.get("turns", 0),
            "in": usage.get("input", 0),
            "out": usage.get("output", 0),
            "cached": usage.get("cached", 0),
            "seconds": seconds,
        }


def ran(events, text):
    """Whether a command that contains the text succeeded."""
    commands = {
        event["id"]: event["arguments"].get("command", "")
        for event in events
        if event["type"] == "tool_started" and isinstance(event["arguments"], dict)
    }
    succeeded = (event["id"] for event in events if event["type"] == "tool_finished" and event["ok"])
    return any(text in str(commands.get(call, "")) for call in succeeded)


if __name__ == "__main__":
    main()
