//! Unpacked numbers: what a bit pattern means, as integers.

/// A value taken apart: sign, and zero, infinity, NaN or `significand × 2^exponent`.
///
/// No host floating point is involved, so no compiler flag or flush-to-zero mode can change a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// True for a set sign bit; zeros, infinities and NaNs have one too.
    pub negative: bool,
    /// The magnitude.
    pub magnitude: Magnitude,
}

/// The magnitude of a [`Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitude {
    /// Exactly zero.
    Zero,
    /// `significand × 2^exponent`; the significand is not zero and needs no normalisation.
    Finite {
        /// A non-zero integer.
        significand: u64,
        /// The weight of its lowest bit.
        exponent: i32,
    },
    /// Infinity.
    Infinite,
    /// Not a number; payloads are not kept.
    Nan,
}

impl Number {
    /// Positive zero.
    pub const ZERO: Self = Self { negative: false, magnitude: Magnitude::Zero };
    /// A NaN without sign.
    pub const NAN: Self = Self { negative: false, magnitude: Magnitude::Nan };

    /// `significand × 2^exponent`, zero for a zero significand.
    #[inline]
    pub const fn finite(negative: bool, significand: u64, exponent: i32) -> Self {
        let magnitude = if significand == 0 {
            Magnitude::Zero
        } else {
            Magnitude::Finite { significand, exponent }
        };
        Self { negative, magnitude }
    }

    /// The number times `2^power`, exactly.
    #[inline]
    #[must_use]
    pub const fn scaled(self, power: i32) -> Self {
        match self.magnitude {
            Magnitude::Finite { significand, exponent } => Self {
                magnitude: Magnitude::Finite { significand, exponent: exponent + power },
                ..self
            },
            _ => self,
        }
    }

    /// The exact product, with the rules of IEEE 754 for what is not finite: infinity times zero is NaN.
    ///
    /// Significands must fit 64 bits together; those of the formats here do.
    #[inline]
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        match (self.magnitude, other.magnitude) {
            (Magnitude::Nan, _)
            | (_, Magnitude::Nan)
            | (Magnitude::Infinite, Magnitude::Zero)
            | (Magnitude::Zero, Magnitude::Infinite) => Self::NAN,
            (Magnitude::Infinite, _) | (_, Magnitude::Infinite) => {
                Self { negative, magnitude: Magnitude::Infinite }
            }
            (Magnitude::Zero, _) | (_, Magnitude::Zero) => {
                Self { negative, magnitude: Magnitude::Zero }
            }
            (
                Magnitude::Finite { significand: a, exponent: ae },
                Magnitude::Finite { significand: b, exponent: be },
            ) => Self::finite(negative, a * b, ae + be),
        }
    }

    /// The number without its sign.
    #[inline]
    #[must_use]
    pub const fn abs(self) -> Self {
        Self { negative: false, ..self }
    }

    /// True for a zero of either sign.
    #[inline]
    pub const fn is_zero(self) -> bool {
        matches!(self.magnitude, Magnitude::Zero)
    }

    /// True for NaN.
    #[inline]
    pub const fn is_nan(self) -> bool {
        matches!(self.magnitude, Magnitude::Nan)
    }

    /// `floor(log2 |x|)` of a finite non-zero number, which needs no logarithm: it is the weight of the top bit.
    #[inline]
    pub const fn exponent(self) -> Option<i32> {
        match self.magnitude {
            Magnitude::Finite { significand, exponent } => {
                Some(exponent + 63 - significand.leading_zeros() as i32)
            }
            _ => None,
        }
    }
}
