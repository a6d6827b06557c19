//! A virtual machine as a sandbox. Two processes of this program serve one: `guest keep` outside, which is process 1 of the
//! namespaces that QEMU runs in (`keeper.rs`), and `guest boot` inside, which is process 1 of the machine (`boot.rs`). They
//! speak over one virtio port (`mux.rs`), which carries the streams of all clients.

pub mod boot;
mod clock;
mod console;
pub mod keeper;
mod modules;
mod monitor;
mod mux;
mod qemu;
