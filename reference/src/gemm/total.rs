//! What a sum of products comes to, infinities and NaN included.

use super::sum::ExactSum;
use crate::block::Rule;
use crate::format::Format;
use crate::number::{Magnitude, Number};
use crate::{Overflow, Rounding};

/// The exact value of a sum of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// A number.
    Finite(ExactSum),
    /// An infinity.
    Infinite {
        /// Its sign.
        negative: bool,
    },
    /// Not a number.
    Nan,
}

impl Total {
    /// The empty sum.
    pub const ZERO: Self = Self::Finite(ExactSum::ZERO);

    /// Adds a number; infinities of both signs give NaN.
    pub fn add(&mut self, x: Number) {
        match (&mut *self, x.magnitude) {
            (Self::Nan, _) => {}
            (_, Magnitude::Nan) => *self = Self::Nan,
            (Self::Infinite { negative }, Magnitude::Infinite) if *negative != x.negative => {
                *self = Self::Nan;
            }
            (Self::Infinite { .. }, _) => {}
            (_, Magnitude::Infinite) => *self = Self::Infinite { negative: x.negative },
            (Self::Finite(sum), _) => sum.add(x),
        }
    }

    /// The total times a number, exactly; infinity times zero gives NaN.
    #[must_use]
    pub fn times(self, x: Number) -> Self {
        match (self, x.magnitude) {
            (Self::Nan, _) | (_, Magnitude::Nan) | (Self::Infinite { .. }, Magnitude::Zero) => {
                Self::Nan
            }
            (Self::Finite(sum), Magnitude::Infinite) if sum.is_zero() => Self::Nan,
            (Self::Finite(sum), Magnitude::Infinite) => {
                Self::Infinite { negative: sum.is_negative() != x.negative }
            }
            (Self::Infinite { negative }, _) => Self::Infinite { negative: negative != x.negative },
            (Self::Finite(_), Magnitude::Zero) => Self::ZERO,
            (Self::Finite(sum), Magnitude::Finite { significand, exponent }) => {
                Self::Finite(sum.times(x.negative, significand, exponent))
            }
        }
    }

    /// The total as a number that rounds as it does; see [`ExactSum::number`].
    pub fn number(&self) -> Number {
        match *self {
            Self::Finite(sum) => sum.number(),
            Self::Infinite { negative } => Number { negative, magnitude: Magnitude::Infinite },
            Self::Nan => Number::NAN,
        }
    }

    /// Rounded once to nearest even; overflow gives infinity, exactly zero gives +0.
    pub fn round(&self, output: &Format) -> u32 {
        output.encode(self.number(), Rounding::NearestEven, Overflow::Propagate)
    }

    /// The exact sum, if it is finite.
    pub const fn finite(&self) -> Option<&ExactSum> {
        match self {
            Self::Finite(sum) => Some(sum),
            _ => None,
        }
    }
}

/// One output of a GEMM, exactly.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    /// t·Σ aₖbₖ + c.
    pub total: Total,
    /// |t|·Σ |aₖbₖ|, without c.
    pub magnitude: Total,
    /// True if every product, and c where there is one, is a negative zero: then IEEE 754 leaves the sign of the sum to whether an
    /// accumulator started from +0 or from the first product, and so do we.
    pub only_negative_zeros: bool,
}

impl Dot {
    /// How an output that must be this dot, rounded once, is compared: any NaN for NaN, either zero where every product is a
    /// negative zero, else bit by bit.
    pub const fn rule(&self) -> Rule {
        match self.total {
            Total::Nan => Rule::AnyNan,
            Total::Finite(_) if self.only_negative_zeros => Rule::AnyZero,
            _ => Rule::Exact,
        }
    }
}
