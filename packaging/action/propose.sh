#!/usr/bin/env bash
# Proposes what the agent changed in the checkout: as a pull request, or on the pull request of the event as suggestions. After prompt.sh it alone
# has the token.
set -euo pipefail
directory=$RUNNER_TEMP/agent
here=$(cd "$(dirname "$0")" && pwd)

# Nothing that the agent wrote runs here: no hook, no monitor of files, and no filter, whatever an earlier step configured.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false
if filters=$(git config --get-regexp '^filter\..*\.(clean|process)$' | grep -v '^filter\.lfs\.') && [ -n "$filters" ]; then
  echo "::error title=agent::git is configured to run a filter, which could be a program that the agent wrote: unset filter.*.clean before this step"
  exit 1
fi
# In the environment of the two commands that need it.
token=$GH_TOKEN
export -n GH_TOKEN
GH_TOKEN=

event() { jq -r "$1 // empty" "$GITHUB_EVENT_PATH"; }

if [ -z "$(git status --porcelain)" ]; then
  echo "::notice title=agent::nothing was changed"
  echo "changed=false" >>"$GITHUB_OUTPUT"
  exit 0
fi
echo "changed=true" >>"$GITHUB_OUTPUT"
[ "$RESULT" != none ] || exit 0
if [ -n "$(git status --porcelain -- .github/workflows)" ]; then
  echo "::error title=agent::the change touches .github/workflows, which the token of a job cannot write: apply it by hand"
  exit 1
fi

number=$(event '.pull_request.number // .issue.number')
# The first line of what was asked, without what controls anything.
title=$(sed '1{/^The task is #[0-9]* of this repository\.$/d}' "$directory/prompt" | grep -m 1 '[^[:space:]]' | tr -d '\000-\037\177' | cut -c 1-72 || true)
title=${title:-Change by agent}
body=$directory/body.md
{
  [ "$GITHUB_EVENT_NAME" != issues ] || printf 'For #%s. ' "$number"
  printf 'Made by [this run](%s/%s/actions/runs/%s). Its answer:\n\n' "$GITHUB_SERVER_URL" "$GITHUB_REPOSITORY" "$GITHUB_RUN_ID"
  # Indented, Markdown has no links, mentions or pictures in it.
  # Of blank lines alone it becomes five times as long, and GitHub takes 65,536 characters.
  head -c 12288 "$directory/answer.txt" | sed 's/^/    /'
} >"$body"

if [ "$RESULT" = suggestion ]; then
  [ "$GITHUB_EVENT_NAME" = pull_request ] || { echo "::error title=agent::suggestions need the event pull_request" && exit 1; }
  git add --all
  git diff --cached --no-ext-diff --no-textconv --no-color --unified=0 --no-renames >"$directory/change.patch"
  GH_TOKEN=$token python3 "$here/suggest.py" "$number" "$directory/change.patch" "$body"
  exit 0
fi

branch=agent/$GITHUB_RUN_ID-${GITHUB_RUN_ATTEMPT:-1}
# On the branch of a pull request, or on the branch of the job.
base=${GITHUB_HEAD_REF:-$GITHUB_REF_NAME}
git switch --quiet --create "$branch"
git add --all
printf '%s\n' "$title" | git -c user.name=agent -c user.email=agent@users.noreply.github.com \
  commit --quiet --no-verify --file -
# In the environment of this one command: no file and no list of processes has the token.
# The empty value drops what a checkout has kept for this server.
basic=$(printf 'x-access-token:%s' "$token" | base64 | tr -d '\n')
field=http.$GITHUB_SERVER_URL/.extraheader
GIT_CONFIG_COUNT=4 GIT_CONFIG_KEY_2=$field GIT_CONFIG_VALUE_2= GIT_CONFIG_KEY_3=$field GIT_CONFIG_VALUE_3="AUTHORIZATION: basic $basic" \
  git push --quiet "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY.git" "HEAD:refs/heads/$branch"
url=$(GH_TOKEN=$token gh pr create --repo "$GITHUB_REPOSITORY" --head "$branch" --base "$base" --title "$title" --body-file "$body" | tail -n 1)
echo "pull-request=$url" >>"$GITHUB_OUTPUT"
