//! Snippets as the programs that compilers take: what a snippet may leave out is put around it.

use super::Language;

/// A snippet as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's name.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Java: the class with `main`.
    pub class: String,
}

impl Source {
    /// The file for a snippet.
    pub fn of(language: Language, code: &str) -> Self {
        let file = |name: &str| format!("{name}.{}", language.extension());
        let plain = |text: String| Self { file: file("snippet"), text, class: String::new() };
        match language {
            Language::Java => java(code),
            Language::Go => Self { file: file("main"), ..plain(go(code)) },
            Language::Rust if !has_word_pair(code, "fn", "main") => {
                // On the line of the snippet's first one, so that messages name the right lines.
                plain(format!("fn main() {{ {code}\n}}\n"))
            }
            Language::JavaScript if is_module(code) => {
                Self { file: "snippet.mjs".to_owned(), ..plain(code.to_owned()) }
            }
            Language::TypeScript => Self { file: "snippet.mts".to_owned(), ..plain(code.to_owned()) },
            _ => plain(code.to_owned()),
        }
    }
}

/// A package clause where there is none, on the snippet's first line.
fn go(code: &str) -> String {
    let has_package = code.lines().any(|line| line.trim_start().starts_with("package "));
    match has_package {
        true => code.to_owned(),
        false => format!("package main; {code}"),
    }
}

/// Returns whether JavaScript has to be read as a module.
fn is_module(code: &str) -> bool {
    let is_statement = |line: &str| {
        let line = line.trim_start();
        line.starts_with("import ") || line.starts_with("import{") || line.starts_with("export ")
    };
    code.lines().any(is_statement) || code.contains("await ")
}

/// A Java file has the name of its public class. Statements alone get a class around them.
fn java(code: &str) -> Source {
    let words: Vec<&str> = words(code).collect();
    let declared = |at: usize| match (words.get(at), words.get(at + 1)) {
        (Some(&("class" | "record" | "enum" | "interface")), Some(name)) => Some(*name),
        _ => None,
    };
    let public = (0..words.len()).find_map(|at| {
        let is_public = words[..at]
            .iter()
            .rev()
            .take_while(|word| MODIFIERS.contains(word))
            .any(|word| *word == "public");
        declared(at).filter(|_| is_public)
    });
    let main = words.windows(2).position(|pair| pair == ["void", "main"]);
    let around_main = main.and_then(|main| (0..main).rev().find_map(declared));
    let first = (0..words.len()).find_map(declared);
    let Some(class) = around_main.or(public).or(first) else { return java_statements(code) };
    let package = words.iter().position(|word| *word == "package").filter(|at| *at == 0);
    let package = package.and_then(|_| code.split_once("package")).and_then(|(_, rest)| rest.split_once(';'));
    let class = match package {
        Some((package, _)) => format!("{}.{class}", package.trim()),
        None => class.to_owned(),
    };
    let file = public.unwrap_or_else(|| class.rsplit('.').next().unwrap_or("Main"));
    Source { file: format!("{file}.java"), text: code.to_owned(), class }
}

/// Words that may stand between `public` and `class`.
const MODIFIERS: [&str; 7] = ["public", "final", "abstract", "static", "strictfp", "sealed", "non"];

fn java_statements(code: &str) -> Source {
    let (imports, statements): (Vec<&str>, Vec<&str>) =
        code.lines().partition(|line| line.trim_start().starts_with("import "));
    let text = format!(
        "import java.util.*; import java.util.function.*; import java.util.stream.*; {} public class Main {{ \
         public static void main(String[] args) throws Exception {{\n{}\n}} }}\n",
        imports.join(" "),
        statements.join("\n")
    );
    Source { file: "Main.java".to_owned(), text, class: "Main".to_owned() }
}

/// The words of code, without those in comments and strings.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let mut rest = code;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace());
            if let Some(comment) = rest.strip_prefix("//") {
                rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else if let Some(text) = rest.strip_prefix("\"\"\"") {
                rest = text.split_once("\"\"\"").map_or("", |(_, rest)| rest);
            } else if rest.starts_with(['"', '\'']) {
                rest = behind_string(rest);
            } else {
                break;
            }
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let length = match rest.chars().next()? {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (word, behind) = rest.split_at(length);
        rest = behind;
        Some(word)
    })
}

/// Returns what follows the string that `text` begins with.
fn behind_string(text: &str) -> &str {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '\n' => return &text[at..],
            _ if Some(character) == quote => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

fn has_word_pair(code: &str, first: &str, second: &str) -> bool {
    let words: Vec<&str> = words(code).collect();
    words.windows(2).any(|pair| pair == [first, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn java_file(code: &str) -> (String, String) {
        let source = Source::of(Language::Java, code);
        (source.file, source.class)
    }

    #[test]
    fn a_java_file_has_the_name_of_its_public_class() {
        for (code, file, class) in [
            ("public class Hi { public static void main(String[] a) {} }", "Hi.java", "Hi"),
            ("class A {}\npublic final class B { static void main(String[] a) {} }", "B.java", "B"),
            (
                "// class X\nclass A { String s = \"class Y\"; }\nclass B { public static void main(String[] a) {} }",
                "B.java",
                "B",
            ),
            ("package a.b; public class C { public static void main(String[] a) {} }", "C.java", "a.b.C"),
            ("public interface I {}\nclass D { public static void main(String[] a) {} }", "I.java", "D"),
            ("int x = 1;\nSystem.out.println(x);", "Main.java", "Main"),
        ] {
            assert_eq!(java_file(code), (file.to_owned(), class.to_owned()), "{code}");
        }
    }

    #[test]
    fn what_a_snippet_leaves_out_is_put_around_it() {
        let text = |language, code| Source::of(language, code).text;
        assert_eq!(text(Language::Go, "func main() {}"), "package main; func main() {}");
        assert_eq!(text(Language::Go, "// x\npackage main\n"), "// x\npackage main\n");
        assert_eq!(text(Language::Rust, "println!(\"1\");"), "fn main() { println!(\"1\");\n}\n");
        assert_eq!(text(Language::Rust, "fn main() {}"), "fn main() {}");
        assert_eq!(Source::of(Language::JavaScript, "import a from 'b'").file, "snippet.mjs");
        assert_eq!(Source::of(Language::JavaScript, "require('fs')").file, "snippet.js");
        assert!(
            text(Language::Java, "import java.io.*;\nint x;").contains("import java.io.*; public class Main")
        );
    }
}
