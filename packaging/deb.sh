#!/bin/sh
# packaging/deb.sh VERSION ARCHIVE ARCHITECTURE OUT: agentsandbox_VERSION_ARCHITECTURE.deb of what archive.sh packed, for Debian's amd64 or arm64.
set -eu
version=$1 archive=$2 architecture=$3 out=$4
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$work/archive" "$work/root/DEBIAN"
tar -xzf "$archive" -C "$work/archive"
cd "$work/archive"
share=$work/root/usr/share
install -D -m 755 agent "$work/root/usr/bin/agent"
install -D -m 644 completions/agent.bash "$share/bash-completion/completions/agent"
install -D -m 644 completions/agent.zsh "$share/zsh/vendor-completions/_agent"
install -D -m 644 completions/agent.fish "$share/fish/vendor_completions.d/agent.fish"
mkdir -p "$share/man/man1" "$share/doc/agentsandbox"
gzip -9n <man/agent.1 >"$share/man/man1/agent.1.gz"
gzip -9n <CHANGELOG.md >"$share/doc/agentsandbox/changelog.gz"
install -m 644 README.md "$share/doc/agentsandbox/README.md"
{
  echo "agent is licensed as MIT or Apache-2.0, of which you may choose one. On Debian the latter is /usr/share/common-licenses/Apache-2.0."
  echo
  cat LICENSE-MIT
} >"$share/doc/agentsandbox/copyright"
# The program is linked statically.
cat >"$work/root/DEBIAN/control" <<END
Package: agentsandbox
Version: $(echo "$version" | sed "s/-/~/")
Architecture: $architecture
Maintainer: The agent developers <agent@users.noreply.github.com>
Installed-Size: $(du -sk "$work/root/usr" | cut -f 1)
Recommends: git
Suggests: docker.io | podman
Section: devel
Priority: optional
Homepage: https://github.com/${GITHUB_REPOSITORY:-OWNER/agent}
Description: coding agent for the terminal
$(sed -n 's/^description = "\(.*\)"$/ \1./p' "$here/Cargo.toml" | head -n 1)
END
(cd "$work/root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group --build "$work/root" "$out/agentsandbox_${version}_$architecture.deb" >/dev/null
