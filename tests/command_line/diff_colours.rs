//! Diffs as users see them: renames, the words that changed, colours.

use agent::workspace::changes::Change;
use agent::workspace::manifest::Node;
use agent::workspace::store::Store;
use agent::workspace::tree_path::TreePath;
use agent::workspace::{ChangeSet, diff};

/// The diff of files that had the first content and get the second one.
fn shown(files: &[(&str, Option<&str>, Option<&str>)], color: bool) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path()).expect("a store");
    let node = |content: &str| Node::File {
        hash: store.put(content.as_bytes()).expect("it is kept"),
        size: content.len() as u64,
        mode: 0o644,
    };
    let change = |(name, old, new): &(&str, Option<&str>, Option<&str>)| {
        let path = TreePath::new(name.as_bytes()).expect("a path");
        (path, Change { before: old.map(node), after: new.map(node) })
    };
    let changes = ChangeSet { changes: files.iter().map(change).collect(), ..ChangeSet::default() };
    let mut text = Vec::new();
    diff::write_text(&mut text, &changes, &store, color).expect("a diff");
    let mut stat = Vec::new();
    diff::write_stat(&mut stat, &changes, &store).expect("statistics");
    format!("{}--\n{}", String::from_utf8_lossy(&text), String::from_utf8_lossy(&stat))
}

#[test]
fn a_rename_is_one_change_with_its_similarity() {
    let poem = "one\ntwo\nthree\nfour\nfive\nsix\n";
    let revised = poem.replace("four", "4");
    let files = [
        ("a.txt", Some(poem), None),
        ("dir/b.txt", None, Some(&*revised)),
        ("other.txt", None, Some("something else\n")),
        ("same.txt", Some("exactly the same\n"), None),
        ("same2.txt", None, Some("exactly the same\n")),
        ("unlike.txt", Some("nothing in common\n"), None),
    ];
    insta::assert_snapshot!(shown(&files, false), @r"
    renamed a.txt → dir/b.txt (82 % the same)
    @@ -1,6 +1,6 @@
     one
     two
     three
    -four
    +4
     five
     six
    new file other.txt
    @@ -0,0 +1 @@
    +something else
    renamed same.txt → same2.txt (100 % the same)
    deleted unlike.txt
    @@ -1 +0,0 @@
    -nothing in common
    --
         +1      -1  a.txt → dir/b.txt (82 % the same)
         +1      -0  other.txt (new file)
         +0      -0  same.txt → same2.txt (100 % the same)
         +0      -1  unlike.txt (deleted)
    4 files changed, 2 lines added, 2 removed
    ");
}

#[test]
fn words_that_changed_are_reversed_and_context_has_the_colours_of_its_language() {
    let old = "// count\nfn count() -> u32 {\n    sum(first, 10)\n}\n";
    let new = old.replace("first", "second");
    let text = shown(&[("count.rs", Some(old), Some(&new))], true);
    assert!(text.contains("\x1b[7m\x1b[31mfirst\x1b[0m"), "{text:?}");
    assert!(
        text.contains("\x1b[7m\x1b[32msecond\x1b[0m") && !text.contains("\x1b[7m\x1b[31msum"),
        "{text:?}"
    );
    if cfg!(feature = "policy") {
        assert!(text.contains("\x1b[35mfn\x1b[0m"), "a keyword is magenta: {text:?}");
        assert!(text.contains("\x1b[2m// count\x1b[0m"), "a comment is dim: {text:?}");
    }
    assert!(!shown(&[("count.rs", Some(old), Some(&new))], false).contains('\x1b'));
}

#[test]
fn nothing_of_a_file_is_obeyed_whatever_is_coloured() {
    let hostile = "let a = \"\x1b]0;title\x07\x1b[31m\u{202e}\"; // \x1b[2J\r\n\x1b[7mx\n";
    for name in ["a.rs", "a.py", "a.sh", "a.txt"] {
        for color in [true, false] {
            let text = shown(&[(name, Some("let a = 1;\n"), Some(hostile))], color);
            assert!(
                !text.contains('\x07') && !text.contains("\x1b]") && !text.contains('\u{202e}'),
                "{text:?}"
            );
            assert!(!text.contains("\x1b[2J"), "{text:?}");
            assert_eq!(text.contains('\x1b'), color, "{text:?}");
            assert!(text.contains("\\u{1b}"), "it is shown: {text:?}");
        }
    }
}

/// Lines that are made to be slow or deep end in time.
#[test]
fn large_and_hostile_files_are_shown_in_time() {
    let words: String = (0..20_000).map(|n| format!("{} ", n % 7)).collect();
    let other: String = (0..20_000).map(|n| format!("{} ", n % 5)).collect();
    let nested = "([{".repeat(50_000);
    let started = std::time::Instant::now();
    let files = [("a.js", Some(&*words), Some(&*other)), ("b.js", Some("x\n"), Some(&*nested))];
    shown(&files, true);
    // Without optimisation, on a busy machine, it takes 20 s.
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
}
