#!/usr/bin/env bash
# Reviews the change, as SARIF. Always ends with 0: `exit-code` is an output.
set -uo pipefail
directory=$RUNNER_TEMP/agent
mkdir -p "$directory"
sarif=$directory/review.sarif

if [ -z "$BASE" ]; then BASE=$(jq -r '.pull_request.base.sha // empty' "$GITHUB_EVENT_PATH"); fi
arguments=(review --format sarif)
[ -z "$SEVERITY" ] || arguments+=(--severity "$SEVERITY")
[ -z "$MAX_TURNS" ] || arguments+=(--max-turns "$MAX_TURNS")
[ -z "$MAX_TIME" ] || arguments+=(--max-time "$MAX_TIME")
[ -z "$MAX_COST" ] || arguments+=(--max-cost "$MAX_COST")
[ -z "$BASE" ] || arguments+=(-- "$BASE")

# The runner takes nothing that programs print for a command.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$token"
"$PROGRAM" "${arguments[@]}" >"$sarif"
code=$?
echo "::$token::"

case $code in
  0 | 6)
    findings=$(jq '.runs[0].results | length' "$sarif")
    {
      printf '### agent review: %s finding%s\n\n' "$findings" "$([ "$findings" = 1 ] || echo s)"
      # Indented, Markdown has no links, mentions or pictures in it.
      jq -r '.runs[0].results[] | "    \(.level) \(.locations[0].physicalLocation | "\(.artifactLocation.uri):\(.region.startLine)") " +
        (.message.text | split("\n")[0])' "$sarif"
    } >>"$GITHUB_STEP_SUMMARY"
    {
      echo "sarif=$sarif"
      echo "findings=$findings"
    } >>"$GITHUB_OUTPUT"
    ;;
esac
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
