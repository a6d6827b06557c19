//! The user's terminal itself: its settings, its keyboard as bytes, and what a program that has it for itself may draw.

pub mod filter;
pub mod key;
pub mod keyboard;
pub mod mode;
