#!/usr/bin/env bash
# Installs the agent of a release for this job, unless the input names one that is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if [ -z "$PROGRAM" ]; then
  export AGENT_INSTALL_DIR=$RUNNER_TEMP/agent/bin
  # The releases of the repository that this action comes from.
  [ -z "$ACTION_REPOSITORY" ] || export AGENT_RELEASES=${AGENT_RELEASES:-$GITHUB_SERVER_URL/$ACTION_REPOSITORY/releases}
  # A machine that outlives the job may have an `agent` of its user, whose receipt stays as it is.
  AGENT_HOME=$RUNNER_TEMP/agent/home AGENT_REQUIRE_SIGNATURE=true sh "$here/../install.sh"
  PROGRAM=$AGENT_INSTALL_DIR/agent
fi
"$PROGRAM" --version --verbose
echo "program=$PROGRAM" >>"$GITHUB_OUTPUT"
