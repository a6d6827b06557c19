//! One call of envd, the program that E2B and Novita have in each sandbox: `process.Process/Start`, in JSON.

use super::api::quote;
use super::provider::Executed;
use agent_base::error::{Error, Result};
use agent_envd::envelope::{Decoder, encode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// The content type of a stream of JSON messages.
pub const CONTENT_TYPE: &str = "application/connect+json";

/// The request that runs shell text.
pub fn start_request(command: &str) -> Bytes {
    let process = json!({ "cmd": "/bin/sh", "args": ["-c", command], "envs": {} });
    encode(json!({ "process": process, "stdin": false }).to_string().as_bytes(), false)
}

/// Reads the whole answer: what the process printed, and how it ended.
///
/// # Errors
/// The process did not start, or the answer is not one, or lacks its end.
pub fn executed(provider: &str, answer: &[u8]) -> Result<Executed> {
    let broken = |why: String| Error::sandbox(format!("the answer of the {provider} sandbox {why}"));
    let mut decoder = Decoder::default();
    decoder.push(answer);
    let (mut output, mut exit_code) = (Vec::new(), None);
    loop {
        let envelope = decoder.pop().map_err(|error| broken(format!("is damaged: {error}")))?;
        let Some(envelope) = envelope else {
            return Err(broken("ends before the command does".to_owned()));
        };
        let message: Value = match envelope.payload.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&envelope.payload)
                .map_err(|_| broken(format!("is not JSON: {}", quote(&lossy(&envelope.payload)))))?,
        };
        if envelope.is_end {
            return match (message.get("error"), exit_code) {
                (Some(error), _) if !error.is_null() => {
                    let said = error.get("message").or_else(|| error.get("code")).and_then(Value::as_str);
                    let said = quote(said.unwrap_or_default());
                    Err(Error::sandbox(format!("a command in the {provider} sandbox failed: {said}")))
                }
                (_, Some(exit_code)) => Ok(Executed { exit_code, output: lossy(&output) }),
                _ => Err(broken("names no end of the command".to_owned())),
            };
        }
        let event = message.get("event").unwrap_or(&Value::Null);
        let data = event.get("data");
        for stream in ["stdout", "stderr"] {
            let text = data.and_then(|data| data.get(stream)).and_then(Value::as_str).unwrap_or_default();
            let bytes = STANDARD.decode(text).map_err(|_| broken("holds damaged output".to_owned()))?;
            output.extend_from_slice(&bytes);
        }
        if let Some(end) = event.get("end") {
            // What is 0 is left out.
            exit_code = Some(end.get("exitCode").and_then(Value::as_i64).unwrap_or(0));
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: &[&str], end: &str) -> Result<Executed> {
        let mut answer: Vec<u8> =
            messages.iter().flat_map(|message| encode(message.as_bytes(), false)).collect();
        answer.extend(encode(end.as_bytes(), true));
        executed("e2b", &answer)
    }

    #[test]
    fn output_and_exit_code_are_read() {
        let ran = read(
            &[
                r#"{"event":{"start":{"pid":7}}}"#,
                r#"{"event":{"data":{"stdout":"b25l"}}}"#,
                r#"{"event":{"keepalive":{}}}"#,
                r#"{"event":{"data":{"stderr":"dHdv"}}}"#,
                r#"{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}"#,
            ],
            "{}",
        )
        .unwrap();
        assert_eq!((ran.output.as_str(), ran.exit_code), ("onetwo", 3));
        assert_eq!(read(&[r#"{"event":{"end":{"exited":true}}}"#], "").unwrap().exit_code, 0);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(bytes: Vec<u8>, payload: Vec<u8>) {
            let _ = executed("e2b", &bytes);
            let framed = [encode(&payload, false), encode(&bytes, true)].concat();
            let _ = executed("e2b", &framed);
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let failed = |messages: &[&str], end: &str| read(messages, end).err().unwrap().to_string();
        assert!(failed(&[], r#"{"error":{"code":"internal","message":"no shell"}}"#).ends_with("no shell"));
        assert!(failed(&[], "{}").contains("names no end"));
        assert!(failed(&["<html>"], "{}").contains("is not JSON: <html>"));
        assert!(failed(&[r#"{"event":{"data":{"stdout":"!"}}}"#], "{}").contains("damaged output"));
        let cut = &encode(br#"{"event":{}}"#, false)[..9];
        assert!(executed("e2b", cut).err().unwrap().to_string().contains("ends before the command does"));
        assert!(executed("e2b", b"\xff").err().unwrap().to_string().contains("is damaged"));
        let request = start_request("true");
        assert_eq!(&request[..5], [0, 0, 0, 0, u8::try_from(request.len() - 5).unwrap()]);
    }
}
