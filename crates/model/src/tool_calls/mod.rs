//! Tool calls as models write them: recovered from text, parsed, and repaired where only one meaning is possible.

mod asides;
mod assignments;
mod body;
mod braces;
mod coerce;
mod elements;
mod escapes;
mod fence;
mod harmony;
pub mod holdback;
pub mod json_calls;
mod marks;
pub mod names;
mod python;
pub mod recover;
pub mod repair;
mod scan;
mod typed;
mod unreadable;
