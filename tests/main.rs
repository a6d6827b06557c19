mod events_schema;
mod session_file;
mod session_history;
mod session_replay;
mod session_report;
mod session_samples;
mod session_store;
mod session_verify;
