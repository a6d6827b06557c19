#!/bin/sh
# Installs `agent` for this user: curl -fsSL https://github.com/OWNER/agent/releases/latest/download/install.sh | sh
#
#   AGENT_VERSION      a version in place of the newest
#   AGENT_INSTALL_DIR  where the program goes (default: ~/.local/bin)
#   AGENT_RELEASES     where the releases are (default: https://github.com/OWNER/agent/releases)
#
# Nothing is installed whose hash is not that of the release. `agent update` replaces what is installed, and has the release's key from here:
# where that is set, its list of hashes has to be signed with it. Here minisign checks that, where it is installed.
set -eu

# The releases' public key, in minisign's form; the workflow of the release sets it.
KEY=

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

fetch() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --retry 3 --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --tries 3 --output-document "$2" "$1"
  else
    fail "neither curl nor wget is here"
  fi || fail "$1 could not be fetched"
}

# The receipt that `agent update` reads.
note() {
  if [ -n "${AGENT_HOME:-}" ]; then data=$AGENT_HOME/data; else data=${XDG_DATA_HOME:-$HOME/.local/share}/agent; fi
  mkdir -p "$data"
  hash=$(cd "$work" && sha256sum "$archive" | cut -c1-64)
  printf '%s\n%s\n%s\n%s\n' "$(cd "$directory" && pwd)/agent" "$releases" "$hash" "$KEY" >"$data/installed.new"
  mv "$data/installed.new" "$data/installed"
}

# The whole script is read before anything runs: a transfer that breaks off runs nothing.
main() {
  [ "$(uname -s)" = Linux ] || fail "there are releases for Linux only; elsewhere: cargo install --path . --locked"
  case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no release for $(uname -m); build it: cargo install --path . --locked" ;;
  esac
  releases=${AGENT_RELEASES:-https://github.com/OWNER/agent/releases}
  if [ -n "${AGENT_VERSION:-}" ]; then from=$releases/download/v$AGENT_VERSION; else from=$releases/latest/download; fi
  directory=${AGENT_INSTALL_DIR:-${HOME:?HOME is not set}/.local/bin}
  archive=agent-$machine-unknown-linux-musl.tar.gz

  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  fetch "$from/SHA256SUMS" "$work/SHA256SUMS"
  fetch "$from/$archive" "$work/$archive"
  (cd "$work" && grep " [ *]\{0,1\}$archive\$" SHA256SUMS | sha256sum --check --status -) ||
    fail "the hash of $archive is not that of the release: nothing was installed"

  if [ -n "$KEY" ] && command -v minisign >/dev/null; then
    fetch "$from/SHA256SUMS.minisig" "$work/SHA256SUMS.minisig"
    minisign -Vqm "$work/SHA256SUMS" -P "$KEY" || fail "the signature of the release is not valid: nothing was installed"
  fi

  tar -xzf "$work/$archive" -C "$work" agent
  mkdir -p "$directory"
  # A running program keeps its file: a rename replaces the name alone.
  cp "$work/agent" "$directory/.agent.new"
  chmod 755 "$directory/.agent.new"
  mv "$directory/.agent.new" "$directory/agent"
  note
  echo "$("$directory/agent" --version) is in $directory"
  case :$PATH: in
    *:"$directory":*) ;;
    *) echo "put it on PATH: export PATH=\"$directory:\$PATH\"" ;;
  esac
}

main
