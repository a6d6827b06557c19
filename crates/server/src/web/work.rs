//! Work of a request that is not done by its own future.

use agent_base::error::{Error, Result};

/// Runs `work` where it may block.
///
/// # Errors
/// Its own, and a panic in it.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::unexpected("a file could not be read")))
}

/// Does `work` to its end, though the client may go away meanwhile: half of it must not be left.
///
/// # Errors
/// Its own, and a panic in it.
pub async fn to_end<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Error::unexpected("the request could not be worked on").into()))
}
