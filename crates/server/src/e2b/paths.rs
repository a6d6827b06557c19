//! Paths as clients write them: `/home/user` is the home, and what relative paths are relative to.

use agent_sandbox::HOME;
use std::path::{Path, PathBuf};

/// The home as programs written for hosted sandboxes know it.
pub const CLIENT_HOME: &str = "/home/user";

/// The correspondence of paths of clients and paths in the sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Paths {
    /// Set if [`CLIENT_HOME`] is a link to the home, so that programs inside can use it as well.
    pub is_linked: bool,
}

impl Paths {
    /// The path in the sandbox that a client means.
    pub fn resolve(self, path: &str) -> PathBuf {
        let path = path.strip_prefix('~').map_or(path, |below| below.trim_start_matches('/'));
        let full = Path::new(CLIENT_HOME).join(path);
        match full.strip_prefix(CLIENT_HOME) {
            Ok(below) if below.as_os_str().is_empty() => HOME.into(),
            Ok(below) => Path::new(HOME).join(below),
            Err(_) => full,
        }
    }

    /// A path in the sandbox as the client is shown it.
    pub fn shown(self, path: &Path) -> PathBuf {
        match path.strip_prefix(HOME) {
            Ok(below) if below.as_os_str().is_empty() => CLIENT_HOME.into(),
            Ok(below) => Path::new(CLIENT_HOME).join(below),
            Err(_) => path.to_owned(),
        }
    }

    /// The path that programs inside get for one of the sandbox: with the link, the one that clients know.
    pub fn inside(self, path: &Path) -> PathBuf {
        if self.is_linked { self.shown(path) } else { path.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_clients_is_the_home() {
        let paths = Paths { is_linked: true };
        for (client, inside) in [
            ("", "/home/agent"),
            ("~", "/home/agent"),
            ("~/a", "/home/agent/a"),
            ("a/b", "/home/agent/a/b"),
            ("/home/user", "/home/agent"),
            ("/home/user/x", "/home/agent/x"),
            ("/home/users", "/home/users"),
            ("/tmp/x", "/tmp/x"),
        ] {
            assert_eq!(paths.resolve(client), Path::new(inside), "{client}");
        }
        assert_eq!(paths.shown(Path::new("/home/agent/x")), Path::new("/home/user/x"));
        assert_eq!(paths.shown(Path::new("/home/agent")), Path::new("/home/user"));
        assert_eq!(paths.shown(Path::new("/etc")), Path::new("/etc"));
        assert_eq!(Paths { is_linked: false }.inside(Path::new("/home/agent")), Path::new("/home/agent"));
    }
}
