//! The parts of a prompt: files that it names, the project's instructions and commands, what `[models.NAME]` adds.

use agent_testbed::agent::agent;
use agent_testbed::terminal::terminal;
use agent_testing::endpoint::endpoint;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// 1 × 1 pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[test]
fn files_and_directories_that_a_prompt_names_are_sent_with_it() {
    let model = endpoint().text("ok").repeat_last().start();
    let first = agent()
        .endpoint(&model)
        .file("src/a.rs", "one\ntwo\nthree\nfour\n")
        .file("docs/guide.md", "Read me.\n")
        .file(".env", "PASSWORD=withheld\n")
        .args(["run", "--session-key", "one", "compare @src/a.rs:2-3 with @docs/, @.env and @dataclass."]);
    let again = first.again();
    let told = first.run().expect_code(0).stderr;
    assert!(told.contains("Attached: src/a.rs, lines 2 to 3 (2 lines), docs/ (1 line)"), "{told}");
    let sent = model.last().messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert_eq!(
        sent,
        "compare @src/a.rs:2-3 with @docs/, @.env and @dataclass.\n\n\
         <attached name=\"src/a.rs, lines 2 to 3\">\ntwo\nthree\n</attached>\n\n\
         <attached name=\"docs/\">\nguide.md\n</attached>"
    );
    again.endpoint(&model).args(["run", "--session-key", "one", "and now?"]).run().expect_code(0);
    assert!(
        model.last().messages().iter().any(|message| message["content"] == sent.as_str()),
        "a resumed conversation is the same"
    );
}

#[test]
fn a_file_that_is_missing_is_reported_and_a_secret_is_replaced() {
    let model = endpoint().text("ok").start();
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let finished = agent()
        .endpoint(&model)
        .file("notes.txt", format!("token {token}\n"))
        .args(["run", "see @src/none.rs and @notes.txt"])
        .run()
        .expect_code(0);
    assert!(
        finished.stderr.contains("Not in the workspace of the sandbox: @src/none.rs"),
        "{}",
        finished.stderr
    );
    let sent = model.last().messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(sent.contains("token [secret: GitHub token]") && !sent.contains(&token), "{sent}");
}

#[test]
fn an_image_that_a_prompt_names_is_sent_to_models_that_take_images() {
    let png = STANDARD.decode(PNG).unwrap();
    let seeing = endpoint().text("A dot.").start();
    agent()
        .endpoint(&seeing)
        .config("[models.test-model]\nimages = true\n")
        .file("shot.png", &png)
        .args(["run", "what is on @shot.png?"])
        .run()
        .expect_code(0);
    let content = seeing.last().messages().last().unwrap()["content"].clone();
    assert!(content[0]["text"].as_str().unwrap().contains("[image: image/png, 1 × 1"), "{content}");
    assert_eq!(content[1]["image_url"]["url"], format!("data:image/png;base64,{PNG}"));

    let blind = endpoint().text("I cannot see it.").start();
    let finished = agent()
        .endpoint(&blind)
        .file("shot.png", &png)
        .args(["run", "what is on @shot.png?"])
        .run()
        .expect_code(0);
    assert!(finished.stderr.contains("test-model is not sent images"), "{}", finished.stderr);
    assert!(blind.last().messages().last().unwrap()["content"].is_string());
}

#[test]
fn paths_of_this_machine_in_a_prompt_are_those_of_the_sandbox_where_it_is_elsewhere() {
    for (backend, is_elsewhere) in [("novita", true), ("local", false)] {
        let model = endpoint().text("done").start();
        let call = agent().endpoint(&model).file("src/a.txt", "content of a\n");
        let root = call.workspace().canonicalize().expect("a path");
        let root = root.to_str().expect("text");
        let prompt = format!("compare @{root}/src/a.txt with {root}/b.");
        call.sandbox(backend).args(["run", &prompt]).run().expect_code(0);
        let sent = model.last().messages().last().unwrap()["content"].to_string();
        let shown = if is_elsewhere { "/workspace" } else { root };
        assert!(sent.contains(&format!("compare @{shown}/src/a.txt with {shown}/b.")), "{sent}");
        assert!(model.last().messages().iter().any(|message| message.to_string().contains("content of a")));
    }
}

/// It was "not a text file".
#[test]
fn an_image_that_the_model_reads_is_sent_to_models_that_take_images() {
    let png = STANDARD.decode(PNG).unwrap();
    let reading = || {
        let call = |path| endpoint().tool_call("read_file", json!({ "path": path }));
        call("shot.png").tool_call("read_file", json!({ "path": "text.png" })).text("A dot.").start()
    };
    let seeing = reading();
    let finished = agent()
        .endpoint(&seeing)
        .config("[models.test-model]\nimages = true\n")
        .file("shot.png", &png)
        .file("text.png", "not a picture\n")
        .args(["run", "--json", "what is on shot.png?"])
        .run()
        .expect_code(0);
    let messages = seeing.last().messages().clone();
    let all = json!(messages).to_string();
    assert!(all.contains("shot.png has 1×1 pixels") && all.contains("not a picture"), "{all}");
    assert!(all.contains(&format!("data:image/png;base64,{PNG}")), "{all}");
    assert_eq!(finished.events_of("artifact")[0]["name"], "shot.png");

    let blind = reading();
    finished.again().endpoint(&blind).config("").args(["run", "what is on shot.png?"]).run().expect_code(0);
    let all = json!(blind.last().messages()).to_string();
    assert!(all.contains("[image shot.png: image/png, 70 bytes]") && !all.contains("base64"), "{all}");
}

/// Only files of the workspace could be sent.
#[test]
fn an_image_whose_path_is_pasted_is_sent_from_where_it_is() {
    let model = endpoint().text("A dot.").repeat_last().start();
    let builder = terminal().endpoint(&model);
    let config = builder.directory("agent").join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[models.test-model]\nimages = true\n").unwrap();
    let image = builder.directory("my shot.png");
    std::fs::write(&image, STANDARD.decode(PNG).unwrap()).unwrap();
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    let path = image.display().to_string().replace(' ', "\\ ");
    let paste = |before: &str, after: &str| format!("{before}\x1b[200~{path}\x1b[201~{after}");
    terminal.type_text(&paste("what is on ", "?"));
    terminal.wait_for("› what is on [image my shot.png]?");
    terminal.type_text("\r");
    terminal.wait_for("A dot.");
    let content = model.last().messages().pop().unwrap()["content"].clone();
    let text = content[0]["text"].as_str().unwrap();
    assert!(
        text.contains("what is on [image my shot.png]?") && text.contains("[image: image/png, 1 × 1"),
        "{text}"
    );
    assert_eq!(content[1]["image_url"]["url"], format!("data:image/png;base64,{PNG}"));
    // One that was deleted again is not sent, and a command gets the path.
    terminal.wait_for_prompt();
    terminal.type_text(&paste("", "\x7fhello\r"));
    terminal.wait_until("the second answer", |screen| screen.matches("A dot.").count() == 2);
    terminal.wait_for_prompt();
    assert!(model.last().messages().pop().unwrap()["content"].is_string());
    terminal.type_text(&paste("!wc -c < ", ""));
    terminal.wait_for("my\\ shot.png");
}

#[test]
fn a_model_has_settings_of_its_own_in_each_request() {
    let model = endpoint().text("ok").start();
    agent()
        .endpoint(&model)
        .config(
            "temperature = 1.0\n[models.test-model]\ntemperature = 0.25\ntop_p = 0.5\nreasoning_effort = \"low\"\n\
             headers = { X-Team = \"blue\" }\nbody = { top_k = 20, temperature = 2 }\n[models.other]\ntop_p = 0.1\n",
        )
        .args(["run", "hello"])
        .run()
        .expect_code(0);
    let request = model.last();
    let sent = |field: &str| request.body[field].clone();
    assert_eq!([sent("temperature"), sent("top_p"), sent("top_k")], [json!(0.25), json!(0.5), json!(20)]);
    assert_eq!(sent("reasoning_effort"), "low");
    assert_eq!(request.header("x-team"), Some("blue"));
    assert_eq!(request.header("authorization"), Some("Bearer test-key"));

    let refused = agent()
        .endpoint(&model)
        .config("[models.test-model]\nheaders = { authorization = \"Bearer other\" }\n")
        .args(["run", "hello"])
        .run()
        .expect_code(2);
    assert!(refused.stderr.contains("authorization cannot be set"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("other"), "{}", refused.stderr);
}

#[test]
fn a_repository_that_chooses_the_endpoint_does_not_get_the_users_headers() {
    let model = endpoint().text("ok").start();
    agent()
        .file(
            ".env",
            format!("AGENT_BASE_URL={}\nAGENT_API_KEY=theirs\nAGENT_MODEL=test-model\n", model.url()),
        )
        .config("[models.test-model]\nheaders = { X-Secret = \"mine\" }\n")
        .args(["run", "hello"])
        .run()
        .expect_code(0);
    assert_eq!(model.last().header("x-secret"), None);
}

#[test]
fn a_file_of_the_project_is_a_command_and_init_asks_for_agents_md() {
    let model = endpoint().text("ok").repeat_last().start();
    let builder = terminal().endpoint(&model).file("a.txt", "");
    let directory = builder.directory("workspace").join(".agent/commands");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(
        directory.join("issue.md"),
        "---\ndescription: Fix an issue\n---\nFix issue $ARGUMENTS.\n",
    )
    .unwrap();
    let mut terminal = builder.start();
    terminal.wait_for_prompt();
    terminal.type_line("/help");
    terminal.wait_for("this project's: Fix an issue");
    terminal.wait_for_prompt();
    terminal.type_line("/issue 12");
    terminal.wait_for("\nok\n");
    terminal.wait_for_prompt();
    assert_eq!(model.last().messages().last().unwrap()["content"], "Fix issue 12.");
    terminal.type_line("/init");
    terminal.wait_until("the second answer", |screen| screen.matches("\nok\n").count() == 2);
    let sent = model.last().messages().last().unwrap()["content"].to_string();
    assert!(sent.contains("Write `AGENTS.md`"), "{sent}");
}

#[test]
fn a_model_that_the_endpoint_does_not_list_is_reported() {
    let models = json!({ "object": "list", "data": [{ "id": "other" }, { "id": "test-model" }] }).to_string();
    let model = endpoint().models(200, models).start();
    let mut terminal = terminal().endpoint(&model).start();
    terminal.wait_for_prompt();
    terminal.type_line("/model test-modle");
    terminal.wait_for("it is not among the models that the endpoint lists; did you mean test-model?");
    terminal.wait_for_prompt();
    terminal.type_line("/model other");
    terminal.wait_for("model: other");
    terminal.wait_for_prompt();
    assert_eq!(terminal.screen().matches("it is not among").count(), 1);
}
