//! Words of a script that is proven: POSIX.1-2017, Shell Command Language, 2.2 (quoting), 2.3 (tokens), 2.6 (expansions) and 2.7.4
//! (here-documents), as far as bash, dash and busybox agree on them. Everything else is refused by name.

use super::super::findings::{Becomes, Word};
use super::proven::{Read, Reader, refuse};
use super::shell;
use super::values::Value;

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordPart {
    /// Text without its quotes.
    Fixed(String),
    /// Text that the shell makes other words of: a glob, or braces.
    Alike(String),
    /// `$NAME`, `${NAME}`; `is_set` where the script itself has given it a value for sure.
    Name { name: String, written: String, is_quoted: bool, is_set: bool },
    /// An expansion that is a whole number: `$#`, `$((…))`.
    Number(String),
    /// The output of commands of which something is known: as a whole, and of each word of it.
    Output { written: String, is_quoted: bool, whole: Value, each: Value },
    /// Any other expansion, as it is written.
    Changed { written: String, becomes: Becomes },
}

/// A word whose variables are not judged yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    pub parts: Vec<WordPart>,
}

impl Draft {
    /// The text, where the shell changes nothing about it.
    pub fn fixed(&self) -> Option<String> {
        let texts = self.parts.iter().map(|part| match part {
            WordPart::Fixed(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// As [`Draft::word`], of the program of a command: of its name nothing may be left open.
    pub fn program(&self, value_of: &dyn Fn(&str) -> Value) -> Word {
        let word = self.word(value_of, false);
        if self.fixed().is_some() { word } else { Word { fixed: false, becomes: Becomes::Any, ..word } }
    }

    fn fixed_text(&mut self, text: &str) {
        if let Some(WordPart::Fixed(last)) = self.parts.last_mut() {
            last.push_str(text);
        } else {
            self.parts.push(WordPart::Fixed(text.to_owned()));
        }
    }
}

/// Where an expansion stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Double,
    /// The text of a here-document.
    Document,
}

/// Operators that give a variable another value, beside `=` and `++`.
const ASSIGNMENTS: [&str; 11] = ["+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|=", "--"];

/// Returns whether an expression may fail: all but operands that are added, subtracted or multiplied.
fn is_unsure(expression: &str) -> bool {
    let is_sure =
        |operand: &str| is_number(operand) || is_name(operand) || matches!(operand, "$#" | "$?" | "$$");
    !expression.split(['+', '-', '*']).map(str::trim).all(is_sure)
}

/// The expression of a number as it is written; none where it is `$#` or the like.
fn expression(written: &str) -> Option<&str> {
    written.strip_prefix("$((").map(|inner| inner.strip_suffix("))").unwrap_or(inner))
}

/// Returns whether a number that is written so may fail.
pub fn may_fail(written: &str) -> bool {
    expression(written).is_some_and(is_unsure)
}

/// Returns whether a number is digits for sure: one that counts, or a sum too small to become negative.
pub fn is_sum(written: &str, is_digits: impl Fn(&str) -> bool) -> bool {
    let is_operand = |operand: &str| is_number(operand) || is_name(operand) && is_digits(operand);
    expression(written)
        .is_none_or(|sum| sum.split('+').count() <= 4 && sum.split('+').map(str::trim).all(is_operand))
}

/// Returns whether a text is a number as every shell reads it: behind a zero, digits are octal ones.
pub fn is_number(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 18
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
}

pub fn is_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

impl<'s> Reader<'s, '_> {
    /// 2.3: a word ends at a blank, a newline or an operator.
    pub fn word(&mut self) -> Read<Draft> {
        let (start, mut draft) = (self.at, Draft::default());
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => break,
                b'#' if self.at == start && !self.text[..start].ends_with('=') => {
                    return refuse("a remark in another place than behind a command");
                }
                b'\\' if self.peek_at(1) == Some(b'\n') => {
                    // Shells differ about what is joined; with a blank behind it nothing is.
                    if !matches!(self.peek_at(2), Some(b' ' | b'\t')) {
                        return refuse("a word that is continued on the next line");
                    }
                    break;
                }
                b'\\' => {
                    self.at += 1;
                    let Some(text) = self.character() else { return refuse("a backslash at the end") };
                    draft.fixed_text(text);
                }
                b'\'' => {
                    let text = self.single_quotes()?;
                    draft.fixed_text(text);
                }
                b'"' => self.double_quotes(&mut draft)?,
                b'$' => self.dollar(&mut draft, Quotes::None)?,
                b'`' => self.backticks(&mut draft, Quotes::None)?,
                b'*' | b'?' | b'[' => {
                    self.at += 1;
                    draft.parts.push(WordPart::Alike((byte as char).to_string()));
                }
                b'{' if self.rest().starts_with("{}") && !self.may_be_divided(2) => {
                    self.at += 2;
                    // What takes their place is up to the program.
                    draft.parts.push(WordPart::Changed { written: "{}".to_owned(), becomes: Becomes::One });
                }
                b'{' => {
                    self.at += 1;
                    draft.parts.push(WordPart::Alike("{".to_owned()));
                }
                b'~' => self.tilde(start, &mut draft),
                _ => {
                    let Some(text) = self.character() else { return refuse("a control character") };
                    draft.fixed_text(text);
                }
            }
        }
        let is_descriptor =
            || self.text[start..self.at].starts_with('{') && matches!(self.peek(), Some(b'<' | b'>'));
        match self.at == start {
            true => refuse("an operator where a word is expected"),
            false if is_descriptor() => refuse("a descriptor with a name"),
            false => {
                // Empty quotes count where there is nothing else.
                if draft.parts.len() > 1 {
                    draft.parts.retain(|part| *part != WordPart::Fixed(String::new()));
                }
                Ok(draft)
            }
        }
    }

    /// Returns whether bash may divide the word at braces of which so many bytes have been seen: `a{},b}` is two words. The word may end in
    /// quotes, so that the whole line is looked at.
    fn may_be_divided(&self, seen: usize) -> bool {
        let line = self.rest()[seen..].split('\n').next().unwrap_or_default();
        !self.ends_word(seen) && (line.contains(',') || line.contains(".."))
    }

    /// 2.6.1, in the word that begins at `start`.
    fn tilde(&mut self, start: usize, draft: &mut Draft) {
        let before = &self.text[start..self.at];
        // Bash takes any word that looks like an assignment for one.
        let is_value = before.ends_with(['=', ':'])
            && before
                .split_once('=')
                .is_some_and(|(name, _)| is_name(name.strip_suffix('+').unwrap_or(name)));
        let becomes = match before {
            "" if shell::is_directory_of_stack(self.rest()) => Becomes::Any,
            // A directory, whose name begins with a slash.
            "" => Becomes::Plain,
            _ => Becomes::One,
        };
        self.at += 1;
        match before.is_empty() || is_value {
            true => draft.parts.push(WordPart::Changed { written: "~".to_owned(), becomes }),
            false => draft.fixed_text("~"),
        }
    }

    /// 2.2.2
    fn single_quotes(&mut self) -> Read<&'s str> {
        let start = self.at + 1;
        let Some(length) = self.text[start..].find('\'') else { return refuse("a quote that is not closed") };
        self.at = start + length + 1;
        self.lines_within(start)?;
        Ok(&self.text[start..start + length])
    }

    /// 2.2.3
    fn double_quotes(&mut self, draft: &mut Draft) -> Read<()> {
        self.at += 1;
        // Empty quotes are a word.
        draft.fixed_text("");
        loop {
            let start = self.at;
            match self.peek() {
                None => return refuse("a quote that is not closed"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'\n') => self.at += 1,
                        Some(b'$' | b'`' | b'"' | b'\\') => {
                            let text = self.character().unwrap_or_default();
                            draft.fixed_text(text);
                        }
                        _ => draft.fixed_text("\\"),
                    }
                    self.lines_within(start)?;
                }
                Some(b'$') => self.dollar(draft, Quotes::Double)?,
                Some(b'`') => self.backticks(draft, Quotes::Double)?,
                Some(b'\n') => {
                    self.at += 1;
                    self.lines_within(start)?;
                    draft.fixed_text("\n");
                }
                Some(_) => {
                    let Some(text) = self.character() else { return refuse("a control character") };
                    draft.fixed_text(text);
                }
            }
        }
    }

    /// 2.6: what begins with a dollar.
    fn dollar(&mut self, draft: &mut Draft, quotes: Quotes) -> Read<()> {
        let start = self.at;
        let is_quoted = quotes != Quotes::None;
        self.at += 1;
        match self.peek() {
            Some(b'\'') if !is_quoted && self.is_bash => self.quotes_of_c(draft)?,
            Some(b'"' | b'\'') if is_quoted => draft.fixed_text("$"),
            Some(b'\\') if is_quoted && self.peek_at(1) != Some(b'\n') => draft.fixed_text("$"),
            // Nothing begins here.
            None
            | Some(b' ' | b'\t' | b'\n' | b'/' | b'|' | b')' | b'.' | b',' | b':' | b'%' | b';' | b']') => {
                draft.fixed_text("$");
            }
            _ => {
                self.shared.expansions += 1;
                let part = self.expansion(start, quotes)?;
                draft.parts.push(part);
            }
        }
        Ok(())
    }

    fn expansion(&mut self, start: usize, quotes: Quotes) -> Read<WordPart> {
        let is_quoted = quotes != Quotes::None;
        let many = if is_quoted { Becomes::One } else { Becomes::Any };
        let written = |reader: &Self| reader.text[start..reader.at].to_owned();
        Ok(match self.peek() {
            Some(b'(') if self.peek_at(1) == Some(b'(') => {
                self.at += 2;
                self.arithmetic("))")?;
                WordPart::Number(written(self))
            }
            Some(b'(') => {
                self.at += 1;
                let first = self.shared.commands.len();
                match quotes {
                    Quotes::Document => self.substitution_of_line()?,
                    _ => self.substitution()?,
                }
                self.shared.captured.push(first..self.shared.commands.len());
                let written = written(self);
                match self.printed(first, &written) {
                    (Value::Any, Value::Any) => WordPart::Changed { written, becomes: many },
                    (whole, each) => WordPart::Output { written, is_quoted, whole, each },
                }
            }
            Some(b'{') => self.parameter(start, quotes)?,
            Some(byte @ (b'@' | b'*' | b'0'..=b'9' | b'-')) => {
                self.at += 1;
                let becomes = if byte == b'@' { Becomes::Any } else { many };
                WordPart::Changed { written: written(self), becomes }
            }
            Some(b'?' | b'#' | b'$') => {
                self.at += 1;
                WordPart::Number(written(self))
            }
            Some(b'!') => {
                self.at += 1;
                WordPart::Name { name: "!".to_owned(), written: written(self), is_quoted, is_set: true }
            }
            Some(byte) if byte == b'_' || byte.is_ascii_alphabetic() => {
                let name = self.name().to_owned();
                if self.rest().starts_with("\\\n") {
                    return refuse("a word that is continued on the next line");
                }
                let is_set = self.reads(&name);
                WordPart::Name { name, written: written(self), is_quoted, is_set }
            }
            _ => return refuse("an expansion that only some shells have"),
        })
    }

    /// `$'…'` of bash.
    fn quotes_of_c(&mut self, draft: &mut Draft) -> Read<()> {
        let (start, rest) = (self.at, &self.text[self.at + 1..]);
        let mut is_escaped = false;
        let end = rest.find(|c| {
            let is_end = c == '\'' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        let Some(end) = end else { return refuse("a quote that is not closed") };
        let Some(text) = shell::ansi_c(&rest[..end]) else {
            return refuse("an escape that shells take for different characters");
        };
        self.at += end + 2;
        self.lines_within(start)?;
        draft.fixed_text(&text);
        Ok(())
    }

    /// 2.6.2: `${NAME}` and what is done with its value, where that evaluates nothing.
    fn parameter(&mut self, start: usize, quotes: Quotes) -> Read<WordPart> {
        let refused = || refuse("an expansion of a variable that may evaluate what it holds");
        self.at += 1;
        let is_quoted = quotes != Quotes::None;
        let counts = self.peek() == Some(b'#') && self.peek_at(1) != Some(b'}');
        self.at += usize::from(counts);
        let (first, is_special) = (self.at, self.peek().is_some_and(|byte| b"@*#?$!".contains(&byte)));
        if is_special {
            self.at += 1;
        } else {
            while self.peek().is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                self.at += 1;
            }
        }
        let name = self.text[first..self.at].to_owned();
        let is_set = self.reads(&name);
        if !is_special && !is_name(&name) && !is_number(&name) {
            return refused();
        }
        let mut is_list = matches!(name.as_str(), "@" | "*");
        if is_name(&name) && self.peek() == Some(b'[') && self.is_bash {
            let Some(end) = self.rest().find(']') else { return refused() };
            let index = &self.rest()[1..end];
            is_list = matches!(index, "@" | "*");
            // In one other than a number bash finds an error, and passes over the rest of the line.
            if !is_list && !is_number(index) {
                return refused();
            }
            self.at += end + 1;
        }
        let operator = self.at;
        if self.peek() != Some(b'}') {
            if counts || is_special && !is_list {
                return refused();
            }
            match self.rest().trim_start_matches(':').starts_with('=') {
                true if operator == first + name.len() && is_name(&name) => self.default_value(&name)?,
                true => return refused(),
                false => self.operation(quotes)?,
            }
        }
        if self.peek() != Some(b'}') {
            return refused();
        }
        self.at += 1;
        let written = self.text[start..self.at].to_owned();
        let is_alone = operator + 1 == self.at && operator == first + name.len();
        let becomes = if is_quoted && !is_list { Becomes::One } else { Becomes::Any };
        Ok(match () {
            () if counts || matches!(name.as_str(), "#" | "?" | "$") => WordPart::Number(written),
            () if is_alone && (is_name(&name) || name == "!") => {
                WordPart::Name { is_set: is_set || name == "!", name, written, is_quoted }
            }
            () => WordPart::Changed { written, becomes },
        })
    }

    /// `${NAME:=value}`, whose value is plain.
    fn default_value(&mut self, name: &str) -> Read<()> {
        let start = self.at + self.rest().find('=').unwrap_or(0) + 1;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        let length = self.text[start..].find(|c| !is_plain(c)).unwrap_or(0);
        self.at = start + length;
        let value = Draft { parts: vec![WordPart::Fixed(self.text[start..self.at].to_owned())] };
        self.notes_encoding(name, Some(&value));
        self.shared.given.push(value.clone());
        // What it holds already may come from outside of the script.
        let is_set = self.reads(name);
        match is_set {
            true => self.bind_draft(name, &value, false),
            false => self.bind(name, Value::Any),
        }
    }

    /// Reads what follows the name in `${NAME…}`: a default, a pattern, a part. Its text is plain, or names further variables.
    fn operation(&mut self, quotes: Quotes) -> Read<()> {
        let refused = refuse("an expansion of a variable that may evaluate what it holds");
        let rest = self.rest();
        let operators =
            [":-", ":+", ":?", "-", "+", "?", "%%", "%", "##", "#", "//", "/", "^^", "^", ",,", ","];
        if let Some(operator) = operators.iter().find(|operator| rest.starts_with(**operator)) {
            self.at += operator.len();
            let is_plain = |byte: u8| {
                byte.is_ascii_alphanumeric()
                    || b"_-./:,*?%+=@~".contains(&byte)
                    || byte == b' ' && quotes == Quotes::Double
            };
            while let Some(byte) = self.peek() {
                match byte {
                    b'$' if self
                        .peek_at(1)
                        .is_some_and(|next| next == b'_' || next.is_ascii_alphanumeric()) =>
                    {
                        self.at += 1;
                        let name = self.name().to_owned();
                        self.reads(&name);
                    }
                    b'"' => match self.rest()[1..].split_once('"') {
                        Some((text, _)) if text.bytes().all(|byte| is_plain(byte) && byte != b' ') => {
                            self.at += text.len() + 2;
                        }
                        _ => break,
                    },
                    b'#' | b'[' | b']' | b'^' if operator.starts_with(['%', '#', '/']) => self.at += 1,
                    _ if is_plain(byte) => self.at += 1,
                    _ => break,
                }
            }
            return Ok(());
        }
        let digits = |reader: &mut Self| {
            let start = reader.at;
            while reader.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                reader.at += 1;
            }
            is_number(&reader.text[start..reader.at])
        };
        if !rest.starts_with(':') {
            return refused;
        }
        self.at += 1;
        if !digits(self) {
            return refused;
        }
        if self.peek() == Some(b':') {
            self.at += 1;
            if !digits(self) {
                return refused;
            }
        }
        Ok(())
    }

    /// 2.6.4, up to `end`: numbers, operators, and variables that hold numbers alone, as bash evaluates what they hold.
    pub fn arithmetic(&mut self, end: &str) -> Read<()> {
        let (mut depth, first) = (0_usize, self.at);
        self.shared.expansions += 1;
        loop {
            let Some(byte) = self.peek() else { return refuse("an expression that does not end") };
            if depth == 0 && self.rest().starts_with(end) {
                self.shared.failures += usize::from(is_unsure(&self.text[first..self.at]));
                self.at += end.len();
                return Ok(());
            }
            let refused = || refuse("an expression of other things than numbers");
            match byte {
                b'(' => depth += 1,
                b')' => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return refused(),
                },
                b'0'..=b'9' => {
                    let start = self.at;
                    let digits = self.text[start..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(0);
                    let text = &self.text[start..start + digits];
                    let is_one = text.bytes().all(|byte| byte.is_ascii_digit())
                        || text
                            .strip_prefix("0x")
                            .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
                    if !is_one
                        || digits == 0
                        || self.text[start + digits..].starts_with(['_', '#', '$', '[', '`'])
                    {
                        return refused();
                    }
                    self.at += digits;
                    continue;
                }
                b'$' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                    self.operand()?;
                    if self.peek().is_some_and(|next| {
                        next == b'_' || next.is_ascii_alphanumeric() || b"$[#`".contains(&next)
                    }) {
                        return refused();
                    }
                    continue;
                }
                b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b'^' | b'?'
                | b':' | b' ' => {}
                _ => return refused(),
            }
            self.at += 1;
        }
    }

    /// A variable, or the number of something, within an expression.
    fn operand(&mut self) -> Read<()> {
        if self.peek() != Some(b'$') {
            let is_lessened = self.text[..self.at].trim_end_matches(' ').ends_with("--");
            let name = self.name().to_owned();
            if super::variables::decides(&name) || super::variables::is_integer(&name) && name != "RANDOM" {
                return refuse("an expression that may set a variable which decides what runs");
            }
            let after = self.rest().trim_start_matches(' ');
            if after.starts_with('=') && !after.starts_with("==") {
                return self.bind(&name, Value::Number);
            }
            // It may be negative then; counting up keeps it a number of digits.
            if is_lessened || ASSIGNMENTS.iter().any(|operator| after.starts_with(operator)) {
                self.bind(&name, Value::Number)?;
            }
            return self.evaluates(name);
        }
        let mut draft = Draft::default();
        self.dollar(&mut draft, Quotes::Double)?;
        match draft.parts.pop() {
            Some(WordPart::Number(_)) => Ok(()),
            Some(WordPart::Name { name, .. }) => self.evaluates(name),
            Some(WordPart::Output { whole, .. }) if whole <= Value::Count => Ok(()),
            _ => refuse("an expression of other things than numbers"),
        }
    }

    /// 2.6.3, in backticks: without backslashes and quotes of the same kind, where both forms mean the same.
    fn backticks(&mut self, draft: &mut Draft, quotes: Quotes) -> Read<()> {
        let start = self.at;
        self.shared.expansions += 1;
        let Some(length) = self.text[start + 1..].find('`') else {
            return refuse("a quote that is not closed");
        };
        let code = &self.text[start + 1..start + 1 + length];
        if code.contains(['\\', '\n', '#'])
            || code.contains("<<")
            || quotes != Quotes::None && code.contains('"')
        {
            return refuse("a substitution in backticks that shells read differently");
        }
        let first = self.shared.commands.len();
        self.nested(code)?;
        self.shared.captured.push(first..self.shared.commands.len());
        self.at = start + length + 2;
        let becomes = if quotes == Quotes::None { Becomes::Any } else { Becomes::One };
        draft.parts.push(WordPart::Changed { written: self.text[start..self.at].to_owned(), becomes });
        Ok(())
    }

    /// A substitution within a here-document, of one line: for more, shells differ about where the document ends.
    fn substitution_of_line(&mut self) -> Read<()> {
        let start = self.at;
        self.substitution()?;
        match self.text[start..self.at].contains('\n') {
            true => refuse("a substitution of several lines in a here-document"),
            false => Ok(()),
        }
    }

    /// 2.7.4: the text of a here-document that the shell expands.
    pub fn document(&mut self) -> Read<()> {
        let mut draft = Draft::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' if self.peek_at(1) == Some(b'\n') => {
                    return refuse("a here-document with lines that are joined");
                }
                b'\\' => self.at += 2,
                b'$' if self.rest().starts_with("$((") => return refuse("an expression in a here-document"),
                b'$' => self.dollar(&mut draft, Quotes::Document)?,
                b'`' => return refuse("backticks in a here-document"),
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    /// The next character; none that controls a terminal.
    fn character(&mut self) -> Option<&'s str> {
        let start = self.at;
        let character = self.rest().chars().next()?;
        if character.is_ascii_control() && character != '\t' {
            return None;
        }
        self.at += character.len_utf8();
        Some(&self.text[start..self.at])
    }

    /// Refuses newlines since `start` where a here-document waits for the next line: shells differ about where it begins.
    fn lines_within(&self, start: usize) -> Read<()> {
        let has_lines = self.text[start..self.at].contains('\n');
        match has_lines && !self.waiting.is_empty() {
            true => refuse("a here-document in the lines of a quoted text"),
            false => Ok(()),
        }
    }
}
