#!/usr/bin/env bash
# Makes docs/demo.svg: the four commands, for real, in a copy of project/. Only the model's part is recorded (session.jsonl).
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --bin agent --example terminal_picture
demo=$PWD/docs/demo
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cp -r "$demo/project" "$home/project"
git -C "$home/project" init -q
mkdir "$home/config"
echo 'env = { PYTHONDONTWRITEBYTECODE = "1" }' >"$home/config/config.toml"

cat >"$home/commands" <<EOF
stty columns 104 rows 60
cd "$home/project"
show() { printf '%s\033[1;32m\$\033[0m \033[1m%s\033[0m\n' "\$first" "\$1"; first=\$'\n'; }
show 'agent "fix the failing test"'
agent --replay "$demo/session.jsonl" "fix the failing test" </dev/null
show 'agent diff'
agent diff
show 'agent apply --yes'
agent apply --yes
show 'python3 test_leap.py'
python3 test_leap.py
EOF
env HOME="$home" AGENT_HOME="$home" PAGER=cat TERM=xterm-256color LANG=C.UTF-8 PATH="$PWD/target/debug:$PATH" \
  script -qec "bash $home/commands" /dev/null </dev/null | target/debug/examples/terminal_picture >docs/demo.svg
