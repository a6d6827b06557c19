#!/bin/sh
# Installs `agent` for this user: curl -fsSL https://github.com/OWNER/agent/releases/latest/download/install.sh | sh
#
#   AGENT_VERSION      a version in place of the newest
#   AGENT_INSTALL_DIR  where the program goes (default: ~/.local/bin)
#   AGENT_RELEASES     where the releases are (default: https://github.com/OWNER/agent/releases)
#   AGENT_REQUIRE_SIGNATURE  set: with KEY below, nothing is installed where the signature cannot be checked
#
# Nothing is installed whose hash is not that of the release. `agent update` replaces what is installed, and has the release's key from here:
# where that is set, its list of hashes has to be signed with it. Here minisign or OpenSSL 3 checks that.
set -eu

# The releases' public key, in minisign's form; a release is made only where it is the one that signs.
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

# Checks the list of hashes. 2: nothing here can.
check_signature() {
  if command -v minisign >/dev/null; then
    minisign -Vqm "$work/SHA256SUMS" -P "$KEY" || return 1
  elif openssl version 2>/dev/null | grep -q '^OpenSSL [3-9]'; then
    # Two letters and eight bytes of a number stand before the key and the signature, which is one of the BLAKE2b hash.
    {
      printf '\060\052\060\005\006\003\053\145\160\003\041\000'
      printf %s "$KEY" | openssl base64 -d -A | tail -c +11
    } >"$work/key"
    sed -n 2p "$work/SHA256SUMS.minisig" | tr -d '\r\n' | openssl base64 -d -A | tail -c +11 >"$work/signature"
    openssl dgst -blake2b512 -binary "$work/SHA256SUMS" >"$work/digest"
    openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key" -rawin -in "$work/digest" -sigfile "$work/signature" >/dev/null 2>&1 || return 1
  else
    return 2
  fi
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

  if [ -n "$KEY" ]; then
    fetch "$from/SHA256SUMS.minisig" "$work/SHA256SUMS.minisig"
    status=0
    check_signature || status=$?
    case $status in
      0) ;;
      2)
        [ -z "${AGENT_REQUIRE_SIGNATURE:-}" ] || fail "neither minisign nor OpenSSL 3 is here to check the signature: nothing was installed"
        echo "install.sh: the signature was not checked: neither minisign nor OpenSSL 3 is here" >&2
        ;;
      *) fail "the signature of the release is not valid: nothing was installed" ;;
    esac
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
