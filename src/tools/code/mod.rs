//! Running code: what programs show besides text.

pub mod display;
