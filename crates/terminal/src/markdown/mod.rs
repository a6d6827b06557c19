//! Streaming Markdown for a terminal.
//!
//! CommonMark is decided line by line, and a block never changes once another one follows it. So only the last top-level
//! block is pending; everything before it is rendered. Code fences are long, so their lines are rendered one at a time.

mod render;
mod table;

use self::render::{Renderer, options};
use super::style::Colours;
use agent_base::sanitise::Sanitiser;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};
use std::ops::Range;

/// A pending block of up to this many bytes is parsed again for every new line. A longer one has to grow by an eighth in
/// between, so that the cost of a long list is not quadratic.
const PARSE_ALWAYS: usize = 2048;

/// Renders a Markdown text that arrives in pieces, block by block.
pub struct Markdown {
    renderer: Renderer,
    sanitiser: Sanitiser,
    /// Sanitised text that is not rendered yet.
    pending: String,
    /// The length of `pending` at which it is parsed again.
    next_parse: usize,
    fence: Option<Fence>,
}

/// An open code fence.
struct Fence {
    marker: u8,
    length: usize,
    indent: usize,
}

impl Markdown {
    pub fn new(columns: usize, colours: Colours) -> Self {
        Self {
            renderer: Renderer::new(columns, colours),
            sanitiser: Sanitiser::new(false),
            pending: String::new(),
            next_parse: 0,
            fence: None,
        }
    }

    /// Adds a piece, cut anywhere, and returns the lines that are final.
    pub fn push(&mut self, text: &str) -> String {
        let before = self.pending.len();
        self.sanitiser.push(text, &mut self.pending);
        if self.pending[before..].contains('\n') && self.pending.len() >= self.next_parse {
            self.advance();
        }
        self.renderer.take()
    }

    /// Ends the text: renders what is pending and resets.
    pub fn finish(&mut self) -> String {
        self.sanitiser.finish(&mut self.pending);
        if !self.pending.is_empty() && !self.pending.ends_with('\n') {
            self.pending.push('\n');
        }
        self.advance();
        let rest = std::mem::take(&mut self.pending);
        if self.fence.is_some() {
            self.renderer.end_code();
        }
        self.renderer.blocks(&rest);
        self.fence = None;
        self.next_parse = 0;
        self.renderer.finish()
    }

    pub fn resize(&mut self, columns: usize) {
        self.renderer.resize(columns);
    }

    /// The text whose block is not complete.
    pub fn pending(&self) -> &str {
        &self.pending
    }

    fn advance(&mut self) {
        loop {
            let moved = match self.fence {
                Some(_) => self.code_lines(),
                None => self.complete_blocks(),
            };
            if !moved {
                break;
            }
        }
        let length = self.pending.len();
        self.next_parse = if length > PARSE_ALWAYS { length + length / 8 } else { 0 };
    }

    /// Renders the blocks that are final; returns whether a fence was opened after them.
    fn complete_blocks(&mut self) -> bool {
        let lines = self.pending.rfind('\n').map_or(0, |end| end + 1);
        let Some(last) = last_block(&self.pending[..lines]) else { return false };
        let fence = match last.kind {
            LastKind::Fence => Fence::open(&self.pending[last.range.start..lines]),
            _ => None,
        };
        let ends_blank = self.pending[..lines].ends_with("\n\n");
        let complete = match last.kind {
            LastKind::OneLine => lines,
            LastKind::UntilBlank if ends_blank => lines,
            _ => last.range.start,
        };
        self.renderer.blocks(&self.pending[..complete]);
        self.pending.drain(..complete);
        if let Some(fence) = fence {
            let first_line = self.pending.find('\n').map_or(self.pending.len(), |end| end + 1);
            let notation =
                render::notation_of(self.pending[..first_line].trim_start().trim_start_matches(['`', '~']));
            self.pending.drain(..first_line);
            self.renderer.begin_code(notation);
            self.fence = Some(fence);
            return true;
        }
        false
    }

    /// Renders the complete lines of the open fence; returns whether it was closed.
    fn code_lines(&mut self) -> bool {
        let Some(fence) = &self.fence else { return false };
        let mut used = 0;
        let mut closed = false;
        for line in self.pending.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            used += line.len();
            if fence.is_closed_by(line) {
                closed = true;
                break;
            }
            self.renderer.code_line(fence.content(line));
        }
        self.pending.drain(..used);
        if closed {
            self.renderer.end_code();
            self.fence = None;
        }
        closed
    }
}

impl Fence {
    fn open(block: &str) -> Option<Self> {
        let line = block.lines().next()?;
        let text = line.trim_start_matches(' ');
        let marker = text.bytes().next().filter(|byte| matches!(byte, b'`' | b'~'))?;
        let length = text.bytes().take_while(|byte| *byte == marker).count();
        Some(Self { marker, length, indent: line.len() - text.len() })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let markers = text.bytes().take_while(|byte| *byte == self.marker).count();
        indent < 4 && markers >= self.length && text[markers..].trim().is_empty()
    }

    /// A line of code, without the indentation of the fence itself.
    fn content<'l>(&self, line: &'l str) -> &'l str {
        let line = line.trim_end_matches('\n');
        let spaces = line.bytes().take(self.indent).take_while(|byte| *byte == b' ').count();
        &line[spaces..]
    }
}

struct LastBlock {
    range: Range<usize>,
    kind: LastKind,
}

/// The kind of the last block of a text, by how it can still change.
enum LastKind {
    /// It is complete: a heading, a rule.
    OneLine,
    /// A blank line ends it: a paragraph, a quote, a table.
    UntilBlank,
    /// A fenced code block that is not closed.
    Fence,
    /// Only another block ends it: a list, HTML, indented code, a closed fence.
    Open,
}

/// The last top-level block of `text`, which consists of whole lines.
fn last_block(text: &str) -> Option<LastBlock> {
    let mut depth = 0_usize;
    let mut last = None;
    for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
        if depth == 0 {
            // The parser's range lacks the spaces before the block.
            let start = text[..range.start].rfind('\n').map_or(0, |end| end + 1);
            let range = start..range.end;
            match &event {
                Event::Start(tag) => {
                    last = Some(LastBlock { kind: kind_of(tag, &text[range.clone()]), range })
                }
                Event::Rule => last = Some(LastBlock { range, kind: LastKind::OneLine }),
                _ => {}
            }
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    last
}

fn kind_of(tag: &Tag<'_>, source: &str) -> LastKind {
    match tag {
        Tag::Heading { .. } => LastKind::OneLine,
        Tag::Paragraph | Tag::BlockQuote(_) | Tag::Table(_) => LastKind::UntilBlank,
        Tag::CodeBlock(CodeBlockKind::Fenced(_)) => match Fence::open(source) {
            Some(fence) if source.lines().skip(1).any(|line| fence.is_closed_by(line)) => LastKind::OneLine,
            _ => LastKind::Fence,
        },
        _ => LastKind::Open,
    }
}
