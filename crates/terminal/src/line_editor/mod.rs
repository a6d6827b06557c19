//! The line editor: the prompt's, and that of questions.
//!
//! It takes keys one by one and says what is to be shown, and neither reads nor waits: the keyboard is shared with what is
//! typed while the model works, and with programs of the sandbox. The text and its words are rustyline's
//! ([`rustyline::line_buffer`]), and so is the history. rustyline's own editor opens the terminal for itself, shows a
//! paste of any length, and does not know Shift+Enter.

pub mod draw;
mod emacs;
pub mod menu;
mod pasted_image;
pub mod text;
mod vi;

use super::style::{Colours, DIM};
use super::terminal::key::{Key, Press};
use draw::{Label, View};
pub use emacs::edit;
use menu::{Menu, OpenMenu};
use rustyline::Movement;
use rustyline::completion::{Pair, longest_common_prefix};
use rustyline::history::{DefaultHistory, History, SearchDirection};
use text::Text;
use vi::{Vi, ViRequest};

/// Rows of completions that are shown.
const MAX_CANDIDATES: usize = 8;

/// The questions of the editor while the text is written.
pub trait Assistant: Sync {
    /// Returns the beginning of the word at the cursor, and what it can become.
    fn complete(&self, text: &str, cursor: usize) -> (usize, Vec<Pair>);
    /// Returns the list for what is being written, which is shown while it is.
    fn menu(&self, _text: &str, _cursor: usize) -> Option<Menu> {
        None
    }
    /// Returns what could follow, of which the first bytes complete the text.
    fn hint(&self, text: &str, history: &DefaultHistory) -> Option<(String, usize)>;
    /// Returns whether Enter begins another line.
    fn is_incomplete(&self, text: &str) -> bool;
    /// Returns what is shown under the text.
    fn status(&self, _columns: usize) -> Option<String> {
        None
    }
}

/// The keys of the editor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Editing {
    #[default]
    Emacs,
    Vi,
}

/// The effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditStep {
    /// The next key.
    Continue,
    /// The text is complete.
    Submit,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D without text.
    End,
    /// The text is to be opened in the user's own editor.
    OpenEditor,
    /// Escape twice.
    Rewind,
    /// Ctrl-O.
    ShowLast,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    ClearScreen,
}

/// The editor.
pub struct Editor {
    pub text: Text,
    history: DefaultHistory,
    vi: Option<Vi>,
    /// The entry of the history that is shown, and the text before it was.
    recalled: Option<usize>,
    draft: String,
    /// The text that is searched for in the history, and the entry that was found.
    search: Option<(String, usize)>,
    /// Completions, beneath the text.
    candidates: Vec<String>,
    /// The list for the word that is being written.
    menu: Option<OpenMenu>,
    /// The beginning of the word whose list the user has closed.
    closed_menu: Option<usize>,
    /// The last key was Ctrl-X.
    after_control_x: bool,
    /// The last key was Escape.
    after_escape: bool,
}

impl Editor {
    pub fn new(history: DefaultHistory, editing: Editing) -> Self {
        Self {
            text: Text::default(),
            history,
            vi: (editing == Editing::Vi).then(Vi::default),
            recalled: None,
            draft: String::new(),
            search: None,
            candidates: Vec::new(),
            menu: None,
            closed_menu: None,
            after_control_x: false,
            after_escape: false,
        }
    }

    pub fn history(&mut self) -> &mut DefaultHistory {
        &mut self.history
    }

    /// Begins another text.
    pub fn begin(&mut self, text: &str) {
        self.text.take();
        self.text.insert(text);
        (self.recalled, self.search) = (None, None);
        self.candidates.clear();
        (self.menu, self.closed_menu) = (None, None);
        if let Some(vi) = &mut self.vi {
            *vi = Vi::default();
        }
    }

    /// Applies a key.
    pub fn press(&mut self, press: &Press, assistant: &dyn Assistant) -> EditStep {
        if let Some(step) = self.press_in_menu(press, assistant) {
            return step;
        }
        self.menu = None;
        let before = self.text.as_str().len();
        let step = self.press_key(press, assistant);
        // A line of the history is not being written, and a key that changes nothing opens no list.
        if step == EditStep::Continue && self.recalled.is_none() && self.text.as_str().len() != before {
            self.open_menu(assistant);
        }
        step
    }

    fn open_menu(&mut self, assistant: &dyn Assistant) {
        let is_command = self.vi.as_ref().is_some_and(|vi| vi.is_command);
        let menu = match self.search.is_some() || is_command {
            true => None,
            false => assistant.menu(self.text.as_str(), self.text.cursor()),
        };
        let start = menu.as_ref().map(|menu| menu.start);
        if self.closed_menu.is_some() && self.closed_menu == start {
            return;
        }
        self.closed_menu = None;
        self.menu = menu.map(OpenMenu::new);
    }

    /// A key while a list is open. `None` where it is for the text.
    fn press_in_menu(&mut self, press: &Press, assistant: &dyn Assistant) -> Option<EditStep> {
        let open = self.menu.as_mut()?;
        let is_plain = !press.ctrl && !press.alt && !press.shift;
        let (start, taken) = match press.key {
            Key::Up | Key::Down if is_plain => {
                open.step(press.key == Key::Down);
                return Some(EditStep::Continue);
            }
            Key::Escape if is_plain => {
                self.closed_menu = Some(open.start());
                self.menu = None;
                return Some(EditStep::Continue);
            }
            Key::Tab if is_plain => (open.start(), open.entry()?.clone()),
            Key::Enter if is_plain => (open.start(), open.entered()?.clone()),
            _ => return None,
        };
        self.menu = None;
        self.text.complete(start, &taken.replacement);
        if press.key == Key::Enter && taken.is_complete {
            return Some(EditStep::Submit);
        }
        // A directory has a list of its own.
        self.open_menu(assistant);
        Some(EditStep::Continue)
    }

    fn press_key(&mut self, press: &Press, assistant: &dyn Assistant) -> EditStep {
        let after_escape = std::mem::take(&mut self.after_escape);
        let after_control_x = std::mem::take(&mut self.after_control_x);
        self.candidates.clear();
        // Ctrl-[ where the terminal distinguishes it from Escape.
        let escape = Press::of(Key::Escape);
        let press = if *press == Press::ctrl('[') { &escape } else { press };
        if self.search.is_some() && self.search_on(press) {
            return EditStep::Continue;
        }
        if after_control_x {
            return self.second_key(press);
        }
        if let Press { key: Key::Escape, ctrl: false, alt: false, .. } = press {
            return self.escape(after_escape);
        }
        if let Some(step) = self.common(press, assistant) {
            return step;
        }
        if let Some(vi) = &mut self.vi
            && vi.is_command
        {
            match vi.command(&mut self.text, press) {
                ViRequest::Nothing => return EditStep::Continue,
                ViRequest::ExternalEditor => return EditStep::OpenEditor,
                ViRequest::Earlier => self.earlier(),
                ViRequest::Later => self.later(),
                ViRequest::Search => self.search = Some((String::new(), self.history.len())),
                // Keys that insert nothing move in commands too.
                ViRequest::Usual => drop(emacs::edit(&mut self.text, press)),
            }
            return EditStep::Continue;
        }
        emacs::edit(&mut self.text, press);
        EditStep::Continue
    }

    fn second_key(&mut self, press: &Press) -> EditStep {
        match press {
            Press { key: Key::Char('e'), ctrl: true, .. } => return EditStep::OpenEditor,
            Press { key: Key::Char('u'), ctrl: true, .. } => self.text.undo(),
            _ => {}
        }
        EditStep::Continue
    }

    fn escape(&mut self, again: bool) -> EditStep {
        let Some(vi) = &mut self.vi else {
            self.after_escape = !again;
            return if again { EditStep::Rewind } else { EditStep::Continue };
        };
        // Users of vi press it often: only without text it means more.
        if again && self.text.is_empty() {
            return EditStep::Rewind;
        }
        vi.begin_commands(&mut self.text);
        self.after_escape = true;
        EditStep::Continue
    }

    /// Keys that do the same in every mode.
    fn common(&mut self, press: &Press, assistant: &dyn Assistant) -> Option<EditStep> {
        let is_plain = !press.ctrl && !press.alt && !press.shift;
        match press.key {
            Key::Enter if is_plain && assistant.is_incomplete(self.text.as_str()) => self.text.insert("\n"),
            Key::Enter if is_plain || press.ctrl => return Some(EditStep::Submit),
            Key::Tab => self.complete(assistant),
            Key::Up if is_plain => {
                if !self.text.go(&Movement::LineUp(1)) {
                    self.earlier();
                }
            }
            Key::Down if is_plain => {
                if !self.text.go(&Movement::LineDown(1)) {
                    self.later();
                }
            }
            Key::Right | Key::End if is_plain && self.text.is_cursor_at_end() => {
                if let Some((hint, length)) = self.hint(assistant) {
                    self.text.insert(hint.get(..length).unwrap_or_default());
                }
            }
            Key::Char(character) if press.ctrl && !press.alt => return self.control(character, assistant),
            Key::Char('<') if press.alt => self.recall(0),
            Key::Char('>') if press.alt => self.recall(self.history.len()),
            _ => return None,
        }
        Some(EditStep::Continue)
    }

    fn control(&mut self, character: char, assistant: &dyn Assistant) -> Option<EditStep> {
        match character {
            'c' => return Some(EditStep::Interrupt),
            'd' if self.text.is_empty() => return Some(EditStep::End),
            'g' => return Some(EditStep::OpenEditor),
            'i' => self.complete(assistant),
            'l' => return Some(EditStep::ClearScreen),
            'm' => return Some(EditStep::Submit),
            'n' => self.later(),
            'o' => return Some(EditStep::ShowLast),
            'p' => self.earlier(),
            'r' => self.search = Some((String::new(), self.history.len())),
            'x' => self.after_control_x = true,
            'z' => return Some(EditStep::Suspend),
            _ => return None,
        }
        Some(EditStep::Continue)
    }

    fn complete(&mut self, assistant: &dyn Assistant) {
        let (start, candidates) = assistant.complete(self.text.as_str(), self.text.cursor());
        let typed = self.text.cursor().saturating_sub(start);
        match candidates.as_slice() {
            [] => {}
            [only] => self.text.complete(start, &only.replacement),
            several => match longest_common_prefix(several).filter(|prefix| prefix.len() > typed) {
                Some(prefix) => self.text.complete(start, prefix),
                None => self.candidates = several.iter().map(|pair| pair.display.clone()).collect(),
            },
        }
    }

    fn hint(&self, assistant: &dyn Assistant) -> Option<(String, usize)> {
        let text = self.text.as_str();
        let may_follow = self.search.is_none() && self.text.is_cursor_at_end() && !text.contains('\n');
        if may_follow { assistant.hint(text, &self.history) } else { None }
    }

    fn earlier(&mut self) {
        if let Some(index) = self.recalled.unwrap_or(self.history.len()).checked_sub(1) {
            self.recall(index);
        }
    }

    fn later(&mut self) {
        if let Some(index) = self.recalled {
            self.recall(index + 1);
        }
    }

    /// Shows an entry of the history; behind the last one is the text that was there before.
    fn recall(&mut self, index: usize) {
        if self.recalled.is_none() {
            self.draft = self.text.as_str().to_owned();
        }
        match self.entry(index) {
            Some(entry) => {
                self.text.set(&entry);
                self.recalled = Some(index);
            }
            None if self.recalled.take().is_some() => self.text.set(&std::mem::take(&mut self.draft)),
            None => {}
        }
    }

    fn entry(&self, index: usize) -> Option<String> {
        let found = self.history.get(index, SearchDirection::Reverse).ok()??;
        Some(found.entry.into_owned())
    }

    /// A key while the history is searched. `false` where it ends the search and is to be applied.
    fn search_on(&mut self, press: &Press) -> bool {
        let Some((query, at)) = &mut self.search else { return false };
        let mut from = self.history.len();
        match press {
            Press { key: Key::Char('r'), ctrl: true, .. } => from = *at,
            Press { key: Key::Char(character), ctrl: false, alt: false, .. } => query.push(*character),
            Press { key: Key::Backspace, .. } => drop(query.pop()),
            Press { key: Key::Escape, .. } | Press { key: Key::Char('g'), ctrl: true, .. } => {
                self.search = None;
                return true;
            }
            _ => {
                self.search = None;
                return false;
            }
        }
        let query = query.clone();
        let found = (0..from).rev().find_map(|index| {
            let entry = self.entry(index).filter(|entry| !query.is_empty() && entry.contains(&query))?;
            Some((index, entry))
        });
        if let Some((index, entry)) = found {
            self.text.set(&entry);
            self.search = Some((query, index));
        }
        true
    }

    /// Returns what remains on the screen of a text that is complete.
    pub fn final_view(&self, label: &Label, columns: usize) -> View {
        View::new(label, self.text.as_str(), self.text.as_str().len(), columns)
    }

    /// Returns what is to be shown.
    pub fn view(&self, label: &Label, assistant: &dyn Assistant, columns: usize, colours: Colours) -> View {
        let label = match (&self.search, &self.vi) {
            (Some((query, _)), _) => {
                let plain = format!("search {query}: ");
                Label { painted: plain.clone(), plain }
            }
            (None, Some(vi)) if vi.is_command => {
                let command = |text: &str| text.replacen('›', ":", 1);
                Label { plain: command(&label.plain), painted: command(&label.painted) }
            }
            _ => label.clone(),
        };
        let mut view = View::new(&label, self.text.as_str(), self.text.cursor(), columns);
        if let Some((hint, _)) = self.hint(assistant) {
            view.hint(&hint, columns, colours);
        }
        view.rows.extend(in_columns(&self.candidates, columns));
        view.rows.extend(self.menu.iter().flat_map(|open| open.rows(columns, colours)));
        let status = assistant.status(columns.saturating_sub(1));
        view.rows.extend(status.map(|status| colours.paint(DIM, status)));
        view
    }
}

/// Words side by side, as many as fit.
fn in_columns(words: &[String], columns: usize) -> Vec<String> {
    use unicode_width::UnicodeWidthStr;
    let Some(widest) = words.iter().map(|word| word.width() + 2).max() else { return Vec::new() };
    let a_row = (columns.saturating_sub(1) / widest).max(1);
    let row = |words: &[String]| {
        let cells = words.iter().map(|word| format!("{word}{}", " ".repeat(widest - word.width())));
        agent_base::sanitise::truncate(cells.collect::<String>().trim_end(), columns.saturating_sub(1))
    };
    let mut rows: Vec<String> = words.chunks(a_row).map(row).collect();
    if rows.len() > MAX_CANDIDATES {
        rows.truncate(MAX_CANDIDATES);
        rows.push(format!("… and {} more", words.len().saturating_sub(MAX_CANDIDATES * a_row)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoAssistant;

    impl Assistant for NoAssistant {
        fn complete(&self, _: &str, _: usize) -> (usize, Vec<Pair>) {
            (0, Vec::new())
        }
        fn hint(&self, _: &str, _: &DefaultHistory) -> Option<(String, usize)> {
            None
        }
        fn is_incomplete(&self, _: &str) -> bool {
            false
        }
    }

    fn editor(editing: Editing) -> Editor {
        let mut history = DefaultHistory::new();
        for entry in ["first entry", "second", "third entry"] {
            history.add(entry).unwrap();
        }
        Editor::new(history, editing)
    }

    fn type_keys(editor: &mut Editor, keys: &[Press]) -> EditStep {
        keys.iter().fold(EditStep::Continue, |_, press| editor.press(press, &NoAssistant))
    }

    fn chars(text: &str) -> Vec<Press> {
        text.chars().map(|character| Press::of(Key::Char(character))).collect()
    }

    #[test]
    fn the_history_is_recalled_and_the_draft_comes_back() {
        let mut editor = editor(Editing::Emacs);
        type_keys(&mut editor, &chars("draft"));
        type_keys(&mut editor, &[Press::of(Key::Up), Press::of(Key::Up)]);
        assert_eq!(editor.text.as_str(), "second");
        type_keys(&mut editor, &[Press::of(Key::Down), Press::of(Key::Down), Press::of(Key::Down)]);
        assert_eq!(editor.text.as_str(), "draft");
        type_keys(&mut editor, &[Press::ctrl('r')]);
        type_keys(&mut editor, &chars("entry"));
        assert_eq!(editor.text.as_str(), "third entry");
        type_keys(&mut editor, &[Press::ctrl('r')]);
        assert_eq!(editor.text.as_str(), "first entry");
        assert_eq!(type_keys(&mut editor, &[Press::of(Key::Enter)]), EditStep::Submit);
    }

    #[test]
    fn every_key_for_a_new_line_makes_one() {
        let mut editor = editor(Editing::Emacs);
        let alt = Press { alt: true, ..Press::of(Key::Enter) };
        let shift = Press { shift: true, ..Press::of(Key::Enter) };
        assert_eq!(type_keys(&mut editor, &[alt, Press::ctrl('j'), shift]), EditStep::Continue);
        assert_eq!(editor.text.as_str(), "\n\n\n");
    }

    #[test]
    fn keys_that_leave_the_editor_do() {
        let escape = || Press::of(Key::Escape);
        for (keys, step) in [
            (vec![Press::ctrl('c')], EditStep::Interrupt),
            (vec![Press::ctrl('d')], EditStep::End),
            (vec![Press::ctrl('g')], EditStep::OpenEditor),
            (vec![Press::ctrl('x'), Press::ctrl('e')], EditStep::OpenEditor),
            (vec![Press::ctrl('z')], EditStep::Suspend),
            (vec![escape(), escape()], EditStep::Rewind),
            (vec![escape(), Press::of(Key::Char('a')), escape()], EditStep::Continue),
        ] {
            assert_eq!(type_keys(&mut editor(Editing::Emacs), &keys), step, "{keys:?}");
        }
        let mut vi = editor(Editing::Vi);
        type_keys(&mut vi, &chars("text"));
        assert_eq!(type_keys(&mut vi, &[escape(), escape()]), EditStep::Continue);
        assert_eq!(type_keys(&mut vi, &chars("ddv")), EditStep::OpenEditor);
        assert_eq!(type_keys(&mut vi, &[escape(), escape()]), EditStep::Rewind);
    }
}
