//! Images of containers, as far as they are the same on every backend.

/// The image where none was asked for and the host's own programs cannot serve: Debian with a shell, the usual tools and Python.
pub const DEFAULT: &str = "python:3-slim";

/// The program of an image: what its containers run by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageProgram {
    /// Its entry point.
    pub entrypoint: Vec<String>,
    /// The arguments of that; without an entry point the program and its arguments.
    pub command: Vec<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub directory: Option<String>,
}

impl ImageProgram {
    /// Returns what is executed, where `entrypoint` and `args` replace those of the image as `docker run` has it: another entry point
    /// comes without the image's arguments.
    pub fn argv(&self, entrypoint: Option<&str>, args: &[String]) -> Vec<String> {
        let own_args = if entrypoint.is_none() { self.command.as_slice() } else { &[] };
        let entrypoint =
            entrypoint.map_or_else(|| self.entrypoint.clone(), |program| vec![program.to_owned()]);
        [entrypoint, if args.is_empty() { own_args } else { args }.to_vec()].concat()
    }
}
