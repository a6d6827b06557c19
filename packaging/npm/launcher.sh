#!/bin/sh
# packaging/npm/launcher.sh VERSION OUT ARCHITECTURE ...: makes the npm package `agentsandbox` in OUT: a launcher, and a package with the
# program for each architecture (pack.sh) as an optional dependency. npm installs the one whose `os` and `cpu` fit.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$1 out=$2
shift 2
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

dependencies=
for architecture in "$@"; do
  dependencies="$dependencies${dependencies:+, }\"agentsandbox-linux-$architecture\": \"$version\""
done
cp "$here/agent.js" "$here/../../README.md" "$here/../../LICENSE-MIT" "$here/../../LICENSE-APACHE" "$work"
cat >"$work/package.json" <<END
{
  "name": "agentsandbox",
  "version": "$version",
  "description": "A coding agent for the terminal: let it do anything, nothing it does can hurt you, review one diff at the end",
  "license": "MIT OR Apache-2.0",
  "bin": { "agent": "agent.js" },
  "files": ["agent.js"],
  "engines": { "node": ">=18" },
  "optionalDependencies": { $dependencies }
}
END
cd "$work"
npm pack --silent --pack-destination "$out" >/dev/null
