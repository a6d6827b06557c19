#!/usr/bin/env python3
"""Runs `agent batch` on instances of SWE-bench, and writes the predictions that its harness grades.

    examples/evals/swebench.py INSTANCES --out DIR [--image-template T] [--repositories DIR] [--parallel N] [AGENT OPTION …]

INSTANCES is a file of JSON lines, or of one JSON list, with `instance_id`, `repo`, `base_commit` and `problem_statement`, as the sets are published
(`datasets.load_dataset("SWE-bench/SWE-bench_Verified", split="test").to_json("instances.jsonl")`). The model gets the problem alone: neither
hints, tests nor the gold patch. Each instance has a sandbox of its own, from the image with its dependencies where `--image-template` names it:

    --image-template '{image}' --sandbox docker                                      (the image that the instance itself names)
    --image-template 'swebench/sweb.eval.x86_64.{id}:latest' --sandbox docker        (for sets without: {id}, as those images are named)

`--repositories DIR` has clones as OWNER/NAME or OWNER__NAME, in place of github.com. `--gold` asks no model: the predictions are the gold patches, which
the grader has to accept. DIR/predictions.jsonl is for

    python -m swebench.harness.run_evaluation --predictions_path DIR/predictions.jsonl --dataset_name … --run_id …

At the end there is a table of tokens, turns, seconds and cache hits. Started again, the run continues.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

PROMPT = """The repository in the working directory has the problem that follows. Change its sources so that it is solved. Tests that show \
it exist, and you do not see them; leave the tests that are there as they are.

{problem}"""
HEAD = f"{'instance':34} {'status':12} {'turns':>5} {'in':>9} {'out':>7} {'cached':>7} {'seconds':>8} {'files':>6}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instances", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--agent", default="agent")
    parser.add_argument("--only", default="", help="instances whose id contains this")
    parser.add_argument("--image-template", help="the image of an instance; {image} is the one that it names, {id} its id, in lower case and with _1776_ for __")
    parser.add_argument("--repositories", type=Path, help="a directory with clones")
    parser.add_argument("--gold", action="store_true", help="write the gold patches as predictions")
    options, of_agent = parser.parse_known_args()
    instances = [instance for instance in read(options.instances) if options.only in instance["instance_id"]]
    if not instances:
        parser.error("there are no instances")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.gold:
        write(options.out / "predictions.jsonl", [prediction(instance) for instance in instances])
        return 0
    # Beside the results: a batch's directory holds nothing else.
    tasks = options.out.with_name(options.out.name + ".tasks.jsonl")
    write(tasks, [task(instance, options) for instance in instances])
    code = subprocess.run([options.agent, "batch", str(tasks), "--out", str(options.out), *of_agent]).returncode
    results = {result["id"]: result for result in read(options.out / "results.jsonl")}
    print(table([results[instance["instance_id"]] for instance in instances if instance["instance_id"] in results]))
    # A task that failed has no patch, and is graded as such.
    return 0 if code == 6 else code


def read(path):
    text = path.read_text() if path.exists() else ""
    return json.loads(text) if text.lstrip().startswith("[") else list(map(json.loads, text.splitlines()))


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def prediction(instance):
    return {"instance_id": instance["instance_id"], "model_name_or_path": "gold", "model_patch": instance["patch"]}


def task(instance, options):
    name = instance["instance_id"]
    made = {
        "id": name,
        "prompt": PROMPT.format(problem=instance["problem_statement"].strip()),
        "repo": repository(instance["repo"], options.repositories),
        "commit": instance["base_commit"],
    }
    if options.image_template:
        if "{image}" in options.image_template and not instance.get("image"):
            sys.exit(f"{name} names no image")
        made["image"] = options.image_template.format(id=name.lower().replace("__", "_1776_"), image=instance.get("image"))
    return made


def repository(name, clones):
    for place in (name, name.replace("/", "__")) if clones else ():
        if (clones / place).exists():
            return str((clones / place).resolve())
    if clones:
        sys.exit(f"{clones} has no clone of {name}")
    return f"https://github.com/{name}.git"


def table(results):
    lines = [HEAD]
    for result in results:
        lines.append(row(result["id"], result["status"], result.get("turns", 0), result.get("usage", {}), result["seconds"], changed_files(result)))
    usage = {key: sum(result.get("usage", {}).get(key, 0) for result in results) for key in ("input", "output", "cached")}
    done = sum(result["status"] == "completed" for result in results)
    seconds, turns = sum(result["seconds"] for result in results), sum(result.get("turns", 0) for result in results)
    return "\n".join([*lines, row("all", f"{done}/{len(results)}", turns, usage, seconds, "")])


def changed_files(result):
    changes = result.get("changes") or {}
    return sum(changes.values())


def row(name, status, turns, usage, seconds, files):
    cached = f"{100 * usage.get('cached', 0) // max(usage.get('input', 0), 1)} %"
    tokens = f"{usage.get('input', 0):9} {usage.get('output', 0):7} {cached:>7}"
    return f"{name:34} {status:12} {turns:5} {tokens} {seconds:8.1f} {files:>6}"


if __name__ == "__main__":
    sys.exit(main())
