//! The settings that a `.env` may make and those that it may not: an untrusted repository may contain one.

use agent_testbed::agent::{Agent, agent};
use agent_testing::endpoint::{Endpoint, endpoint};

const SECRET: &str = "secret-of-the-user";

/// `agent run` beside a `.env`, with a secret in the environment.
fn beside(dot_env: impl AsRef<[u8]>) -> Agent {
    agent().env("OPENAI_API_KEY", SECRET).env("DATABASE", SECRET).file(".env", dot_env).args(["run", "go"])
}

fn got_no_secret(model: &Endpoint) -> bool {
    !model.all_requests().iter().any(|request| format!("{request:?}").contains(SECRET))
}

#[test]
fn it_names_an_endpoint_a_key_and_a_model() {
    let model = endpoint().text("ok").repeat_last().start();
    let key = |request: agent_testing::endpoint::Request| request.header("authorization").map(str::to_owned);
    for text in [
        "AGENT_BASE_URL={url}\nAGENT_API_KEY=its-own\nAGENT_MODEL=m\n",
        "\u{feff}export AGENT_BASE_URL = \"{url}\" # here\r\nexport\tAGENT_API_KEY='its-own'\r\nAGENT_MODEL=m\r\n",
    ] {
        beside(text.replace("{url}", &model.url())).run().expect_code(0);
        assert_eq!(key(model.last()).as_deref(), Some("Bearer its-own"));
    }
}

#[test]
fn it_does_not_read_the_environment() {
    let model = endpoint().text("ok").repeat_last().start();
    let named = "AGENT_BASE_URL={url}\nAGENT_API_KEY=k\nAGENT_MODEL=m\n";
    for line in [
        "AGENT_BASE_URL={url}/${DATABASE}",
        "AGENT_BASE_URL=\"{url}/\n${DATABASE}\"",
        "AGENT_API_KEY=${OPENAI_API_KEY}",
        "AGENT_API_KEY=\"\n${OPENAI_API_KEY}\"",
        "export\tAGENT_API_KEY=${OPENAI_API_KEY}",
        "export \t AGENT_API_KEY=$OPENAI_API_KEY",
        "AGENT_MODEL='m\n'$DATABASE",
        "A=\"\nAGENT_MODEL=$DATABASE\n\"",
        "A=$DATABASE\nAGENT_MODEL=\"$A\"",
    ] {
        let text = format!("{named}{line}\n").replace("{url}", &model.url());
        let finished = beside(&text).run();
        assert_eq!(finished.code, 2, "{text}: {}", finished.stderr);
        assert!(got_no_secret(&model) && !finished.stderr.contains(SECRET), "{text}: {}", finished.stderr);
    }
    assert_eq!(model.connections(), 0);
}

#[test]
fn settings_that_it_may_not_set_are_reported_once() {
    let model = endpoint().text("ok").repeat_last().start();
    let text = "AGENT_PIDS=9\nexport AGENT_MAX_TURNS=1\nAGENT_PIDS=8\nAGENT_SANDBOX=auto\nAGENT_OTHER=1\n";
    let finished = agent().endpoint(&model).file(".env", text).args(["run", "go"]).run().expect_code(0);
    let notice = "ignored in .env: AGENT_MAX_TURNS, AGENT_PIDS (";
    assert_eq!(finished.stderr.matches(notice).count(), 1, "{}", finished.stderr);
}

#[test]
fn variables_of_other_programs_are_neither_read_nor_shown() {
    let model = endpoint().text("ok").repeat_last().start();
    let others = b"PASSWORD=two words\nOLD\n=\n'\nKEY=\"-----BEGIN\nline\n-----END\"\nA=${B\nLATIN=\xe9\n";
    let ours = format!("AGENT_BASE_URL={}\nAGENT_API_KEY=k\nAGENT_MODEL=m\n", model.url());
    let finished = beside([others.as_slice(), ours.as_bytes()].concat()).run().expect_code(0);
    assert!(!finished.stderr.contains("words"), "{}", finished.stderr);
}

#[test]
fn a_value_that_cannot_be_read_is_not_repeated() {
    for line in ["AGENT_API_KEY=\"abc", "AGENT_API_KEY=hunter two", "AGENT_API_KEY=\"a\\nhunter\""] {
        let finished = beside(line).run().expect_code(2);
        assert!(finished.stderr.contains("AGENT_API_KEY cannot be read"), "{}", finished.stderr);
        assert!(
            !finished.stderr.contains("hunter") && !finished.stderr.contains("abc"),
            "{}",
            finished.stderr
        );
    }
}
