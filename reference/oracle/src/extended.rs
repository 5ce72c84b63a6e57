//! Exact numbers with the infinities and NaN of IEEE 754.

use crate::{Big, Float, Value};

/// A number, an infinity or NaN, with the arithmetic of IEEE 754 but without its rounding and its negative zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extended {
    /// A number.
    Finite(Big),
    /// An infinity.
    Infinite {
        /// The sign.
        negative: bool,
    },
    /// Not a number.
    Nan,
}

impl Extended {
    /// The product; zero times infinity is NaN.
    #[must_use]
    pub fn times(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Finite(x), Self::Finite(y)) => Self::Finite(x * y),
            (&Self::Infinite { negative }, Self::Finite(x))
            | (Self::Finite(x), &Self::Infinite { negative }) => {
                if x.is_zero() {
                    Self::Nan
                } else {
                    Self::Infinite { negative: negative != x.is_negative() }
                }
            }
            (Self::Infinite { negative: x }, Self::Infinite { negative: y }) => {
                Self::Infinite { negative: x != y }
            }
        }
    }

    /// The sum; infinities of both signs give NaN.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Finite(x), Self::Finite(y)) => Self::Finite(x + y),
            (Self::Infinite { negative: x }, Self::Infinite { negative: y }) if x != *y => {
                Self::Nan
            }
            (Self::Infinite { negative }, _) | (_, &Self::Infinite { negative }) => {
                Self::Infinite { negative }
            }
        }
    }

    /// The nearest pattern of a float format, as [`Big::nearest`] has it; the quiet NaN for NaN.
    pub fn nearest(&self, float: Float) -> u32 {
        match self {
            Self::Finite(x) => x.nearest(float),
            Self::Infinite { negative: false } => float.infinity(),
            Self::Infinite { negative: true } => float.sign_bit() + float.infinity(),
            Self::Nan => float.quiet_nan(),
        }
    }
}

impl From<Value> for Extended {
    fn from(value: Value) -> Self {
        match value {
            Value::Finite { negative, magnitude } => Self::Finite(Big::signed(negative, magnitude)),
            Value::Infinite { negative } => Self::Infinite { negative },
            Value::Nan => Self::Nan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUS: Extended = Extended::Infinite { negative: false };
    const MINUS: Extended = Extended::Infinite { negative: true };

    fn finite(x: i128) -> Extended {
        Extended::Finite(Big::new(x, 0))
    }

    /// What f64 says, where it is exact and nothing is −0.
    #[test]
    fn arithmetic_is_that_of_ieee() {
        let numbers = [
            (finite(0), 0.0f64),
            (finite(3), 3.0),
            (finite(-5), -5.0),
            (PLUS, f64::INFINITY),
            (MINUS, f64::NEG_INFINITY),
            (Extended::Nan, f64::NAN),
        ];
        let pattern = |machine: f64| {
            let positive_zero = machine + 0.0;
            if positive_zero.is_nan() { 0x7fc00000 } else { (positive_zero as f32).to_bits() }
        };
        for (a, x) in &numbers {
            for (b, y) in &numbers {
                assert_eq!(a.times(b).nearest(Float::F32), pattern(x * y), "{x} × {y}");
                assert_eq!(a.clone().plus(b).nearest(Float::F32), pattern(x + y), "{x} + {y}");
            }
        }
    }

    #[test]
    fn every_kind_of_value() {
        let from = |bits| Extended::from(Float::F32.value(bits));
        assert_eq!(from((-6f32).to_bits()), finite(-6));
        assert_eq!(from(0x80000000), finite(0));
        assert_eq!([0x7f800000, 0xff800000, 0xffc00001].map(from), [PLUS, MINUS, Extended::Nan]);
        for float in Float::ALL {
            for special in
                [float.infinity(), float.sign_bit() + float.infinity(), float.quiet_nan()]
            {
                assert_eq!(Extended::from(float.value(special)).nearest(float), special);
            }
        }
    }
}
