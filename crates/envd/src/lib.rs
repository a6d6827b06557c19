//! The protocol of E2B's envd: the envelopes of the Connect protocol and the messages of its services, for the client of a
//! provider and for `agent serve`.

pub mod envelope;
pub mod messages;
