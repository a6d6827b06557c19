#!/bin/sh
# packaging/npm/pack.sh VERSION OUT ARCHITECTURE=PROGRAM: makes the npm package with the program for x64 or arm64 in OUT.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$1 out=$2 architecture=${3%%=*} program=${3#*=}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

name=agentsandbox-linux-$architecture
mkdir "$work/bin"
install -m 755 "$program" "$work/bin/agent"
cp "$here/../../LICENSE-MIT" "$here/../../LICENSE-APACHE" "$work"
cat >"$work/package.json" <<END
{
  "name": "$name",
  "version": "$version",
  "description": "The program of agentsandbox for Linux on $architecture",
  "license": "MIT OR Apache-2.0",
  "os": ["linux"],
  "cpu": ["$architecture"],
  "files": ["bin"]
}
END
cd "$work"
npm pack --silent --pack-destination "$out" >/dev/null
