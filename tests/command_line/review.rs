//! The review of changes by hunk, in the REPL and in `agent apply -i`.

use agent::diff::hunks::Kind;
use agent::hash::Hash;
use agent::workspace::ChangeSet;
use agent::workspace::changes::Change;
use agent::workspace::manifest::Node;
use agent::workspace::parts::{Item, items};
use agent::workspace::store::Store;
use agent::workspace::tree_path::TreePath;
use agent_testbed::agent::agent;
use agent_testbed::terminal::{Builder, Terminal, terminal};
use agent_testing::endpoint::endpoint;
use proptest::prelude::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Lines `1` to `40`.
fn numbers() -> String {
    (1..=40).map(|number| format!("{number}\n")).collect()
}

/// An editor outside of the workspace that runs this `sed` script.
fn with_editor(builder: Builder, script: &str) -> Builder {
    let path = builder.directory("editor");
    std::fs::write(&path, format!("#!/bin/sh\nexec sed -i '{script}' \"$1\"\n")).expect("the editor");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    builder.env("EDITOR", path)
}

fn host(terminal: &Terminal, name: &str) -> Option<String> {
    std::fs::read_to_string(terminal.root().join("workspace").join(name)).ok()
}

fn answer(terminal: &mut Terminal, question: &str, answer: &str) {
    terminal.wait_until(question, |screen| {
        screen
            .trim_end()
            .lines()
            .next_back()
            .is_some_and(|last| last.contains(question) && last.ends_with(']'))
    });
    if answer == "\x03" {
        return terminal.ctrl_c();
    }
    terminal.type_text(answer);
    let shows = |screen: &str| screen.trim_end().ends_with(&format!("] {answer}"));
    terminal.wait_until("the answer", shows);
    terminal.type_text("\r");
    // The last answer may end the program.
    if !matches!(answer, "q" | "no") {
        terminal.wait_until("what follows", |screen| !shows(screen));
    }
}

#[test]
fn the_question_shows_the_change_explains_its_answers_and_takes_words() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "sed -i 's/^5$/five/' n.txt" }))
        .text("Changed.")
        .text("Asked again.")
        .start();
    let builder = terminal().endpoint(&model).file("n.txt", &numbers()).env("PAGER", "cat");
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Changed.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_for("Apply? [yes/no/each]");
    let screen = terminal.screen();
    assert!(screen.contains("\n-5\n+five\n") && screen.contains("1 file changed, 1 line added"), "{screen}");
    answer(&mut terminal, "Apply? [yes/no/each]", "yse");
    terminal.wait_for("\"yse\" is none of the answers:\n  y  yes: write all of it to your files\n");
    answer(&mut terminal, "Apply? [yes/no/each]", "?");
    terminal.wait_for("  d  diff: show all of it in the pager\n");
    answer(&mut terminal, "Apply? [yes/no/each]", "d");
    terminal.wait_until("the diff again", |screen| screen.matches("\n+five\n").count() == 2);
    answer(&mut terminal, "Apply? [yes/no/each]", "no, use a helper function");
    terminal.wait_for("nothing was written");
    terminal.wait_for("Asked again.");
    let last = model.last().messages().last().expect("a message").to_string();
    assert!(last.contains("wrote none of them") && last.contains("no, use a helper function"), "{last}");
    assert_eq!(host(&terminal, "n.txt"), Some(numbers()));
}

/// A change that does not fit the screen is not drawn over it.
#[test]
fn a_long_change_is_summed_up_and_shown_in_the_pager() {
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": "seq 100 300 > long.txt" }))
        .text("Written.")
        .start();
    let mut terminal = terminal().endpoint(&model).env("PAGER", "tail -n 1").start();
    terminal.wait_for_prompt();
    terminal.type_line("write it");
    terminal.wait_for("Written.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    terminal.wait_for("1 file changed, 201 lines added, 0 removed");
    assert!(!terminal.screen().contains("+100"), "{}", terminal.screen());
    answer(&mut terminal, "Apply? [yes/no/each]", "d");
    terminal.wait_for("\n+300\n");
    terminal.type_line("y");
    terminal.wait_for("written: 1 file added");
}

#[test]
fn each_hunk_is_applied_refused_split_or_edited_and_refusals_reach_the_model() {
    let change =
        "sed -i -e 's/^5$/five/' -e 's/^9$/nine/' -e 's/^20$/twenty/' -e 's/^35$/thirty-five/' n.txt";
    let model = endpoint()
        .tool_call("run_commands", json!({ "command": change }))
        .text("Changed.")
        .text("Revised.")
        .start();
    let builder = terminal().endpoint(&model).file("n.txt", &numbers());
    let mut terminal = with_editor(builder, "s/^+twenty/+TWENTY/").start();
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Changed.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply -i");
    answer(&mut terminal, "Apply this hunk (1/3)? [y,n,a,d,s,e,p,q,?]", "?");
    terminal.wait_for("s  split the hunk into smaller ones");
    answer(&mut terminal, "Apply this hunk (1/3)?", "s");
    answer(&mut terminal, "Apply this hunk (1/4)? [y,n,a,d,e,p,q,?]", "y");
    answer(&mut terminal, "Apply this hunk (2/4)?", "no nine is a bad name");
    answer(&mut terminal, "Apply this hunk (3/4)?", "e");
    answer(&mut terminal, "Apply the edited hunk (3/4)?", "yes");
    answer(&mut terminal, "Apply this hunk (4/4)?", "n");
    terminal.wait_for("the model is asked to revise them");
    terminal.wait_for("Revised.");
    let written = numbers().replace("\n5\n", "\nfive\n").replace("\n20\n", "\nTWENTY\n");
    assert_eq!(host(&terminal, "n.txt"), Some(written));
    let requests = model.requests();
    let last = requests.last().expect("a request").messages().last().expect("a message").to_string();
    assert!(last.contains("n.txt, line 9: nine is a bad name") && last.contains("-9\\n+nine\\n"), "{last}");
    assert!(last.contains("They edited hunks of these, also in the sandbox: n.txt"), "{last}");
    terminal.wait_for_prompt();
    // The sandbox has what the user wrote, and what is not applied yet.
    terminal.type_line("!sed -n '5p;9p;20p;35p' n.txt");
    terminal.wait_for("\nfive\nnine\nTWENTY\nthirty-five\n");
    terminal.wait_for_prompt();
    terminal.type_line("/diff");
    terminal.wait_for("+thirty-five");
    assert!(!terminal.screen().contains("\n-five"), "{}", terminal.screen());
    terminal.type_line("/exit");
    terminal.wait();
}

#[test]
fn what_is_no_hunk_is_one_item_each() {
    let change = "printf 'new\\n' > new.txt; rm gone.txt; mv old.txt moved.txt; printf '\\0\\0\\1\\0b' > image.ico; \
                  chmod 755 n.txt; sed -i 's/^5$/five/' n.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": change })).text("Changed.").start();
    let builder = terminal()
        .endpoint(&model)
        .file("n.txt", &numbers())
        .file("gone.txt", "gone\n")
        .file("image.ico", "\0\0\u{1}\0c")
        .file("old.txt", "one\ntwo\nthree\n");
    let mut ran = builder.again().endpoint(&model).args(["run", "change"]).start();
    answer(&mut ran, "Apply? [yes/no/each]", "no");
    assert_eq!(ran.wait(), 0);
    let mut terminal = builder.args(["apply", "-i"]).start();
    let whole = "Apply this? [y,n,p,q,?]";
    for (name, reply) in [("deleted gone.txt", "y"), ("image.ico", "y"), ("moved.txt", "y")] {
        terminal.wait_for(name);
        answer(&mut terminal, whole, reply);
    }
    terminal.wait_for("modified n.txt (mode 644 → 755)");
    answer(&mut terminal, "Apply the change of the mode? [y,n,p,q,?]", "n");
    answer(&mut terminal, "Apply this hunk (1/1)? [y,n,a,d,e,p,q,?]", "y");
    terminal.wait_for("new file new.txt");
    answer(&mut terminal, whole, "q");
    assert_eq!(terminal.wait(), 0);
    assert!(terminal.screen().contains("agent undo"), "{}", terminal.screen());
    assert_eq!((host(&terminal, "gone.txt"), host(&terminal, "new.txt")), (None, None));
    assert_eq!(host(&terminal, "image.ico").as_deref(), Some("\0\0\u{1}\0b"));
    assert_eq!(host(&terminal, "old.txt"), None, "a rename is one item");
    assert_eq!(host(&terminal, "moved.txt").as_deref(), Some("one\ntwo\nthree\n"));
    assert_eq!(host(&terminal, "n.txt"), Some(numbers().replace("\n5\n", "\nfive\n")));
    let mode = |path: &Path| std::fs::metadata(path).expect("the file").permissions().mode() & 0o777;
    assert_eq!(mode(&terminal.root().join("workspace/n.txt")), 0o644);
}

#[test]
fn an_interrupted_review_writes_nothing_and_an_edit_that_does_not_apply_is_asked_about_again() {
    let change = "sed -i -e 's/^5$/five/' -e 's/^35$/thirty-five/' n.txt";
    let model = endpoint().tool_call("run_commands", json!({ "command": change })).text("Changed.").start();
    let builder = with_editor(terminal().endpoint(&model).file("n.txt", &numbers()), "s/^ 4/ four/");
    let editor = builder.directory("editor");
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("change it");
    terminal.wait_for("Changed.");
    terminal.wait_for_prompt();
    terminal.type_line("/apply");
    answer(&mut terminal, "Apply? [yes/no/each]", "each");
    answer(&mut terminal, "Apply this hunk (1/2)?", "e");
    terminal.wait_for("The edited hunk cannot be applied: line 4 of the file is not as it was");
    answer(&mut terminal, "Edit it again?", "no");
    answer(&mut terminal, "Apply this hunk (1/2)?", "y");
    answer(&mut terminal, "Apply this hunk (2/2)?", "\x03");
    terminal.wait_for("stopped; the session continues");
    assert_eq!(host(&terminal, "n.txt"), Some(numbers()));
    // Nothing of the hunk is left: it stays as it was.
    std::fs::write(&editor, "#!/bin/sh\n: > \"$1\"\n").expect("the editor");
    terminal.wait_for_prompt();
    terminal.type_line("/apply -i");
    answer(&mut terminal, "Apply this hunk (1/2)?", "e");
    answer(&mut terminal, "Apply this hunk (1/2)?", "a");
    terminal.wait_for("written: 0 files added, 1 modified, 0 deleted");
    let written = numbers().replace("\n5\n", "\nfive\n").replace("\n35\n", "\nthirty-five\n");
    assert_eq!(host(&terminal, "n.txt"), Some(written));
}

#[test]
fn a_review_needs_a_terminal() {
    let refused = agent().args(["apply", "-i"]).run().expect_code(2);
    assert!(refused.stderr.contains("--interactive needs a terminal"), "{}", refused.stderr);
}

/// A change of one file, and its content in a store.
fn change(store: &Store, old: &[u8], new: &[u8]) -> ChangeSet {
    let node = |content: &[u8]| Node::File {
        hash: store.put(content).expect("it is kept"),
        size: content.len() as u64,
        mode: 0o644,
    };
    let change = Change { before: Some(node(old)), after: Some(node(new)) };
    let path = TreePath::new(b"f").expect("a path");
    ChangeSet { changes: [(path, change)].into(), ..ChangeSet::default() }
}

/// Files of a few different lines, the last with or without its newline: they compare in many ways.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec!["a", "b", "c", "", "-x", "\\ y"]);
    (prop::collection::vec(line, 0..30), any::<bool>()).prop_map(|(lines, is_open)| {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        text.strip_suffix('\n').filter(|_| is_open).unwrap_or(&text).as_bytes().to_vec()
    })
}

/// UTF-16 was taken or left as a whole, and the lines of legacy encodings were shown as bytes that cannot be decoded.
#[test]
fn the_hunks_of_a_file_in_another_encoding_are_text_and_each_keeps_its_bytes() {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let lines = |first: &str, last: &str| format!("{first}\r\n{}{last}\r\n", "mid größe\r\n".repeat(20));
    let latin1 =
        |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin-1")).collect::<Vec<u8>>();
    type Encode<'a> = &'a dyn Fn(&str) -> Vec<u8>;
    let encodings: [Encode<'_>; 3] = [&|text| utf16(&format!("\u{feff}{text}")), &utf16, &latin1];
    for encode in encodings {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("a store");
        let (old, new) = (lines("früher", "ende"), lines("später", "schluß"));
        let changes = change(&store, &encode(&old), &encode(&new));
        let Some(Item::Text(file)) = items(&changes, &store).expect("items").into_iter().next() else {
            panic!("it is not text")
        };
        let mut shown = String::new();
        file.show(&file.hunks[0], &mut |line| shown += &format!("{}\n", String::from_utf8_lossy(line.text)));
        assert!(shown.contains("früher\r\nspäter\r\n"), "{shown:?}");
        let first = file.content(&file.hunks[..1]).expect("it is written");
        assert_eq!(first, encode(&lines("später", "ende")));
        assert_eq!(file.content(&file.hunks).expect("it is written"), encode(&new));
    }
    // A character that the encoding lacks is refused where the user writes it.
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path()).expect("a store");
    let changes = change(&store, &latin1("größe über maß\n"), &latin1("größe über maße\n"));
    let Some(Item::Text(file)) = items(&changes, &store).expect("items").into_iter().next() else {
        panic!("it is not text")
    };
    let edited = String::from_utf8(file.editable(&file.hunks[0])).expect("UTF-8").replace("maße", "maße 設");
    let why = file.edited(0, edited.as_bytes()).expect_err("it cannot be written");
    assert!(why.contains("設"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_hunks_of_a_file_together_are_its_change(old in file(), new in file()) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path()).expect("a store");
        let changes = change(&store, &old, &new);
        let items = items(&changes, &store).expect("items");
        let Some(Item::Text(mut file)) = items.into_iter().next() else {
            prop_assert_eq!(Hash::of(&old), Hash::of(&new));
            return Ok(());
        };
        prop_assert_eq!(file.content(&[]).expect("bytes"), old.clone());
        prop_assert_eq!(file.content(&file.hunks).expect("bytes"), new.clone());
        let split: Vec<_> = file.hunks.iter().flat_map(|hunk| hunk.split().unwrap_or(vec![hunk.clone()])).collect();
        prop_assert_eq!(file.content(&split).expect("bytes"), new.clone());
        // Each hunk shows lines of the old file, in order, and is the same after an editor that changes nothing.
        file.hunks = split;
        for (index, hunk) in file.hunks.clone().iter().enumerate() {
            let mut sides = (0, 0);
            let mut header = String::new();
            file.show(hunk, &mut |line| match line.kind {
                Kind::Header => header = String::from_utf8_lossy(line.text).into_owned(),
                Kind::Context => sides = (sides.0 + 1, sides.1 + 1),
                Kind::Removed => sides.0 += 1,
                Kind::Added => sides.1 += 1,
                Kind::NoNewline => {}
            });
            let count = |part: &str| part.split(',').nth(1).map_or(1, |n| n.parse().expect("a number"));
            let counted: Vec<usize> = header.split(' ').skip(1).take(2).map(count).collect();
            prop_assert_eq!(counted, vec![sides.0, sides.1], "{}", header);
            let again = file.edited(index, &file.editable(hunk));
            let again = again.map_err(|why| TestCaseError::fail(format!("{why}: {header}")))?;
            let alone = again.map(|again| file.content([&again]).expect("bytes"));
            prop_assert_eq!(alone, Some(file.content([hunk]).expect("bytes")));
        }
    }
}
