//! Complete Markdown blocks as lines for a terminal.

use super::table::Table;
use crate::style::{BAD, BOLD, CODE, Colours, DIM, GOOD, HEADING, LINK};
use crate::wrap::{self, Span, StyledLine};
use agent_base::sanitise;
use agent_policy::syntax::{Class, Grammar, Lines};
use anstyle::Style;
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::fmt::Write;
use std::ops::Range;

/// Columns that are left to the text however deep it is nested.
const MIN_COLUMNS: usize = 20;
/// Levels of nesting that are indented; deeper ones are shown at the last of them.
const MAX_INDENT: usize = 12;

/// GitHub's tables, strikethrough and task lists, which models use.
pub(super) fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// The notation of the text behind a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notation {
    Program(Grammar),
    /// Lines that begin with `+`, `-` or `@@`.
    Diff,
}

/// The notation that the text behind a fence names.
pub(super) fn notation_of(info: &str) -> Option<Notation> {
    let name = info.trim().split([' ', ',', '{', '\t']).next()?;
    match name.to_ascii_lowercase().as_str() {
        "diff" | "patch" | "udiff" => Some(Notation::Diff),
        name => Grammar::named(name).map(Notation::Program),
    }
}

/// Writes blocks with an empty line between them.
pub(super) struct Renderer {
    columns: usize,
    colours: Colours,
    out: String,
    /// The text of the current block.
    spans: StyledLine,
    styles: Vec<Style>,
    /// The prefix of every line, outermost part first.
    margins: Vec<Margin>,
    /// The number of the next item for each open list; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// For each open link, the start of its text in `spans`, and its address.
    links: Vec<(usize, String)>,
    table: Option<Table>,
    /// An indented code block, or one in a list or quotation.
    code: Option<(String, Option<Notation>)>,
    /// The open fence, where its language has a grammar.
    fenced: Option<Fenced>,
    /// The open fence is a diff.
    is_diff: bool,
    /// An empty line has to be written before the next block.
    gap: bool,
}

/// A fenced block of code that arrives line by line.
struct Fenced {
    language: Grammar,
    /// All of it so far.
    text: String,
    /// The amount of it that is written.
    shown: usize,
}

/// Lines of a fence that are read and written together.
const LINES_AT_ONCE: usize = 24;

struct Margin {
    /// For the first line only: the bullet or number of a list item.
    first: Option<String>,
    rest: String,
}

impl Renderer {
    pub(super) fn new(columns: usize, colours: Colours) -> Self {
        Self {
            columns,
            colours,
            out: String::new(),
            spans: StyledLine::new(),
            styles: Vec::new(),
            margins: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            table: None,
            code: None,
            is_diff: false,
            fenced: None,
            gap: false,
        }
    }

    pub(super) fn resize(&mut self, columns: usize) {
        self.columns = columns;
    }

    /// Returns the output since the last call.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// [`Renderer::take`] at the end of a text.
    pub(super) fn finish(&mut self) -> String {
        self.gap = false;
        self.take()
    }

    /// Renders complete top-level blocks.
    pub(super) fn blocks(&mut self, source: &str) {
        for event in Parser::new_ext(source, options()) {
            self.event(event);
        }
        self.flush();
    }

    /// Begins a fenced code block whose lines are added with [`Renderer::code_line`].
    pub(super) fn begin_code(&mut self, notation: Option<Notation>) {
        self.separate();
        self.is_diff = notation == Some(Notation::Diff);
        self.fenced = match notation {
            Some(Notation::Program(language)) if self.colours.0 => {
                Some(Fenced { language, text: String::new(), shown: 0 })
            }
            _ => None,
        };
    }

    /// Writes one line of code, which is not wrapped. In colours some lines are written together: a line may begin within a
    /// comment.
    pub(super) fn code_line(&mut self, line: &str) {
        let line = sanitise::plain(line);
        let Some(fenced) = &mut self.fenced else {
            let style = if self.is_diff { style_in_diff(&line) } else { CODE };
            return self.line(&[Span { text: format!("  {line}"), style }]);
        };
        let line = line.trim_end_matches('\n');
        fenced.text.push_str(line);
        fenced.text.push('\n');
        if fenced.text[fenced.shown..].matches('\n').nth(LINES_AT_ONCE - 1).is_some() {
            self.show_fenced();
        }
    }

    pub(super) fn end_code(&mut self) {
        self.show_fenced();
        self.fenced = None;
        self.gap = true;
    }

    /// Writes the lines of the fence that are not written yet.
    fn show_fenced(&mut self) {
        let Some(mut fenced) = self.fenced.take() else { return };
        let lines = Lines::read(fenced.language, &fenced.text);
        let first = fenced.text[..fenced.shown].matches('\n').count();
        for (number, line) in fenced.text.lines().enumerate().skip(first) {
            self.line(&coloured(line, lines.line(number)));
        }
        fenced.shown = fenced.text.len();
        self.fenced = Some(fenced);
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((code, _)) => code.push_str(&text),
                None => self.text(&text),
            },
            Event::Code(text) => {
                let style = self.style() | CODE.get_effects();
                let style = style.fg_color(CODE.get_fg_color());
                let text = if self.colours.0 { text.to_string() } else { format!("`{text}`") };
                self.styled(&text, style);
            }
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::SoftBreak => self.text(" "),
            Event::HardBreak => self.text("\n"),
            Event::Rule => {
                self.separate();
                let text = "─".repeat(self.available().min(40));
                self.line(&[Span { text, style: DIM }]);
                self.gap = true;
            }
            Event::TaskListMarker(done) => self.text(if done { "☑ " } else { "☐ " }),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.separate(),
            Tag::Heading { level, .. } => {
                self.separate();
                self.styles.push(HEADING);
                if !self.colours.0 {
                    let marks = "#".repeat(heading_depth(level));
                    self.text(&format!("{marks} "));
                }
            }
            Tag::BlockQuote(_) => {
                self.separate();
                self.margins.push(Margin { first: None, rest: "│ ".to_string() });
            }
            Tag::CodeBlock(kind) => {
                self.separate();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => notation_of(&info),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some((String::new(), language));
            }
            Tag::List(first) => {
                self.separate();
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(alignments) => {
                self.separate();
                self.table = Some(Table::new(alignments));
            }
            Tag::TableHead => self.styles.push(BOLD),
            Tag::Emphasis => self.styles.push(self.style().italic()),
            Tag::Strong => self.styles.push(self.style().bold()),
            Tag::Strikethrough => self.styles.push(self.style().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((self.spans.len(), sanitise::plain(&dest_url).into_owned()));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.margins.pop();
                self.gap = true;
            }
            TagEnd::CodeBlock => {
                let (code, language) = self.code.take().unwrap_or_default();
                self.begin_code(language);
                code.lines().for_each(|line| self.code_line(line));
                self.end_code();
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                self.show_unused_marker();
                self.margins.pop();
            }
            TagEnd::TableHead => {
                self.styles.pop();
                self.table.iter_mut().for_each(Table::end_row);
            }
            TagEnd::TableRow => self.table.iter_mut().for_each(Table::end_row),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.spans);
                self.table.iter_mut().for_each(|table| table.cell(cell.clone()));
            }
            TagEnd::Table => {
                let lines = self.table.take().map(|table| table.lines(self.available()));
                lines.into_iter().flatten().for_each(|line| self.line(&line));
                self.gap = true;
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.flush();
        self.separate();
        let depth = self.lists.len();
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ if depth.is_multiple_of(2) => "◦ ".to_string(),
            _ => "• ".to_string(),
        };
        let rest = " ".repeat(wrap::width(&marker));
        self.margins.push(Margin { first: Some(marker), rest });
    }

    /// Writes the bullet of an empty item.
    fn show_unused_marker(&mut self) {
        if self.margins.last().is_some_and(|margin| margin.first.is_some()) {
            self.line(&[]);
        }
    }

    /// Writes the address after the text of a link, unless the text is the address.
    fn end_link(&mut self) {
        let Some((start, address)) = self.links.pop() else { return };
        let text: String =
            self.spans.get(start..).unwrap_or_default().iter().map(|span| span.text.as_str()).collect();
        if address.is_empty() || address == text || address.strip_prefix("mailto:") == Some(&text) {
            return;
        }
        if !text.is_empty() {
            self.text(" ");
        }
        self.styled("(", self.style());
        self.styled(&address, LINK);
        self.styled(")", self.style());
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn text(&mut self, text: &str) {
        self.styled(text, self.style());
    }

    /// Adds text to the current block. Entities (`&#27;`) have been decoded to characters, so the text has to be sanitised
    /// again here.
    fn styled(&mut self, text: &str, style: Style) {
        self.spans.push(Span { text: sanitise::plain(text).into_owned(), style });
    }

    /// Ends the previous block, with an empty line after it.
    fn separate(&mut self) {
        self.flush();
        if std::mem::take(&mut self.gap) {
            self.line(&[]);
        }
    }

    /// Writes the text of the current block.
    fn flush(&mut self) {
        if self.spans.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.spans);
        for line in wrap::wrap(&spans, self.available()) {
            self.line(&line);
        }
    }

    fn available(&self) -> usize {
        let margin: usize =
            self.margins.iter().take(MAX_INDENT).map(|margin| wrap::width(&margin.rest)).sum();
        self.columns.saturating_sub(margin).max(MIN_COLUMNS)
    }

    fn line(&mut self, line: &[Span]) {
        let mut margin = String::new();
        let is_gap = line.is_empty() && self.margins.last().is_none_or(|last| last.first.is_none());
        for part in self.margins.iter_mut().take(MAX_INDENT) {
            match part.first.take_if(|_| !is_gap) {
                Some(first) => margin.push_str(&first),
                None => margin.push_str(&part.rest),
            }
        }
        let margin = if line.is_empty() { margin.trim_end() } else { &margin };
        if !margin.is_empty() {
            self.out.push_str(&self.colours.paint(DIM, margin));
        }
        for span in line {
            if self.colours.0 && span.style != Style::new() {
                let _ = write!(self.out, "{0}{1}{0:#}", span.style, span.text);
            } else {
                self.out.push_str(&span.text);
            }
        }
        self.out.push('\n');
    }
}

/// Returns the style of a line of a diff.
fn style_in_diff(line: &str) -> Style {
    match line.as_bytes() {
        [b'+', ..] => GOOD,
        [b'-', ..] => BAD,
        [b'@', b'@', ..] => HEADING,
        _ => Style::new(),
    }
}

/// A line of code in the colours of its words.
fn coloured(line: &str, words: &[(Range<usize>, Class)]) -> StyledLine {
    let span = |text: &str, style| Span { text: text.to_owned(), style };
    let (mut spans, mut at) = (vec![span("  ", Style::new())], 0);
    for (range, class) in words {
        spans.push(span(line.get(at..range.start).unwrap_or_default(), Style::new()));
        spans.push(span(line.get(range.clone()).unwrap_or_default(), class.style(Style::new())));
        at = range.end;
    }
    spans.push(span(line.get(at..).unwrap_or_default(), Style::new()));
    spans.retain(|span| !span.text.is_empty());
    spans
}

fn heading_depth(level: HeadingLevel) -> usize {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}
