//! Packages of Debian as libraries of C and C++: the real `apt-get`, in an image of Debian, with a repository of this test's.

use agent_testbed::agent::agent;
use agent_testbed::backends::backend;
use agent_testing::site::Site;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Puts the programs of this machine that install packages and compile C into a tree of their own, with what they need.
const IMAGE: &str = r#"
set -eu
packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances --installed \
  g++ gcc libc6-dev apt dpkg dash coreutils sed grep findutils tar | grep '^[a-z]' | sort -u)
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

/// Packages with a header and a library, one of C and one of C++, and the list of a repository that has them.
const PACKAGES: &str = r#"
set -eu
multiarch=$(gcc -print-multiarch)
mkdir repository
# NAME LIBRARY HEADER
package() {
  file=$(echo $1.deb | tr + p)
  mkdir -p $1/DEBIAN $1/usr/include $1/usr/lib/$multiarch
  mv $3 $1/usr/include/
  mv $2.so.1 $1/usr/lib/$multiarch/
  ln -s $2.so.1 $1/usr/lib/$multiarch/$2.so
  printf 'Package: %s\nVersion: 1.0\nArchitecture: %s\nMaintainer: A <a@example.com>\nDescription: greets\n' \
    "$1" "$(dpkg --print-architecture)" > $1/DEBIAN/control
  dpkg-deb --build $1 repository/$file >/dev/null
  { cat $1/DEBIAN/control; echo "Filename: ./$file"; echo "Size: $(stat -c %s repository/$file)"
    echo "SHA256: $(sha256sum repository/$file | cut -d' ' -f1)"; echo; } >> repository/Packages
}
echo 'const char *agent_greet(void);' > agentgreet.h
echo 'const char *agent_greet(void) { return "hello from a package"; }' > greet.c
cc -shared -fPIC greet.c -Wl,-soname,libagentgreet.so.1 -o libagentgreet.so.1
package libagentgreet-dev libagentgreet agentgreet.h
echo '#include <string>
namespace agent { struct Greeter { std::string name; std::string greet() const; }; }' > agentgreet.hpp
echo '#include "agentgreet.hpp"
std::string agent::Greeter::greet() const { return "hello, " + name; }' > greet.cpp
c++ -shared -fPIC greet.cpp -Wl,-soname,libagentgreet++.so.1 -o libagentgreet++.so.1
package libagentgreet++-dev libagentgreet++ agentgreet.hpp
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
async fn a_debian_package_is_a_library_of_c_and_of_cpp_in_an_image_of_debian() {
    if backend("docker").await.is_none() || !Path::new("/var/lib/dpkg/status").exists() {
        return;
    }
    let made = tempfile::tempdir().expect("a directory");
    sh(made.path(), PACKAGES, &[]);
    let repository = Site::http().directory("/.", &made.path().join("repository"));
    let image = Image(format!("local.test/debian-{}", std::process::id()));
    sh(made.path(), IMAGE, &[&repository.host_and_port(), &image.0]);
    let network = format!("registries,{}", repository.host_and_port());
    let c = "#include <agentgreet.h>\n#include <stdio.h>\nint main(void) { puts(agent_greet()); }\n";
    // Beside the standard headers that are compiled once.
    let cpp = "#include <agentgreet.hpp>\n#include <iostream>\n#include <map>\n\
               int main() { std::cout << agent::Greeter{\"C++\"}.greet() << '\\n'; }\n";
    let first = agent();
    for (language, library, file, code, printed) in [
        ("c", "libagentgreet-dev", "/libagentgreet-dev.deb", c, "hello from a package\n"),
        ("cpp", "libagentgreet++-dev=1.0", "/libagentgreetpp-dev.deb", cpp, "hello, C++\n"),
    ] {
        let finished = first
            .again()
            .args(["code", "--sandbox", "docker", "--image", &image.0, "--network", &network])
            .args(["-l", language, "--lib", library, "-"])
            .stdin(code)
            .deadline(Duration::from_secs(600))
            .run()
            .expect_code(0);
        assert_eq!(finished.stdout, printed, "{}", finished.stderr);
        let requests = repository.requests();
        assert!(requests.iter().any(|head| head.contains(file)), "{requests:?}");
    }
}
