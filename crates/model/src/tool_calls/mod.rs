//! Tool calls as models write them: recovered from text, parsed, and repaired where only one meaning is possible.

mod coerce;
mod escapes;
pub mod holdback;
pub mod names;
pub mod recover;
pub mod repair;
pub mod tags;
