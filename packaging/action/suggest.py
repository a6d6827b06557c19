#!/usr/bin/env python3
"""suggest.py NUMBER PATCH BODY: comments on a pull request with the hunks of a patch (`git diff --unified=0`) as suggestions.

Where the checkout is not the pull request's head, or GitHub takes none of the places because they are outside of its diff, the patch becomes
one comment.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")
# Suggestions of one review.
MAX_SUGGESTIONS = 50
# Characters of a comment: GitHub refuses one with more than 65,536.
MAX_COMMENT = 65_000
# Of these for the answer, whose lines are indented.
MAX_ANSWER = 20_000
CUT = "\n\n(cut: it is too long for a comment)\n"


def main():
    number, patch = int(sys.argv[1]), Path(sys.argv[2]).read_text(errors="replace")
    body = shortened(Path(sys.argv[3]).read_text(errors="replace"), MAX_ANSWER)
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
    head = event["pull_request"]["head"]["sha"]
    at = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    comments = suggestions(patch) if at == head else []
    if comments and len(comments) <= MAX_SUGGESTIONS:
        review = {"commit_id": head, "event": "COMMENT", "body": body, "comments": comments}
        if post(f"pulls/{number}/reviews", review):
            return
    # Indented, Markdown has no links, mentions or pictures in it.
    shown = "".join(f"    {line}\n" for line in patch.split("\n"))
    comment = shortened(f"{body}\n\nThe change, for `git apply`:\n\n{shown}", MAX_COMMENT)
    if not post(f"issues/{number}/comments", {"body": comment}):
        sys.exit("the comment could not be made")


def shortened(text, most):
    """At most this many characters, as GitHub counts them: in UTF-16, where some take two."""
    units = text.encode("utf-16-le", errors="replace")
    if len(units) <= 2 * most:
        return text
    return units[: 2 * (most - len(CUT))].decode("utf-16-le", errors="ignore") + CUT


def post(path, content):
    command = ["gh", "api", "--method", "POST", f"repos/{os.environ['GITHUB_REPOSITORY']}/{path}", "--input", "-"]
    return subprocess.run(command, input=json.dumps(content), text=True, stdout=subprocess.DEVNULL).returncode == 0


def suggestions(patch):
    """A comment for each hunk; none at all where one cannot be a suggestion: a new, deleted or binary file, or no line to stand on."""
    hunks, path, hunk = [], None, None
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            path = hunk = None
        elif hunk is None and line.startswith(("new file", "deleted file", "Binary files", "old mode", "GIT binary")):
            return []
        elif hunk is None and line.startswith("+++ "):
            if not line.startswith("+++ b/"):
                return []
            path = line.removeprefix("+++ b/").rstrip("\t")
        elif match := HUNK.match(line):
            start, count = int(match[1]), int(match[2] or 1)
            hunk = {"path": path, "start": start, "count": count, "new": []}
            hunks.append(hunk)
        elif hunk is not None and line.startswith("+"):
            hunk["new"].append(line[1:])
        elif line.startswith("\\ No newline"):
            return []
    made = [comment_of(hunk) for hunk in hunks]
    return made if all(made) else []


def comment_of(hunk):
    first, last, new = hunk["start"], hunk["start"] + hunk["count"] - 1, hunk["new"]
    if hunk["count"] == 0:
        # Lines are added behind line `start`, which is repeated.
        first = last = hunk["start"]
        shown = subprocess.run(["git", "show", f"HEAD:{hunk['path']}"], capture_output=True)
        old = shown.stdout.decode(errors="replace").split("\n")
        if first == 0 or first > len(old):
            return None
        new = [old[first - 1], *new]
    fence = "`" * max(3, 1 + max((len(run) for line in new for run in re.findall("`+", line)), default=0))
    text = "\n".join([f"{fence}suggestion", *new, fence])
    # A part of one would be applied as all of it.
    if shortened(text, MAX_COMMENT) != text:
        return None
    comment = {"path": hunk["path"], "side": "RIGHT", "line": last, "body": text}
    if first < last:
        comment |= {"start_line": first, "start_side": "RIGHT"}
    return comment


if __name__ == "__main__":
    main()
