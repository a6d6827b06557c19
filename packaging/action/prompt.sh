#!/usr/bin/env bash
# Decides whether the agent works on this event, and writes the prompt to $RUNNER_TEMP/agent/prompt. What users wrote is read from the event's
# file and goes into files: no shell sees it as code.
set -euo pipefail

# Bytes of a prompt.
max=65536
directory=$RUNNER_TEMP/agent
mkdir -p "$directory"

event() { jq -r "$1 // empty" "$GITHUB_EVENT_PATH"; }
skip() {
  echo "::notice title=agent::$1"
  echo "go=false" >>"$GITHUB_OUTPUT"
  exit 0
}
fail() {
  echo "::error title=agent::$1"
  exit 1
}
# Whose words become a prompt: those who may change the repository anyway. A member or collaborator may be one who only reads, so GitHub is asked.
require_writer() {
  local login permission
  login=$(event "$1")
  # The name becomes a part of an address.
  [[ $login =~ ^[A-Za-z0-9][A-Za-z0-9_-]*(\[bot\])?$ ]] || skip "who wrote the $2 has no name"
  permission=$(gh api "repos/$GITHUB_REPOSITORY/collaborators/$login/permission" --jq .permission) || permission=unknown
  case $permission in
    admin | maintain | write) ;;
    unknown) skip "GitHub did not say whether $login may change this repository" ;;
    *) skip "who wrote the $2 cannot change this repository" ;;
  esac
}
# write NUMBER TITLE BODY: an issue or a pull request, as jq finds them.
write() {
  {
    printf 'The task is #%s of this repository.\n\n' "$(event "$1")"
    event "$2"
    echo
    event "$3"
  } >"$directory/all"
}

case $GITHUB_EVENT_NAME in
  # They have secrets, and may have checked out what a stranger wrote.
  pull_request_target | workflow_run) fail "it does not run on $GITHUB_EVENT_NAME: use pull_request, which gives forks no secrets" ;;
  pull_request)
    if [ "$(event .pull_request.head.repo.full_name)" != "$GITHUB_REPOSITORY" ]; then
      skip "pull requests of forks get no secrets, so there is no model to ask"
    fi
    ;;
esac

if [ "$MODE" = review ]; then
  :
elif [ -n "$PROMPT" ]; then
  printf '%s\n' "$PROMPT" >"$directory/all"
else
  case $GITHUB_EVENT_NAME in
    issues)
      if [ "$(event .action)" = labeled ]; then
        [ "$(event .label.name)" = "$LABEL" ] || skip "it works on issues with its label"
        # Those who only triage give labels too.
        require_writer .sender.login label
      else
        require_writer .issue.user.login issue
      fi
      write .issue.number .issue.title .issue.body
      ;;
    issue_comment)
      case $(event .comment.body) in /agent | "/agent "* | "/agent"$'\n'* | "/agent"$'\r'*) ;; *) skip "the comment does not begin with /agent" ;; esac
      require_writer .comment.user.login comment
      write .issue.number .issue.title .issue.body
      {
        printf '\nA comment says what to do:\n\n'
        event .comment.body | sed '1s|^/agent *||'
      } >>"$directory/all"
      ;;
    pull_request)
      require_writer .pull_request.user.login "pull request"
      write .pull_request.number .pull_request.title .pull_request.body
      ;;
    *) fail "there is no prompt: set the input prompt" ;;
  esac
fi
if [ -e "$directory/all" ]; then head -c $max "$directory/all" >"$directory/prompt"; fi
echo "go=true" >>"$GITHUB_OUTPUT"
