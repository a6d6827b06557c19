//! Facts that a server reports about a model: its size and its context window. Each server has its own names for them.

use crate::client::{http, wire};
use crate::size::parameters;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// Bytes of an answer that are read.
const MAX_BYTES: usize = 1 << 20;

/// Smaller reports are errors of the server: no model has so few parameters, no prompt fits into so small a window.
const MIN_PARAMETERS: f64 = 1e6;
const MIN_WINDOW: u64 = 512;

/// Facts that are known about a model.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Facts {
    /// The number of its parameters.
    pub parameters: Option<f64>,
    /// Its context window in tokens.
    pub context_window: Option<u64>,
}

impl Facts {
    fn new(parameters: Option<f64>, context_window: Option<u64>) -> Self {
        Self {
            parameters: parameters.filter(|count| *count >= MIN_PARAMETERS),
            context_window: context_window.filter(|window| *window >= MIN_WINDOW),
        }
    }

    /// These facts, and the others where these are missing.
    pub fn or(self, other: Self) -> Self {
        Self {
            parameters: self.parameters.or(other.parameters),
            context_window: self.context_window.or(other.context_window),
        }
    }
}

/// Returns what the server's list of models and the server's own interface report.
pub async fn learn(
    http: &reqwest::Client,
    headers: &HeaderMap,
    base_url: &str,
    list: &Value,
    model: &str,
) -> Facts {
    let facts = listed(list, model);
    let (Some(entry), Some(root)) =
        (wire::model_entry(list, model), base_url.split('?').next().and_then(|url| url.strip_suffix("/v1")))
    else {
        return facts;
    };
    let get = |path: &str| http.get(format!("{root}{path}"));
    let (request, read): (_, fn(&Value, &str) -> Facts) = match entry["owned_by"].as_str() {
        Some("llamacpp") if facts.context_window.is_none() => (get("/props"), |props, _| llama_cpp(props)),
        Some("library") => {
            let request = http.post(format!("{root}/api/show")).body(json!({ "model": model }).to_string());
            (request, |shown, _| ollama(shown))
        }
        Some("organization_owner") => (get("/api/v0/models"), listed),
        _ => return facts,
    };
    match json(request.headers(headers.clone())).await {
        Some(answer) => facts.or(read(&answer, model)),
        None => facts,
    }
}

async fn json(request: reqwest::RequestBuilder) -> Option<Value> {
    let response = request.send().await.ok().filter(|response| response.status().is_success())?;
    let body = http::read_bounded(response, MAX_BYTES).await.ok()??;
    serde_json::from_slice(&body).ok()
}

/// vLLM, OpenRouter, Groq, LM Studio and llama.cpp.
pub fn listed(list: &Value, model: &str) -> Facts {
    let Some(entry) = wire::model_entry(list, model) else { return Facts::default() };
    let names =
        ["max_model_len", "loaded_context_length", "context_length", "context_window", "max_context_length"];
    let window =
        names.iter().find_map(|name| entry[*name].as_u64()).or_else(|| entry["meta"]["n_ctx"].as_u64());
    Facts::new(entry["meta"]["n_params"].as_f64(), window)
}

/// llama.cpp's `/props`.
fn llama_cpp(props: &Value) -> Facts {
    Facts::new(None, props["default_generation_settings"]["n_ctx"].as_u64())
}

/// Ollama's `/api/show`. What the model could take is not what the server runs it with, unless its file sets that.
fn ollama(shown: &Value) -> Facts {
    let size = shown["details"]["parameter_size"].as_str().and_then(parameters);
    let lines = shown["parameters"].as_str().unwrap_or_default().lines();
    let window =
        lines.filter_map(|line| line.trim().strip_prefix("num_ctx")).find_map(|n| n.trim().parse().ok());
    Facts::new(size, window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_reports_size_and_window_in_its_own_way() {
        let facts = |parameters, context_window| Facts { parameters, context_window };
        let entry = |entry: Value| listed(&json!({ "data": [entry] }), "m");
        assert_eq!(entry(json!({ "id": "m", "max_model_len": 4096 })), facts(None, Some(4096)));
        assert_eq!(
            entry(json!({ "id": "m", "meta": { "n_ctx": 8192, "n_params": 1_543_714_304u64 } })),
            facts(Some(1_543_714_304.0), Some(8192))
        );
        assert_eq!(
            entry(json!({ "id": "m", "max_context_length": 32768, "loaded_context_length": 4096 })),
            facts(None, Some(4096))
        );
        assert_eq!(
            llama_cpp(&json!({ "default_generation_settings": { "n_ctx": 8192 } })),
            facts(None, Some(8192))
        );
        let shown = json!({
            "details": { "parameter_size": "1.5B" },
            "parameters": "stop  \"<|im_end|>\"\nnum_ctx                        8192",
            "model_info": { "qwen2.context_length": 32768 },
        });
        assert_eq!(ollama(&shown), facts(Some(1.5e9), Some(8192)));
    }

    #[test]
    fn a_server_with_one_model_has_it_under_any_name() {
        let list = json!({ "data": [{ "id": "file.gguf", "max_model_len": 4096 }] });
        assert_eq!(listed(&list, "whatever").context_window, Some(4096));
        let two = json!({ "data": [{ "id": "a", "max_model_len": 1 }, { "id": "b" }] });
        assert_eq!(listed(&two, "whatever"), Facts::default());
    }
}
