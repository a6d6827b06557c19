#!/bin/sh
# Run the agent as a step of any pipeline: ./agent.sh "the prompt" "the check"
# Leaves events.jsonl and answer.txt, writes the change into the current directory, and passes the exit code on.
set -u
prompt=${1:?usage: agent.sh PROMPT [CHECK]}
check=${2:-true}

agent run "$prompt" --check "$check" --apply --json --output answer.txt >events.jsonl
code=$?

case $code in
  0) echo "done: $(head -n 1 answer.txt)" ;;
  3) echo "the model endpoint failed; a retry of the job may help" ;;
  4) echo "no sandbox: is Docker running here? see agent doctor" ;;
  5) echo "a limit was reached" ;;
  6) echo "the check did not pass: nothing was written" ;;
  7) echo "files changed meanwhile: nothing was written" ;;
  *) echo "failed with $code" ;;
esac
exit $code
