//! Errors that the user can mend.

/// The command line, or a file on it, was wrong: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);
