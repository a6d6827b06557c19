//! Which kind of pictures the terminal shows. It is asked one question, whose end every terminal answers, and what it answers
//! too late is read and dropped.

use super::answers::TerminalAnswers;
use super::kitty::through_tmux;
use crate::terminal::keyboard::keyboard_within;
use agent_base::lock::Lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::{process, stdio, termios};
use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time that the terminal has to answer.
const ANSWER: Duration = Duration::from_millis(150);
/// The same on the other side of a network.
const REMOTE_ANSWER: Duration = Duration::from_millis(1000);
/// The time for which a late answer is waited for, so that it does not appear as typed text.
const LATE_ANSWER: Duration = Duration::from_secs(1);
/// Would it show a pixel? A terminal that does not know kitty's protocol ignores it.
const KITTY: &str = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\";
/// XTVERSION, the size of a cell, and DA1, which is always answered and comes last.
const OTHERS: &str = "\x1b[>0q\x1b[16t\x1b[c";

/// The abilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureTerminal {
    /// `None`: it shows no pictures.
    pub protocol: Option<Protocol>,
    /// Width and height of a cell in pixels, where they are known.
    pub cell: Option<(u16, u16)>,
}

/// The protocol by which a picture is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Kitty { tmux: bool },
    Iterm,
}

/// The facts that the environment tells about the terminal.
#[derive(Debug, Clone, Default)]
pub struct TerminalEnvironment {
    term: String,
    program: String,
    tmux: bool,
    screen: bool,
    remote: bool,
    ci: bool,
    /// Standard input, output and error are terminals.
    terminals: bool,
}

impl TerminalEnvironment {
    pub fn of_process() -> Self {
        let terminals = io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal();
        Self { terminals, ..Self::of(|name| std::env::var(name).ok()) }
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| variable(name).unwrap_or_default();
        let is_set = |name| !text(name).is_empty();
        let program = [text("TERM_PROGRAM"), text("LC_TERMINAL")].into_iter().find(|name| !name.is_empty());
        Self {
            term: text("TERM"),
            program: program.unwrap_or_default(),
            tmux: is_set("TMUX"),
            screen: is_set("STY"),
            remote: is_set("SSH_TTY") || is_set("SSH_CONNECTION"),
            ci: is_set("CI"),
            terminals: false,
        }
    }

    /// Returns whether somebody looks at the output.
    pub fn is_interactive(&self) -> bool {
        self.terminals && !self.ci && !matches!(self.term.as_str(), "" | "dumb")
    }

    /// Returns whether the terminal may be asked. GNU screen shows what it does not know, and the Linux console parts of it.
    fn may_be_asked(&self) -> bool {
        self.is_interactive() && !self.screen && self.term != "linux"
    }

    /// Returns what the environment alone is enough for. Inside tmux it describes a terminal that may not be there any more.
    fn protocol(&self) -> Option<Protocol> {
        match (self.term.as_str(), self.program.as_str()) {
            _ if self.tmux || self.screen => None,
            ("xterm-kitty" | "xterm-ghostty", _) => Some(Protocol::Kitty { tmux: false }),
            (_, "iTerm.app" | "iTerm2" | "WezTerm" | "mintty" | "rio") => Some(Protocol::Iterm),
            _ => None,
        }
    }
}

/// Finds out what the terminal can do; `None` while somebody else reads the keyboard.
pub fn detect(environment: &TerminalEnvironment) -> Option<PictureTerminal> {
    let known = environment.protocol();
    if !environment.may_be_asked() || !is_in_foreground() {
        return Some(PictureTerminal { protocol: known, cell: None });
    }
    if let Some(protocol) = known
        && let Some(cell) = cell_of_window()
    {
        return Some(PictureTerminal { protocol: Some(protocol), cell: Some(cell) });
    }
    let answers = ask(environment)?;
    let protocol = match &answers {
        TerminalAnswers { kitty: true, .. } => Some(Protocol::Kitty { tmux: environment.tmux }),
        TerminalAnswers { name, .. } if !environment.tmux && takes_iterm_files(name) => Some(Protocol::Iterm),
        _ => known,
    };
    Some(PictureTerminal { protocol, cell: answers.cell.or_else(cell_of_window) })
}

fn takes_iterm_files(name: &str) -> bool {
    ["iTerm2", "WezTerm", "mintty", "Rio"].iter().any(|known| name.starts_with(known))
}

/// Returns whether this process may set the terminal: one in the background would be stopped.
fn is_in_foreground() -> bool {
    termios::tcgetpgrp(stdio::stdin()).is_ok_and(|group| group == process::getpgrp())
}

fn cell_of_window() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(stdio::stderr()).ok()?;
    let side = |pixels: u16, cells: u16| pixels.checked_div(cells).filter(|side| *side > 0);
    Some((side(size.ws_xpixel, size.ws_col)?, side(size.ws_ypixel, size.ws_row)?))
}

/// The thread that reads late answers, until it is waited for.
static LATE: Lock<Option<JoinHandle<()>>> = Lock::new(None);

/// Waits until the terminal has its settings back: the process must not end before that.
pub fn settle() {
    let late = LATE.lock().take();
    if let Some(thread) = late {
        let _ = thread.join();
    }
}

/// The time limit for somebody else to give the keyboard away.
const KEYBOARD_WAIT: Duration = Duration::from_millis(100);

/// Asks the terminal, and reads until its last answer or for a short time; `None` while somebody else reads the keyboard.
fn ask(environment: &TerminalEnvironment) -> Option<TerminalAnswers> {
    let keyboard = keyboard_within(KEYBOARD_WAIT)?;
    let Some(quiet) = Quiet::begin() else { return Some(TerminalAnswers::default()) };
    let first = if environment.tmux { through_tmux(KITTY) } else { KITTY.to_owned() };
    crate::stderr::write(&(first + OTHERS));
    let mut answers = TerminalAnswers::default();
    let time = if environment.remote { REMOTE_ANSWER } else { ANSWER };
    // tmux answers DA1 itself, before the terminal around it answers what came through.
    let is_done = |answers: &TerminalAnswers| answers.is_complete && (answers.kitty || !environment.tmux);
    read(&mut answers, Instant::now() + time, is_done);
    if answers.is_complete {
        return Some(answers);
    }
    let known = answers.clone();
    let drain = move || {
        read(&mut answers, Instant::now() + LATE_ANSWER, |answers| answers.is_complete);
        drop(quiet);
        drop(keyboard);
    };
    if let Ok(thread) = std::thread::Builder::new().name("late-answers".to_owned()).spawn(drain) {
        *LATE.lock() = Some(thread);
    }
    Some(known)
}

fn read(answers: &mut TerminalAnswers, deadline: Instant, is_done: impl Fn(&TerminalAnswers) -> bool) {
    let stdin = stdio::stdin();
    let mut buffer = [0; 1024];
    while !is_done(answers) && is_readable(stdin, deadline) {
        match rustix::io::read(stdin, &mut buffer) {
            Ok(0) => return,
            Ok(length) => answers.push(&buffer[..length]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// Waits for input, not beyond the deadline.
fn is_readable(stdin: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let Ok(left) = Timespec::try_from(left) else { return false };
        let mut waiting = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        match poll(&mut waiting, Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return waiting[0].revents().contains(PollFlags::IN),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// The terminal without echo and without waiting for the end of a line. Ctrl-C still interrupts. Dropping it restores the
/// settings.
struct Quiet(Termios);

impl Quiet {
    fn begin() -> Option<Self> {
        let saved = termios::tcgetattr(stdio::stdin()).ok()?;
        let mut quiet = saved.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(stdio::stdin(), OptionalActions::Now, &quiet).ok()?;
        Some(Self(saved))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> TerminalEnvironment {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        TerminalEnvironment { terminals: true, ..TerminalEnvironment::of(find) }
    }

    #[test]
    fn the_environment_is_believed_outside_of_multiplexers_only() {
        for (variables, protocol) in [
            (vec![("TERM", "xterm-kitty")], Some(Protocol::Kitty { tmux: false })),
            (vec![("TERM", "xterm-256color"), ("TERM_PROGRAM", "iTerm.app")], Some(Protocol::Iterm)),
            (vec![("TERM", "xterm-256color"), ("LC_TERMINAL", "iTerm2")], Some(Protocol::Iterm)),
            (vec![("TERM", "tmux-256color"), ("LC_TERMINAL", "iTerm2"), ("TMUX", "/tmp/t")], None),
            (vec![("TERM", "screen"), ("TERM_PROGRAM", "WezTerm"), ("STY", "1.pts")], None),
            // Whether it shows pictures is a setting of it.
            (vec![("TERM", "xterm-256color"), ("TERM_PROGRAM", "vscode")], None),
            (vec![("TERM", "xterm-256color")], None),
        ] {
            assert_eq!(environment(&variables).protocol(), protocol, "{variables:?}");
        }
    }

    #[test]
    fn only_a_terminal_that_ignores_what_it_does_not_know_is_asked() {
        let may = |variables: &[(&str, &str)]| environment(variables).may_be_asked();
        assert!(may(&[("TERM", "xterm-256color")]));
        assert!(may(&[("TERM", "tmux-256color"), ("TMUX", "/tmp/t")]));
        for variables in [
            &[("TERM", "dumb")][..],
            &[],
            &[("TERM", "linux")],
            &[("TERM", "screen"), ("STY", "1.pts")],
            &[("TERM", "xterm"), ("CI", "true")],
        ] {
            assert!(!may(variables), "{variables:?}");
        }
        let piped = TerminalEnvironment { terminals: false, ..environment(&[("TERM", "xterm")]) };
        assert!(!piped.may_be_asked());
    }
}
