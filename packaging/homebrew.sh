#!/bin/sh
# packaging/homebrew.sh VERSION SHA256SUMS: prints the formula of the release, for a tap.
set -eu
version=$1 sums=$2
hash_of() { sed -n "s/^\([0-9a-f]\{64\}\) [ *]agent-$1-unknown-linux-musl.tar.gz\$/\1/p" "$sums"; }
x86_64=$(hash_of x86_64) aarch64=$(hash_of aarch64)
[ -n "$x86_64" ] && [ -n "$aarch64" ] || { echo "homebrew.sh: $sums lacks a hash" >&2; exit 1; }
home=https://github.com/${GITHUB_REPOSITORY:-OWNER/agent}
releases=$home/releases/download
cat <<END
class Agentsandbox < Formula
  desc "Coding agent for the terminal: run anything in a sandbox, review one diff"
  homepage "$home"
  version "$version"
  license any_of: ["MIT", "Apache-2.0"]
  depends_on :linux

  on_intel do
    url "$releases/v$version/agent-x86_64-unknown-linux-musl.tar.gz"
    sha256 "$x86_64"
  end

  on_arm do
    url "$releases/v$version/agent-aarch64-unknown-linux-musl.tar.gz"
    sha256 "$aarch64"
  end

  def install
    bin.install "agent"
    man1.install "man/agent.1"
    bash_completion.install "completions/agent.bash" => "agent"
    zsh_completion.install "completions/agent.zsh" => "_agent"
    fish_completion.install "completions/agent.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/agent --version")
  end
end
END
