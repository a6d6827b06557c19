//! `@path` in a prompt: the file's text, a directory's listing or an image is sent with it.

use super::Session;
use agent_base::count_text::counted;
use agent_base::error::Kind;
use agent_base::error::Result;
use agent_base::file_name::{Likeness, escaped};
use agent_base::mention::{self, is_wide};
use agent_base::sanitise::one_line;
use agent_event::Event;
use agent_picture::Header;
use agent_sandbox::Command;
use agent_sandbox::Entry;
use agent_sandbox::EntryKind;
use agent_sandbox::Program;
use agent_sandbox::Sandbox;
use agent_tools::Collector;
use agent_tools::Located;
use agent_tools::Section;
use agent_tools::locate;
use agent_tools::read_lines;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Paths of one prompt that are looked at.
const MAX_MENTIONS: usize = 20;
/// Ends of one path that are tried.
const MAX_SHORTER: usize = 8;
/// Bytes of a prompt in which they are looked for: what is longer was piped in.
const MAX_SEARCHED: usize = 64 << 10;
/// Characters that all files of one prompt share.
const MAX_CHARS: usize = 60_000;
/// Characters of one listing.
const MAX_LISTING: usize = 4_000;
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest image that is sent with a prompt, in bytes.
pub const MAX_IMAGE: u64 = 4 << 20;
const IMAGES: [&str; 3] = ["png", "jpg", "jpeg"];

/// A path that a prompt names, and the lines of it that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mention {
    path: String,
    /// The first line and the last.
    lines: Option<(u64, u64)>,
    /// Shorter candidates for the path: what is written directly behind it may be a part of the sentence.
    shorter: Vec<String>,
}

/// The form in which a mention is sent.
enum Attachment {
    Text(String),
    /// A `data:` URL, and a line about it.
    Image(String, String),
}

impl Attachment {
    /// Returns the size of what the model gets of it, in words.
    fn size(&self) -> String {
        match self {
            Self::Text(text) => counted(text.lines().count(), "line"),
            Self::Image(..) => "image".to_owned(),
        }
    }
}

impl Session {
    /// Reads what the prompt names with `@`, as the sandbox has it: what is withheld from the sandbox stays withheld.
    pub(super) async fn attach(&mut self, prompt: &str) -> Result<()> {
        let mentions = mentions(prompt);
        if mentions.is_empty() {
            return Ok(());
        }
        let interrupt = self.conversation.interrupt();
        tokio::select! {
            biased;
            stop = interrupt.triggered() => Err(stop.error()),
            attached = self.attach_all(mentions) => attached,
        }
    }

    async fn attach_all(&mut self, mentions: Vec<Mention>) -> Result<()> {
        let sandbox = self.startup.ready().await?.sandbox.clone();
        let (mut attached, mut missing, mut left) = (Vec::new(), Vec::new(), MAX_CHARS);
        for mut mention in mentions {
            let Some((path, entry)) = mention.find(&sandbox).await else {
                // `@dataclass` is a word; `@src/a.rs` was meant to be a file.
                if mention.path.contains(['/', '.']) {
                    missing.push(format!("@{}", one_line(&escaped(&mention.path), 80)));
                }
                continue;
            };
            let chars = left.min(self.conversation.bounds().output_chars);
            let attachment = match entry.kind {
                EntryKind::Directory => listing(&sandbox, &path).await?,
                _ if is_image(&mention.path) => match sandbox.read_file(&path, 0, MAX_IMAGE + 1).await {
                    Ok(file) => self.image(&format!("@{}", mention.path), &file.bytes)?,
                    Err(error) => refused(error)?,
                },
                _ if chars == 0 => Attachment::Text("(left out: the prompt names too many files)".into()),
                _ => lines(&sandbox, &mention, chars).await?,
            };
            attached.push(format!("{} ({})", one_line(&mention.name(), 80), attachment.size()));
            left = left.saturating_sub(self.attach_one(&mention.name(), attachment)?);
        }
        let named = [("Attached", attached), ("Not in the workspace of the sandbox", missing)];
        for (what, paths) in named.iter().filter(|(_, paths)| !paths.is_empty()) {
            self.frontend.events().emit(Event::Notice { text: format!("{what}: {}", paths.join(", ")) })?;
        }
        Ok(())
    }

    /// Sends an image that does not come from the sandbox with the next prompt. It need not be one, nor be small enough.
    pub fn attach_image(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let attachment = self.image(name, bytes)?;
        self.attach_one(&one_line(name, 80), attachment).map(drop)
    }

    /// Returns the number of characters that it takes.
    fn attach_one(&mut self, name: &str, attachment: Attachment) -> Result<usize> {
        let text = match attachment {
            Attachment::Text(text) => text,
            Attachment::Image(url, text) => {
                self.conversation.attach_image(url);
                text
            }
        };
        self.conversation.attach(name, &text)?;
        Ok(text.chars().count())
    }

    fn image(&self, name: &str, content: &[u8]) -> Result<Attachment> {
        let bytes = content.len() as u64;
        let header = match Header::of(content) {
            Ok(header) if bytes <= MAX_IMAGE => header,
            Ok(_) => return Ok(Attachment::Text(format!("(an image of more than {MAX_IMAGE} bytes)"))),
            Err(why) => return Ok(Attachment::Text(format!("(not an image that can be sent: {why})"))),
        };
        let media_type = header.format.media_type();
        let line = format!("[image: {media_type}, {} × {}, {bytes} bytes]", header.width, header.height);
        if self.conversation.takes_images() {
            let url = format!("data:{media_type};base64,{}", STANDARD.encode(content));
            return Ok(Attachment::Image(url, line));
        }
        let model = one_line(self.conversation.model_name(), 100);
        let text = format!(
            "{} is an image, and {model} is not sent images; if it takes them, write `images = true` below \
             [models.{model:?}] in config.toml",
            one_line(name, 80)
        );
        self.frontend.events().emit(Event::Notice { text })?;
        Ok(Attachment::Text(format!("{line} (this model is not sent images)")))
    }
}

/// Returns the text for the model in place of what could not be read; a lost sandbox ends the prompt.
fn refused(error: agent_base::error::Error) -> Result<Attachment> {
    match error.kind() {
        Kind::InSandbox => Ok(Attachment::Text(format!("(not read: {error})"))),
        _ => Err(error),
    }
}

async fn lines(sandbox: &Sandbox, mention: &Mention, chars: usize) -> Result<Attachment> {
    let (first, last) = mention.lines.unwrap_or((1, u64::MAX));
    let limit = mention.lines.map_or(u64::MAX, |_| last.saturating_sub(first).saturating_add(1));
    match read_lines(sandbox, &mention.path, Section { first, column: 1, limit }, chars).await {
        Ok(result) => Ok(Attachment::Text(result.text)),
        Err(error) => refused(error),
    }
}

async fn listing(sandbox: &Sandbox, path: &Path) -> Result<Attachment> {
    let argv = ["ls".as_ref(), "-1Ap".as_ref(), "--".as_ref(), path.as_os_str()].map(OsString::from).to_vec();
    let command = Command {
        program: Program::Argv(argv),
        cwd: None,
        env: Vec::new(),
        timeout: Some(LISTING_TIMEOUT),
        live_bytes: 1 << 20,
        stdin: false,
    };
    let mut collector = Collector::new(MAX_LISTING);
    match sandbox.run(command, &mut |output| collector.push(output)).await {
        Ok(_) => Ok(Attachment::Text(collector.finish(None).text)),
        Err(error) => refused(error),
    }
}

fn is_image(path: &str) -> bool {
    let extension = Path::new(path).extension().unwrap_or_default().to_string_lossy();
    IMAGES.iter().any(|image| extension.eq_ignore_ascii_case(image))
}

impl Mention {
    /// Looks for the path, then for what remains of it without what may be the sentence's. From then on the path is the one that is there.
    async fn find(&mut self, sandbox: &Sandbox) -> Option<(PathBuf, Entry)> {
        for candidate in std::iter::once(self.path.clone()).chain(std::mem::take(&mut self.shorter)) {
            let Located { path, note } = locate(sandbox, &candidate, Likeness::Case).await;
            if let Ok(entry) = sandbox.stat(&path).await {
                self.path = match (note, path.to_str()) {
                    (Some(_), Some(name)) => name.to_owned(),
                    _ => candidate,
                };
                return Some((path, entry));
            }
        }
        None
    }

    fn name(&self) -> String {
        match self.lines {
            Some((first, last)) if last == u64::MAX => format!("{}, from line {first}", self.path),
            Some((first, last)) => format!("{}, lines {first} to {last}", self.path),
            None => self.path.clone(),
        }
    }
}

/// The paths in `prompt`: after an `@` at the start of a word, as a word, with backslashes before its blanks, or in double quotes.
fn mentions(prompt: &str) -> Vec<Mention> {
    let mut end = prompt.len().min(MAX_SEARCHED);
    while !prompt.is_char_boundary(end) {
        end -= 1;
    }
    let mut found: Vec<Mention> = Vec::new();
    let mut before = ' ';
    for (at, char) in prompt[..end].char_indices() {
        let starts = char == '@' && mention::may_follow(before);
        before = char;
        let rest = &prompt[at + char.len_utf8()..end];
        let mention = match (starts, rest.strip_prefix('"')) {
            (false, _) => None,
            (true, Some(quoted)) => quoted.split_once('"').and_then(|(path, _)| mention(path)),
            (true, None) => mention(&word(rest)),
        };
        if let Some(mention) = mention
            && !found.contains(&mention)
        {
            found.push(mention);
        }
        if found.len() == MAX_MENTIONS {
            break;
        }
    }
    found
}

/// The first word of `text`, with the blanks that have a backslash before them.
fn word(text: &str) -> String {
    let mut word = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' if chars.peek().is_some_and(|next| next.is_whitespace()) => word.extend(chars.next()),
            char if char.is_whitespace() => break,
            char => word.push(char),
        }
    }
    word
}

/// A path, with `:10` or `:10-40` behind it, and without the punctuation of the sentence.
fn mention(word: &str) -> Option<Mention> {
    let word = word.trim_end_matches(is_punctuation);
    let (path, lines) = match word.rsplit_once(':').map(|(path, range)| (path, range_of(range))) {
        Some((path, Some(lines))) => (path, Some(lines)),
        _ => (word, None),
    };
    let is_path = !path.is_empty() && !path.contains(char::is_control) && path.len() < 4096;
    is_path.then(|| Mention { path: path.to_owned(), lines, shorter: shorter(path) })
}

/// Punctuation of a sentence, in any script.
fn is_punctuation(char: char) -> bool {
    match char.is_ascii() {
        true => ".,;:!?)'\"`".contains(char),
        false => !char.is_alphanumeric(),
    }
}

/// The beginnings of `path` at whose ends a sentence may continue without a blank, the longest first: before punctuation, and where a
/// script without blanks begins.
fn shorter(path: &str) -> Vec<String> {
    let mut ends = Vec::new();
    let mut before: Option<char> = None;
    for (at, char) in path.char_indices() {
        let turns = before.is_some_and(|before| is_wide(char) && !is_wide(before));
        let ends_here = turns || ",;:!?)'\"`".contains(char) || (!char.is_ascii() && is_punctuation(char));
        if at > 0 && ends_here {
            ends.push(at);
        }
        before = Some(char);
    }
    let beginnings =
        ends.into_iter().rev().map(|end| path[..end].trim_end_matches(is_punctuation).to_owned());
    let mut shorter: Vec<String> = beginnings.filter(|beginning| !beginning.is_empty()).collect();
    shorter.dedup();
    shorter.truncate(MAX_SHORTER);
    shorter
}

/// `10` is that line alone, `10-40` these, `10-` everything from there on.
fn range_of(text: &str) -> Option<(u64, u64)> {
    let line = |text: &str| text.parse().ok().filter(|line: &u64| *line > 0);
    match text.split_once('-') {
        None => line(text).map(|only| (only, only)),
        Some((first, "")) => Some((line(first)?, u64::MAX)),
        Some((first, last)) => Some((line(first)?, line(last)?)).filter(|(first, last)| first <= last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(prompt: &str) -> Vec<String> {
        mentions(prompt).iter().map(Mention::name).collect()
    }

    #[test]
    fn a_mention_is_a_word_after_an_at_sign() {
        assert_eq!(named("fix @src/a.rs, and (@b.txt)."), ["src/a.rs", "b.txt"]);
        assert_eq!(named("@\"two words.md\" @a @a"), ["two words.md", "a"]);
        assert_eq!(named("write to me@example.org or @"), Vec::<String>::new());
    }

    #[test]
    fn blanks_behind_backslashes_belong_to_the_path_and_what_follows_it_may_be_the_sentence() {
        assert_eq!(named("see @two\\ words.md and @a\\ b\\ c"), ["two words.md", "a b c"]);
        assert_eq!(named("请看@src/a.rs。谢谢 （@b.rs）"), ["src/a.rs。谢谢", "b.rs"]);
        let ends = |prompt: &str| mentions(prompt).remove(0).shorter;
        assert_eq!(ends("@src/a.rs。谢谢"), ["src/a.rs"]);
        assert_eq!(ends("@src/a.rs的内容"), ["src/a.rs"]);
        assert_eq!(ends("@src/a.rs,b"), ["src/a.rs"]);
        assert_eq!(ends("@a.rs:x:10"), ["a.rs"]);
        assert_eq!(ends("@说明.md里"), ["说明.md"]);
        assert_eq!(ends(&format!("@{}", "a,".repeat(100))).len(), MAX_SHORTER);
    }

    #[test]
    fn lines_follow_a_colon() {
        assert_eq!(
            named("@a.rs:10-40 @b.rs:7: @c.rs:5- @d:x @e:9-3"),
            ["a.rs, lines 10 to 40", "b.rs, lines 7 to 7", "c.rs, from line 5", "d:x", "e:9-3"]
        );
    }

    #[test]
    fn the_number_of_mentions_is_bounded() {
        let many: String = (0..100).map(|number| format!("@f{number} ")).collect();
        assert_eq!(mentions(&many).len(), MAX_MENTIONS);
        assert!(mentions(&format!("{} @late", "é".repeat(MAX_SEARCHED))).is_empty());
    }
}
