//! The command line of QEMU.

use super::host::{Accelerator, Host};
use crate::settings::Board;
use agent_wire::boot_spec::{DISK, PORT};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Memory for the machine's kernel, beyond the sandbox's `limit`: its code, and 64 bytes for each page of 4 KiB.
pub fn kernel_memory(limit: u64) -> u64 {
    const CODE: u64 = 120 << 20;
    CODE + limit / 64
}

/// Memory of QEMU itself, translated code included.
pub const OWN_MEMORY: u64 = 256 << 20;
/// The time for which the processor's clock is measured.
const MEASURED: Duration = Duration::from_millis(50);

/// The parts of a machine. The paths are those in the sandbox that QEMU runs in.
pub struct Parts {
    pub images: Vec<PathBuf>,
    pub disk: PathBuf,
    /// Bytes and processors.
    pub memory: u64,
    pub cpus: f64,
}

/// QEMU's program and arguments; its keeper adds the character device `port`.
pub fn command(host: &Host, parts: &Parts) -> Vec<OsString> {
    let (accelerator, processor) = match host.accelerator {
        Accelerator::Kvm { .. } => ("kvm", "host"),
        Accelerator::Emulated(_) => ("tcg,tb-size=64", "max"),
    };
    let mut command = vec![host.qemu.clone().into_os_string()];
    let mut add = |name: &str, value: OsString| command.extend([OsString::from(name), value]);
    let (board, bus) = match host.board {
        Board::Microvm => ("microvm,isa-serial=on,rtc=on,pit=off,pic=off", "device"),
        Board::Q35 => ("q35,usb=off,smbus=off,sata=off", "pci"),
    };
    add("-M", board.into());
    add("-accel", accelerator.into());
    add("-cpu", processor.into());
    add("-smp", processors(parts.cpus).to_string().into());
    add("-m", format!("{}M", parts.memory.div_ceil(1 << 20)).into());
    for (name, value) in [
        ("-display", "none"),
        ("-monitor", "none"),
        ("-nic", "none"),
        ("-serial", "stdio"),
        ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
    ] {
        add(name, value.into());
    }
    add("-device", format!("virtio-serial-{bus}").into());
    add("-device", format!("virtserialport,chardev=port,name={PORT}").into());
    let images = parts.images.iter().enumerate();
    let images = images.map(|(index, image)| (format!("image{index}"), image, "on"));
    for (serial, file, readonly) in images.chain([(DISK.to_owned(), &parts.disk, "off")]) {
        let mut drive = OsString::from(format!("if=none,id={serial},format=raw,readonly={readonly},file="));
        drive.push(file);
        add("-drive", drive);
        add("-device", format!("virtio-blk-{bus},drive={serial},serial={serial}").into());
    }
    command.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
    command
}

/// Returns the arguments that are added where the machine boots, and is not restored.
pub fn boot_arguments(host: &Host, kernel: &Path, initial: &Path) -> Vec<OsString> {
    let append = kernel_arguments(host);
    ["-kernel".into(), kernel.into(), "-initrd".into(), initial.into(), "-append".into(), append.into()]
        .into()
}

/// Whole processors, as many as this machine has at most.
fn processors(limit: f64) -> usize {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    // A limit is a small number.
    (limit.ceil().max(1.0) as usize).min(here)
}

/// `cryptomgr.notests` takes 0.4 s off an emulated boot, and `rcu_expedited` the waits for each namespace and control group that is made.
pub const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet reboot=t panic=-1 cryptomgr.notests rcupdate.rcu_expedited=1";

/// Returns the kernel's arguments; those after `--` are the guest's.
fn kernel_arguments(host: &Host) -> String {
    let clock = match (&host.accelerator, host.board) {
        (Accelerator::Kvm { .. }, _) | (_, Board::Q35) => String::new(),
        // The emulated board has no timer that its kernel could measure the clock with, and hangs where it tries.
        (Accelerator::Emulated(_), Board::Microvm) => format!(" tsc_early_khz={}", clock_khz()),
    };
    format!("{KERNEL_ARGUMENTS}{clock} rdinit=/init -- boot")
}

/// The frequency of this processor's time stamp counter.
fn clock_khz() -> u64 {
    static MEASURED_ONCE: OnceLock<u64> = OnceLock::new();
    *MEASURED_ONCE.get_or_init(|| {
        let (began, first) = (Instant::now(), time_stamp());
        std::thread::sleep(MEASURED);
        let (ticks, time) = (time_stamp().wrapping_sub(first), began.elapsed());
        let khz = u128::from(ticks) * 1_000_000 / time.as_nanos().max(1);
        u64::try_from(khz).unwrap_or(1_000_000)
    })
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_no_network_and_its_programs_start_no_others() {
        let host = Host {
            qemu: "/usr/bin/qemu".into(),
            kernel: PathBuf::new(),
            modules: PathBuf::new(),
            accelerator: Accelerator::Emulated(String::new()),
            board: Board::Microvm,
            boot_timeout: 1,
        };
        let parts = Parts { images: vec!["/a".into()], disk: "/d".into(), memory: (1 << 30) + 1, cpus: 0.5 };
        let mut command = command(&host, &parts);
        command.extend(boot_arguments(&host, Path::new("/k"), Path::new("/i")));
        let text = command.join(&OsString::from(" ")).into_string().unwrap();
        for expected in [
            "-nic none",
            "spawn=deny",
            "-m 1025M",
            "-smp 1",
            "readonly=on,file=/a",
            "readonly=off,file=/d",
            "-- boot",
            "tsc_early_khz=",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
