//! The sandbox's file system: a new root on a tmpfs, the host's tree bound read-only, private `/proc`, `/dev`, `/tmp`.

use super::step::{FailedStep, Step};
use super::sys::{self, MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT};
use super::{HOME, InitPlan, WORKSPACE, idmap};
use agent_wire::launch_spec::LaunchSpec;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// The new root, which is the current directory while it is made: its own path is longer, and walked with every system call.
const ROOT: &str = ".";
/// A link to the directory of this process's descriptors, for as long as the new root is made.
const DESCRIPTORS: &str = "fd";
/// The directory of the host's `/etc`, for as long as the new root is made.
const ETC: &str = "etc.host";
/// The mount point of a tree whose owners are mapped, while an overlay is made of it.
const LOWER: &str = "lower";
/// The mount point of one that lies above it.
const BENEATH: &str = "beneath";
/// The directory in which the guest finds its control groups' counters.
const CGROUP_FILES: &str = "run/agent/cgroup";
/// Device files that are the host's own, bound one by one.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Parts of `/proc` that are hidden, and those that are read-only: the lists of the OCI runtimes' defaults.
const MASKED: [&str; 11] = [
    "acpi",
    "asound",
    "interrupts",
    "kcore",
    "keys",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// Builds the new root in the private directory's `root` and makes it `/`. Called in the new mount namespace.
pub fn enter_new_root(plan: &InitPlan<'_>) -> Result<(), FailedStep> {
    let InitPlan { spec, private, .. } = *plan;
    let none = Path::new("none");
    let empty = OsStr::new("");
    sys::mount_at(none, Path::new("/"), "", MS_REC | MS_PRIVATE, empty).step("make the mounts private")?;
    let new_root = private.join("root");
    tmpfs(&new_root, "mode=0755,size=16m", 0)?;
    std::env::set_current_dir(&new_root).step("enter the new root")?;
    let root = Path::new(ROOT);
    for directory in ["dev", "etc", "home", "proc", "run", "tmp", "var"] {
        fs::create_dir(root.join(directory)).step("make the directories of the root")?;
    }
    symlink("../tmp", root.join("var/tmp")).step("link /var/tmp")?;
    symlink("../run", root.join("var/run")).step("link /var/run")?;
    // What programs written for hosted sandboxes call their home.
    const CLIENT_HOME: &str = "/home/user";
    if ![plan.home(), plan.place()].iter().any(|path| path.starts_with(CLIENT_HOME)) {
        symlink("agent", below(root, Path::new(CLIENT_HOME))).step("link /home/user")?;
    }
    for (link, target) in &spec.symlinks {
        let link = below(root, link);
        make_parent(&link).and_then(|()| symlink(target, &link)).step_at("link", &link)?;
    }
    symlink("/proc/self/fd", DESCRIPTORS).step("link the descriptors")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").step("read the mounts")?;
    let mounts: Vec<PathBuf> =
        mounts.lines().filter_map(mount_point_and_flags).map(|(path, _)| path).collect();
    // One file system for all directories of /etc: the kernel makes and removes each, and looks at all there are whenever a
    // control group is removed.
    fs::create_dir(ETC).step("make a mount point")?;
    let has_etc = overlay(Path::new("/etc"), Path::new(ETC), &mounts);
    for (host, inside) in &spec.binds {
        match host.strip_prefix("/etc").map(|name| Path::new(ETC).join(name)) {
            Ok(directory) if has_etc && host == inside && directory.is_dir() => {
                bind_as_it_is(&directory, &below(root, inside))?;
            }
            _ => show(host, &below(root, inside), &mounts)?,
        }
    }
    if has_etc {
        sys::unmount(Path::new(ETC)).step("unmount the overlay of /etc")?;
    }
    fs::remove_dir(ETC).step("remove a mount point")?;
    let owner = format!("mode=0755,uid={},gid={},{}", spec.uid, spec.gid, sized(spec.run_bytes));
    tmpfs(&root.join("run"), &owner, MS_NOEXEC)?;
    fs::create_dir_all(root.join(CGROUP_FILES)).step("make the directory of the counters")?;
    for file in &spec.cgroup_files {
        if let Some(name) = file.file_name().filter(|_| file.exists()) {
            let target = root.join(CGROUP_FILES).join(name);
            bind(file, &target, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)?;
        }
    }
    skeleton(plan, &root.join("etc")).step("write /etc")?;
    devices(spec, &root.join("dev"))?;
    process_files(spec, &root.join("proc"))?;
    own_directories(plan, root)?;
    tmpfs(&root.join("tmp"), &format!("mode=1777,{}", sized(spec.tmp_bytes)), 0)?;
    home(plan)?;
    caches(plan, &mounts)?;
    own_place(plan, root)?;
    fs::remove_file(DESCRIPTORS).step("remove the link to the descriptors")?;
    // There only where owners are mapped.
    let _ = (fs::remove_dir(LOWER), fs::remove_dir(BENEATH));
    remount(root, MS_RDONLY | MS_NOSUID | MS_NODEV).step("make the root read-only")?;
    sys::pivot_to_current_directory().step("make the new root /")
}

/// The workspace at its place, and [`WORKSPACE`] as another name for that.
fn own_place(plan: &InitPlan<'_>, root: &Path) -> Result<(), FailedStep> {
    let place = below(root, plan.place());
    if plan.place().starts_with(plan.home()) && !is_plain(&place) {
        return Err(FailedStep::new("find the workspace's place", io::ErrorKind::NotADirectory.into()));
    }
    mount_point(&place, true).step_at("make a mount point", &place)?;
    workspace(plan, &place)?;
    if plan.place() != Path::new(WORKSPACE) {
        symlink(plan.place(), below(root, Path::new(WORKSPACE))).step("link the workspace")?;
    }
    Ok(())
}

/// Shows a part of the host read-only. A directory becomes an overlay without a writable layer: there, sockets and FIFOs
/// are others than the host's, so that nobody connects to what a program of the host serves below it, whenever it began.
/// Where the kernel refuses that, or something else is mounted below the directory, it is bound.
fn show(host: &Path, target: &Path, mounts: &[PathBuf]) -> Result<(), FailedStep> {
    if host.is_dir() {
        mount_point(target, true).step_at("make a mount point", target)?;
        if overlay(host, target, mounts) {
            return Ok(());
        }
    }
    // The one device that is ever bound so covers what is not to be seen; it is to read as empty.
    if host == Path::new("/dev/null") {
        // A socket may be gone by now, or have been made after the image of a virtual machine.
        let is_gone =
            fs::symlink_metadata(target).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        return if is_gone { Ok(()) } else { bind(host, target, MS_RDONLY | MS_NOSUID) };
    }
    bind(host, target, MS_RDONLY | MS_NOSUID | MS_NODEV)
}

/// Mounts the directory `host` read-only, as an overlay without a writable layer. `false` where that is not possible.
fn overlay(host: &Path, target: &Path, mounts: &[PathBuf]) -> bool {
    if mounts.iter().any(|path| path != host && path.starts_with(host)) {
        return false;
    }
    let mount = || {
        let source = open_layer(host)?;
        // An overlay without a writable layer takes two others.
        let options = format!("lowerdir={}:tmp", by_descriptor(&source));
        let flags = MS_RDONLY | MS_NOSUID | MS_NODEV;
        sys::mount_at(Path::new("overlay"), target, "overlay", flags, OsStr::new(&options))
    };
    mount().is_ok()
}

/// Opens a directory that an overlay is to be made of; the overlay keeps a hold of it.
fn open_layer(directory: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(crate::sys::O_PATH).open(directory)
}

/// Names a directory by its descriptor: everybody inside can read what an overlay is made of, and the paths of this machine hold the
/// name of its user. (A bind at another name would have to be taken away again, for which the kernel waits each time.)
fn by_descriptor(directory: &File) -> String {
    format!("{DESCRIPTORS}/{}", directory.as_raw_fd())
}

/// `$HOME`, at both of its names.
fn home(plan: &InitPlan<'_>) -> Result<(), FailedStep> {
    let private = plan.private.join("home");
    let mut names = vec![Path::new(HOME)];
    if plan.home() != Path::new(HOME) {
        names.push(plan.home());
    }
    let Some(beneath) = &plan.spec.beneath_home else {
        return names
            .into_iter()
            .try_for_each(|name| bind(&private, &below(Path::new(ROOT), name), MS_NOSUID | MS_NODEV));
    };
    let first = below(Path::new(ROOT), names[0]);
    mount_point(&first, true).step_at("make a mount point", &first)?;
    let layers = Layers { host: None, beneath: Some(beneath), upper: "/home", work: "/home-work" };
    writable(plan, &layers, None, &first).step_at("mount the overlay of the home directory", &first)?;
    names[1..].iter().try_for_each(|name| bind(&first, &below(Path::new(ROOT), name), MS_NOSUID | MS_NODEV))
}

/// The directories that are shown copy-on-write. Where the kernel refuses a writable layer, one is shown read-only.
fn caches(plan: &InitPlan<'_>, mounts: &[PathBuf]) -> Result<(), FailedStep> {
    for (index, (host, inside)) in plan.spec.caches.iter().enumerate() {
        let target = below(Path::new(ROOT), inside);
        let is_added = plan.spec.added.contains(inside);
        if !is_plain(&target) && (inside.starts_with(plan.home()) || leads_out(&target)) {
            if is_added {
                return Err(FailedStep::new(
                    "find the place of an added directory",
                    io::ErrorKind::NotADirectory.into(),
                ));
            }
            continue;
        }
        if plan.spec.own.contains(inside) {
            bind(&plan.private.join(format!("caches/{index}/upper")), &target, MS_NOSUID | MS_NODEV)?;
            continue;
        }
        mount_point(&target, true).step_at("make a mount point", &target)?;
        let owner = fs::metadata(host).map(|found| (found.uid(), found.gid())).ok();
        let owners = plan.cache_owners.iter().find(|known| Some(known.owner) == owner);
        let owners = owners.and_then(|known| known.map.as_ref());
        let beneath = plan.spec.beneath_caches.iter().find(|(_, shown_at)| shown_at == inside);
        let (upper, work) = (format!("/caches/{index}/upper"), format!("/caches/{index}/work"));
        let beneath = beneath.map(|(beneath, _)| beneath.as_path());
        let layers = Layers { host: Some(host), beneath, upper: &upper, work: &work };
        match writable(plan, &layers, owners, &target) {
            Ok(()) if plan.spec.read_only.contains(inside) => {
                restrict(&target, MS_RDONLY | MS_NOSUID | MS_NODEV).step_at("restrict the mount of", host)?;
            }
            Ok(()) => {}
            // Without its layer it would show what is to be hidden.
            Err(error) if is_added => return Err(error).step_at("mount the overlay of", host),
            Err(_) => show(host, &target, mounts)?,
        }
    }
    Ok(())
}

/// Returns whether a path of the new root leads through no symlink. In the `$HOME` of a sandbox that is started again its programs may have
/// left one, and as long as the new root is made, it leads to the host's files.
fn is_plain(target: &Path) -> bool {
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    !target.ancestors().any(is_link)
}

/// Returns whether symlinks lead a path of the new root to what is there now, the host's files. `/var/tmp` and the like stay inside.
fn leads_out(target: &Path) -> bool {
    let real = target.ancestors().find_map(|above| fs::canonicalize(above).ok());
    let root = fs::canonicalize(ROOT).ok();
    real.zip(root).is_none_or(|(real, root)| !real.starts_with(root))
}

fn workspace(plan: &InitPlan<'_>, target: &Path) -> Result<(), FailedStep> {
    let InitPlan { spec, private, owners, .. } = plan;
    if let Some(directory) = &spec.bind_workspace {
        return match owners {
            Some(owners) => idmap::mount(directory, target, owners, MS_NOSUID | MS_NODEV)
                .step_at("map the owners of", directory),
            None => bind(directory, target, MS_NOSUID | MS_NODEV),
        };
    }
    let Some(host) = &spec.overlay else {
        return bind(&private.join("workspace"), target, MS_NOSUID | MS_NODEV);
    };
    let beneath = spec.beneath_workspace.as_deref();
    let layers = Layers { host: Some(host), beneath, upper: "/upper", work: "/work" };
    writable(plan, &layers, owners.as_ref(), target).step_at("mount the overlay of the workspace", host)
}

/// The layers of an overlay.
struct Layers<'a> {
    /// The host's directory.
    host: Option<&'a Path>,
    /// The tree that lies above that.
    beneath: Option<&'a Path>,
    /// The writable layer, and the directory that the kernel works in, in the private directory.
    upper: &'a str,
    work: &'a str,
}

/// Mounts an overlay. `owners` map those of the host's directory.
fn writable(
    plan: &InitPlan<'_>,
    layers: &Layers<'_>,
    owners: Option<&File>,
    target: &Path,
) -> io::Result<()> {
    let InitPlan { spec, private, is_root, .. } = plan;
    // The trusted.* attributes that overlayfs keeps its books in are the initial user namespace's alone. Only there it can rename a
    // directory that is underneath; elsewhere that is EXDEV, and `mv` copies.
    let books = if *is_root { ",redirect_dir=on" } else { ",userxattr" };
    let mount = |lower: &str| {
        let private = open_layer(private)?;
        let private = by_descriptor(&private);
        let (upper, work) = (layers.upper, layers.work);
        let options = format!("lowerdir={lower},upperdir={private}{upper},workdir={private}{work}{books}");
        let flags = MS_NOSUID | MS_NODEV;
        let mount = |options: &str| {
            sys::mount_at(Path::new("overlay"), target, "overlay", flags, OsStr::new(options))
        };
        // Without `volatile` (Linux 5.10) unmounting waits until everything written to that file system, by any program, is on
        // the disk. The layer of a sandbox that is kept has to survive a crash of the machine, and is mounted again, which the
        // kernel refuses after a volatile mount.
        match spec.keep {
            true => mount(&options),
            false => mount(&format!("{options},volatile")).or_else(|_| mount(&options)),
        }
    };
    let beneath = layers.beneath.map(|tree| Lower::new(tree, plan.beneath_owners.as_ref(), BENEATH));
    let host = layers.host.map(|tree| Lower::new(tree, owners, LOWER));
    let lowers = beneath.into_iter().chain(host).collect::<io::Result<Vec<_>>>()?;
    let names: Vec<String> = lowers.iter().map(Lower::name).collect();
    let mounted = mount(&names.join(":"));
    lowers.into_iter().map(Lower::end).fold(mounted, |result, ended| ended.and(result))
}

/// A lower layer while an overlay is made of it.
enum Lower {
    Open(File),
    /// With its owners mapped it has to be a mount of its own.
    Mounted(&'static str),
}

impl Lower {
    fn new(tree: &Path, owners: Option<&File>, at: &'static str) -> io::Result<Self> {
        let Some(owners) = owners else { return open_layer(tree).map(Self::Open) };
        mount_point(Path::new(at), true)?;
        idmap::mount(tree, Path::new(at), owners, MS_RDONLY)?;
        Ok(Self::Mounted(at))
    }

    fn name(&self) -> String {
        match self {
            Self::Open(directory) => by_descriptor(directory),
            Self::Mounted(at) => (*at).to_owned(),
        }
    }

    fn end(self) -> io::Result<()> {
        match self {
            Self::Open(_) => Ok(()),
            Self::Mounted(at) => sys::unmount(Path::new(at)),
        }
    }
}

/// A private `/proc` of the new PID namespace, without what tells of the host or changes it.
fn process_files(spec: &LaunchSpec, proc: &Path) -> Result<(), FailedStep> {
    let flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    sys::mount_at(Path::new("proc"), proc, "proc", flags, OsStr::new("")).step("mount /proc")?;
    if spec.own_kernel {
        return Ok(());
    }
    for name in MASKED {
        let path = proc.join(name);
        match fs::symlink_metadata(&path) {
            // What is nowhere else to be seen, because something is mounted over it, and stays empty.
            Ok(metadata) if metadata.is_dir() => bind(Path::new("tmp"), &path, MS_RDONLY | flags)?,
            Ok(_) => bind(Path::new("/dev/null"), &path, MS_NOSUID)?,
            Err(_) => {}
        }
    }
    for path in READ_ONLY.map(|name| proc.join(name)).iter().filter(|path| path.exists()) {
        bind(path, path, MS_RDONLY | flags)?;
    }
    Ok(())
}

fn devices(spec: &LaunchSpec, dev: &Path) -> Result<(), FailedStep> {
    if spec.own_kernel {
        let options = OsStr::new("mode=0755");
        sys::mount_at(Path::new("devtmpfs"), dev, "devtmpfs", MS_NOSUID | MS_NOEXEC, options)
            .step("mount /dev")?;
        // The terminals are those of the mount below.
        fs::remove_file(dev.join("ptmx")).step("remove a device")?;
    } else {
        tmpfs(dev, "mode=0755,size=64k", MS_NOEXEC)?;
        for name in DEVICES.iter().map(OsStr::new).chain(spec.devices.iter().map(OsString::as_os_str)) {
            bind(&Path::new("/dev").join(name), &dev.join(name), MS_NOSUID | MS_NOEXEC)?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name)).step("link in /dev")?;
    }
    let (shm, pts) = (dev.join("shm"), dev.join("pts"));
    fs::create_dir(&shm).and_then(|()| fs::create_dir(&pts)).step("make directories in /dev")?;
    tmpfs(&shm, &format!("mode=1777,{}", sized(spec.shm_bytes)), MS_NOEXEC)?;
    let options = OsStr::new("newinstance,ptmxmode=0666,mode=0620,max=256");
    sys::mount_at(Path::new("devpts"), &pts, "devpts", MS_NOSUID | MS_NOEXEC, options).step("mount /dev/pts")
}

/// Mounts the directories of an own kernel: the places of a container engine's images, log and settings, on the disk, and
/// of what the kernel tells. Images have devices and programs that change the user.
fn own_directories(plan: &InitPlan<'_>, root: &Path) -> Result<(), FailedStep> {
    if !plan.spec.own_kernel {
        return Ok(());
    }
    for (name, inside) in [("var-lib", "var/lib"), ("var-log", "var/log"), ("etc-docker", "etc/docker")] {
        let directory = plan.private.join(name);
        fs::create_dir_all(&directory).step_at("make", &directory)?;
        bind(&directory, &root.join(inside), 0)?;
    }
    let settings = plan.private.join("home/.docker/config.json");
    if !settings.exists() {
        make_parent(&settings)
            .and_then(|()| fs::write(&settings, &plan.spec.engine_client))
            .step("write the settings of the engine's client")?;
    }
    fs::create_dir(root.join("sys")).step("make a mount point")
}

/// The files of `/etc` that are the sandbox's own.
fn skeleton(plan: &InitPlan<'_>, etc: &Path) -> io::Result<()> {
    let spec = plan.spec;
    let (uid, gid, home) = (spec.uid, spec.gid, plan.home().display());
    let nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin";
    let users = match spec.own_kernel {
        true => format!("root:x:0:0:root:{home}:/bin/sh\n{nobody}\n"),
        false => format!(
            "root:x:0:0:root:/root:/usr/sbin/nologin\n{nobody}\nagent:x:{uid}:{gid}:agent:{home}:/bin/sh\n"
        ),
    };
    let files = [
        ("passwd", users),
        ("group", format!("root:x:0:\nnogroup:x:65534:\nagent:x:{gid}:\n")),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n".to_owned()),
        ("hostname", "sandbox\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\n".to_owned()),
    ];
    for (name, content) in files {
        fs::write(etc.join(name), content)?;
    }
    let resolver =
        if spec.host_network { fs::read("/etc/resolv.conf").unwrap_or_default() } else { Vec::new() };
    fs::write(etc.join("resolv.conf"), resolver)?;
    symlink("/proc/self/mounts", etc.join("mtab"))
}

/// The size of a tmpfs, and its number of files: one for each page, which is what the kernel's own default is. Without it that is
/// one for two pages of the whole machine, and where no control group counts, empty files are memory of nobody's.
fn sized(bytes: u64) -> String {
    format!("size={bytes},nr_inodes={}", (bytes / 4096).max(64))
}

fn tmpfs(target: &Path, options: &str, flags: u64) -> Result<(), FailedStep> {
    let flags = flags | MS_NOSUID | MS_NODEV;
    sys::mount_at(Path::new("tmpfs"), target, "tmpfs", flags, OsStr::new(options))
        .step_at("mount a tmpfs", target)
}

/// Binds a directory of a mount whose flags it is to have.
fn bind_as_it_is(directory: &Path, target: &Path) -> Result<(), FailedStep> {
    mount_point(target, true).step_at("make a mount point", target)?;
    sys::mount_at(directory, target, "", MS_BIND, OsStr::new("")).step_at("bind", directory)
}

/// Binds `host` with everything that is mounted below it, and sets `flags` on all of it.
fn bind(host: &Path, target: &Path, flags: u64) -> Result<(), FailedStep> {
    let make = || mount_point(target, fs::metadata(host)?.is_dir());
    make().step_at("make a mount point", target)?;
    sys::mount_at(host, target, "", MS_BIND | MS_REC, OsStr::new("")).step_at("bind", host)?;
    restrict(target, flags).step_at("restrict the bind of", host)
}

/// Makes a directory or an empty file, and the directories above it, where there is nothing yet.
fn mount_point(target: &Path, is_directory: bool) -> io::Result<()> {
    let make = || match is_directory {
        true => fs::create_dir(target),
        false => File::create_new(target).map(drop),
    };
    let made = match make() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_parent(target).and_then(|()| make()),
        made => made,
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// `path`, which is absolute, below `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Sets `flags` on the mount at `target` and on all below it.
fn restrict(target: &Path, flags: u64) -> io::Result<()> {
    const ENOSYS: i32 = 38;
    match sys::mount_set_recursive(target, flags) {
        // Before Linux 5.12: one remount for each, which must name the flags that are there already, because a mount
        // that came from another user namespace may not lose them.
        Err(error) if error.raw_os_error() == Some(ENOSYS) => {
            let target = fs::canonicalize(target)?;
            let table = fs::read_to_string("/proc/self/mountinfo")?;
            let mounts = table.lines().filter_map(mount_point_and_flags);
            mounts
                .filter(|(path, _)| path.starts_with(&target))
                .try_for_each(|(path, kept)| remount(&path, flags | kept))
        }
        other => other,
    }
}

fn remount(target: &Path, flags: u64) -> io::Result<()> {
    sys::mount_at(Path::new("none"), target, "", MS_REMOUNT | MS_BIND | flags, OsStr::new(""))
}

/// Mount point and flags of a line of `/proc/self/mountinfo` (proc_pid_mountinfo(5): fields 5 and 6).
fn mount_point_and_flags(line: &str) -> Option<(PathBuf, u64)> {
    let mut fields = line.split(' ').skip(4);
    let path = unescaped(fields.next()?.as_bytes());
    let flag = |option| match option {
        "ro" => MS_RDONLY,
        "nosuid" => MS_NOSUID,
        "nodev" => MS_NODEV,
        "noexec" => MS_NOEXEC,
        "noatime" => sys::MS_NOATIME,
        "nodiratime" => sys::MS_NODIRATIME,
        "relatime" => sys::MS_RELATIME,
        _ => 0,
    };
    Some((path, fields.next()?.split(',').map(flag).fold(0, |all, one| all | one)))
}

/// mountinfo writes space, tab, newline and backslash as `\` and three octal digits.
pub fn unescaped(field: &[u8]) -> PathBuf {
    let (mut out, mut rest) = (Vec::new(), field);
    while let Some((byte, after)) = rest.split_first() {
        let octal =
            after.get(..3).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal.filter(|_| *byte == b'\\') {
            Some(code) => {
                out.push(code);
                rest = &after[3..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(out).into()
}
