//! What each code of the narrow formats means.

use crate::Exact;

/// What a bit pattern means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number; zero keeps its sign.
    Finite {
        /// The sign.
        negative: bool,
        /// The absolute value.
        magnitude: Exact,
    },
    /// An infinity.
    Infinite {
        /// The sign.
        negative: bool,
    },
    /// Not a number.
    Nan,
}

impl Value {
    /// This value times `2^power`.
    #[must_use]
    pub const fn scaled(self, power: i32) -> Self {
        match self {
            Self::Finite { negative, magnitude } => {
                Self::Finite { negative, magnitude: magnitude.scaled(power) }
            }
            special => special,
        }
    }
}

/// OCP MX v1.0 §5.3: `2^(e − bias) × (1 + m / 2^M)`, and `2^(1 − bias) × (0 + m / 2^M)` where the exponent field is 0.
pub(crate) fn textbook(
    exponent_field: u32,
    mantissa_field: u32,
    mantissa_bits: u32,
    bias: i32,
) -> Exact {
    let fraction = Exact::new(mantissa_field.into(), -(mantissa_bits as i32));
    if exponent_field == 0 {
        fraction.scaled(1 - bias)
    } else {
        (Exact::ONE + fraction).scaled(exponent_field as i32 - bias)
    }
}

/// A format of at most eight bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// FP8 with 4 exponent and 3 mantissa bits, no infinity (OFP8 §4, OCP MX §5.3.1).
    E4m3,
    /// FP8 with 5 exponent and 2 mantissa bits.
    E5m2,
    /// FP6 with 3 exponent and 2 mantissa bits (OCP MX §5.3.2).
    E3m2,
    /// FP6 with 2 exponent and 3 mantissa bits.
    E2m3,
    /// FP4 (OCP MX §5.3.3).
    E2m1,
    /// Two's complement in steps of 2^-6 (OCP MX §5.3.4).
    Int8,
    /// The scale format of MX: powers of two (OCP MX §5.4).
    E8m0,
    /// The scale format of NVFP4: E4M3 without its sign.
    Ue4m3,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::E4m3,
        Self::E5m2,
        Self::E3m2,
        Self::E2m3,
        Self::E2m1,
        Self::Int8,
        Self::E8m0,
        Self::Ue4m3,
    ];
    /// The element formats.
    pub const ELEMENTS: [Self; 6] =
        [Self::E4m3, Self::E5m2, Self::E3m2, Self::E2m3, Self::E2m1, Self::Int8];

    /// Exponent bits, mantissa bits and exponent bias; `None` for integers.
    const fn fields(self) -> Option<(u32, u32, i32)> {
        match self {
            Self::E4m3 | Self::Ue4m3 => Some((4, 3, 7)),
            Self::E5m2 => Some((5, 2, 15)),
            Self::E3m2 => Some((3, 2, 3)),
            Self::E2m3 => Some((2, 3, 1)),
            Self::E2m1 => Some((2, 1, 1)),
            Self::E8m0 => Some((8, 0, 127)),
            Self::Int8 => None,
        }
    }

    /// Whether codes carry a sign.
    pub const fn is_signed(self) -> bool {
        !matches!(self, Self::E8m0 | Self::Ue4m3)
    }

    /// The number of codes: 16, 64, 128 (UE4M3) or 256.
    pub const fn codes(self) -> u32 {
        match self.fields() {
            Some((e, m, _)) => 1 << (self.is_signed() as u32 + e + m),
            None => 256,
        }
    }

    /// Fraction bits: of the mantissa, or below the integer part.
    pub const fn fraction_bits(self) -> i32 {
        match self.fields() {
            Some((_, m, _)) => m as i32,
            None => 6,
        }
    }

    /// What a code means; bits above the format's are ignored.
    pub fn value(self, code: u8) -> Value {
        let code = u32::from(code) & (self.codes() - 1);
        match (self, code) {
            (Self::E4m3, 0x7f | 0xff) | (Self::Ue4m3, 0x7f) | (Self::E8m0, 0xff) => {
                return Value::Nan;
            }
            (Self::E5m2, 0x7d..=0x7f | 0xfd..=0xff) => return Value::Nan,
            (Self::E5m2, 0x7c) => return Value::Infinite { negative: false },
            (Self::E5m2, 0xfc) => return Value::Infinite { negative: true },
            _ => {}
        }
        let half = self.codes() / 2;
        let negative = self.is_signed() && code >= half;
        let magnitude = match (self, negative) {
            (Self::Int8, true) => self.magnitude(256 - code),
            (_, true) => self.magnitude(code - half),
            (_, false) => self.magnitude(code),
        };
        Value::Finite { negative, magnitude }
    }

    /// The magnitude that a code without sign stands for, specials set aside. `code` may lie past the format's end.
    pub(crate) fn magnitude(self, code: u32) -> Exact {
        match self {
            Self::Int8 => Exact::new(code.into(), -6),
            // No zero and no subnormals: 2^(e − 127) throughout.
            Self::E8m0 => Exact::power_of_two(code as i32 - 127),
            _ => {
                let (_, m, bias) = self.fields().unwrap_or_default();
                textbook(code / (1 << m), code % (1 << m), m, bias)
            }
        }
    }

    /// The largest finite value.
    pub fn max(self) -> Exact {
        let finite = (0..=u8::MAX).filter_map(|code| match self.value(code) {
            Value::Finite { negative: false, magnitude } => Some(magnitude),
            _ => None,
        });
        finite.max().unwrap_or(Exact::ZERO)
    }

    /// The code a NaN is converted to: formats without one have the largest value (PTX `cvt`, CUDA headers).
    pub const fn nan_code(self) -> u8 {
        match self {
            Self::E4m3 | Self::E5m2 | Self::Ue4m3 | Self::Int8 => 0x7f,
            Self::E8m0 => 0xff,
            Self::E3m2 | Self::E2m3 => 0x1f,
            Self::E2m1 => 0x7,
        }
    }

    /// Whether some code is NaN.
    pub fn has_nan(self) -> bool {
        (0..=u8::MAX).any(|code| self.value(code) == Value::Nan)
    }

    /// What an overflow that is not saturated becomes: infinity, else NaN, with the value's sign; `None` if the format has
    /// neither.
    pub(crate) const fn overflow_code(self, negative: bool) -> Option<u8> {
        match (self, negative) {
            (Self::E4m3, false) | (Self::Ue4m3, _) => Some(0x7f),
            (Self::E4m3, true) | (Self::E8m0, _) => Some(0xff),
            (Self::E5m2, false) => Some(0x7c),
            (Self::E5m2, true) => Some(0xfc),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positive(format: Format, code: u8) -> Exact {
        match format.value(code) {
            Value::Finite { negative: false, magnitude } => magnitude,
            other => panic!("{format:?} {code:#x} is {other:?}"),
        }
    }

    /// OCP MX v1.0 tables 1, 3, 5 and §5.3.4: max normal, min normal, min subnormal, with their codes.
    #[test]
    fn ocp_tables() {
        let rows = [
            (Format::E4m3, (0x7e, Exact::new(448, 0)), (0x08, -6), -9),
            (Format::E5m2, (0x7b, Exact::new(57344, 0)), (0x04, -14), -16),
            (Format::E3m2, (0x1f, Exact::new(28, 0)), (0x04, -2), -4),
            (Format::E2m3, (0x1f, Exact::new(15, -1)), (0x08, 0), -3),
            (Format::E2m1, (0x7, Exact::new(6, 0)), (0x2, 0), -1),
            (Format::Ue4m3, (0x7e, Exact::new(448, 0)), (0x08, -6), -9),
        ];
        for (format, (max_code, max), (normal_code, normal), subnormal) in rows {
            assert_eq!(format.max(), max);
            assert_eq!(positive(format, max_code), max);
            assert_eq!(positive(format, normal_code), Exact::power_of_two(normal));
            assert_eq!(positive(format, 1), Exact::power_of_two(subnormal));
            assert!(positive(format, 0).is_zero());
        }
        assert_eq!(Format::Int8.max(), Exact::new(127, -6));
        assert_eq!(
            Format::Int8.value(0x80),
            Value::Finite { negative: true, magnitude: Exact::new(2, 0) }
        );
        assert_eq!(
            Format::Int8.value(0xff),
            Value::Finite { negative: true, magnitude: Exact::new(1, -6) }
        );
        assert_eq!(positive(Format::E8m0, 0), Exact::power_of_two(-127));
        assert_eq!(positive(Format::E8m0, 127), Exact::ONE);
        assert_eq!(Format::E8m0.max(), Exact::power_of_two(127));
    }

    #[test]
    fn fp4_values() {
        let doubled = [0, 1, 2, 3, 4, 6, 8, 12];
        for (code, twice) in doubled.into_iter().enumerate() {
            assert_eq!(positive(Format::E2m1, code as u8), Exact::new(twice, -1));
        }
    }

    #[test]
    fn specials() {
        let count = |format: Format, wanted: fn(Value) -> bool| {
            (0..format.codes()).filter(|&code| wanted(format.value(code as u8))).count()
        };
        let nan = |v| v == Value::Nan;
        let infinite = |v| matches!(v, Value::Infinite { .. });
        assert_eq!(Format::ALL.map(|f| count(f, nan)), [2, 6, 0, 0, 0, 0, 1, 1]);
        assert_eq!(Format::ALL.map(|f| count(f, infinite)), [0, 2, 0, 0, 0, 0, 0, 0]);
        for format in Format::ALL {
            assert_eq!(format.has_nan(), format.value(format.nan_code()) == Value::Nan);
        }
    }
}
