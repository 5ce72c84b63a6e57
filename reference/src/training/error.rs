//! Why a training operation was refused.

use crate::error::ShapeError;
use core::fmt;

/// Why a training operation was refused: what was expected, what came, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainingError {
    /// Settings that no kernel computes together.
    Config {
        /// Which setting.
        setting: &'static str,
        /// What would do.
        expected: &'static str,
        /// What it is.
        got: &'static str,
    },
    /// A tensor, its blocks or its groups do not fit.
    Shape {
        /// Which tensor.
        tensor: &'static str,
        /// What does not fit.
        error: ShapeError,
    },
    /// Two tensors that do not fit each other.
    Mismatch {
        /// Which tensor.
        tensor: &'static str,
        /// Which side of it: `rows` or `columns`.
        side: &'static str,
        /// The length that the other tensors call for.
        expected: usize,
        /// The length that came.
        got: usize,
    },
    /// A tensor of a type that the operation does not take.
    InputType {
        /// Which tensor.
        tensor: &'static str,
        /// The types that do, and why.
        expected: &'static str,
        /// The type that came.
        got: &'static str,
    },
    /// Tensors of more than one type.
    MixedTypes {
        /// Which tensor.
        tensor: &'static str,
        /// The type of the others.
        expected: &'static str,
        /// The type that came.
        got: &'static str,
    },
    /// Split sizes that do not add up to the rows of their rank.
    Splits {
        /// The sender.
        rank: usize,
        /// Its rows.
        expected: usize,
        /// What its split sizes add up to.
        got: usize,
    },
}

impl TrainingError {
    /// A [`ShapeError`] of the tensor of that name.
    pub(super) const fn of(tensor: &'static str) -> impl Fn(ShapeError) -> Self {
        move |error| Self::Shape { tensor, error }
    }
}

impl fmt::Display for TrainingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { setting, expected, got } => {
                write!(f, "{setting} is {got}; expected {expected}")
            }
            Self::Shape { tensor, error } => write!(f, "{tensor}: {error}"),
            Self::Mismatch { tensor, side, expected, got } => write!(
                f,
                "{tensor} has {got} {side}, but the other tensors call for {expected}; check shapes and which tensor was given where"
            ),
            Self::InputType { tensor, expected, got } => {
                write!(f, "{tensor} is {got}; expected {expected}")
            }
            Self::MixedTypes { tensor, expected, got } => write!(
                f,
                "{tensor} is {got}, but the other tensors are {expected}; convert them to one type"
            ),
            Self::Splits { rank, expected, got } => write!(
                f,
                "the split sizes of rank {rank} add up to {got}, but it holds {expected} rows; every row goes to exactly one rank"
            ),
        }
    }
}

impl std::error::Error for TrainingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Shape { error, .. } => Some(error),
            _ => None,
        }
    }
}
