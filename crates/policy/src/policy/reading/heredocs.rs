//! Takes here-documents out of a script before the grammar reads it.
//!
//! The bash grammar stumbles over redirections and pipes that follow `<<EOF`, so each here-document becomes a
//! redirection from a file of a made-up name, and its body is kept aside. This needs no more of the shell's grammar
//! than where quotes, comments and substitutions begin and end.

/// The file that a here-document's redirection reads from: this, and its number.
const PLACEHOLDER: &str = "/dev/heredoc/";

/// A script without its here-documents.
#[derive(Debug, Default)]
pub struct Extracted {
    /// The script, with `< /dev/heredoc/N` in place of `<<WORD`.
    pub script: String,
    /// The bodies, by number.
    pub bodies: Vec<Body>,
    /// Set if a shell may find other bodies.
    pub is_doubtful: bool,
}

/// The text of a here-document.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Body {
    /// The lines, without leading tabs where the shell strips them.
    pub text: String,
    /// Set if the shell expands `$X` and `$(…)` in it.
    pub expands: bool,
}

impl Extracted {
    /// The body that a redirection's target stands for.
    pub fn body(&self, target: &str) -> Option<&Body> {
        self.bodies.get(target.strip_prefix(PLACEHOLDER)?.parse::<usize>().ok()?)
    }
}

/// The construct that the reader is inside of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Construct {
    /// `$(…)`
    Commands,
    /// `(…)`
    Group,
    /// A substitution in backticks, which the shell takes as a whole before it looks for here-documents in it.
    Backticks,
    DoubleQuotes,
    Braces,
    Arithmetic,
    /// The text of a here-document itself.
    Body,
}

impl Construct {
    fn closing(self) -> Option<char> {
        match self {
            Construct::Commands | Construct::Group | Construct::Arithmetic => Some(')'),
            Construct::DoubleQuotes => Some('"'),
            Construct::Braces => Some('}'),
            Construct::Backticks | Construct::Body => None,
        }
    }

    fn is_of_commands(self) -> bool {
        matches!(self, Construct::Commands | Construct::Group | Construct::Backticks)
    }
}

/// A here-document whose lines come after the line that it stands in.
struct OpenHeredoc {
    delimiter: String,
    strips_tabs: bool,
    expands: bool,
    /// How many constructs it stands in.
    depth: usize,
}

/// Takes the here-documents out.
pub fn extract(script: &str) -> Extracted {
    let mut extracted = HeredocReader::of(script, Vec::new());
    extracted.is_doubtful |= script.contains(PLACEHOLDER);
    extracted
}

/// The body of a here-document that the shell expands as what stands between double quotes, without what does not count; nothing where
/// that is not known.
pub fn as_string(body: &str) -> Option<String> {
    let read = HeredocReader::of(body, vec![Construct::Body]);
    (!read.is_doubtful && read.bodies.is_empty()).then_some(read.script)
}

struct HeredocReader<'s> {
    rest: &'s str,
    out: Extracted,
    /// The constructs that the reader is inside of.
    inside: Vec<Construct>,
    waiting: Vec<OpenHeredoc>,
    /// Where the last escaped character ends.
    escaped: usize,
}

impl<'s> HeredocReader<'s> {
    fn of(text: &'s str, inside: Vec<Construct>) -> Extracted {
        let (out, waiting) = (Extracted::default(), Vec::new());
        let mut reader = HeredocReader { rest: text, out, inside, waiting, escaped: usize::MAX };
        while !reader.rest.is_empty() {
            reader.step();
        }
        reader.out.is_doubtful |= !reader.waiting.is_empty();
        reader.out
    }

    fn step(&mut self) {
        let inside = self.inside.last().copied().unwrap_or(Construct::Group);
        let (in_commands, in_body) = (inside.is_of_commands(), inside == Construct::Body);
        let at = |prefix: &str| self.rest.starts_with(prefix);
        if in_body && (at("\"") || at("\\") && !self.rest[1..].starts_with(['$', '`', '\\', '\n'])) {
            self.rest = &self.rest[1..];
        } else if at("\\\n") {
            // The grammar takes it for a blank; the shell joins what is around it.
            self.rest = &self.rest[2..];
        } else if at("\\") {
            let escaped = self.rest[1..].chars().next().map_or(0, char::len_utf8);
            self.copy(1 + escaped);
            self.escaped = self.out.script.len();
        } else if at("`") {
            self.backtick();
        } else if at("$((") || (in_commands && at("((")) {
            self.enter(Construct::Arithmetic, if at("$") { 3 } else { 2 });
        } else if at("$(") {
            self.enter(Construct::Commands, 2);
        } else if at("(") && (in_commands || inside == Construct::Arithmetic) {
            self.enter(if in_commands { Construct::Group } else { inside }, 1);
        } else if at("${") {
            self.enter(Construct::Braces, 2);
        } else if at("\"") && inside != Construct::DoubleQuotes {
            self.enter(Construct::DoubleQuotes, 1);
        } else if at("'") && inside != Construct::DoubleQuotes && !in_body {
            self.single_quotes();
        } else if inside.closing().is_some_and(|closing| self.rest.starts_with(closing)) {
            self.copy(1);
            self.inside.pop();
        } else if in_commands {
            self.step_in_commands();
        } else {
            self.copy_char();
        }
    }

    fn step_in_commands(&mut self) {
        let at = |prefix: &str| self.rest.starts_with(prefix);
        let script = &self.out.script;
        let at_word_start = self.escaped != script.len()
            && (script.is_empty()
                || script.ends_with([' ', '\t', '\n', ';', '(', ')', '&', '|', '`', '<', '>']));
        if at("<<<") {
            self.copy(3);
        } else if at("<<") {
            self.operator();
        } else if at("#") && at_word_start {
            self.copy(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if at("\n") {
            self.copy(1);
            for waiting in std::mem::take(&mut self.waiting) {
                // Within a substitution that began after it, the shell reads that first.
                self.out.is_doubtful |= waiting.depth != self.inside.len();
                self.take_body(&waiting);
            }
        } else {
            self.copy_char();
        }
    }

    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.out.script += copied;
        self.rest = rest;
    }

    fn copy_char(&mut self) {
        self.copy(self.rest.chars().next().map_or(0, char::len_utf8));
    }

    fn enter(&mut self, inside: Construct, bytes: usize) {
        // `((` closes with two.
        let count = if bytes >= 2 && inside == Construct::Arithmetic { 2 } else { 1 };
        self.inside.extend(std::iter::repeat_n(inside, count));
        self.copy(bytes);
    }

    /// The other backtick ends all that began after the first one.
    fn backtick(&mut self) {
        match self.inside.iter().rposition(|inside| *inside == Construct::Backticks) {
            Some(at) => {
                self.inside.truncate(at + 1);
                self.copy(1);
                self.inside.pop();
            }
            None => self.enter(Construct::Backticks, 1),
        }
    }

    /// `'…'`, and `$'…'`, where a backslash takes the next quote with it.
    fn single_quotes(&mut self) {
        let escapes = self.out.script.ends_with('$');
        let mut escaped = false;
        let end = self.rest[1..].char_indices().find(|(_, c)| {
            let is_end = *c == '\'' && !escaped;
            escaped = escapes && *c == '\\' && !escaped;
            is_end
        });
        self.copy(end.map_or(self.rest.len(), |(at, _)| at + 2));
    }

    /// `<<WORD`, `<<-'WORD'`
    fn operator(&mut self) {
        let strips_tabs = self.rest.starts_with("<<-");
        let after = self.rest[if strips_tabs { 3 } else { 2 }..].trim_start_matches([' ', '\t']);
        let (delimiter, quoted, length) = word(after);
        if delimiter.is_empty() && !quoted {
            return self.copy(2);
        }
        self.out.is_doubtful |=
            self.inside.contains(&Construct::Backticks) || !is_plain_delimiter(&after[..length]);
        let depth = self.inside.len();
        self.rest = &after[length..];
        self.out.script += &format!("< {PLACEHOLDER}{} ", self.out.bodies.len() + self.waiting.len());
        self.waiting.push(OpenHeredoc { delimiter, strips_tabs, expands: !quoted, depth });
    }

    fn take_body(&mut self, waiting: &OpenHeredoc) {
        let mut text = String::new();
        // Lines that a backslash joins are one, where the shell expands them.
        let mut joined = String::new();
        while !self.rest.is_empty() {
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            let line = if waiting.strips_tabs { line.trim_start_matches('\t') } else { line };
            let slashes = line.len() - line.trim_end_matches('\\').len();
            joined += &line[..line.len() - slashes % 2];
            if line == waiting.delimiter {
                self.out.is_doubtful |= waiting.expands && joined != line;
                break;
            }
            self.out.is_doubtful |= waiting.expands && joined == waiting.delimiter;
            if slashes % 2 == 0 {
                joined.clear();
            }
            text += line;
            text.push('\n');
        }
        self.out.bodies.push(Body { text, expands: waiting.expands });
    }
}

/// Returns whether every shell takes a delimiter, with its quotes, for the same.
fn is_plain_delimiter(word: &str) -> bool {
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.!+:@%/ ".contains(&byte));
    let quoted = ['\'', '"'].iter().find_map(|quote| word.strip_prefix(*quote)?.strip_suffix(*quote));
    is_name(quoted.or_else(|| word.strip_prefix('\\')).unwrap_or(word))
}

/// A word with its quotes taken off, whether it had any, and how many bytes it takes.
fn word(text: &str) -> (String, bool, usize) {
    let (mut word, mut quoted, mut quote) = (String::new(), false, None);
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, quoted) = (Some(c), true),
            (None, '\\') => {
                quoted = true;
                word.extend(characters.next().map(|(_, c)| c));
            }
            (None, c) if c.is_ascii_whitespace() || ";&|<>()".contains(c) => return (word, quoted, at),
            (_, c) => word.push(c),
        }
    }
    (word, quoted, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(script: &str) -> (String, Vec<String>) {
        let out = extract(script);
        (out.script, out.bodies.into_iter().map(|body| body.text).collect())
    }

    #[test]
    fn what_follows_the_operator_stays_in_its_line() {
        let (script, bodies) = bodies("cat <<'A' 2>&1 | x; y <<-B && z\na\nA\n\tb\n\tB\nlast");
        assert_eq!(script, "cat < /dev/heredoc/0  2>&1 | x; y < /dev/heredoc/1  && z\nlast");
        assert_eq!(bodies, ["a\n", "b\n"]);
    }

    #[test]
    fn quotes_comments_shifts_and_here_strings_are_no_here_documents() {
        for script in [
            "echo '<<A'\nx\nA",
            "echo \"<<A\"\nx",
            "a # <<A\nx",
            "echo $((1<<A))\nx",
            "a <<<A\nx",
            "((x<<A))\ny",
            "echo $'\\'<<A'\nx",
        ] {
            assert_eq!(bodies(script), (script.to_owned(), Vec::new()), "{script}");
        }
    }

    #[test]
    fn inside_a_substitution_they_are() {
        let (script, bodies) = bodies("x=\"$(cat <<A\nb\nA\n)\" y");
        assert_eq!(script, "x=\"$(cat < /dev/heredoc/0 \n)\" y");
        assert_eq!(bodies, ["b\n"]);
    }
}
