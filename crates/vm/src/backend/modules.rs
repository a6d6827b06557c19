//! The kernel modules that a virtual machine needs, in the order in which they are loaded (modules.dep(5)).

use crate::settings::Board;
use agent_base::error::{Error, Result};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// By name. Those that the kernel does not have as modules are built in, or not needed by it.
const WANTED: [&str; 5] = ["virtio_console", "virtio_blk", "crc32c_generic", "erofs", "ext4"];
/// The modules that a container engine needs beside them, as far as the kernel has them: layers, bridges, and rules of
/// nf_tables behind the program iptables. Programs inside that are root find `fuse`, `loop` and `tun`.
const FOR_DOCKER: [&str; 26] = [
    "overlay",
    "bridge",
    "br_netfilter",
    "veth",
    "nf_tables",
    "nft_compat",
    "nft_chain_nat",
    "nft_ct",
    "nft_masq",
    "nft_fib_inet",
    "nf_nat",
    "nf_conntrack_netlink",
    "xt_addrtype",
    "xt_comment",
    "xt_conntrack",
    "xt_mark",
    "xt_MASQUERADE",
    "xt_multiport",
    "xt_nat",
    "xt_tcpudp",
    "xt_set",
    "ip_set_hash_net",
    "fuse",
    "loop",
    "tun",
    "dummy",
];
/// Without these there is no sandbox, so they are modules or built in. The bus is needed as well.
const NEEDED: [&str; 4] = ["virtio_console", "virtio_blk", "erofs", "ext4"];
/// The most that one may take.
const MAX_MODULE: u64 = 32 << 20;

/// A module: its name and its content.
pub struct Module {
    pub name: String,
    pub content: Vec<u8>,
}

/// Reads the modules of the directory `/lib/modules/VERSION` for this board, and those `for_docker`.
///
/// # Errors
/// One is missing or compressed.
pub fn read(directory: &Path, board: Board, for_docker: bool) -> Result<Vec<Module>> {
    let failed = |path: &Path, error: std::io::Error| {
        Error::config(format!("the kernel module {} cannot be read", path.display())).caused_by(error)
    };
    let table = directory.join("modules.dep");
    let table = fs::read_to_string(&table).map_err(|error| failed(&table, error))?;
    // Where there is no such list, nothing is known to be built in.
    let built_in = fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
    let bus = match board {
        Board::Microvm => "virtio_mmio",
        Board::Q35 => "virtio_pci",
    };
    let wanted = if for_docker { FOR_DOCKER.as_slice() } else { &[] };
    order(&table, &built_in, bus, wanted)?
        .into_iter()
        .map(|path| {
            let file = directory.join(&path);
            if file.extension().is_none_or(|extension| extension != "ko") {
                return Err(Error::config(format!("the kernel module {} is compressed", file.display()))
                    .hint("unpack a copy of the modules and name its directory as modules in [sandbox.vm]"));
            }
            let links = agent_base::plain_file::Links::Follow;
            let content = agent_base::plain_file::read(&file, MAX_MODULE, links)
                .map_err(|error| failed(&file, error))?;
            Ok(Module { name: name_of(&path), content })
        })
        .collect()
}

/// The paths of the modules of [`WANTED`] and `further`, and of what they depend on, each once, what others need first.
fn order(table: &str, built_in: &str, bus: &str, further: &[&str]) -> Result<Vec<PathBuf>> {
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let known: HashMap<String, (&str, &str)> =
        lines.map(|(path, needs)| (name_of(Path::new(path)), (path, needs))).collect();
    let is_built_in = |name: &str| built_in.lines().any(|line| name_of(Path::new(line)) == name);
    let mut ordered: Vec<PathBuf> = Vec::new();
    for name in [bus].iter().chain(&WANTED).chain(further) {
        match known.get(*name) {
            // What a module needs stands after it, the first to load last.
            Some((path, needs)) => {
                for path in needs.split_whitespace().rev().chain([*path]).map(PathBuf::from) {
                    if !ordered.contains(&path) {
                        ordered.push(path);
                    }
                }
            }
            None if (*name == bus || NEEDED.contains(name)) && !is_built_in(name) => {
                return Err(Error::config(format!("the kernel has no module {name}"))
                    .hint("Debian's linux-image-cloud-amd64 has it; another kernel is named as kernel in [sandbox.vm]"));
            }
            None => {}
        }
    }
    Ok(ordered)
}

/// `virtio_blk` of `kernel/drivers/block/virtio_blk.ko.xz`.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "k/virtio_ring.ko:\n\
        k/virtio.ko: k/virtio_ring.ko\n\
        k/virtio_mmio.ko: k/virtio.ko k/virtio_ring.ko\n\
        k/virtio_console.ko: k/virtio.ko k/virtio_ring.ko\n\
        k/virtio_blk.ko: k/virtio.ko k/virtio_ring.ko\n\
        k/erofs.ko: k/libcrc32c.ko\n\
        k/libcrc32c.ko:\n";

    #[test]
    fn what_others_need_is_loaded_first_and_once() {
        let names: Vec<String> = order(TABLE, "k/ext4.ko\n", "virtio_mmio", &[])
            .unwrap()
            .iter()
            .map(|path| name_of(path))
            .collect();
        let expected =
            ["virtio_ring", "virtio", "virtio_mmio", "virtio_console", "virtio_blk", "libcrc32c", "erofs"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_module_that_is_nowhere_is_named() {
        let error = order(TABLE, "", "virtio_mmio", &[]).unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no module ext4");
    }
}
