//! Who judges whom: the reference is judged by the oracle, native by the reference, everything else by native.

use crate::backends::{native, oracle};
use mx_reference::Convention;
use mx_vectors::answer::{AnswerError, answer};
use mx_vectors::{Call, Tensors};

/// A source of right answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The second opinion: exact rationals and search.
    Oracle,
    /// The reference.
    Reference,
    /// The fast twin, proven equal to the reference; each failure that it finds is confirmed by the reference.
    Native,
}

impl Judge {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Reference => "reference",
            Self::Native => "native",
        }
    }

    /// The right outputs of a call.
    ///
    /// # Errors
    /// [`AnswerError`] if the inputs do not fit the op; no vector class makes such a call.
    pub fn answer(
        self,
        call: &Call,
        convention: &'static Convention,
    ) -> Result<Tensors, AnswerError> {
        match self {
            Self::Oracle => oracle::answer(&call.op, convention, &call.inputs),
            Self::Reference => answer(&call.op, convention, &call.inputs),
            Self::Native => native::answer(&call.op, convention, &call.inputs),
        }
    }
}
