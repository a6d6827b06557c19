//! Why a request to a server failed.

use crate::jsonrpc::ErrorObject;
use agent_base::sanitise::one_line;
use std::fmt;
use std::time::Duration;

/// The reason why a request to a server failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// The server answered with an error.
    Refused(ErrorObject),
    /// It did not answer.
    TimedOut(Duration),
    /// It wants another token, or none was sent: the status of its answer.
    Unauthorised(u16),
    /// It is gone, and why.
    Ended(String),
    /// An answer that is not what the protocol has there.
    NotTheProtocol(String),
}

/// Characters of what a server says about an error.
const MAX_MESSAGE: usize = 1_000;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => {
                write!(f, "it answered: {} (code {})", one_line(&error.message, MAX_MESSAGE), error.code)
            }
            Self::TimedOut(after) => write!(f, "it did not answer within {:.0} s", after.as_secs_f64()),
            Self::Unauthorised(status) => write!(f, "it refuses the request ({status})"),
            Self::Ended(why) => f.write_str(why),
            Self::NotTheProtocol(why) => write!(f, "its answer is not one of the protocol: {why}"),
        }
    }
}
