//! The truth of the documents: their links, the commands in them, the lists of the reference, the README's first minutes.

use agent::cli::Cli;
use agent_testbed::agent::agent;
use agent_testing::counterpart::has;
use agent_testing::endpoint::endpoint;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every document, but for prompts, which are the model's.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories: Vec<_> =
        ["crates", "docs", "examples", "python"].map(|name| root().join(name)).into();
    let own = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    let entries = |directory: &Path| {
        let listed = std::fs::read_dir(directory).expect("a directory");
        listed.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    found.extend(entries(root()).into_iter().filter(|path| own(path)));
    while let Some(directory) = directories.pop() {
        for path in entries(&directory) {
            // What tools make there, such as virtual environments, is not the project's, and samples are what a model may write.
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let is_documentation = !name.starts_with(b".") && name != b"samples";
            match path.is_dir() && !path.is_symlink() && is_documentation {
                true => directories.push(path),
                false if own(&path) => found.push(path),
                false => {}
            }
        }
    }
    assert!(found.len() > 50, "{found:?}");
    found
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for document in documents() {
        let content = std::fs::read_to_string(&document).unwrap();
        for (number, line) in content.lines().enumerate() {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link)
            {
                if link.contains("://") {
                    continue;
                }
                let (path, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = match path {
                    "" => document.clone(),
                    path => document.parent().unwrap().join(path),
                };
                let place = format!("{}:{}: {link}", document.display(), number + 1);
                assert!(target.exists(), "{place} leads nowhere");
                if !heading.is_empty() {
                    let target = std::fs::read_to_string(&target).unwrap();
                    let mut headings = target.lines().filter(|line| line.starts_with('#'));
                    assert!(
                        headings.any(|line| anchor(line.trim_start_matches('#')) == heading),
                        "{place}: no such heading"
                    );
                }
            }
        }
    }
}

/// The commands of `agent` in a line of a shell, each as its words.
fn calls(line: &str) -> Vec<Vec<String>> {
    let Ok(words) = shell_words::split(line.trim_start_matches("$ ")) else { return Vec::new() };
    let mut calls = Vec::new();
    for command in words.split(|word| matches!(word.as_str(), "|" | "||" | "&&" | ";")) {
        let is_assignment = |word: &&String| {
            word.split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        };
        let mut words = command.iter().skip_while(is_assignment);
        if words.next().is_some_and(|word| word == "agent") {
            calls.push(words.take_while(|word| !word.starts_with(['>', '<'])).cloned().collect());
        }
    }
    calls
}

#[test]
fn every_command_in_a_document_is_one_that_agent_takes() {
    let mut count = 0;
    for document in documents() {
        let content = std::fs::read_to_string(&document).unwrap().replace("\\\n", " ");
        let (mut language, mut is_code) = ("", false);
        for (number, line) in content.lines().enumerate() {
            if let Some(rest) = line.trim_start().strip_prefix("```") {
                (language, is_code) = (rest, !is_code);
                continue;
            }
            if !is_code || !matches!(language, "" | "sh") {
                continue;
            }
            for call in calls(line) {
                count += 1;
                let parsed =
                    Cli::try_parse_from(std::iter::once("agent").chain(call.iter().map(String::as_str)));
                if let Err(error) = parsed.map_err(|error| (error.kind(), error.to_string())) {
                    let is_help = matches!(error.0, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
                    assert!(is_help, "{}:{}: {line}\n{}", document.display(), number + 1, error.1);
                }
            }
        }
    }
    assert!(count > 80, "only {count} commands were found");
}

#[test]
fn the_reference_has_every_command_and_option() {
    fn check(command: &clap::Command, path: &str, reference: &str) {
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            let is_named = ["`", ",", " "].iter().any(|end| reference.contains(&format!("`--{option}{end}")));
            assert!(
                is_named || option == "help" || option == "version",
                "{path} --{option} is not in the reference"
            );
        }
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let name = command.get_name();
            let is_named =
                reference.lines().any(|line| line.contains(&format!("`{path}")) && line.contains(name));
            assert!(is_named, "{path} {name} is not in the reference");
            check(command, &format!("{path} {name}"), reference);
        }
    }
    let mut program = Cli::command();
    program.build();
    check(&program, "agent", &text("docs/reference/commands.md"));
}

/// Each class of published holes names an attack or a file of tests, and each of these is there.
#[test]
fn every_class_of_advisories_names_attacks_that_exist() {
    let mut sources = String::new();
    for directory in ["tests/sandboxes/attacks", "tests/servers"] {
        for entry in std::fs::read_dir(root().join(directory)).expect("a directory").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "rs") {
                sources += &std::fs::read_to_string(entry.path()).expect("a source");
            }
        }
    }
    let page = text("docs/internals/advisories.md");
    let classes: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert!(classes.len() > 8, "{}", classes.len());
    for class in classes {
        let name = class.lines().next().unwrap_or_default();
        let (_, here) =
            class.rsplit_once("\nHere").unwrap_or_else(|| panic!("{name}: nothing of ours is named"));
        let files = here.split('`').filter(|part| part.starts_with("tests/"));
        let mut count = 0;
        for file in files {
            assert!(root().join(file).exists(), "{name}: {file}");
            count += 1;
        }
        // What stands in backticks, and links, have numbers of their own.
        let plain: String = here.split('`').step_by(2).collect();
        let words = plain.split(|c: char| !c.is_ascii_alphanumeric());
        for number in words.filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()))
        {
            assert!(sources.contains(&format!("fn attack_{number:0>2}_")), "{name}: attack {number}");
            count += 1;
        }
        assert!(count > 0, "{name}: no attack is named");
    }
}

#[test]
fn the_reference_has_every_event() {
    let reference = text("docs/reference/events.md");
    let schema: serde_json::Value = serde_json::from_str(&text("docs/reference/events.schema.json")).unwrap();
    let events = schema["oneOf"].as_array().expect("the events");
    for event in events {
        let name = event["properties"]["type"]["const"].as_str().expect("a name");
        assert!(reference.contains(&format!("`{name}`")), "{name} is not in docs/reference/events.md");
    }
}

#[test]
fn the_reference_has_every_provider() {
    let reference = text("docs/reference/configuration.md");
    for provider in agent::model::providers::ALL {
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{}` |", provider.name)));
        let row =
            row.unwrap_or_else(|| panic!("{} is not in docs/reference/configuration.md", provider.name));
        let fixed = provider.base_url.split("/projects").next().unwrap();
        assert!(row.contains(fixed) && provider.key_variables.iter().all(|name| row.contains(name)), "{row}");
    }
}

#[test]
fn the_readme_is_short() {
    let bytes = text("README.md").len();
    assert!(bytes <= 9216, "README.md has {bytes} bytes");
}

/// The lines of the picture of a terminal.
fn lines_of_picture(picture: &str) -> Vec<String> {
    let mut rows: BTreeMap<i64, Vec<(usize, String)>> = BTreeMap::new();
    for element in picture.split("<text ").skip(1) {
        let attribute = |name: &str| {
            let (_, rest) = element.split_once(&format!("{name}=\"")).expect("the attribute");
            rest.split_once('"').expect("its end").0.parse::<f64>().expect("a number")
        };
        let (column, row) = ((attribute("x") - 16.0) / 8.4, (attribute("y") - 16.0) / 19.0);
        let text = element.split_once('>').expect("the text").1.split_once("</text>").expect("its end").0;
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        rows.entry(row as i64).or_default().push((column.round() as usize, text));
    }
    let line = |runs: Vec<(usize, String)>| {
        runs.into_iter().fold(String::new(), |line, (column, text)| {
            let gap = column.saturating_sub(line.chars().count());
            line + &" ".repeat(gap) + &text
        })
    };
    rows.into_values().map(line).collect()
}

#[test]
fn the_picture_of_the_readme_shows_what_happens() {
    let shown = lines_of_picture(&text("docs/demo.svg"));
    let recording = root().join("docs/demo/session.jsonl");
    let place = agent()
        .file("leap.py", text("docs/demo/project/leap.py"))
        .file("test_leap.py", text("docs/demo/project/test_leap.py"))
        .config("env = { PYTHONDONTWRITEBYTECODE = \"1\" }");
    let ran = place.again().args(["--replay", recording.to_str().unwrap(), "fix the failing test"]).run();
    let ran = ran.expect_code(0);
    assert!(ran.stderr.contains("run_commands result: exit 1 in"), "the test fails first: {}", ran.stderr);
    let diff = place.again().args(["diff"]).run().expect_code(0);
    let failed = Command::new("python3").arg("test_leap.py").current_dir(place.workspace()).output().unwrap();
    assert!(!failed.status.success(), "nothing is written before the apply");
    place.again().args(["apply", "--yes"]).run().expect_code(0);
    let passed = Command::new("python3").arg("test_leap.py").current_dir(place.workspace()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&passed.stdout), "ok\n");
    // On a terminal code has a colour in place of its marks.
    let answer = ran.stdout.replace('`', "");
    for line in answer.lines().chain(diff.stdout.lines()) {
        assert!(shown.iter().any(|shown| shown == line), "docs/demo/make.sh makes the picture anew: {line}");
    }
    for command in
        ["agent \"fix the failing test\"", "agent diff", "agent apply --yes", "python3 test_leap.py"]
    {
        assert!(shown.contains(&format!("$ {command}")), "{command}: {shown:#?}");
    }
}

#[test]
fn the_dependencies_of_a_project_are_there_for_commands_and_checks() {
    if !has("npm", "npm") {
        return;
    }
    let place = agent()
        .file(".gitignore", "node_modules\n.venv\n")
        .file("node_modules/dependency/index.js", "module.exports = 42;\n")
        .file("package.json", r#"{ "name": "project", "scripts": { "test": "node test.js" } }"#)
        .file("test.js", "if (require('dependency') !== 42) process.exit(1);\n");
    // The one that every sandbox of the host's programs has.
    let venv = Command::new("/usr/bin/python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .current_dir(place.workspace())
        .output()
        .expect("python3");
    assert!(venv.status.success(), "{}", String::from_utf8_lossy(&venv.stderr));
    let packages = std::fs::read_dir(place.workspace().join(".venv/lib")).unwrap().next().unwrap().unwrap();
    std::fs::write(packages.path().join("site-packages/pytest.py"), "print('passed')\n").unwrap();
    let script = place.workspace().join(".venv/bin/pytest");
    let start = format!("#!{}/.venv/bin/python\nimport pytest\n", place.workspace().display());
    std::fs::write(&script, start).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();

    let readme = text("README.md");
    let command = |start: &str| {
        let line = readme.lines().find(|line| line.starts_with(start)).expect("the README has it");
        calls(line).remove(0)
    };
    place.again().args(command("agent exec npm")).run().expect_code(0);
    let python = place.again().args(command("agent exec .venv")).run().expect_code(0);
    assert_eq!(python.stdout, "passed\n");
    let copied = place.again().args(["exec", "--workspace-mode", "copy", "npm", "test"]).run();
    assert_ne!(copied.code, 0, "a copy lacks them");

    let model =
        endpoint().tool_call("write_file", json!({ "path": "new.js", "data": "\n" })).text("Done.").start();
    let ran = place.again().endpoint(&model).args(command("agent run --check")).run();
    ran.expect_code(0);
}
