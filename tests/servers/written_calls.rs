//! Calls that a model writes as text, in a format of its own, because its server has no parser for that.

use agent_testbed::agent::agent;
use agent_testing::endpoint::endpoint;
use serde_json::{Value, json};

const KIMI: &str = "I will look.<|tool_calls_section_begin|><|tool_call_begin|>functions.run_commands:0\
     <|tool_call_argument_begin|>{\"command\": \"echo ran > out\"}<|tool_call_end|><|tool_calls_section_end|>";
const DSML: &str = "I will look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"run_commands\">\n\
     <｜DSML｜parameter name=\"command\" string=\"true\">echo ran > out</｜DSML｜parameter>\n\
     <｜DSML｜parameter name=\"timeout_s\" string=\"false\">30</｜DSML｜parameter>\n\
     </｜DSML｜invoke>\n</｜DSML｜function_calls>";
const HARMONY: &str = "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary \
     to=functions.run_commands <|constrain|>json<|message|>{\"command\": \"echo ran > out\"}<|call|>";

/// The events of an answer that comes in pieces of so many characters.
fn events(text: &str, size: usize) -> Vec<Value> {
    let chars: Vec<char> = text.chars().collect();
    let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
    let event = |delta: Value, finish: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let mut events: Vec<Value> =
        pieces.map(|piece| event(json!({ "content": piece }), Value::Null)).collect();
    events.push(event(json!({}), "stop".into()));
    events
}

#[test]
fn a_call_in_the_tokens_of_its_model_runs_and_they_are_not_shown() {
    // The tokens were printed as the final answer, with exit code 0, and nothing ran.
    for text in [KIMI, DSML, HARMONY] {
        for size in [1, 7, text.len()] {
            let model = endpoint().events(&events(text, size)).text("Done.").start();
            let finished = agent().endpoint(&model).args(["run", "--apply", "go"]).run().expect_code(0);
            assert_eq!(finished.host_file("out").as_deref(), Some("ran\n"), "{text}");
            let output = format!("{}{}", finished.stdout, finished.stderr);
            assert!(
                finished.stdout.contains("Done.") && !output.contains("<|") && !output.contains('｜'),
                "{output}"
            );
            let request = &model.chat_requests()[1];
            let said = request["messages"]
                .as_array()
                .expect("messages")
                .iter()
                .find(|said| said["role"] == "assistant");
            assert_eq!(said.map(|said| &said["content"]), Some(&json!("I will look.")), "{request}");
        }
    }
}

#[test]
fn a_call_that_cannot_be_read_goes_back_to_the_model_in_every_format() {
    for text in [
        KIMI.replace("\"}<|tool_call_end|>", "<|tool_call_end|>"),
        DSML.replace("<｜DSML｜parameter name=\"command\" string=\"true\">", ""),
        HARMONY.replace("{\"command\": \"echo ran > out\"}", "echo ran > out"),
        DSML.replace("run_commands", "list_files"),
    ] {
        let model = endpoint().events(&events(&text, 5)).text("Done.").start();
        let finished = agent().endpoint(&model).args(["run", "--json", "go"]).run().expect_code(0);
        let requests = model.chat_requests();
        let messages = requests[1]["messages"].as_array().expect("messages");
        let result = messages.last().and_then(|result| result["content"].as_str()).unwrap_or_default();
        assert!(result.starts_with("error: "), "{text}: {result}");
        assert!(requests[1]["tools"].is_array() && finished.events_of("call_form").is_empty(), "{text}");
    }
}
