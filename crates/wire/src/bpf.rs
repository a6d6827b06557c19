//! Classic BPF as seccomp(2) takes it: the instructions, their bytes, and how several programs are stored. Shared by the host,
//! which makes the sandbox's filters, and the guest, which installs them and makes some of its own.

/// An instruction (`struct sock_filter`): its code, how far to jump where it holds and where it does not, its value.
pub type Instruction = (u16, u8, u8, u32);

pub const LOAD: u16 = 0x20;
pub const AND: u16 = 0x54;
pub const IF_EQUAL: u16 = 0x15;
pub const IF_GREATER: u16 = 0x25;
pub const IF_ANY_BIT: u16 = 0x45;
pub const RETURN: u16 = 0x06;

/// The return value of a program that lets a call be made; with an error number in the lower half, the call fails.
pub const ALLOW: u32 = 0x7fff_0000;
pub const FAIL: u32 = 0x0005_0000;

/// The offset of the call's number in `struct seccomp_data`; the machine follows.
pub const NUMBER: u32 = 0;
pub const ARCHITECTURE: u32 = 4;

/// Returns the offset in it of the lower half of an argument, on the little-endian machines that there are.
pub const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// The bytes of a program, in the machine's byte order.
pub fn assemble(program: impl IntoIterator<Item = Instruction>) -> Vec<[u8; 8]> {
    let bytes = |(code, yes, no, value): Instruction| {
        let (code, value) = (code.to_ne_bytes(), value.to_ne_bytes());
        [code[0], code[1], yes, no, value[0], value[1], value[2], value[3]]
    };
    program.into_iter().map(bytes).collect()
}

/// Programs one after the other, in the order in which they are installed: each is its length in bytes as a little-endian `u32`,
/// then its instructions.
pub fn store(programs: &[Vec<[u8; 8]>]) -> Vec<u8> {
    let mut out = Vec::new();
    for program in programs {
        out.extend_from_slice(&((program.len() * 8) as u32).to_le_bytes());
        out.extend_from_slice(program.as_flattened());
    }
    out
}

/// Returns what [`store`] has stored; `None` where it is damaged.
pub fn stored(mut bytes: &[u8]) -> Option<Vec<&[[u8; 8]]>> {
    let mut programs = Vec::new();
    while !bytes.is_empty() {
        let (length, after) = bytes.split_first_chunk()?;
        let (program, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (instructions, []) = program.as_chunks::<8>() else { return None };
        programs.push(instructions);
        bytes = after;
    }
    Some(programs)
}
