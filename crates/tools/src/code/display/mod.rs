//! Pictures and tables that programs show, without a change in them.
//!
//! Programs in the sandbox find modules of ours where their libraries look for a display: a matplotlib backend, hooks for plotly
//! and Pillow in `sitecustomize`, an R device, a gnuplot terminal (`programs/`). They write each figure to the directory that
//! `AGENT_DISPLAY_DIR` names, one for each run, from which [`collect`] takes it. They are an offer to well-meaning programs and are
//! never trusted: any program may write anything there.
//!
//! A Python interpreter that is kept has to set the variables of each run in `os.environ`, to call `agent_display.flush()` at the end
//! of a cell (figures that were drawn and not shown), and may pass a last value to `agent_display.display(value)`.

mod collect;

pub use collect::{ShownOutput, collect};

use agent_base::error::{Kind, Result};
use agent_sandbox::{FileWrite, HOME, Node, Sandbox};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The directory of everything about pictures inside the sandbox; on the sized `/tmp`, never in the workspace.
const ROOT: &str = "/tmp/agent/display";
/// Written into a run's directory at its beginning. Its change time is the beginning by the sandbox's clock.
const BEGUN: &str = ".begun";

const PROGRAMS: [(&str, &str); 5] = [
    ("agent_display.py", include_str!("programs/agent_display.py")),
    ("agent_matplotlib.py", include_str!("programs/agent_matplotlib.py")),
    ("agent_charts.py", include_str!("programs/agent_charts.py")),
    ("sitecustomize.py", include_str!("programs/sitecustomize.py")),
    ("profile.R", include_str!("programs/profile.R")),
];
/// gnuplot looks for it in the home directory only.
const GNUPLOT: &str = include_str!("programs/gnuplotrc");

/// The directory of the programs. Its name has their hash, so that a sandbox of an earlier version gets new ones.
static PROGRAMS_DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    PROGRAMS.iter().for_each(|(name, text)| hash.update([name.as_bytes(), text.as_bytes()].concat()));
    Path::new(ROOT).join(format!("programs-{}", &hex::encode(hash.finalize())[..12]))
});

/// One run of a program whose pictures are captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its directory inside the sandbox.
    directory: PathBuf,
}

impl Run {
    /// Makes the run's directory, and puts the programs into the sandbox where they are not there yet.
    ///
    /// # Errors
    /// The connection is broken. What fails inside the sandbox (a full disk) costs the pictures, not the run.
    pub async fn begin(sandbox: &Sandbox) -> Result<Self> {
        let run = Self { directory: Path::new(ROOT).join(format!("{:08x}", fastrand::u32(..))) };
        let begun = vec![regular(run.directory.join(BEGUN), "")];
        let programs = PROGRAMS_DIR.join(PROGRAMS[0].0);
        let (begun, there) = tokio::join!(sandbox.write_files(begun), sandbox.stat(&programs));
        if absent_is_fine(begun)?.is_some() && absent_is_fine(there)?.is_none() {
            absent_is_fine(install(sandbox).await)?;
        }
        Ok(run)
    }

    /// The directory that programs write to.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The variables that the program runs with.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("AGENT_DISPLAY_DIR", path(&self.directory)),
            ("PYTHONPATH", path(&PROGRAMS_DIR)),
            ("MPLBACKEND", "module://agent_matplotlib".to_owned()),
            ("R_PROFILE_USER", path(&PROGRAMS_DIR.join("profile.R"))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

async fn install(sandbox: &Sandbox) -> Result<()> {
    // The first file is what `begin` looks for, so it is written last.
    let programs = PROGRAMS.iter().rev().map(|(name, text)| regular(PROGRAMS_DIR.join(name), text));
    let mut files: Vec<FileWrite> = programs.collect();
    let gnuplot = Path::new(HOME).join(".gnuplot");
    if absent_is_fine(sandbox.stat(&gnuplot).await)?.is_none() {
        files.insert(0, regular(gnuplot, GNUPLOT));
    }
    sandbox.write_files(files).await.map(drop)
}

fn regular(path: PathBuf, text: &str) -> FileWrite {
    FileWrite { path, node: Node::Regular(text.into()), mode: None, mtime_ns: None, follow: false }
}

/// The result, or `None` where the sandbox refused.
fn absent_is_fine<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == Kind::InSandbox => Ok(None),
        Err(error) => Err(error),
    }
}
