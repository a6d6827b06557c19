//! The one setting of a session that clients offer: when changes are written. As a mode too, which is what older clients know.

use super::session::ApplyMode;
use serde_json::{Value, json};

const ALL: [(ApplyMode, &str, &str, &str); 3] = [
    (ApplyMode::Ask, "ask", "Ask at the end", "Show one diff at the end of a turn and ask"),
    (ApplyMode::Auto, "auto", "Apply at the end", "Write the changes of each turn to your files at its end"),
    (ApplyMode::Never, "never", "Keep in the sandbox", "Write nothing until you say /apply"),
];

/// The id of the setting.
pub const APPLY: &str = "apply";

impl ApplyMode {
    /// Its id.
    pub fn id(self) -> &'static str {
        ALL.iter().find(|(mode, ..)| *mode == self).map_or("ask", |(_, id, ..)| id)
    }

    /// The mode with this id.
    pub fn parse(id: &str) -> Option<Self> {
        ALL.iter().find(|(_, known, ..)| *known == id).map(|(mode, ..)| *mode)
    }
}

/// The settings of a session.
pub fn list(current: ApplyMode) -> Value {
    let option = |(_, id, name, about): &(ApplyMode, &str, &str, &str)| json!({ "value": id, "name": name, "description": about });
    json!([{
        "type": "select", "id": APPLY, "name": "Apply", "category": "mode",
        "description": "When changes are written to your files",
        "currentValue": current.id(), "options": ALL.iter().map(option).collect::<Vec<_>>(),
    }])
}

/// The same as modes.
pub fn modes(current: ApplyMode) -> Value {
    let mode = |(_, id, name, about): &(ApplyMode, &str, &str, &str)| json!({ "id": id, "name": name, "description": about });
    json!({ "currentModeId": current.id(), "availableModes": ALL.iter().map(mode).collect::<Vec<_>>() })
}
