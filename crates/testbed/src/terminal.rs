//! A user at a terminal: a real program in a pseudo-terminal, its keyboard and its screen.

use crate::agent::binary;
use agent_testing::endpoint::Endpoint;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);
const ROWS: NonZero<u16> = NonZero::new(40).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();
/// Lines that are kept after they have left the screen.
const SCROLLBACK: usize = 2000;

/// `agent` in a terminal of 100 × 40, with its own home and workspace.
pub fn terminal() -> Builder {
    Builder::of(binary())
}

/// What to start in the terminal.
pub struct Builder {
    command: Command,
    root: Arc<TempDir>,
    answers: Option<Answers>,
    columns: u16,
}

/// What the terminal answers to the question for its attributes (DA1), and how much later.
#[derive(Clone)]
struct Answers {
    text: String,
    delay: Duration,
}

impl Builder {
    /// A program other than `agent`.
    pub fn of(program: impl AsRef<OsStr>) -> Self {
        let root = TempDir::new().expect("a temporary directory");
        std::fs::create_dir(root.path().join("workspace")).expect("a workspace");
        Self::within(program, Arc::new(root))
    }

    /// Another run of the program with the same home and workspace.
    pub fn again(&self) -> Self {
        Self::within(self.command.get_program(), Arc::clone(&self.root))
    }

    fn within(program: impl AsRef<OsStr>, root: Arc<TempDir>) -> Self {
        let mut command = Command::new(program);
        command.env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("TERM", "xterm-256color");
        command.env("HOME", root.path().join("home"));
        command.env("AGENT_HOME", root.path().join("agent"));
        // The local backend is always available; tests of the other one name it.
        command.env("AGENT_SANDBOX", "local");
        command.current_dir(root.path().join("workspace"));
        Self { command, root, answers: None, columns: COLUMNS.get() }
    }

    /// Answers DA1, and what was asked before it, with `text` after this time.
    pub fn answering(self, text: &str, delay: Duration) -> Self {
        Self { answers: Some(Answers { text: text.to_owned(), delay }), ..self }
    }

    /// A window of this many columns.
    pub fn columns(self, columns: u16) -> Self {
        Self { columns, ..self }
    }

    /// Configures the scripted endpoint, with a key and a model.
    pub fn endpoint(self, endpoint: &Endpoint) -> Self {
        self.env("AGENT_BASE_URL", endpoint.url())
            .env("AGENT_API_KEY", "test-key")
            .env("AGENT_MODEL", "test-model")
    }

    /// A directory of its own: `workspace`, `home` or `agent`.
    pub fn directory(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Puts a file into the workspace.
    pub fn file(self, name: &str, content: &str) -> Self {
        let path = self.root.path().join("workspace").join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("the file");
        self
    }

    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn start(mut self) -> Terminal {
        let (keyboard, program) = pseudo_terminal(self.columns).expect("a pseudo-terminal");
        let end = || program.try_clone().expect("a descriptor");
        self.command.stdin(end()).stdout(end()).stderr(end());
        let take_the_terminal = || {
            // A shell that runs the tests in the background may have these ignored.
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: a system call with constants.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        };
        // SAFETY: nothing but system calls, which are safe between fork and exec.
        unsafe { self.command.pre_exec(take_the_terminal) };
        let child = self.command.spawn().expect("the program starts");
        let view = Arc::new(View::default());
        view.lock().parser.screen_mut().set_size(ROWS, NonZero::new(self.columns).expect("columns"));
        let mut reader = keyboard.try_clone().expect("a reader");
        let (watched, watching) = std::io::pipe().expect("a pipe");
        let seen = Arc::clone(&view);
        let answers = self.answers;
        let reading = std::thread::spawn(move || seen.follow(&mut reader, &watched, answers));
        Terminal {
            child,
            view,
            keyboard: Some(keyboard),
            watching: Some((watching, reading)),
            root: self.root,
        }
    }
}

/// The two ends of a new terminal, the program's last. No child that another test forks meanwhile keeps either of them:
/// both are closed on exec from the start.
fn pseudo_terminal(columns: u16) -> rustix::io::Result<(File, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&controller)?;
    rustix::pty::unlockpt(&controller)?;
    let size = Winsize { ws_row: ROWS.get(), ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&controller, size)?;
    let program = rustix::pty::ioctl_tiocgptpeer(&controller, flags)?;
    Ok((controller.into(), program))
}

/// The running program, its keyboard and its screen. Dropping it kills the program.
pub struct Terminal {
    child: Child,
    view: Arc<View>,
    /// Until it is hung up.
    keyboard: Option<File>,
    /// The screen is watched for as long as the pipe is open.
    watching: Option<(PipeWriter, JoinHandle<()>)>,
    root: Arc<TempDir>,
}

/// The screen so far.
#[derive(Default)]
struct View {
    drawn: Mutex<Drawn>,
    changed: Condvar,
}

struct Drawn {
    parser: vt100::Parser,
    raw: Vec<u8>,
    has_ended: bool,
}

impl Default for Drawn {
    fn default() -> Self {
        Self { parser: vt100::Parser::new(ROWS, COLUMNS, SCROLLBACK), raw: Vec::new(), has_ended: false }
    }
}

impl View {
    fn follow(&self, reader: &mut File, watched: &PipeReader, mut answers: Option<Answers>) {
        let mut buffer = [0; 8192];
        loop {
            let wait = PollFlags::IN;
            let mut both = [PollFd::new(&*reader, wait), PollFd::new(watched, wait)];
            poll(&mut both, None).expect("the terminal can be waited for");
            let is_watched = both[1].revents().is_empty();
            let length = if is_watched { reader.read(&mut buffer).unwrap_or(0) } else { 0 };
            let mut drawn = self.lock();
            drawn.parser.process(&buffer[..length]);
            drawn.raw.extend_from_slice(&buffer[..length]);
            if drawn.raw.windows(3).any(|bytes| bytes == b"\x1b[c")
                && let Some(answers) = answers.take()
            {
                answer(reader, answers);
            }
            drawn.has_ended = length == 0;
            self.changed.notify_all();
            if length == 0 {
                return;
            }
        }
    }

    fn wait<'v>(&self, drawn: MutexGuard<'v, Drawn>, time: Duration) -> MutexGuard<'v, Drawn> {
        self.changed.wait_timeout(drawn, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, Drawn> {
        // A test that panics while it looks changes nothing.
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attributes(cell: &vt100::Cell) -> String {
    let colour = |name, colour| match colour {
        vt100::Color::Default => None,
        vt100::Color::Idx(index) => Some(format!("{name}{index}")),
        vt100::Color::Rgb(red, green, blue) => Some(format!("{name}{red}/{green}/{blue}")),
    };
    let set = |name: &str, is_set: bool| is_set.then(|| name.to_owned());
    let all = [
        colour("fg", cell.fgcolor()),
        colour("bg", cell.bgcolor()),
        set("bold", cell.bold()),
        set("dim", cell.dim()),
        set("italic", cell.italic()),
        set("underline", cell.underline()),
        set("inverse", cell.inverse()),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn answer(terminal: &File, Answers { text, delay }: Answers) {
    let mut keyboard = terminal.try_clone().expect("the keyboard");
    std::thread::spawn(move || {
        std::thread::sleep(delay);
        // The program may have ended.
        let _ = keyboard.write_all(text.as_bytes());
    });
}

impl Terminal {
    /// Types as a keyboard would.
    pub fn type_text(&mut self, text: &str) {
        let keyboard = self.keyboard.as_mut().expect("the terminal is still there");
        keyboard.write_all(text.as_bytes()).expect("the terminal takes input");
        keyboard.flush().expect("the terminal takes input");
    }

    /// Types a line and Enter.
    pub fn type_line(&mut self, line: &str) {
        self.type_text(&format!("{line}\r"));
    }

    pub fn ctrl_c(&mut self) {
        self.type_text("\x03");
    }

    pub fn ctrl_d(&mut self) {
        self.type_text("\x04");
    }

    /// Waits until the screen shows `text`.
    pub fn wait_for(&self, text: &str) {
        self.wait_until(&format!("{text:?} on the screen"), |screen| screen.contains(text));
    }

    /// Waits until `condition` holds for the screen; `what` names it in the failure.
    pub fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        self.wait_for_view(what, |screen| condition(&screen.contents().to_string()));
    }

    fn wait_for_view(&self, what: &str, condition: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        let mut drawn = self.view.lock();
        while !condition(drawn.parser.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let screen = drawn.parser.screen().contents().to_string();
            assert!(!left.is_zero(), "waited too long for {what}; the screen:\n{screen}");
            assert!(!drawn.has_ended, "the program ended before {what}; the screen:\n{screen}");
            drawn = self.view.wait(drawn, left);
        }
    }

    /// The screen as text, without the empty lines at its end.
    pub fn screen(&self) -> String {
        self.view.lock().parser.screen().contents().trim_end().to_string()
    }

    /// The screen as text, with the attributes of what follows in angle brackets: `<fg2 bold>text</>`.
    pub fn formatted(&self) -> String {
        let drawn = self.view.lock();
        let screen = drawn.parser.screen();
        let (rows, columns) = screen.size();
        let mut lines = Vec::new();
        for row in 0..rows.get() {
            let (mut line, mut before) = (String::new(), String::new());
            for cell in (0..columns.get()).filter_map(|column| screen.cell(row, column)) {
                let now = attributes(cell);
                if cell.has_contents() && now != before {
                    line += &if now.is_empty() { "</>".to_owned() } else { format!("<{now}>") };
                    before = now;
                }
                if !cell.is_wide_continuation() {
                    line += if cell.has_contents() { cell.contents() } else { " " };
                }
            }
            lines.push(line.trim_end().to_owned() + if before.is_empty() { "" } else { "</>" });
        }
        lines.join("\n").trim_end().to_owned()
    }

    /// Waits until the prompt is at the end of the screen.
    pub fn wait_for_prompt(&self) {
        self.wait_until_prompt("the prompt", "›");
    }

    /// Waits until the screen up to the cursor, below which is the status line, ends with `text`.
    pub fn wait_until_prompt(&self, what: &str, text: &str) {
        self.wait_for_view(what, |screen| {
            let (row, column) = screen.cursor_position();
            screen.contents_between(0, 0, row, column).trim_end().ends_with(text)
        });
    }

    /// The program's home: `agent/data` and its like.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Ends the program with a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is ours and not waited for yet, so the pid is still valid.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Changes the number of columns, as dragging the window's edge does.
    pub fn resize(&self, columns: u16) {
        let keyboard = self.keyboard.as_ref().expect("the terminal is still there");
        let size = Winsize { ws_row: ROWS.get(), ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(keyboard, size).expect("the window takes a size");
        let columns = NonZero::new(columns).expect("columns");
        self.view.lock().parser.screen_mut().set_size(ROWS, columns);
    }

    /// Returns whether the terminal has the settings of a shell: it waits for lines, and shows what is typed.
    pub fn is_as_found(&self) -> bool {
        let keyboard = self.keyboard.as_ref().expect("the terminal is still there");
        let modes = tcgetattr(keyboard).expect("the settings").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Closes the terminal as a closed window does.
    pub fn hang_up(&mut self) {
        if let Some((watching, reading)) = self.watching.take() {
            drop(watching);
            reading.join().expect("the screen is no longer watched");
        }
        self.keyboard = None;
    }

    /// Every byte that the program wrote so far.
    pub fn raw(&self) -> Vec<u8> {
        self.view.lock().raw.clone()
    }

    /// Waits until the program has ended, and for all that it wrote. Returns the exit code, or 128 plus the signal.
    pub fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + TIMEOUT;
        let mut drawn = self.view.lock();
        while !drawn.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            let screen = drawn.parser.screen().contents().to_string();
            assert!(!left.is_zero(), "the program does not end; the screen:\n{screen}");
            drawn = self.view.wait(drawn, left);
        }
        drop(drawn);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the program can be waited for") {
                break status;
            }
            assert!(Instant::now() < deadline, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
