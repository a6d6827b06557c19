//! Telling the user, who may look at another window, that something waits for them; and the title of the terminal.

use super::host_programs::HostPrograms;
use super::stderr;
use agent_base::lock::Lock;
use agent_base::sanitise;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::io::IsTerminal;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The default time for which the user has to have typed nothing.
const AFTER: Duration = Duration::from_secs(10);
/// Columns of a notification or title.
const MAX_TEXT: usize = 200;

/// `[ui] notify`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Notify {
    /// Nothing.
    Off,
    /// The terminal's bell.
    #[default]
    Bell,
    /// The escape sequence of iTerm2, Windows Terminal, kitty and others: OSC 9.
    Osc9,
    /// That of rxvt, VTE, foot and others: OSC 777.
    Osc777,
    /// A command of this machine and its arguments; the text is added as the last one.
    Command(Vec<String>),
}

impl schemars::JsonSchema for Notify {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Notify".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [
                { "enum": ["off", "bell", "osc9", "osc777"] },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ],
        })
    }
}

impl<'de> Deserialize<'de> for Notify {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Word(String),
            Command(Vec<String>),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Command(words)) if !words.is_empty() => Ok(Notify::Command(words)),
            Ok(Written::Word(word)) => match word.as_str() {
                "off" => Ok(Notify::Off),
                "bell" => Ok(Notify::Bell),
                "osc9" => Ok(Notify::Osc9),
                "osc777" => Ok(Notify::Osc777),
                _ => Err(D::Error::custom(EXPECTED)),
            },
            _ => Err(D::Error::custom(EXPECTED)),
        }
    }
}

const EXPECTED: &str =
    "notify is \"off\", \"bell\", \"osc9\", \"osc777\" or a command: [\"notify-send\", \"agent\"]";

/// The notifications of the process; set once the configuration is read.
struct Notifications {
    notify: Notify,
    after: Duration,
    programs: HostPrograms,
    last_input: Instant,
    title: Option<String>,
}

static STATE: Lock<Option<Notifications>> = Lock::new(None);

/// Notifies from now on, if standard error is a terminal that understands escape sequences.
pub fn set_up(notify: Notify, after: Option<Duration>, programs: HostPrograms) {
    let is_terminal = std::io::stderr().is_terminal();
    if is_terminal && std::env::var("TERM").is_ok_and(|term| term != "dumb") {
        let (after, last_input) = (after.unwrap_or(AFTER), Instant::now());
        *STATE.lock() = Some(Notifications { notify, after, programs, last_input, title: None });
    }
}

/// The user has typed something.
pub fn saw_input() {
    if let Some(state) = &mut *STATE.lock() {
        state.last_input = Instant::now();
    }
}

/// Notifies of `text`, unless the user has typed something a short time ago.
pub fn notify(text: &str) {
    let mut state = STATE.lock();
    let Some(state) = state.as_mut().filter(|state| state.last_input.elapsed() >= state.after) else {
        return;
    };
    // The next one only after further input or as long a time.
    state.last_input = Instant::now();
    let text = sanitise::one_line(text, MAX_TEXT);
    match &state.notify {
        Notify::Off => {}
        Notify::Bell => stderr::write("\x07"),
        Notify::Osc9 => stderr::write(&format!("\x1b]9;{text}\x07")),
        // A semicolon begins another field.
        Notify::Osc777 => stderr::write(&format!("\x1b]777;notify;agent;{}\x07", text.replace(';', ","))),
        Notify::Command(words) => start(words, &text, &state.programs),
    }
}

/// Starts the user's command and does not wait for it. One that cannot be started is not worth an error.
fn start(words: &[String], text: &str, programs: &HostPrograms) {
    let Some((program, arguments)) = words.split_first() else { return };
    let Some(mut command) = programs.command(program) else { return };
    command.args(arguments).arg(text).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Ok(mut child) = command.spawn() {
        std::thread::spawn(move || child.wait());
    }
}

/// The title of the terminal while this lives; the former one is restored.
pub struct Title(());

impl Title {
    /// Saves the title of the terminal, where [`set_up`] found one.
    pub fn save() -> Option<Self> {
        STATE.lock().as_ref().map(|_| {
            // xterm's stack of titles, which others have too; one without it ignores this.
            stderr::write("\x1b[22;2t");
            Self(())
        })
    }

    /// Shows `text`.
    pub fn show(&self, text: &str) {
        let text = sanitise::one_line(text, MAX_TEXT);
        if let Some(state) = &mut *STATE.lock()
            && state.title.as_ref() != Some(&text)
        {
            stderr::write(&format!("\x1b]2;{text}\x07"));
            state.title = Some(text);
        }
    }
}

impl Drop for Title {
    fn drop(&mut self) {
        // A terminal without a stack gets at least rid of ours.
        stderr::write("\x1b]2;\x07\x1b[23;2t");
    }
}

#[cfg(test)]
mod tests {
    use super::Notify;

    #[derive(serde::Deserialize)]
    struct Ui {
        notify: Notify,
    }

    #[test]
    fn a_word_or_a_command_is_read() {
        let read = |text: &str| toml::from_str::<Ui>(&format!("notify = {text}")).map(|ui| ui.notify);
        assert_eq!(read("\"osc9\"").unwrap(), Notify::Osc9);
        let command = vec!["notify-send".to_owned(), "agent".to_owned()];
        assert_eq!(read("[\"notify-send\", \"agent\"]").unwrap(), Notify::Command(command));
        assert!(read("\"loud\"").unwrap_err().to_string().contains("osc777"));
        assert!(read("[]").is_err());
    }
}
