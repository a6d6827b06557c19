#!/usr/bin/env bash
# Proposes what the agent changed in the checkout: as a pull request, or on the pull request of the event as suggestions. It alone has the token.
set -euo pipefail
directory=$RUNNER_TEMP/agent
here=$(cd "$(dirname "$0")" && pwd)

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
  head -c 32768 "$directory/answer.txt" | sed 's/^/    /'
} >"$body"

if [ "$RESULT" = suggestion ]; then
  [ "$GITHUB_EVENT_NAME" = pull_request ] || { echo "::error title=agent::suggestions need the event pull_request" && exit 1; }
  git add --all
  git diff --cached --no-ext-diff --no-textconv --no-color --unified=0 --no-renames >"$directory/change.patch"
  python3 "$here/suggest.py" "$number" "$directory/change.patch" "$body"
  exit 0
fi

branch=agent/$GITHUB_RUN_ID-${GITHUB_RUN_ATTEMPT:-1}
# On the branch of a pull request, or on the branch of the job.
base=${GITHUB_HEAD_REF:-$GITHUB_REF_NAME}
git switch --quiet --create "$branch"
git add --all
printf '%s\n' "$title" | git -c user.name=agent -c user.email=agent@users.noreply.github.com -c core.hooksPath=/dev/null \
  commit --quiet --no-verify --file -
# In the environment of this one command: no file and no list of processes has the token.
basic=$(printf 'x-access-token:%s' "$GH_TOKEN" | base64 | tr -d '\n')
GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=http.extraheader GIT_CONFIG_VALUE_0="AUTHORIZATION: basic $basic" \
  GIT_CONFIG_KEY_1=core.hooksPath GIT_CONFIG_VALUE_1=/dev/null \
  git push --quiet "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY.git" "HEAD:refs/heads/$branch"
url=$(gh pr create --repo "$GITHUB_REPOSITORY" --head "$branch" --base "$base" --title "$title" --body-file "$body" | tail -n 1)
echo "pull-request=$url" >>"$GITHUB_OUTPUT"
