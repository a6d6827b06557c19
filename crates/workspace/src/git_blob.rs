//! A file as git's index and trees name it.

/// A file's mode and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// `100644`, or another one.
    pub mode: String,
    /// The name of the content.
    pub id: String,
}
