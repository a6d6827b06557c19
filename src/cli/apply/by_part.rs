//! Choosing at the terminal, part by part, as `git add -p` does it.

use super::decision::{Decision, PossibleDecisions};
use super::{ChosenChanges, Dialogue, RefusedPart};
use crate::cli::ui::style::Colours;
use crate::cli::ui::wrap::columns_of;
use crate::cli::ui::{confirm, editor, pager, stderr};
use crate::error::Result;
use crate::workspace::changes::Change;
use crate::workspace::parts::{self, Hunk, Item, TextFile, Whole};
use crate::workspace::{ChangeSet, Workspace, diff};

/// Lines of one part that are shown at once; `p` shows the rest.
const MAX_LINES: usize = 300;
/// Characters of a reason.
const MAX_REASON: usize = 2_000;

struct Review<'a> {
    workspace: &'a Workspace,
    dialogue: &'a Dialogue<'a>,
    colours: Colours,
    chosen: ChosenChanges,
    /// After `q`.
    is_over: bool,
}

/// Asks about each part of `changes`.
pub async fn choose(
    changes: &ChangeSet,
    workspace: &Workspace,
    dialogue: &Dialogue<'_>,
) -> Result<ChosenChanges> {
    let chosen = ChosenChanges::all(changes.without_changes());
    let colours = Colours::of(&std::io::stderr());
    let mut review = Review { workspace, dialogue, colours, chosen, is_over: false };
    for item in parts::items(changes, workspace.store())? {
        if review.is_over {
            break;
        }
        match item {
            Item::Whole(whole) => review.whole(whole).await?,
            Item::Text(file) => review.file(file).await?,
        }
    }
    let directories = parts::directories(changes, &review.chosen.changes);
    review.chosen.changes.changes.extend(directories);
    Ok(review.chosen)
}

/// The hunks of a file that is under review.
struct Hunks {
    file: TextFile,
    /// The hunks, by whether each is taken.
    taken: Vec<bool>,
    at: usize,
}

impl Review<'_> {
    async fn whole(&mut self, whole: Whole) -> Result<()> {
        let mut shown = Vec::new();
        diff::write_text(&mut shown, &whole.changes, self.workspace.store(), self.colours.0)?;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let possible = PossibleDecisions { in_file: false, can_split: false, can_edit: false };
        self.show(&shown);
        loop {
            match self.decide("Apply this?", possible, &shown).await? {
                Decision::Yes => {
                    self.chosen.changes.changes.extend(whole.changes.changes);
                    return Ok(());
                }
                Decision::No(reason) => {
                    // The path that it has now: of a rename the new one.
                    let is_new = |change: &&Change| change.after.is_some();
                    let mut named = whole.changes.changes.iter();
                    let first = named.clone().next();
                    let place = named.find(|(_, change)| is_new(change)).or(first);
                    let place = place.map(|(path, _)| path.to_string()).unwrap_or_default();
                    self.refuse(place, reason, String::new());
                    return Ok(());
                }
                Decision::Quit => {
                    self.is_over = true;
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    async fn file(&mut self, file: TextFile) -> Result<()> {
        self.say(&file.headlines(self.colours.0));
        let new_mode = file.changes_mode() && self.mode(&file).await?;
        let taken = vec![false; file.hunks.len()];
        let mut hunks = Hunks { file, taken, at: 0 };
        while hunks.at < hunks.file.hunks.len() && !self.is_over {
            self.hunk(&mut hunks).await?;
        }
        self.keep(&hunks, new_mode)
    }

    /// Returns whether the new mode is wanted.
    async fn mode(&mut self, file: &TextFile) -> Result<bool> {
        let possible = PossibleDecisions { in_file: false, can_split: false, can_edit: false };
        loop {
            match self.decide("Apply the change of the mode?", possible, "").await? {
                Decision::Yes => return Ok(true),
                Decision::No(reason) => {
                    self.refuse(format!("{}, its mode", file.path), reason, String::new());
                    return Ok(false);
                }
                Decision::Quit => {
                    self.is_over = true;
                    return Ok(false);
                }
                _ => {}
            }
        }
    }

    /// Asks about the hunk at `hunks.at`, and moves on.
    async fn hunk(&mut self, hunks: &mut Hunks) -> Result<()> {
        let (at, count) = (hunks.at, hunks.file.hunks.len());
        let parts = hunks.file.hunks[at].split();
        let possible = PossibleDecisions { in_file: true, can_split: parts.is_some(), can_edit: true };
        let shown = self.painted(&hunks.file, &hunks.file.hunks[at]);
        self.show(&shown);
        let question = match hunks.file.hunks[at].is_edited {
            true => format!("Apply the edited hunk ({}/{count})?", at + 1),
            false => format!("Apply this hunk ({}/{count})?", at + 1),
        };
        match self.decide(&question, possible, &shown).await? {
            Decision::Yes => hunks.take(),
            Decision::All => (at..count).for_each(|_| hunks.take()),
            Decision::No(reason) => {
                let hunk = &hunks.file.hunks[at];
                let diff = String::from_utf8_lossy(&hunks.file.editable(hunk)).into_owned();
                self.refuse(hunks.file.place(hunk), reason, diff);
                hunks.at += 1;
            }
            Decision::Decline => hunks.at = count,
            Decision::Quit => self.is_over = true,
            Decision::Split => hunks.replace(parts.unwrap_or_default()),
            Decision::Edit => self.edit(hunks).await?,
            Decision::Print | Decision::Help => {}
        }
        Ok(())
    }

    /// Puts what the user's editor makes of the hunk in its place; it is asked about again.
    async fn edit(&mut self, hunks: &mut Hunks) -> Result<()> {
        let mut text = hunks.file.editable(&hunks.file.hunks[hunks.at]);
        text.extend_from_slice(EDIT_HELP.as_bytes());
        loop {
            let _hold = self.dialogue.progress.hold();
            let edited = editor::edit(text, ".diff", &self.dialogue.programs).await?;
            match hunks.file.edited(hunks.at, &edited) {
                Ok(Some(hunk)) => {
                    hunks.file.hunks[hunks.at] = hunk;
                    return Ok(());
                }
                Ok(None) => return Ok(()),
                Err(why) => {
                    self.say(&format!("The edited hunk cannot be applied: {why}\n"));
                    let question = "Edit it again? (no leaves the hunk as it was)";
                    if confirm::ask(self.dialogue.progress, question, &["yes", "no"]).await? == "no" {
                        return Ok(());
                    }
                    text = edited;
                }
            }
        }
    }

    /// Adds what was taken of a file to the choice.
    fn keep(&mut self, hunks: &Hunks, new_mode: bool) -> Result<()> {
        let Hunks { file, taken, .. } = hunks;
        let store = self.workspace.store();
        let taken = || file.hunks.iter().zip(taken).filter(|(_, taken)| **taken).map(|(hunk, _)| hunk);
        if taken().next().is_none() && !new_mode {
            return Ok(());
        }
        let after = file.node(&file.content(taken())?, new_mode, store)?;
        let change = Change { before: file.change.before.clone(), after: Some(after) };
        self.chosen.changes.changes.insert(file.path.clone(), change);
        if taken().any(|hunk| hunk.is_edited) {
            let whole = file.node(&file.content(&file.hunks)?, true, store)?;
            self.chosen.edited.insert(file.path.clone(), whole);
        }
        Ok(())
    }

    fn refuse(&mut self, place: String, reason: Option<String>, diff: String) {
        if let Some(reason) = reason {
            let reason = reason.chars().take(MAX_REASON).collect();
            self.chosen.refused.push(RefusedPart { place, reason, diff });
        }
    }

    /// Asks until the answer is one of the possible ones, and answers `?` and `p` itself.
    async fn decide(&self, question: &str, possible: PossibleDecisions, shown: &str) -> Result<Decision> {
        let prompt = format!("{question} [{}] ", possible.letters());
        loop {
            let line = confirm::line(self.dialogue.progress, &prompt).await?;
            match possible.read(&line) {
                Some(Decision::Print) => {
                    let _hold = self.dialogue.progress.hold();
                    if !pager::page(&self.dialogue.programs, shown.as_bytes())? {
                        self.say(shown);
                    }
                }
                None if confirm::is_said(&line, &possible.words()) => {
                    return Ok(Decision::No(Some(line.trim().to_owned())));
                }
                Some(Decision::Help) | None => self.say(&possible.help(columns_of(&std::io::stderr()))),
                Some(decision) => return Ok(decision),
            }
        }
    }

    fn painted(&self, file: &TextFile, hunk: &Hunk) -> String {
        let (mut painter, mut text) = (file.painter(self.colours.0), String::new());
        file.show(hunk, &mut |line| painter.line(line, &mut text));
        painter.finish(&mut text);
        text
    }

    /// Shows as much of a part as is read at once.
    fn show(&self, text: &str) {
        let count = text.lines().count();
        if count <= MAX_LINES {
            return self.say(text);
        }
        let first: String = text.split_inclusive('\n').take(MAX_LINES).collect();
        self.say(&format!("{first}… and {} more lines (p shows all of it)\n", count - MAX_LINES));
    }

    fn say(&self, text: &str) {
        self.dialogue.progress.suspend(|| stderr::write(text));
    }
}

impl Hunks {
    fn take(&mut self) {
        self.taken[self.at] = true;
        self.at += 1;
    }

    /// Puts smaller hunks in the place of the one that is asked about.
    fn replace(&mut self, parts: Vec<Hunk>) {
        let count = parts.len();
        self.file.hunks.splice(self.at..=self.at, parts);
        self.taken.splice(self.at..=self.at, vec![false; count]);
    }
}

const EDIT_HELP: &str = "\
# To take a line with - back, change the - to a space. To leave a line with + out, delete it.
# Other lines with + may be changed and added. Lines with # are removed.
# If all lines are removed, the hunk stays as it was.
";
