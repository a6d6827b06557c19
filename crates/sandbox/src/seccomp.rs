//! The system calls that a sandbox on this machine refuses: the launcher installs the filters for a local one, the guest
//! in a container, where the engine's own profile may be an old one (AF_VSOCK and io_uring pass that of Docker 20.10).
//!
//! In the spirit of Docker's default profile: what builds, tests and servers need works, and what only makes sense for
//! administrators, or has opened one kernel hole after another, is refused. Three programs, all of which
//! have to agree: what the kernel has learned after this list was made is unknown (`ENOSYS`), what has a plain
//! substitute that programs fall back to is unknown too, and the rest of the list is refused (`EPERM`).

use agent_base::error::{Error, Result};
use agent_wire::bpf::{self, ALLOW, FAIL, IF_GREATER, LOAD, NUMBER, RETURN};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The highest number that was looked at: file_setattr(2), Linux 6.17. Also keeps out the x32 system calls, whose numbers
/// start at 2^30 and would pass by every other rule.
const LAST_REVIEWED: u32 = 469;

/// Refused outright, on every architecture.
const REFUSED: [c_long; 47] = [
    // Mounts, roots and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_unshare,
    libc::SYS_setns,
    // File handles lead past mount points (CVE-2014-3519 and kin).
    libc::SYS_open_by_handle_at,
    // Other processes' memory, descriptors and execution.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel's key rings know no namespaces.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Machinery of the kernel with a history of holes.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    // The machine itself.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// open_tree_attr(2), Linux 6.15; `libc` does not know it yet.
const OPEN_TREE_ATTR: c_long = 467;

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: [c_long; 7] = [
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: [c_long; 0] = [];

/// Said to be unknown, so that programs take the older way, which the filter can look into (clone3(2) keeps its
/// flags in memory, openat2(2) its mode) or which is safer (io_uring passes by system call filters).
const UNKNOWN: [c_long; 5] = [
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// System calls that give a file the mode in an argument, and which argument that is. Not mkdir(2): the kernel
/// takes no set-id bits from it.
const MODES: [(c_long, u8); 4] =
    [(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_fchmodat2, 2), (libc::SYS_mknodat, 2)];
#[cfg(target_arch = "x86_64")]
const MODES_HERE: [(c_long, u8); 3] = [(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: [(c_long, u8); 0] = [];

/// System calls that take a mode where their flags make a file, and which argument the flags are; the mode follows.
const OPENS: [(c_long, u8); 1] = [(libc::SYS_openat, 2)];
#[cfg(target_arch = "x86_64")]
const OPENS_HERE: [(c_long, u8); 1] = [(libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS_HERE: [(c_long, u8); 0] = [];

/// Each of the bits that let a program run as its owner or its group.
const SET_ID: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// The filters as the guest installs them: the same for every sandbox, and made once a process.
pub fn filters() -> Result<Vec<u8>> {
    static STORED: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(stored) = STORED.get() {
        return Ok(stored.clone());
    }
    let made = bpf::store(&programs()?);
    Ok(STORED.get_or_init(|| made).clone())
}

/// The seccomp programs, in the order in which they are installed.
fn programs() -> Result<[Vec<[u8; 8]>; 3]> {
    let refused = compile(refusals().map_err(unusable)?, libc::EPERM)?;
    let unknown = compile(UNKNOWN.iter().map(|number| (*number, Vec::new())).collect(), libc::ENOSYS)?;
    Ok([newer_than(LAST_REVIEWED), unknown, refused])
}

fn compile(rules: BTreeMap<c_long, Vec<SeccompRule>>, errno: i32) -> Result<Vec<[u8; 8]>> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(unusable)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(unusable)?;
    let program = BpfProgram::try_from(filter).map_err(unusable)?;
    Ok(bpf::assemble(program.into_iter().map(|it| (it.code, it.jt, it.jf, it.k))))
}

fn unusable(error: seccompiler::BackendError) -> Error {
    Error::sandbox("the system call filter cannot be made for this machine").caused_by(error)
}

/// A system call without rules is refused always, one with rules where one of them matches.
fn refusals() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, seccompiler::BackendError> {
    let always = REFUSED.iter().chain(&REFUSED_HERE).map(|number| (*number, Vec::new()));
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = always.collect();
    rules.insert(libc::SYS_clone, new_namespaces()?);
    rules.insert(libc::SYS_ioctl, terminal_injection()?);
    rules.insert(libc::SYS_personality, vec![SeccompRule::new(odd_personality()?)?]);
    rules.insert(libc::SYS_socket, exotic_sockets()?);
    for (number, rule) in slowing_the_guest()?.into_iter().chain(signalling_the_guest()?) {
        rules.insert(number, rule);
    }
    for (number, mode) in MODES.iter().chain(&MODES_HERE) {
        rules.insert(
            *number,
            SET_ID.iter().map(|bit| SeccompRule::new(vec![has(*mode, *bit)?])).collect::<Result<_, _>>()?,
        );
    }
    for (number, flags) in OPENS.iter().chain(&OPENS_HERE) {
        rules.insert(*number, set_id_files(*flags)?);
    }
    Ok(rules)
}

/// That an argument has all bits of `bits`.
fn has(argument: u8, bits: u64) -> Result<Condition, seccompiler::BackendError> {
    Condition::new(argument, Len::Dword, Op::MaskedEq(bits), bits)
}

/// A file that is made with a set-id bit. In a bound workspace it would belong to the host's user, who may be root; the
/// mount's `nosuid` holds inside only.
fn set_id_files(flags: u8) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    // The part of O_TMPFILE that is not O_DIRECTORY.
    const O_TMPFILE: u64 = 0o20_000_000;
    let making = [u64::from(libc::O_CREAT.unsigned_abs()), O_TMPFILE];
    making
        .into_iter()
        .flat_map(|flag| SET_ID.map(|bit| (flag, bit)))
        .map(|(flag, bit)| SeccompRule::new(vec![has(flags, flag)?, has(flags + 1, bit)?]))
        .collect()
}

/// clone(2) with any flag that makes a namespace.
fn new_namespaces() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWCGROUP,
    ]
    .into_iter()
    .map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![Condition::new(0, Len::Qword, Op::MaskedEq(flag), flag)?])
    })
    .collect()
}

/// Returns what would give the guest less processor time or bandwidth: it is process 1, all here are the same user's, and it enforces the
/// disk quota and the time limits. Whole users are refused too, because the guest is one of that user's processes.
fn slowing_the_guest() -> Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let is = |argument: u8, value: u64| Condition::new(argument, Len::Dword, Op::Eq, value);
    let guest = || Ok(vec![SeccompRule::new(vec![is(0, 1)?])?]);
    // setpriority(2) counts what is meant from 0: a process, a group, a user; ioprio_set(2) from 1.
    let by_kind = |first: u64| {
        let of_guest = |kind| SeccompRule::new(vec![is(0, kind)?, is(1, 1)?]);
        Ok(vec![of_guest(first)?, of_guest(first + 1)?, SeccompRule::new(vec![is(0, first + 2)?])?])
    };
    Ok(vec![
        (libc::SYS_sched_setscheduler, guest()?),
        (libc::SYS_sched_setparam, guest()?),
        (libc::SYS_sched_setattr, guest()?),
        (libc::SYS_sched_setaffinity, guest()?),
        (libc::SYS_setpriority, by_kind(0)?),
        (libc::SYS_ioprio_set, by_kind(1)?),
    ])
}

/// Returns what would send the guest a signal. Linux itself keeps signals of its descendants from process 1, gVisor does not.
fn signalling_the_guest() -> Result<Vec<(c_long, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let guest = || SeccompRule::new(vec![Condition::new(0, Len::Dword, Op::Eq, 1)?]);
    [
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_pidfd_open,
    ]
    .into_iter()
    .map(|number| Ok((number, vec![guest()?])))
    .collect()
}

/// TIOCSTI types into a terminal, TIOCLINUX pastes into the console: both reach the user of that terminal.
fn terminal_injection() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const TIOCSTI: u64 = 0x5412;
    const TIOCLINUX: u64 = 0x541c;
    [TIOCSTI, TIOCLINUX]
        .into_iter()
        // The kernel looks at the lower half of the request only.
        .map(|request| SeccompRule::new(vec![Condition::new(1, Len::Dword, Op::Eq, request)?]))
        .collect()
}

/// Every personality but plain Linux, 32-bit Linux (as `setarch` asks for), each with or without address randomisation
/// (debuggers and sanitizers turn it off), and the question which one it is.
fn odd_personality() -> Result<Vec<Condition>, seccompiler::BackendError> {
    const PER_LINUX32: u64 = 0x8;
    const ADDR_NO_RANDOMIZE: u64 = 0x4_0000;
    const WHICH: u64 = 0xffff_ffff;
    [0, PER_LINUX32, ADDR_NO_RANDOMIZE, PER_LINUX32 | ADDR_NO_RANDOMIZE, WHICH]
        .into_iter()
        .map(|allowed| Condition::new(0, Len::Dword, Op::Ne, allowed))
        .collect()
}

/// Only Unix, IPv4 and IPv6 sockets, and of netlink only the family that `getaddrinfo` asks for the machine's addresses.
fn exotic_sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let domain =
        |operator: Op, domain: i32| Condition::new(0, Len::Dword, operator, u64::from(domain.unsigned_abs()));
    let other_domains = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        .into_iter()
        .map(|allowed| domain(Op::Ne, allowed))
        .collect::<Result<_, _>>()?;
    let netlink_beyond_route = vec![
        domain(Op::Eq, libc::AF_NETLINK)?,
        Condition::new(2, Len::Dword, Op::Ne, u64::from(libc::NETLINK_ROUTE.unsigned_abs()))?,
    ];
    Ok(vec![SeccompRule::new(other_domains)?, SeccompRule::new(netlink_beyond_route)?])
}

/// Every number above `last` is unknown. By hand, because seccompiler knows no ranges of numbers.
fn newer_than(last: u32) -> Vec<[u8; 8]> {
    bpf::assemble([
        (LOAD, 0, 0, NUMBER),
        (IF_GREATER, 1, 0, last),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, FAIL | libc::ENOSYS.unsigned_abs()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_fit_the_kernel() {
        const BPF_MAXINSNS: usize = 4096;
        let programs = programs().unwrap();
        assert!(programs.iter().all(|program| (1..=BPF_MAXINSNS).contains(&program.len())));
        let stored = filters().unwrap();
        assert_eq!(bpf::stored(&stored).unwrap(), programs);
        assert_eq!(bpf::stored(&stored[1..]), None);
    }
}
