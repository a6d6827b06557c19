//! `docs/reference/events.schema.json` describes exactly what is written.

use agent_event::Record;
use agent_testing::session_samples::{one_of_each, record, session_of, store};
use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use std::path::PathBuf;

fn path() -> PathBuf {
    PathBuf::from(agent_testing::ROOT).join("docs/reference/events.schema.json")
}

fn validator() -> Validator {
    let text = std::fs::read_to_string(path()).unwrap();
    jsonschema::options().should_validate_formats(true).build(&serde_json::from_str(&text).unwrap()).unwrap()
}

fn event(seq: u64) -> Value {
    serde_json::to_value(record(seq, one_of_each().remove(0))).unwrap()
}

/// Fails if the file is out of date. With `UPDATE_SCHEMA=1` in the environment it is written.
#[test]
fn the_schema_is_derived_from_the_events() {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Record>();
    schema.insert("title".to_owned(), json!("A line of `agent --json` and of a session file"));
    let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path(), &text).unwrap();
    }
    let written = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        written == text,
        "docs/reference/events.schema.json is out of date: run this test with UPDATE_SCHEMA=1"
    );
}

#[test]
fn every_event_is_accepted_in_the_stream_and_in_the_file() {
    let validator = validator();
    for event in one_of_each() {
        let value = serde_json::to_value(record(1, event)).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{value}: {errors:?}");
    }
    let (_dir, store) = store();
    let lines = std::fs::read_to_string(store.events(&session_of(&store, &one_of_each()))).unwrap();
    assert!(lines.lines().all(|line| validator.is_valid(&serde_json::from_str(line).unwrap())));
}

#[test]
fn invalid_events_are_rejected() {
    let validator = validator();
    assert!(validator.is_valid(&event(1)));
    let mut unknown = event(1);
    unknown["type"] = json!("from_the_future");
    let mut timeless = event(1);
    timeless["time"] = json!("yesterday");
    let mut incomplete = event(1);
    incomplete.as_object_mut().unwrap().remove("model");
    let mut mistyped = event(1);
    mistyped["model"] = json!(7);
    for value in [unknown, timeless, incomplete, mistyped, event(0), json!({}), json!([]), json!("text")] {
        assert!(!validator.is_valid(&value), "{value}");
    }
}

#[test]
fn additional_fields_are_allowed() {
    let mut newer = event(1);
    newer["added_later"] = json!(true);
    assert!(validator().is_valid(&newer));
}
