//! The parts of this machine that a sandbox may see, read-only: the same list for the docker image `host` and for the
//! local backend.
//!
//! The list is made of what it allows, never of what it forbids: the system's own directories, the handful of `/etc`
//! entries that toolchains read, and the user's toolchains (`toolchains.rs`). Nothing else of `$HOME` is ever there.

use super::toolchains;
use agent_base::lock::Lock;
use agent_base::machine::Machine;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The parts of this machine that a sandbox sees, and the variables that make them usable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostTree {
    /// Read-only recursive bind mounts: the real path on the host (no symlink in it), and where it is inside. `/dev/null`
    /// covers what is not to be seen.
    /// A parent always stands before what is mounted below it.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Symlinks to make inside: the link's path, and what it says.
    pub symlinks: Vec<(PathBuf, PathBuf)>,
    /// `PATH` inside.
    pub path: String,
    /// The toolchains' directories of programs, as they are inside.
    bin_dirs: Vec<PathBuf>,
    /// Variables that the toolchains need (`JAVA_HOME`), never taken over unseen from the host.
    pub env: Vec<(String, String)>,
}

/// The system's directories. Where one is a symlink on this machine, it is one inside. Of `/nix` only what programs are
/// made of: beside it lie the sockets of its daemon. Of `/opt` see [`opt`].
const ROOTS: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/libexec",
    "/nix/store",
    "/nix/var/nix/profiles",
];

/// The entries of `/etc` that compilers, interpreters and libraries read, and that hold no secret. A `*` stands for the
/// rest of a name. `maven/settings.xml`, `ssl/private`, `apt/auth.conf`, `npmrc`, `pip.conf` and `gitconfig` may
/// hold credentials and are not among them; nor is `profile`, which would put another `PATH` in the place of ours.
const ETC: [&str; 47] = [
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "ca-certificates",
    "ca-certificates.conf",
    "pki/tls/certs",
    "pki/tls/cert.pem",
    "pki/tls/openssl.cnf",
    "pki/ca-trust",
    "crypto-policies",
    "static",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "java*",
    "jvm*",
    "python2*",
    "python3*",
    "perl",
    "php",
    "R",
    "julia",
    "dotnet",
    "maven/m2.conf",
    "maven/logging",
    "fonts",
    "matplotlibrc",
    "gdb",
    "groff",
    "localtime",
    "timezone",
    "locale.alias",
    "mime.types",
    "magic",
    "magic.mime",
    "protocols",
    "services",
    "rpc",
    "ethertypes",
    "terminfo",
    "os-release",
    "debian_version",
    "lsb-release",
    "redhat-release",
    "alpine-release",
    "xml",
];

/// Files in given directories that may hold credentials: an empty one is bound over each that is there. (Of `/etc`, such
/// files are not given in the first place.)
const CREDENTIALS: [&str; 10] = [
    "Renviron.site",
    "etc/npmrc",
    "etc/pip.conf",
    "etc/gemrc",
    "etc/gitconfig",
    "local/etc/npmrc",
    "local/etc/pip.conf",
    "local/etc/gemrc",
    "local/etc/gitconfig",
    "pip.conf",
];

/// Files that are covered beside those, and files of settings that are looked at.
const MAX_HIDDEN: usize = 256;
const MAX_LOOKED_AT: usize = 4096;

/// The directories that `PATH` has after those of the toolchains.
const STANDARD_PATH: [&str; 6] =
    ["/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// The time for which sandboxes share a look. What appears later on the machine is not covered in sandboxes that run
/// already either.
const USED_FOR: Duration = Duration::from_secs(1);

/// A look at a machine.
struct Look {
    at: Instant,
    tree: Arc<HostTree>,
    /// The names that were looked up, with whether each is a program's.
    programs: HashMap<String, bool>,
}

/// The last look at a machine, for all sandboxes that start within a second.
#[derive(Clone, Default)]
struct SharedLook(Arc<Lock<Option<Look>>>);

/// Lets sandboxes that start within a second look at `machine` together: many do in one process.
pub fn share_looks(machine: &Machine) {
    machine.keep(SharedLook::default());
}

/// Returns what of `machine` a sandbox sees.
pub fn host_tree(machine: &Machine) -> Arc<HostTree> {
    with_look(machine, |look| Arc::clone(&look.tree))
}

/// Those of `names` that are programs a sandbox sees, in the same order.
pub fn host_programs(machine: &Machine, names: &[&str]) -> Vec<String> {
    with_look(machine, |look| {
        let unknown: Vec<&str> =
            names.iter().copied().filter(|name| !look.programs.contains_key(*name)).collect();
        let found = look.tree.programs(&unknown);
        let known = unknown.iter().map(|name| ((*name).to_owned(), found.iter().any(|found| found == name)));
        look.programs.extend(known);
        let is_there = |name: &&&str| look.programs.get(**name) == Some(&true);
        names.iter().filter(is_there).map(|name| (*name).to_owned()).collect()
    })
}

fn with_look<T>(machine: &Machine, using: impl FnOnce(&mut Look) -> T) -> T {
    let look = || Look { at: Instant::now(), tree: Arc::new(look_at(machine)), programs: HashMap::new() };
    let Some(shared) = machine.kept::<SharedLook>() else { return using(&mut look()) };
    // Locked while somebody looks, so that the others wait for that look.
    let mut last = shared.0.lock();
    let is_recent = last.as_ref().is_some_and(|look| look.at.elapsed() < USED_FOR);
    using(match &mut *last {
        Some(look) if is_recent => look,
        other => other.insert(look()),
    })
}

/// Looks at the machine. Takes some milliseconds; what is not there or not readable is left out.
fn look_at(machine: &Machine) -> HostTree {
    let mut tree = HostTree::default();
    for root in ROOTS {
        tree.give(machine, Path::new(root));
    }
    for package in opt(machine) {
        tree.give(machine, &package);
    }
    for name in ETC {
        for entry in expand(&machine.on_host(Path::new("/etc")), name) {
            tree.give(machine, &Path::new("/etc").join(entry));
        }
    }
    let found = toolchains::find(machine);
    tree.binds.extend(found.binds);
    tree.symlinks.extend(found.symlinks);
    tree.hide_credentials();
    let sockets = fs::read_to_string(machine.on_host(Path::new("/proc/net/unix"))).unwrap_or_default();
    tree.hide(&bound_sockets(&sockets));
    tree.hide(&hidden_settings(machine, &tree.binds));
    tree.env = found.env;
    tree.bin_dirs = found.bin_dirs;
    tree.path = search_path(machine, &tree, Path::new(super::HOME), &|_| false);
    tree
}

impl HostTree {
    /// Those of `names` that are programs on [`HostTree::path`], in the same order.
    fn programs(&self, names: &[&str]) -> Vec<String> {
        let directories: Vec<PathBuf> =
            self.path.split(':').filter_map(|inside| self.on_host(Path::new(inside))).collect();
        let is_there = |name: &&&str| directories.iter().any(|directory| directory.join(name).is_file());
        names.iter().filter(is_there).map(|name| (*name).to_owned()).collect()
    }

    /// Returns the path on the host of something inside; `None` if it is not in a bind.
    fn on_host(&self, inside: &Path) -> Option<PathBuf> {
        let depth = |path: &Path| path.components().count();
        let binds = self
            .binds
            .iter()
            .filter_map(|(host, mount)| Some((depth(mount), host.join(inside.strip_prefix(mount).ok()?))));
        binds.max_by_key(|(depth, _)| *depth).map(|(_, host)| host)
    }

    /// Adds `path` as what it is on the host: a directory or file is bound; a symlink is made again where it
    /// leads to something that is given anyway, and replaced by what it leads to elsewhere.
    fn give(&mut self, machine: &Machine, path: &Path) {
        let host = machine.on_host(path);
        let Ok(metadata) = fs::symlink_metadata(&host) else { return };
        if metadata.is_symlink()
            && let Ok(target) = fs::read_link(&host)
            && self.shows(&lexically(path.parent().unwrap_or(Path::new("/")), &target))
        {
            self.symlinks.push((path.to_owned(), target));
            return;
        }
        let Ok(real) = fs::canonicalize(&host) else { return };
        if fs::metadata(&real).is_ok_and(|m| m.is_dir() || m.is_file()) {
            self.binds.push((real, path.to_owned()));
        }
    }

    fn hide_credentials(&mut self) {
        let files = self.binds.iter().flat_map(|(host, inside)| {
            let there = |name: &&&str| fs::symlink_metadata(host.join(name)).is_ok_and(|file| file.is_file());
            CREDENTIALS.iter().filter(there).map(|name| ("/dev/null".into(), inside.join(name)))
        });
        let hidden: Vec<_> = files.collect();
        self.binds.extend(hidden);
    }

    /// Covers files of the host, at most [`MAX_HIDDEN`], wherever they would be seen.
    fn hide(&mut self, files: &[PathBuf]) {
        let covers = files.iter().take(MAX_HIDDEN).flat_map(|file| {
            let inside =
                |(host, inside): &(PathBuf, PathBuf)| Some(inside.join(file.strip_prefix(host).ok()?));
            self.binds.iter().filter_map(inside).collect::<Vec<_>>()
        });
        let hidden: Vec<_> = covers.map(|inside| (PathBuf::from("/dev/null"), inside)).collect();
        self.binds.extend(hidden);
    }

    /// Returns whether `path` lies in something that is bound already.
    fn shows(&self, path: &Path) -> bool {
        self.binds.iter().any(|(_, inside)| path.starts_with(inside))
    }
}

/// The packages below `/opt` from which `PATH` takes programs. The others are nobody's tools, and may hold their
/// programs' secrets and sockets.
fn opt(machine: &Machine) -> Vec<PathBuf> {
    let opt = Path::new("/opt");
    let package = |dir: &PathBuf| Some(opt.join(dir.strip_prefix(opt).ok()?.components().next()?));
    let mut packages: Vec<PathBuf> = machine.path().iter().filter_map(package).collect();
    packages.sort();
    packages.dedup();
    packages
}

/// The paths of the Unix sockets that programs of this machine listen at (proc_net_unix(5)): a read-only mount does not keep
/// anybody from connecting. Abstract ones, whose names begin with `@`, belong to a network namespace.
fn bound_sockets(table: &str) -> Vec<PathBuf> {
    let path =
        |line: &str| line.split_whitespace().nth(7).filter(|path| path.starts_with('/')).map(PathBuf::from);
    let mut paths: Vec<PathBuf> =
        table.lines().skip(1).filter_map(path).filter(|path| path.exists()).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The caller's own files that nobody else may read, and sockets and FIFOs, in the directories of settings among `binds`
/// and in `/usr/local/etc`. Looks at a bounded number of files.
fn hidden_settings(machine: &Machine, binds: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
    let settings =
        binds.iter().filter(|(_, inside)| inside.starts_with("/etc")).map(|(host, _)| host.clone());
    let mut directories: Vec<PathBuf> =
        settings.chain([machine.on_host(Path::new("/usr/local/etc"))]).collect();
    let (mut found, mut looked_at) = (Vec::new(), 0);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                return found;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.is_file() && metadata.mode() & 0o077 == 0
                || metadata.file_type().is_socket()
                || metadata.file_type().is_fifo()
            {
                found.push(entry.path());
            }
        }
    }
    found
}

/// `target` as seen from the directory `base`, with `..` taken out without asking the file system.
fn lexically(base: &Path, target: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for component in base.join(target).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// The names below `directory` that `pattern` stands for: itself, or, with a `*` at its end, all that start so.
fn expand(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let Some(prefix) = pattern.strip_suffix('*') else { return vec![PathBuf::from(pattern)] };
    let mut names: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(PathBuf::from)
        .collect();
    names.sort();
    names
}

/// The sandbox's own installs first, then the host's `PATH` in its order as far as it is `shown`, the toolchains, the rest of
/// the host's as far as it is in the tree, and the standard directories.
pub(super) fn search_path(
    machine: &Machine,
    tree: &HostTree,
    home: &Path,
    shown: &dyn Fn(&Path) -> bool,
) -> String {
    let visible = |dir: &PathBuf| tree.binds.iter().any(|(_, inside)| dir.starts_with(inside));
    let mut dirs: Vec<PathBuf> = [".local/bin", ".cargo/bin"].iter().map(|dir| home.join(dir)).collect();
    let is_standard = |dir: &PathBuf| STANDARD_PATH.iter().any(|standard| dir == Path::new(standard));
    let special = || machine.path().iter().filter(|dir| !is_standard(dir));
    dirs.extend(special().filter(|dir| shown(dir)).cloned());
    dirs.extend(tree.bin_dirs.iter().cloned());
    dirs.extend(special().filter(|dir| visible(dir)).cloned());
    dirs.extend(STANDARD_PATH.iter().map(PathBuf::from));
    let mut path = String::new();
    let mut seen = Vec::new();
    for dir in dirs {
        // A directory with a colon in its name cannot stand in PATH; one that is not UTF-8 is nobody's toolchain.
        let Some(text) = dir.to_str().filter(|text| !text.contains(':')) else { continue };
        if !seen.contains(&dir) {
            if !path.is_empty() {
                path.push(':');
            }
            path.push_str(text);
            seen.push(dir);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn machine_with(files: &[&str]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let machine = Machine::made_up(root.path(), "/home/me", &[]);
        (root, machine)
    }

    fn insides(tree: &HostTree) -> Vec<&str> {
        tree.binds.iter().filter_map(|(_, inside)| inside.to_str()).collect()
    }

    #[test]
    fn a_merged_usr_stays_a_symlink_and_a_separate_bin_is_bound() {
        let (root, machine) = machine_with(&["usr/bin/sh", "sbin/init"]);
        symlink("usr/bin", root.path().join("bin")).unwrap();
        let tree = look_at(&machine);
        assert_eq!(insides(&tree), ["/usr", "/sbin"]);
        assert_eq!(tree.symlinks, [(PathBuf::from("/bin"), PathBuf::from("usr/bin"))]);
    }

    #[test]
    fn of_etc_only_what_toolchains_read() {
        let (root, machine) = machine_with(&[
            "usr/share/zoneinfo/UTC",
            "etc/shadow",
            "etc/ssl/private/key.pem",
            "etc/ssl/certs/ca.pem",
            "etc/ssh/ssh_host_key",
            "etc/docker/key.json",
            "etc/npmrc",
            "etc/pip.conf",
            "etc/maven/settings.xml",
            "etc/maven/m2.conf",
            "etc/java-17-openjdk/net.properties",
            "etc/hosts",
        ]);
        symlink("../usr/share/zoneinfo/UTC", root.path().join("etc/localtime")).unwrap();
        let tree = look_at(&machine);
        assert_eq!(insides(&tree), ["/usr", "/etc/ssl/certs", "/etc/java-17-openjdk", "/etc/maven/m2.conf"]);
        assert_eq!(tree.symlinks[0].0, Path::new("/etc/localtime"));
    }

    #[test]
    fn files_that_may_hold_credentials_are_covered() {
        let (_root, machine) = machine_with(&["usr/bin/node", "usr/etc/npmrc", "usr/local/etc/gitconfig"]);
        let tree = look_at(&machine);
        assert_eq!(insides(&tree), ["/usr", "/usr/etc/npmrc", "/usr/local/etc/gitconfig"]);
        assert!(tree.binds[1..].iter().all(|(host, _)| host == Path::new("/dev/null")));
    }

    #[test]
    fn a_link_to_what_is_not_given_is_replaced_by_what_it_leads_to() {
        let (root, machine) = machine_with(&["usr/bin/sh", "srv/zones/UTC"]);
        fs::create_dir_all(root.path().join("etc")).unwrap();
        symlink("../srv/zones/UTC", root.path().join("etc/localtime")).unwrap();
        let real = fs::canonicalize(root.path().join("srv/zones/UTC")).unwrap();
        assert!(look_at(&machine).binds.contains(&(real, "/etc/localtime".into())));
    }

    #[test]
    fn path_keeps_the_hosts_own_directories_where_they_are_visible() {
        let (root, _) = machine_with(&["usr/local/go/bin/go", "home/me/.local/bin/secret-tool"]);
        let machine = Machine::made_up(
            root.path(),
            "/home/me",
            &["/home/me/.local/bin", "/usr/local/go/bin", "/usr/bin"],
        );
        assert_eq!(
            look_at(&machine).path,
            "/home/agent/.local/bin:/home/agent/.cargo/bin:/usr/local/go/bin:/usr/local/bin:/usr/local/sbin:\
             /usr/bin:/usr/sbin:/bin:/sbin"
        );
    }

    #[test]
    fn sockets_and_private_settings_are_covered() {
        use std::os::unix::fs::PermissionsExt;
        let (root, machine) = machine_with(&["usr/share/x", "etc/php/secret.ini", "etc/php/php.ini"]);
        let secret = root.path().join("etc/php/secret.ini");
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
        let socket = root.path().join("usr/share/x");
        fs::create_dir_all(root.path().join("proc/net")).unwrap();
        let table =
            format!("Num RefCount …\n0: 2 0 10000 1 1 7 {}\n0: 2 0 0 1 1 8 @abstract\n", socket.display());
        fs::write(root.path().join("proc/net/unix"), table).unwrap();
        let tree = look_at(&machine);
        for covered in ["/usr/share/x", "/etc/php/secret.ini"] {
            assert!(
                tree.binds.contains(&("/dev/null".into(), covered.into())),
                "{covered}: {:?}",
                tree.binds
            );
        }
        assert!(!tree.binds.contains(&("/dev/null".into(), "/etc/php/php.ini".into())));
    }

    #[test]
    fn of_opt_only_what_path_names() {
        let (root, _) = machine_with(&["opt/used/bin/tool", "opt/other/socket"]);
        let machine = Machine::made_up(root.path(), "/home/me", &["/opt/used/bin", "/usr/bin"]);
        let tree = look_at(&machine);
        assert!(tree.shows(Path::new("/opt/used/bin")) && !tree.shows(Path::new("/opt/other")));
    }

    #[test]
    fn this_machine_has_a_usr_and_no_home() {
        let tree = look_at(&Machine::of_this_process());
        assert!(tree.shows(Path::new("/usr/bin")));
        for (_, inside) in &tree.binds {
            assert!(!inside.starts_with("/root") && !inside.starts_with("/home"), "{}", inside.display());
        }
    }

    #[test]
    fn sandboxes_share_a_look_where_the_machine_says_so() {
        let (root, machine) = machine_with(&["usr/bin/git"]);
        let sharing = Machine::made_up(root.path(), "/home/me", &[]);
        share_looks(&sharing);
        let found = |machine: &Machine| host_programs(machine, &["make", "git"]);
        assert_eq!((found(&machine), found(&sharing)), (vec!["git".to_owned()], vec!["git".to_owned()]));
        fs::write(root.path().join("usr/bin/make"), "x").unwrap();
        assert_eq!(found(&machine), ["make", "git"]);
        assert_eq!(found(&sharing.clone()), ["git"], "as it was within the last second");
        assert_eq!(host_tree(&sharing).binds, look_at(&machine).binds);
    }
}
