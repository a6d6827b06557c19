//! `agent code`: code from files, from standard input and at a prompt.

use agent_testbed::agent::agent;
use agent_testbed::terminal::terminal;
use agent_testing::counterpart::has;
use agent_testing::skip::left_out;
use serde_json::Value;
use std::net::ToSocketAddrs;
use std::time::Duration;

#[test]
fn a_file_runs_as_a_program_of_its_own() {
    let code = "import sys\nprint('read', sys.stdin.read())\nprint('aside', file=sys.stderr)\nsys.exit(7)";
    let finished = agent()
        .file("script.py", code)
        .args(["code", "-q", "script.py"])
        .stdin("some input")
        .run()
        .expect_code(7);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("read some input\n", "aside\n"));
}

#[test]
fn the_language_is_named_or_in_the_files_name_or_in_its_first_line() {
    if has("node", "nodejs") {
        let finished =
            agent().args(["code", "-q", "-l", "js", "-"]).stdin("console.log(6 * 7)").run().expect_code(0);
        assert_eq!(finished.stdout, "42\n");
    }
    let shell = "#!/usr/bin/env bash\necho $((6 * 7))\n";
    let finished = agent().file("script", shell).args(["code", "-q", "script"]).run().expect_code(0);
    assert_eq!(finished.stdout, "42\n");
    let finished = agent().file("script", "echo 1\n").args(["code", "script"]).run().expect_code(2);
    assert!(finished.stderr.contains("agent code -l python FILE"), "{}", finished.stderr);
    let finished = agent().args(["code", "-l", "cobol", "-"]).run().expect_code(2);
    assert!(finished.stderr.contains("the languages are python, javascript"), "{}", finished.stderr);
}

#[test]
fn a_compiled_program_sees_the_workspace_and_leaves_nothing_there() {
    if !has("c++", "g++") {
        return;
    }
    let code = "#include <fstream>\n#include <iostream>\nint main() { std::cout << std::ifstream(\"data.txt\").rdbuf(); return 3; }";
    let finished = agent()
        .file("data.txt", "the data\n")
        .args(["code", "-q", "-l", "c++", "-"])
        .stdin(code)
        .run()
        .expect_code(3);
    assert_eq!(finished.stdout, "the data\n");
    let finished =
        agent().args(["code", "-q", "-l", "c++", "-"]).stdin("int main() { nothing; }").run().expect_code(1);
    assert!(finished.stdout.is_empty() && finished.stderr.contains("nothing"), "{}", finished.stderr);
}

#[test]
fn json_has_the_output_the_value_and_the_exception() {
    let run = |code: &str, exit_code: u8| -> Value {
        let finished = agent()
            .args(["code", "--json", "-l", "python", "-"])
            .stdin(code)
            .run()
            .expect_code(exit_code.into());
        serde_json::from_str(&finished.stdout).expect("one JSON object")
    };
    let object = run("print('printed')\n6 * 7", 0);
    assert_eq!(object["output"], "printed\n");
    assert_eq!((&object["value"], &object["exit_code"]), (&"42".into(), &0.into()));
    let object = run("1 / 0", 1);
    assert_eq!(object["value"], Value::Null);
    let error = object["error"].as_str().expect("an exception");
    assert!(error.ends_with("ZeroDivisionError: division by zero\n"), "{error}");
}

/// A file that is there is not overwritten, and the same one is not copied twice.
#[test]
fn what_code_shows_is_listed_and_copied_where_that_is_asked_for() {
    let code = "class Table:\n  def _repr_html_(self): return '<table></table>'\nTable()";
    let call = agent().file("out/output-1.html", "mine");
    let workspace = call.workspace().to_owned();
    let call = call.args(["code", "--json", "-l", "python", "--artifacts", "out", "-"]).stdin(code);
    let finished = call.run().expect_code(0);
    let object: Value = serde_json::from_str(&finished.stdout).expect("one JSON object");
    let artifact = &object["artifacts"][0];
    assert_eq!((&artifact["name"], &artifact["media_type"]), (&"output-1.html".into(), &"text/html".into()));
    let path = artifact["path"].as_str().expect("a path");
    assert!(path.starts_with("out/") && path.ends_with("-output-1.html"), "{path}");
    assert_eq!(std::fs::read_to_string(workspace.join(path)).unwrap(), "<table></table>");
    assert_eq!(std::fs::read_to_string(workspace.join("out/output-1.html")).unwrap(), "mine");
    let script = "import os\nopen(os.environ['AGENT_DISPLAY_DIR'] + '/a.csv', 'w').write('a,b')";
    let finished = agent().args(["code", "-l", "python", "-"]).stdin(script).run().expect_code(0);
    let line = "    a.csv (text/csv, 3 bytes; --artifacts DIR keeps it)\n";
    assert!(finished.stderr.ends_with(line), "{}", finished.stderr);
    // What other programs obey is not copied into the user's files.
    let call = agent()
        .args(["code", "-l", "python", "--artifacts", ".", "-"])
        .stdin(script.replace("a.csv", "package.json"));
    let finished = call.run().expect_code(0);
    assert!(finished.stderr.contains("package.json is not written"), "{}", finished.stderr);
    assert_eq!(finished.host_file("package.json"), None);
}

#[test]
fn libraries_need_a_network_and_valid_names() {
    let call =
        |name: &str| agent().args(["code", "-l", "py", &format!("--lib={name}"), "-"]).stdin("1").run();
    let finished = call("no-such-library-at-all").expect_code(125);
    assert!(finished.stderr.contains("--network registries"), "{}", finished.stderr);
    let finished = call("--index-url=x").expect_code(2);
    assert!(finished.stderr.contains("is not a valid library name"), "{}", finished.stderr);
}

/// From the real registries, as far as this machine can look them up; required in CI are those of Python and JavaScript.
#[test]
fn libraries_come_from_the_registries_through_the_proxy_and_once() {
    let programs = [
        (
            "python",
            "six==1.16.0",
            "import six\nsix.__version__",
            "'1.16.0'",
            &["pypi.org", "files.pythonhosted.org"][..],
        ),
        (
            "javascript",
            "is-odd@3.0.1",
            "const isOdd = require('is-odd'); isOdd(7)",
            "true",
            &["registry.npmjs.org"],
        ),
        (
            "ruby",
            "rainbow@3.1.1",
            "require 'rainbow'\nputs Rainbow::VERSION",
            "3.1.1",
            &["rubygems.org", "index.rubygems.org"],
        ),
        (
            "go",
            "github.com/google/uuid@v1.6.0",
            "import (\"fmt\"; \"github.com/google/uuid\")\nfunc main() { fmt.Println(uuid.Nil) }",
            "00000000-0000-0000-0000-000000000000",
            &["proxy.golang.org"],
        ),
        (
            "java",
            "com.google.code.gson:gson:2.11.0",
            "System.out.println(new com.google.gson.Gson().toJson(List.of(1, 2)));",
            "[1,2]",
            &["repo.maven.apache.org"],
        ),
    ];
    for (language, library, code, expected, hosts) in programs {
        let (installer, package) = match language {
            "python" => ("pip3", "python3-pip"),
            "javascript" => ("npm", "npm"),
            "ruby" => ("gem", "ruby"),
            "go" => ("go", "golang-go"),
            "java" => ("mvn", "maven"),
            other => (other, other),
        };
        if !has(installer, package) {
            continue;
        }
        let Some(addresses) = addresses(hosts) else {
            let is_required = std::env::var_os("AGENT_TEST_REQUIRE_LANGUAGES").is_some()
                && matches!(language, "python" | "javascript");
            assert!(!is_required, "the registry of {language} cannot be looked up");
            left_out(format!("the registry of {language} cannot be looked up"));
            continue;
        };
        let network = [vec!["registries".to_owned()], addresses].concat().join(",");
        runs_with_library(&network, language, library, code, expected);
    }
}

fn runs_with_library(network: &str, language: &str, library: &str, code: &str, expected: &str) {
    let call = agent();
    let workspace = call.workspace().to_owned();
    let finished = call
        .args(["code", "--json", "--network", network, "-l", language, "--lib", library, "-"])
        .stdin(code)
        .deadline(Duration::from_secs(600))
        .run()
        .expect_code(0);
    let object: Value = serde_json::from_str(&finished.stdout).expect("one JSON object");
    let printed = [&object["value"], &object["output"]].map(|text| text.as_str().unwrap_or_default().trim());
    assert!(printed.contains(&expected), "{language}: {object}");
    let left = std::fs::read_dir(workspace).expect("the workspace").count();
    assert_eq!(left, 0, "{language}: nothing of it is in the workspace");
}

/// The addresses of the hosts that the proxy takes only by name: those that are not public, as in a lab. `None` where a host
/// is unknown.
fn addresses(hosts: &[&str]) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for host in hosts {
        found.extend((*host, 443).to_socket_addrs().ok()?.map(|address| address.to_string()));
    }
    found.sort();
    found.dedup();
    Some(found)
}

#[test]
fn the_prompt_keeps_its_variables_over_an_interrupt() {
    let mut prompt = terminal().args(["code", "-i", "python"]).start();
    prompt.wait_for(">>>");
    prompt.type_line("x = 6");
    prompt.type_line("x * 7");
    prompt.wait_for("42");
    prompt.type_line("def half(n):");
    prompt.type_line("    return n / 2");
    prompt.type_line("");
    prompt.type_line("half(x)");
    prompt.wait_for("3.0");
    prompt.type_line("print('asleep'); import time; time.sleep(600)");
    prompt.wait_until("the program's output", |screen| screen.contains("\nasleep"));
    prompt.ctrl_c();
    prompt.wait_for("interrupted");
    prompt.type_line("'still ' + str(x)");
    prompt.wait_until("the value and a prompt", |screen| screen.trim_end().ends_with("'still 6'\n>>>"));
    prompt.ctrl_d();
    assert_eq!(prompt.wait(), 0);
}
