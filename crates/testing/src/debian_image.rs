//! Images of this machine's packages, made without a network.

use super::skip;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes the image $1: a small Debian of this machine's packages, whose own repository has no others. $2... are packages.
const BASE: &str = r#"
set -eu
image=$1
shift
packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances --installed \
  apt base-files bash coreutils dash dpkg findutils grep gzip hostname login mawk passwd sed tar util-linux "$@" | grep '^[a-z]' | sort -u)
dpkg-query -L $packages 2>/dev/null | grep -E '^/(etc|(usr/)?(bin|sbin|lib|lib64|libexec|share))/' |
  grep -vE '^/usr/share/(doc|man|locale|info|zoneinfo)/' | sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' | sort -u |
  while read -r file; do if [ -L "$file" ] || [ -f "$file" ]; then echo "$file"; fi; done > files
mkdir image
tar c --ignore-failed-read -T files 2>/dev/null | tar x -C image
for directory in bin sbin lib lib64; do ln -s usr/$directory image/$directory; done
mkdir -p image/etc/apt/preferences.d image/etc/ssl/certs image/var/lib/dpkg image/var/lib/apt image/var/cache/apt image/var/log image/tmp image/opt/repository image/home image/root
chmod 1777 image/tmp
cp -r /etc/alternatives /etc/ld.so.cache image/etc/
cp /etc/ssl/certs/ca-certificates.crt image/etc/ssl/certs/
cp /usr/share/base-passwd/passwd.master image/etc/passwd
cp /usr/share/base-passwd/group.master image/etc/group
[ -e image/usr/bin/awk ] || ln -sf mawk image/usr/bin/awk
# Links of alternatives belong to no package.
for known in /var/lib/dpkg/alternatives/*; do
  link=$(sed -n 2p "$known")
  case $link in /usr/lib/*) [ -e "image$link" ] || [ ! -d "image${link%/*}" ] || ln -s "/etc/alternatives/${known##*/}" "image$link" ;; esac
done
# What is not configured here would be there.
sed -E 's/^Status: (install|hold) ok (unpacked|half-configured|triggers-.*)$/Status: install ok installed/' /var/lib/dpkg/status >image/var/lib/dpkg/status
: > image/opt/repository/Packages
echo 'deb [trusted=yes] file:/opt/repository ./' > image/etc/apt/sources.list
tar c -C image --owner=0 --group=0 . | docker import - "$image" >/dev/null
"#;

/// The name of an image that is removed when the test ends, however it ends.
pub struct DebianImage(pub String);

impl Drop for DebianImage {
    fn drop(&mut self) {
        let _ = docker(&["rmi", "--force", &self.0]);
    }
}

impl DebianImage {
    /// Makes one with these packages and what they need, in an empty directory; `None` where this machine lacks one.
    pub fn of(packages: &[&str], directory: &Path) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        for package in packages {
            let list = Command::new("dpkg-query").args(["-L", package]).output();
            if !list.is_ok_and(|list| list.status.success()) {
                skip::missing(format!("{package} (Debian: apt install {package})"));
                return None;
            }
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let image = Self(format!("local.test/debian-{}-{number}:1", std::process::id()));
        let mut base = Command::new("sh");
        base.args(["-c", BASE, "sh", &image.0]).args(packages).current_dir(directory);
        succeeded(&base.output().expect("a shell"));
        Some(image)
    }
}

/// Runs Docker's command line.
pub fn docker(arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).stdin(Stdio::null()).output().expect("docker starts")
}

/// The output of a program, which has to have succeeded.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}
