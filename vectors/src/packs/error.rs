//! Why a pack could not be made or checked.

use super::container::ContainerError;
use crate::answer::AnswerError;
use std::io;
use std::path::PathBuf;

/// Why a pack could not be made or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A level that is not stored.
    #[error("level `{level}` is streamed, not stored; packs hold `smoke` or `standard`")]
    Level {
        /// The level.
        level: String,
    },
    /// Nothing to write.
    #[error("the filter leaves no file of the {level} pack")]
    Nothing {
        /// The level.
        level: &'static str,
    },
    /// The system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A tensor file that could not be written.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A case without answer: a fault of its class.
    #[error("case {id} has no answer: {source}")]
    Answer {
        /// The case.
        id: String,
        /// Why not.
        source: AnswerError,
    },
    /// A manifest that is none.
    #[error("{}: not a manifest: {source}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A manifest of another form or of other vectors.
    #[error("{}: expected {what} `{expected}`, got `{got}`", path.display())]
    Other {
        /// The manifest.
        path: PathBuf,
        /// Which field.
        what: &'static str,
        /// What this build makes.
        expected: String,
        /// What came.
        got: String,
    },
    /// A record that JSON cannot hold.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}
