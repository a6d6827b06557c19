#!/usr/bin/env bash
# Makes docs/demo.svg from a real run of the demo.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --bin agent --example terminal_picture
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
run="stty columns 104 rows 60; exec env HOME=$home TERM=xterm-256color LANG=C.UTF-8 target/debug/agent demo sum"
script -qec "$run" /dev/null </dev/null | target/debug/examples/terminal_picture >docs/demo.svg
