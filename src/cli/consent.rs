//! The question whether what a repository asks for is approved.

use crate::cli::ui::confirm;
use crate::cli::ui::progress::Progress;
use crate::error::{Error, Result};

/// Returns whether the user approves; `yes`: they have said so already.
///
/// # Errors
/// Nobody can be asked, or the answer is Ctrl-C.
pub async fn approves(question: &str, yes: bool) -> Result<bool> {
    if yes {
        return Ok(true);
    }
    if !confirm::is_possible() {
        return Err(Error::usage("nobody can be asked here").hint("approve it with --yes"));
    }
    Ok(confirm::ask(&Progress::stderr(), question, &["yes", "no"]).await? == "yes")
}
