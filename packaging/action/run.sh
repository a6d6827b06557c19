#!/usr/bin/env bash
# Runs the agent on the prompt; a change that passed its check is written into the checkout. Always ends with 0: `exit-code` is an output.
set -uo pipefail
directory=$RUNNER_TEMP/agent
mkdir -p "$directory"

arguments=(run - --apply --json --output "$directory/answer.txt")
[ -z "$CHECK" ] || arguments+=(--check "$CHECK")
[ -z "$MAX_TURNS" ] || arguments+=(--max-turns "$MAX_TURNS")
[ -z "$MAX_TIME" ] || arguments+=(--max-time "$MAX_TIME")
[ -z "$MAX_COST" ] || arguments+=(--max-cost "$MAX_COST")

# The runner takes nothing that programs print for a command.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$token"
"$PROGRAM" "${arguments[@]}" <"$directory/prompt" >"$directory/events.jsonl"
code=$?
echo "::$token::"
{
  echo "exit-code=$code"
  echo "events=$directory/events.jsonl"
} >>"$GITHUB_OUTPUT"
