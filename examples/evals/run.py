#!/usr/bin/env python3
"""Runs the tasks of a file with `agent` against an endpoint, and prints what was solved.

    examples/evals/run.py TASKS BASE_URL MODEL [--agent PATH] [--only SUBSTRING] [--record DIR] [--parallel N]
    examples/evals/run.py TASKS --solutions FILE

Each task has files, a prompt and a check: a shell command that passes if the task is solved. The check runs in a sandbox of
its own (`agent exec`), because the model wrote what it executes. With `--give-check` the agent has it as `--check` too, so
that it learns what fails. Nothing else is configured. With `--solutions` no model is asked: what `make.py` wrote beside the
tasks is checked. `make.py` makes task files.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COLUMNS = f"{'task':24} {'solved':7} {'exit':>4} {'turns':>5} {'in':>7} {'out':>6} {'cached':>7} {'seconds':>7}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", type=Path)
    parser.add_argument("base_url", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--agent", default="agent")
    parser.add_argument("--only", default="", help="run the tasks whose name contains this")
    parser.add_argument("--give-check", action="store_true", help="give the check to the agent")
    parser.add_argument("--record", help="keep each session's events in this directory")
    parser.add_argument("--seconds", type=int, default=900, help="what one task may take")
    parser.add_argument("--parallel", type=int, default=1, help="tasks at the same time")
    parser.add_argument("--solutions", type=Path, help="check these in place of a model's work")
    options = parser.parse_args()
    if options.solutions is None and options.model is None:
        parser.error("name BASE_URL and MODEL, or --solutions")
    tasks = [task for task in read(options.tasks) if options.only in task["id"]]
    solutions = {solution["id"]: solution["files"] for solution in read(options.solutions)} if options.solutions else None
    print(COLUMNS)
    results = []
    work = lambda task: run(task, options) if solutions is None else check(task, solutions.get(task["id"], {}), options)
    with ThreadPoolExecutor(options.parallel) as pool:
        for task, result in zip(tasks, pool.map(work, tasks)):
            results.append(result)
            print(row(task["id"], result), flush=True)
    solved = sum(result["solved"] for result in results)
    wrong = sum(not result["solved"] and result["exit"] == 0 for result in results)
    total = {key: sum(result[key] for result in results) for key in ("turns", "in", "out", "cached", "seconds")}
    print(row("all", {**total, "solved": f"{solved}/{len(results)}", "exit": ""}))
    print(f"{wrong} were reported as finished without being solved")


def read(path):
    return list(map(json.loads, path.read_text().splitlines()))


def row(name, result):
    solved = {True: "yes", False: "no"}.get(result["solved"], result["solved"])
    cached = f"{100 * result['cached'] // max(result['in'], 1)} %"
    return (
        f"{name:24} {solved:7} {result['exit']:>4} {result['turns']:5} {result['in']:7} {result['out']:6}"
        f" {cached:>7} {result['seconds']:7.1f}"
    )


def run(task, options):
    with tempfile.TemporaryDirectory() as directory:
        write(task.get("files", {}), directory)
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
        return {
            "solved": passes_in(directory, task["check"], options.agent),
            "exit": finished.returncode,
            "turns": last.get("turns", 0),
            "in": usage.get("input", 0),
            "out": usage.get("output", 0),
            "cached": usage.get("cached", 0),
            "seconds": seconds,
        }


def check(task, solution, options):
    started = time.monotonic()
    solved = passes({**task.get("files", {}), **solution}, task["check"], options.agent)
    none = {"exit": "", "turns": 0, "in": 0, "out": 0, "cached": 0}
    return {**none, "solved": solved, "seconds": time.monotonic() - started}


def passes(files, check, agent):
    """Whether the check passes with these files."""
    with tempfile.TemporaryDirectory() as directory:
        write(files, directory)
        return passes_in(directory, check, agent)


def passes_in(directory, check, agent):
    command = [agent, "exec", "-q", "-C", directory, "--", "sh", "-c", check]
    code = subprocess.run(command, capture_output=True).returncode
    if code == 125:
        raise SystemExit("`agent exec` failed: see `agent doctor`")
    return code == 0


def write(files, directory):
    for path, content in files.items():
        file = Path(directory, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


if __name__ == "__main__":
    main()
