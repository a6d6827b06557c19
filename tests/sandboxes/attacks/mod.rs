//! Attacks on the promise that nothing inside can hurt, each looked at from the host: `attack_07_…` is the seventh.
//!
//! They run on every backend (in pods where the suite is pointed at a cluster), and on the local one as root and as an ordinary user. Where a backend cannot hold one as
//! well as another, the test prints a line, and `SECURITY.md` has the difference.
//!
//! | attacks | file |
//! |---|---|
//! | 1 to 3: privileges | `privileges.rs` |
//! | 4 to 7, 9: the host's files, programs and secrets | `host.rs` |
//! | 8: the guest | `guest.rs` |
//! | 10, 12, 13: memory, processes, time, output | `resources.rs` |
//! | 11: the disk | `disk.rs` |
//! | 14 to 16: files on their way in and out | `files.rs` |
//! | 17, 74: the terminal, and every other place that shows text of others | `terminal.rs`, `../web.rs`, `../acp.rs`, `../mcp_server.rs`, `../mcp_client.rs` |
//! | 18: the neighbour | `neighbour.rs` |
//! | 19, 20, 22 to 24: the network, the endpoint, and a README that lies | `network.rs` |
//! | 21, 29: repositories that nobody sees, the repository's own programs | `git.rs` |
//! | 39, 40: the user's other repositories, programs that git's settings name | `git.rs` |
//! | 73: small archives that git unpacks to a lot | `git.rs` |
//! | 27: secret files, git's configuration | `files.rs`, `git.rs` |
//! | 30, 31: the user inside | `privileges.rs` |
//! | 32: memory in sockets; 37: a huge answer; 38: empty files in memory | `resources.rs` |
//! | 36: the guest's share of the processors | `guest.rs` |
//! | 33 to 35: sockets, FIFOs and settings of this machine | `host.rs` |
//! | 41, 42: what git ignores, caches of package managers | `projects.rs` |
//! | 28: a review that shows everything | `files.rs` |
//! | 60 to 64, 76: reviews | `review.rs` |
//! | 65 to 71: questions, plans, instructions, the policy, servers | `questions.rs` |

mod disk;
mod files;
mod git;
mod guest;
mod host;
mod neighbour;
mod network;
mod privileges;
mod projects;
mod questions;
mod resources;
mod review;
mod terminal;
