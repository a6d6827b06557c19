//! A request of either era of the protocol, and the form of its result.

use super::{LIST_TTL_MS, invalid};
use agent_mcp::jsonrpc::ErrorObject;
use agent_mcp::protocol::{Era, MODERN, UNSUPPORTED_VERSION, WITH_INITIALIZE, implementation, meta};
use serde_json::{Value, json};

/// A request.
pub struct Request<'a> {
    /// The era that it belongs to.
    pub era: Era,
    /// Its parameters.
    pub params: &'a Value,
}

impl<'a> Request<'a> {
    /// Tells the era of a request.
    ///
    /// # Errors
    /// It names a version that is not spoken here, or lacks what its version needs.
    pub fn of(method: &str, params: &'a Value) -> Result<Self, ErrorObject> {
        let version = version(params);
        match version {
            Some(MODERN) => {
                let capabilities = params.get("_meta").and_then(|meta| meta.get(meta::CAPABILITIES));
                match capabilities.is_some_and(Value::is_object) {
                    true => Ok(Self { era: Era::Modern, params }),
                    false => Err(invalid(format!("_meta has no {:?}", meta::CAPABILITIES))),
                }
            }
            Some(other) => Err(unsupported(other)),
            None if method == "server/discover" => {
                Err(invalid(format!("_meta has no {:?}: {MODERN} is spoken", meta::VERSION)))
            }
            None => Ok(Self { era: Era::Initialize, params }),
        }
    }

    /// Returns whether the client of this request can ask its user by a form. In the earlier era it has said so before.
    pub fn shows_forms(&self, before: bool) -> bool {
        match self.era {
            Era::Modern => {
                let meta = self.params.get("_meta").and_then(|meta| meta.get(meta::CAPABILITIES));
                meta.is_some_and(shows_forms)
            }
            Era::Initialize => before,
        }
    }

    /// The names by which notifications of progress are asked for.
    pub fn progress_token(&self) -> Option<&Value> {
        let token = self.params.get("_meta")?.get(meta::PROGRESS_TOKEN)?;
        (token.is_string() || token.is_i64() || token.is_u64()).then_some(token)
    }

    /// A result in the form of the request's era.
    pub fn wrapped(&self, method: &str, mut result: Value) -> Value {
        if self.era == Era::Initialize {
            return result;
        }
        let Some(object) = result.as_object_mut() else { return result };
        object.entry("resultType").or_insert_with(|| "complete".into());
        object.insert("_meta".to_owned(), json!({ (meta::SERVER): implementation() }));
        if matches!(method, "tools/list" | "server/discover") {
            object.insert("ttlMs".to_owned(), LIST_TTL_MS.into());
            object.insert("cacheScope".to_owned(), "private".into());
        }
        result
    }
}

/// Returns whether a client with these capabilities can ask its user by a form: it names forms, or no way in particular.
pub fn shows_forms(capabilities: &Value) -> bool {
    let elicitation = capabilities.get("elicitation").and_then(Value::as_object);
    elicitation
        .is_some_and(|ways| ways.get("form").is_some_and(Value::is_object) || !ways.contains_key("url"))
}

/// The version that a request names.
pub fn version(params: &Value) -> Option<&str> {
    params.get("_meta")?.get(meta::VERSION)?.as_str()
}

fn unsupported(version: &str) -> ErrorObject {
    let message = match WITH_INITIALIZE.contains(&version) {
        true => "this version begins with initialize",
        false => "this version is not spoken",
    };
    ErrorObject {
        data: Some(json!({ "supported": [MODERN], "requested": version })),
        ..ErrorObject::new(UNSUPPORTED_VERSION, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modern(version: &str) -> Value {
        json!({ "_meta": { (meta::VERSION): version, (meta::CAPABILITIES): {} } })
    }

    #[test]
    fn the_era_follows_from_what_a_request_says_of_itself() {
        assert_eq!(Request::of("tools/list", &modern(MODERN)).unwrap().era, Era::Modern);
        assert_eq!(Request::of("tools/list", &json!({})).unwrap().era, Era::Initialize);
        let error = Request::of("tools/list", &modern("1999-01-01")).err().unwrap();
        assert_eq!(error.code, UNSUPPORTED_VERSION);
        assert_eq!(error.data.unwrap()["supported"][0], MODERN);
        assert!(Request::of("server/discover", &json!({})).is_err());
        let lacking = json!({ "_meta": { (meta::VERSION): MODERN } });
        assert!(Request::of("tools/list", &lacking).is_err());
    }

    #[test]
    fn only_the_modern_era_has_a_type_of_result() {
        let params = modern(MODERN);
        let result = Request::of("tools/list", &params).unwrap().wrapped("tools/list", json!({}));
        assert_eq!((&result["resultType"], &result["cacheScope"]), (&json!("complete"), &json!("private")));
        let params = json!({});
        assert_eq!(Request::of("ping", &params).unwrap().wrapped("ping", json!({})), json!({}));
    }

    #[test]
    fn a_form_is_shown_by_clients_that_say_so_or_name_no_other_way() {
        for (capabilities, expected) in [
            (json!({}), false),
            (json!({ "elicitation": null }), false),
            (json!({ "elicitation": {} }), true),
            (json!({ "elicitation": { "form": {} } }), true),
            (json!({ "elicitation": { "form": {}, "url": {} } }), true),
            (json!({ "elicitation": { "url": {} } }), false),
        ] {
            assert_eq!(shows_forms(&capabilities), expected, "{capabilities}");
        }
    }
}
