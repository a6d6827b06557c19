//! The front matter of Markdown files that other agents read too: `key: value` lines between two lines of `---`.
//!
//! Of YAML only what such files use: plain and quoted values, and text that continues on indented lines.

/// The fields, in order, and the text behind them. A file without front matter has no fields.
pub fn split(text: &str) -> (Vec<(&str, String)>, &str) {
    let whole = (Vec::new(), text);
    let Some(rest) = text.strip_prefix("---\n") else { return whole };
    let (front, body) = match rest.split_once("\n---\n") {
        Some(parts) => parts,
        None => match rest.strip_suffix("\n---") {
            Some(front) => (front, ""),
            None => return whole,
        },
    };
    (fields(front), body)
}

fn fields(front: &str) -> Vec<(&str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in front.lines() {
        if line.starts_with(char::is_whitespace) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with('#')) {
            // `>` and `|` announce a text on the following lines.
            let is_block = matches!(value.trim().trim_end_matches(['-', '+']), ">" | "|");
            fields.push((key.trim(), if is_block { String::new() } else { value.trim().to_owned() }));
        }
    }
    for (_, value) in &mut fields {
        *value = unquoted(value.trim()).to_owned();
    }
    fields
}

fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

/// The value of `key`, if it has one.
pub fn field<'f>(fields: &'f [(&str, String)], key: &str) -> Option<&'f str> {
    let found = fields.iter().find(|(name, value)| *name == key && !value.is_empty());
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::{field, split};

    #[test]
    fn values_may_be_quoted_and_continue_on_further_lines() {
        let text = "---\nname: pdf\ndescription: >-\n  Fill in\n  forms: all of them\nlicense: \"MIT\"\n# no: field\nempty:\n---\n# Body\n";
        let (fields, body) = split(text);
        assert_eq!(field(&fields, "name"), Some("pdf"));
        assert_eq!(field(&fields, "description"), Some("Fill in forms: all of them"));
        assert_eq!(field(&fields, "license"), Some("MIT"));
        assert_eq!((field(&fields, "empty"), field(&fields, "# no")), (None, None));
        assert_eq!(body, "# Body\n");
    }

    #[test]
    fn a_file_without_front_matter_is_all_text() {
        for text in ["# Title\n", "---\nnever closed: x\n", ""] {
            let (fields, body) = split(text);
            assert_eq!((fields.len(), body), (0, text));
        }
        assert_eq!(split("---\na: b\n---").1, "");
    }
}
