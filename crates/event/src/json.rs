//! The JSON of an event: the same bytes for `--json`, the session file and every other reader.

use agent_base::error::Result;
use agent_base::sanitise;
use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// `value` as compact JSON on one line.
///
/// DEL, the 8-bit controls and the characters that reorder text are written as `\u` escapes: it is the same JSON, and
/// harmless when it is printed on a terminal.
pub fn to_vec(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut line, TerminalSafe))?;
    Ok(line)
}

/// Escapes what JSON leaves as it is. All these characters lie in the basic plane, so one `\u` escape is enough.
struct TerminalSafe;

impl Formatter for TerminalSafe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(sanitise::is_dangerous) {
            writer.write_all(&rest.as_bytes()[..at])?;
            let mut characters = rest[at..].chars();
            if let Some(character) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(character))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}
