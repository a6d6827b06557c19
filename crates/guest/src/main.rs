//! The guest: the small static program that runs inside every sandbox and serves the host's requests there.
//!
//! `guest serve` speaks the protocol of the crate `agent-wire`; `guest attach` joins its socket to standard input and output;
//! `guest launch` makes a sandbox of namespaces around `guest serve`, `guest remove` clears one away, and `guest show`
//! shows a directory as another user's. `guest detach` makes a provider's machine a sandbox and serves there, `guest enter`
//! serves as the first process of a container, and `guest probe` fails where a network answers. `guest keep` serves a virtual
//! machine from outside, and `guest boot` is its first process.
//! Only the standard library is used, so that the build script can compile it with plain `rustc`.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program of its own, whose environment is the sandbox's"
)]

mod attach;
mod attributes;
mod client;
mod command;
mod directory;
mod facts;
mod files;
mod filters;
mod launch;
mod machine;
mod outlet;
mod output;
mod plan;
mod process_limit;
mod processes;
mod quota;
mod relay;
mod requests;
mod search;
mod serve;
mod simple;
mod socket_memory;
mod supervisor;
mod sys;
mod update;
mod usage;
mod walk;

use std::process::ExitCode;

const USAGE: &str =
    "usage: guest serve [--idle-ttl SECS] [--socket NAME] [--user-socket NAME] [--listen-fd N] [--workspace DIR]
                   [--disk BYTES] [--disk-directory DIR] [--keepalive SECS] [--filters FILE] [--socket-questions-fd N]
                   [--websocket-fd N VERIFIER] [--engine yes|no]
       guest attach --socket NAME
       guest detach ADDRESS:PORT|@NAME VERIFIER SPEC [ADDRESS:PORT[/NAME],...]
       guest enter SPEC
       guest probe ADDRESS:PORT[/NAME],...
       guest launch DIR
       guest keep --idle-ttl SECS --boot SECS [--save | --restore FILE] QEMU ARGUMENT... [-- BOOT ARGUMENT...]
       guest boot
       guest remove DIR
       guest anew PID
       guest show DIR TARGET UID GID";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match arguments.next().as_deref() {
        Some("serve") => serve::main(arguments),
        Some("attach") => attach::main(arguments),
        Some("detach") => launch::detached::main(arguments),
        Some("enter") => launch::enter::main(arguments),
        Some("probe") => launch::probe::main(arguments),
        Some("keep") => machine::keeper::main(arguments),
        Some("boot") => machine::boot::main(),
        Some("launch") => launch::main(arguments),
        Some("remove") => launch::remove(arguments),
        Some("anew") => launch::anew::main(arguments),
        Some("show") => launch::show(arguments),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("guest: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The bytes that hexadecimal digits stand for.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok())
        .collect()
}
