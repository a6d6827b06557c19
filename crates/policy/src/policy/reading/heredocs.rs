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
enum Inside {
    Commands,
    DoubleQuotes,
    Braces,
    Arithmetic,
}

impl Inside {
    fn closing(self) -> char {
        match self {
            Inside::Commands | Inside::Arithmetic => ')',
            Inside::DoubleQuotes => '"',
            Inside::Braces => '}',
        }
    }
}

/// A here-document whose lines come after the line that it stands in.
struct Waiting {
    delimiter: String,
    strips_tabs: bool,
    expands: bool,
}

/// Takes the here-documents out.
pub fn extract(script: &str) -> Extracted {
    let mut reader =
        Reader { rest: script, out: Extracted::default(), inside: Vec::new(), waiting: Vec::new() };
    while !reader.rest.is_empty() {
        reader.step();
    }
    reader.out
}

struct Reader<'s> {
    rest: &'s str,
    out: Extracted,
    inside: Vec<Inside>,
    waiting: Vec<Waiting>,
}

impl<'s> Reader<'s> {
    fn step(&mut self) {
        let inside = self.inside.last().copied().unwrap_or(Inside::Commands);
        let in_commands = inside == Inside::Commands;
        let at = |prefix: &str| self.rest.starts_with(prefix);
        if at("\\\n") {
            // The grammar takes it for a blank; the shell joins what is around it.
            self.rest = &self.rest[2..];
        } else if at("\\") {
            let escaped = self.rest[1..].chars().next().map_or(0, char::len_utf8);
            self.copy(1 + escaped);
        } else if at("$((") || (in_commands && at("((")) {
            self.enter(Inside::Arithmetic, if at("$") { 3 } else { 2 });
        } else if at("$(") {
            self.enter(Inside::Commands, 2);
        } else if at("(") && matches!(inside, Inside::Commands | Inside::Arithmetic) {
            self.enter(inside, 1);
        } else if at("${") {
            self.enter(Inside::Braces, 2);
        } else if at("\"") && inside != Inside::DoubleQuotes {
            self.enter(Inside::DoubleQuotes, 1);
        } else if at("'") && inside != Inside::DoubleQuotes {
            self.single_quotes();
        } else if self.rest.starts_with(inside.closing()) {
            self.leave(1);
        } else if in_commands {
            self.step_in_commands();
        } else {
            self.copy_char();
        }
    }

    fn step_in_commands(&mut self) {
        let at = |prefix: &str| self.rest.starts_with(prefix);
        let at_word_start =
            self.out.script.ends_with([' ', '\t', '\n', ';', '(', '&', '|']) || self.out.script.is_empty();
        if at("<<<") {
            self.copy(3);
        } else if at("<<") {
            self.operator();
        } else if at("#") && at_word_start {
            self.copy(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if at("\n") {
            self.copy(1);
            for waiting in std::mem::take(&mut self.waiting) {
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

    fn enter(&mut self, inside: Inside, bytes: usize) {
        // `((` closes with two.
        self.inside.extend(std::iter::repeat_n(
            inside,
            if bytes >= 2 && inside == Inside::Arithmetic { 2 } else { 1 },
        ));
        self.copy(bytes);
    }

    fn leave(&mut self, bytes: usize) {
        self.inside.pop();
        self.copy(bytes);
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
        self.rest = &after[length..];
        self.out.script += &format!("< {PLACEHOLDER}{} ", self.out.bodies.len() + self.waiting.len());
        self.waiting.push(Waiting { delimiter, strips_tabs, expands: !quoted });
    }

    fn take_body(&mut self, waiting: &Waiting) {
        let mut text = String::new();
        while !self.rest.is_empty() {
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            let line = if waiting.strips_tabs { line.trim_start_matches('\t') } else { line };
            if line == waiting.delimiter {
                break;
            }
            text += line;
            text.push('\n');
        }
        self.out.bodies.push(Body { text, expands: waiting.expands });
    }
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
