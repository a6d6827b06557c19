#!/bin/sh
# packaging/archive.sh PROGRAM TARGET OUT: agent-TARGET.tar.gz with the program, its manual page, completions and licences. The program has
# to run on this machine, or AGENT names one of the same version that does.
set -eu
program=$1 target=$2 out=$3
here=$(cd "$(dirname "$0")/.." && pwd)
agent=${AGENT:-$program}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -m 755 "$program" "$work/agent"
mkdir -p "$work/completions" "$work/man" "$out"
for shell in bash zsh fish; do "$agent" completions "$shell" >"$work/completions/agent.$shell"; done
"$agent" man >"$work/man/agent.1"
cp "$here/LICENSE-MIT" "$here/LICENSE-APACHE" "$here/README.md" "$here/CHANGELOG.md" "$work"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -cf - agent man completions README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT | gzip -n >"$out/agent-$target.tar.gz"
