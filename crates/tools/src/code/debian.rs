//! Debian packages as libraries of C and C++: unpacked into the sandbox's own directory, because nobody inside may install.

use super::CACHE;

/// Fetches packages and what they depend on, unpacks them, and writes down for each what its programs are linked with.
/// The lists are fetched once a sandbox. A link to a library that the image has itself is turned to that one.
pub const INSTALL: &str = r#"d=$PWD/debian
[ -e /var/lib/dpkg/status ] && [ -d /etc/apt ] || { echo 'this image has no packages of Debian: use one that has (--image)' >&2; exit 1; }
mkdir -p $d/root $d/libs $d/lists/partial $d/cache/archives/partial
apt() { apt-get -qq -o Dir::State::Lists=$d/lists -o Dir::Cache=$d/cache -o Dir::Log=$d -o Debug::NoLocking=1 \
  -o APT::Sandbox::User= -o Acquire::Retries=2 --no-install-recommends "$@"; }
[ -e $d/updated ] || { apt update && : > $d/updated; } || exit
apt install -y --download-only -- "$@" || exit
for deb in $d/cache/archives/*.deb; do
  [ -e "$deb" ] || continue
  dpkg-deb -x "$deb" $d/root || exit
done
for package; do
  name=${package%%=*}
  deb=$(ls $d/cache/archives/${name}_*.deb 2>/dev/null)
  if [ -n "$deb" ]; then dpkg-deb -c $deb; else dpkg -L "$name"; fi |
    sed -n 's#.*/lib\([^/ ]*\)\.so\( -> .*\)\{0,1\}$#-l\1#p' | sort -u > $d/libs/$name
done
rm -f $d/cache/archives/*.deb
find $d/root -name '*.so' -xtype l | while read -r link; do
  there=$(find /usr/lib /lib -name "$(basename "$(readlink "$link")")" 2>/dev/null | head -n 1)
  [ -z "$there" ] || ln -sf "$there" "$link"
done"#;

/// Returns what a compiler gets in `$libraries` for programs with these packages; a piece of shell.
pub fn flags(compiler: &str, packages: &[&str]) -> String {
    if packages.is_empty() {
        return "libraries=".to_owned();
    }
    let names = packages.join(" ");
    format!(
        "d={CACHE}/cpp/debian; m=$({compiler} -print-multiarch); u=$d/root/usr\n\
         libraries=\"-isystem $u/include -isystem $u/include/$m -L$u/lib/$m -L$d/root/lib/$m -L$u/lib \
         -Wl,-rpath,$u/lib/$m:$d/root/lib/$m:$u/lib -Wl,--as-needed $(cd $d/libs && cat {names} | tr '\\n' ' ')\""
    )
}
