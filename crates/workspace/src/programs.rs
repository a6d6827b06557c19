//! Programs of this machine. A shell runs an executable file as a script where the kernel refuses it (`ENOEXEC`), whatever its first bytes
//! are, so that nothing but what the kernel takes is safe from being read as text.

/// Returns whether the kernel of this machine would run a file with this content, and not leave it to a shell.
pub(crate) fn is_run_by_kernel(bytes: &[u8]) -> bool {
    match std::env::consts::OS {
        "macos" => is_mach_o(bytes),
        _ => is_elf(bytes).unwrap_or(false),
    }
}

/// Returns whether it begins as a program of some machine does: of Linux, of macOS, of Windows.
pub(crate) fn has_header(bytes: &[u8]) -> bool {
    let is_windows = || {
        let start = bytes.get(60..64).map(|at| u32::from_le_bytes([at[0], at[1], at[2], at[3]]) as usize);
        bytes.starts_with(b"MZ")
            && start.and_then(|at| bytes.get(at..)).is_some_and(|rest| rest.starts_with(b"PE\0\0"))
    };
    let others = [&b"\x7fELF\x01"[..], b"\x7fELF\x02", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"];
    others.iter().any(|start| bytes.starts_with(start)) || is_windows()
}

/// `load_elf_binary` in the kernel's fs/binfmt_elf.c, for a machine of 64 bits: what it refuses before it gives up the calling program.
fn is_elf(bytes: &[u8]) -> Option<bool> {
    const HEADER: usize = 64;
    const ENTRY: usize = 56;
    const MAX_ENTRIES: usize = 65_536 / ENTRY;
    let machine: u64 = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        "loongarch64" => 258,
        "powerpc64" => 21,
        "s390x" => 22,
        _ => return None,
    };
    let order = if cfg!(target_endian = "big") { 2 } else { 1 };
    let header = bytes.get(..HEADER)?;
    let is_program = [2, 3].contains(&number(header, 16, 2)?);
    let count = usize::try_from(number(header, 56, 2)?).ok()?;
    let is_own = header.starts_with(&[0x7f, b'E', b'L', b'F', 2, order]) && number(header, 18, 2)? == machine;
    if !is_own || !is_program || number(header, 54, 2)? != ENTRY as u64 || count > MAX_ENTRIES {
        return None;
    }
    let start = usize::try_from(number(header, 32, 8)?).ok()?;
    let table = bytes.get(start..start.checked_add(count * ENTRY)?)?;
    let mut is_loaded = false;
    for entry in table.chunks_exact(ENTRY) {
        let from = usize::try_from(number(entry, 8, 8)?).ok()?;
        let length = usize::try_from(number(entry, 32, 8)?).ok()?;
        match number(entry, 0, 4)? {
            // PT_LOAD
            1 => is_loaded = true,
            // PT_INTERP: the path of a loader.
            3 => {
                let path = bytes.get(from..from.checked_add(length)?)?;
                if !(2..=4096).contains(&length) || path.first() != Some(&b'/') || path.last() != Some(&0) {
                    return None;
                }
            }
            // PT_GNU_PROPERTY
            0x6474_e553 if length > 1024 => return None,
            _ => {}
        }
    }
    Some(is_loaded)
}

/// `exec_mach_imgact` in XNU takes what is of its own processor, and refuses the rest of such files without leaving them to a shell.
fn is_mach_o(bytes: &[u8]) -> bool {
    let processor: &[u8] = match std::env::consts::ARCH {
        "aarch64" => &[0x0c, 0, 0, 1],
        _ => &[0x07, 0, 0, 1],
    };
    bytes.starts_with(b"\xcf\xfa\xed\xfe") && bytes.get(4..8) == Some(processor)
}

/// The number of `size` bytes at an offset, in the machine's order.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + size)?;
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(match cfg!(target_endian = "big") {
        true => bytes.iter().fold(0, add),
        false => bytes.iter().rev().fold(0, add),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The beginning of a program of this machine.
    pub(crate) fn program() -> Vec<u8> {
        let path = std::env::current_exe().expect("the path of this program");
        let mut program = std::fs::read(path).expect("this program");
        program.truncate(8192);
        program
    }

    #[test]
    fn a_header_that_the_kernel_refuses_is_none_of_a_program() {
        let program = program();
        assert!(is_run_by_kernel(&program));
        assert!(!is_run_by_kernel(&program[..60]));
        for start in [&b"\x7fELF"[..], b"MZ\x90\0", b"\0asm", b"\xca\xfe\xba\xbe"] {
            assert!(!is_run_by_kernel(&[start, &[1; 9_000]].concat()), "{start:?}");
        }
        // The class, the byte order, the type and the machine of an ELF file, and the size of its table's entries.
        let fields: &[usize] = if cfg!(target_os = "macos") { &[0, 4] } else { &[0, 4, 5, 16, 18, 54] };
        for at in fields {
            let mut other = program.clone();
            other[*at] ^= 0x40;
            assert!(!is_run_by_kernel(&other), "{at}");
        }
    }
}
