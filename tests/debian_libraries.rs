//! Packages of Debian as libraries of C: the real `apt-get`, in an image of Debian, with a repository of this test's.

use crate::support::agent::agent;
use crate::support::backends::backend;
use crate::support::site::Site;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Puts the programs of this machine that install packages and compile C into a tree of their own, with what they need.
const IMAGE: &str = r#"
set -eu
packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances --installed \
  gcc libc6-dev apt dpkg dash coreutils sed grep findutils tar | grep '^[a-z]' | sort -u)
dpkg-query -L $packages 2>/dev/null | grep -E '^/(usr/)?(bin|sbin|lib|lib64|include|libexec|share/dpkg)/' |
  grep -vE '/(gconv|systemd|perl)/|lto1$|lto-dump' | sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' | sort -u |
  while read -r file; do if [ -L "$file" ] || [ ! -d "$file" ]; then echo "$file"; fi; done > files
mkdir image
tar c --ignore-failed-read -T files 2>/dev/null | tar x -C image
for directory in bin sbin lib lib64; do ln -s usr/$directory image/$directory; done
mkdir -p image/etc/apt/apt.conf.d image/var/lib/dpkg image/var/lib/apt image/var/cache/apt image/tmp
cp /etc/ld.so.cache image/etc/
cp /var/lib/dpkg/status image/var/lib/dpkg/
echo "deb [trusted=yes] http://$1/ ./" > image/etc/apt/sources.list
tar c -C image . | docker import - "$2" >/dev/null
"#;

/// A package with a header and a library, and the list of a repository that has it.
const PACKAGE: &str = r#"
set -eu
multiarch=$(gcc -print-multiarch)
mkdir -p package/DEBIAN package/usr/include package/usr/lib/$multiarch repository
echo 'const char *agent_greet(void);' > package/usr/include/agentgreet.h
echo 'const char *agent_greet(void) { return "hello from a package"; }' > greet.c
cc -shared -fPIC greet.c -Wl,-soname,libagentgreet.so.1 -o package/usr/lib/$multiarch/libagentgreet.so.1
ln -s libagentgreet.so.1 package/usr/lib/$multiarch/libagentgreet.so
printf 'Package: libagentgreet-dev\nVersion: 1.0\nArchitecture: %s\nMaintainer: A <a@example.com>\nDescription: greets\n' \
  "$(dpkg --print-architecture)" > package/DEBIAN/control
dpkg-deb --build package repository/greet.deb >/dev/null
cd repository
{ cat ../package/DEBIAN/control; echo Filename: ./greet.deb; echo "Size: $(stat -c %s greet.deb)"
  echo "SHA256: $(sha256sum greet.deb | cut -d' ' -f1)"; } > Packages
"#;

fn sh(directory: &Path, script: &str, arguments: &[&str]) {
    let output =
        Command::new("sh").args(["-c", script, "sh"]).args(arguments).current_dir(directory).output();
    let output = output.expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Removed when the test ends, however it ends.
struct Image(String);

impl Drop for Image {
    fn drop(&mut self) {
        // The prepared image is made from it. What cannot be removed is an image too many.
        let prepared = format!("docker rmi $(docker images -q --filter label=agent.image={0}) {0}", self.0);
        let _ = Command::new("sh").args(["-c", &prepared]).output();
    }
}

#[tokio::test]
async fn a_debian_package_is_a_library_of_c_in_an_image_of_debian() {
    if backend("docker").await.is_none() || !Path::new("/var/lib/dpkg/status").exists() {
        return;
    }
    let made = tempfile::tempdir().expect("a directory");
    sh(made.path(), PACKAGE, &[]);
    let repository = Site::http().directory("/.", &made.path().join("repository"));
    let image = Image(format!("local.test/debian-{}", std::process::id()));
    sh(made.path(), IMAGE, &[&repository.host_and_port(), &image.0]);
    let network = format!("registries,{}", repository.host_and_port());
    let code = "#include <agentgreet.h>\n#include <stdio.h>\nint main(void) { puts(agent_greet()); }\n";
    let finished = agent()
        .args(["code", "--sandbox", "docker", "--image", &image.0, "--network", &network])
        .args(["-l", "c", "--lib", "libagentgreet-dev", "-"])
        .stdin(code)
        .deadline(Duration::from_secs(600))
        .run()
        .expect_code(0);
    assert_eq!(finished.stdout, "hello from a package\n", "{}", finished.stderr);
    let requests = repository.requests();
    assert!(requests.iter().any(|head| head.contains("/greet.deb")), "{requests:?}");
}
