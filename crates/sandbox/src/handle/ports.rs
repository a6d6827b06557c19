//! The ports that programs listen on, as the kernel of the sandbox lists them.

use super::Sandbox;
use crate::Output;
use agent_base::error::Result;
use agent_event::Stream;
use agent_wire::{Command, Program};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

/// Bytes of the tables that are read: thousands of sockets.
const MAX_TABLE: usize = 256 << 10;
/// The time limit for reading them.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Ports that are listed.
const MAX_PORTS: usize = 64;
/// The state of a socket that listens, as the table has it.
const LISTENS: &str = "0A";

impl Sandbox {
    /// The TCP ports on which something listens, the lowest first, at most 64; none where the sandbox has no such table.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn listening_ports(&self) -> Result<BTreeSet<u16>> {
        // A command reads them: the guest opens no files of its own process for others, and `/proc/net` is one.
        let words = ["cat", "/proc/net/tcp", "/proc/net/tcp6"];
        let command = Command {
            program: Program::Argv(words.map(OsString::from).to_vec()),
            cwd: None,
            env: Vec::new(),
            timeout: Some(READ_TIMEOUT),
            live_bytes: MAX_TABLE as u64,
            stdin: false,
        };
        let mut table = Vec::new();
        let mut read = |output: Output<'_>| {
            if let Output::Data(Stream::Stdout, bytes) = output
                && table.len() < MAX_TABLE
            {
                table.extend_from_slice(bytes);
            }
        };
        self.run(command, &mut read).await?;
        Ok(listening(&table).into_iter().take(MAX_PORTS).collect())
    }
}

fn listening(table: &[u8]) -> BTreeSet<u16> {
    let table = String::from_utf8_lossy(table);
    let port = |line: &str| {
        // `0: 0100007F:1435 00000000:0000 0A …`
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let (_, port) = local.rsplit_once(':')?;
        (state == LISTENS).then(|| u16::from_str_radix(port, 16).ok())?
    };
    table.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::listening;

    #[test]
    fn the_kernels_table_names_the_ports_that_listen() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     \x20  0: 0100007F:1435 00000000:0000 0A 00000000:00000000\n\
                     \x20  1: 0100007F:1435 0100007F:9C40 01 00000000:00000000\n\
                     \x20  2: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0\n\
                     nonsense\n";
        assert_eq!(listening(table.as_bytes()), [5173, 8080].into());
    }
}
