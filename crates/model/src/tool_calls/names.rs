//! Names of tools: what a model means by one, and what an endpoint takes for one.

use crate::ToolSpec;
use std::borrow::Cow;

/// The longest name that endpoints take, in characters.
const LONGEST: usize = 64;

/// The tool that a model means: the one of that name, or the only one whose name is in it but for case and dashes.
/// `functions.read_file`, `default_api:read_file`, `Read-File` and `read_file<|channel|>json` are all `read_file`.
pub fn meant<'a>(name: &str, tools: &'a [ToolSpec]) -> Option<&'a ToolSpec> {
    if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
        return Some(tool);
    }
    let words: Vec<String> = name.split(|c| !is_legal(c)).map(letters).collect();
    let mut found = tools.iter().filter(|tool| words.contains(&letters(&tool.name)));
    found.next().filter(|_| found.next().is_none())
}

/// Returns what is the same in all ways to write a name.
fn letters(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// `name` in a form that endpoints take: to any other they answer 400, and to all of the conversation from then on.
pub fn legal(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let legal: String = name.chars().map(|c| if is_legal(c) { c } else { '_' }).take(LONGEST).collect();
    Cow::Owned(if legal.is_empty() { "unnamed".to_owned() } else { legal })
}

/// Names that stand for any name, in examples.
const PLACEHOLDERS: [&str; 4] = ["function-name", "function_name", "example_function_name", "tool_name"];

/// Returns whether a model may mean a tool by `name`, also one that does not exist.
pub fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST
        && name.chars().all(|c| c.is_alphanumeric() || "_-.:/".contains(c))
        && !name.chars().all(|c| c == '.')
        && !PLACEHOLDERS.contains(&name)
}

fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_name_means_the_one_tool_that_it_can_mean() {
        let tool = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: Value::Null.into(),
        };
        let tools = ["read_file", "write_file", "write_files"].map(tool);
        for (name, expected) in [
            ("read_file", Some("read_file")),
            ("functions.read_file", Some("read_file")),
            ("default_api:read_file", Some("read_file")),
            ("functions.read_file:0", Some("read_file")),
            ("Read_File", Some("read_file")),
            ("readFile", Some("read_file")),
            ("read-file", Some("read_file")),
            (" read_file\n", Some("read_file")),
            ("read_file<|channel|>commentary", Some("read_file")),
            ("write_files", Some("write_files")),
            ("WriteFiles", Some("write_files")),
            ("read_file.write_file", None),
            ("read", None),
            ("read_files", None),
            ("", None),
            ("ünbekannt", None),
        ] {
            assert_eq!(meant(name, &tools).map(|tool| tool.name.as_str()), expected, "{name}");
        }
    }

    #[test]
    fn what_goes_back_is_legal() {
        assert_eq!(legal("read_file"), "read_file");
        assert_eq!(legal("web.search\n"), "web_search_");
        assert_eq!(legal("größer"), "gr__er");
        assert_eq!(legal(&"x".repeat(300)), "x".repeat(64));
        assert_eq!(legal(""), "unnamed");
    }
}
