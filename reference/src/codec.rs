//! One decode and one encode for every format, in integers.

use crate::format::{Format, Sign, Specials};
use crate::number::{Magnitude, Number};
use crate::round::{Cut, Rounding};

/// What becomes of a value beyond the largest finite code, infinity included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The largest finite magnitude (PTX `.satfinite`).
    Saturate,
    /// Infinity where the format has one, else NaN, else the largest finite magnitude. Rounding modes that round a
    /// magnitude down keep the largest finite one for finite values (IEEE 754-2019 §7.4).
    Propagate,
}

impl Format {
    /// What a code means; bits above the code's width are ignored.
    ///
    /// ```
    /// use mx_reference::format::{E2M1, E8M0, INT8};
    /// use mx_reference::Number;
    /// assert_eq!(E2M1.decode(0x7), Number::finite(false, 3, 1)); // 6.0
    /// assert_eq!(E8M0.decode(0x00), Number::finite(false, 1, -127)); // not zero
    /// assert_eq!(INT8.decode(0x80), Number::finite(true, 128, -6)); // -2.0
    /// ```
    #[inline(always)]
    pub const fn decode(&self, code: u32) -> Number {
        let code = if self.bits == 32 { code } else { code & ((1 << self.bits) - 1) };
        let (negative, magnitude) = match self.sign {
            Sign::None => (false, code),
            Sign::Magnitude => (code & self.sign_bit() != 0, code & !self.sign_bit()),
            Sign::TwosComplement => {
                let negative = code >> (self.bits - 1) != 0;
                (negative, if negative { (1 << self.bits) - code } else { code })
            }
        };
        let field = magnitude >> self.mantissa_bits;
        let mantissa = (magnitude & ((1 << self.mantissa_bits) - 1)) as u64;
        match self.specials {
            Specials::NanOnly if magnitude == self.max_code() + 1 => {
                return Number { negative, magnitude: Magnitude::Nan };
            }
            Specials::Ieee if magnitude >= self.infinity_code() => {
                let magnitude = if mantissa == 0 { Magnitude::Infinite } else { Magnitude::Nan };
                return Number { negative, magnitude };
            }
            _ => {}
        }
        let lowest = self.min_exponent() - self.mantissa_bits as i32;
        if !self.subnormals {
            Number::finite(negative, (1 << self.mantissa_bits) | mantissa, lowest + field as i32)
        } else if self.exponent_bits == 0 {
            Number::finite(negative, magnitude as u64, lowest)
        } else if field == 0 {
            Number::finite(negative, mantissa, lowest)
        } else {
            let significand = (1 << self.mantissa_bits) | mantissa;
            Number::finite(negative, significand, lowest + field as i32 - 1)
        }
    }

    /// The code for a value: rounded once, then overflow handled. Unsigned formats take the magnitude.
    ///
    /// NaN gives [`Format::nan_code`]. Formats without zero (E8M0) give their least code for anything below it.
    ///
    /// ```
    /// use mx_reference::format::{E4M3, E5M2};
    /// use mx_reference::{Number, Overflow, Rounding};
    /// let x = Number::finite(true, 465, 0);
    /// assert_eq!(E4M3.encode(x, Rounding::NearestEven, Overflow::Saturate), 0xfe);
    /// assert_eq!(E4M3.encode(x, Rounding::NearestEven, Overflow::Propagate), 0xff);
    /// let tie = Number::finite(false, 61440, 0);
    /// assert_eq!(E5M2.encode(tie, Rounding::NearestEven, Overflow::Propagate), 0x7c);
    /// ```
    #[inline(always)]
    pub const fn encode(&self, x: Number, rounding: Rounding, overflow: Overflow) -> u32 {
        let negative = x.negative && !matches!(self.sign, Sign::None);
        let magnitude = match x.magnitude {
            Magnitude::Nan => return self.nan_code,
            Magnitude::Zero => 0,
            Magnitude::Infinite => self.overflowed(overflow),
            Magnitude::Finite { significand, exponent } => {
                let code = self.encode_finite(significand, exponent, rounding, negative);
                if code <= self.max_code() as u64 {
                    code as u32
                } else if matches!(rounding, Rounding::TowardZero)
                    || matches!(rounding, Rounding::Up) && negative
                {
                    self.max_code()
                } else {
                    self.overflowed(overflow)
                }
            }
        };
        match self.sign {
            Sign::TwosComplement if negative => magnitude.wrapping_neg() & ((1 << self.bits) - 1),
            _ if negative => magnitude | self.sign_bit(),
            _ => magnitude,
        }
    }

    const fn overflowed(&self, overflow: Overflow) -> u32 {
        match (overflow, self.specials) {
            (Overflow::Propagate, Specials::Ieee) => self.infinity_code(),
            (Overflow::Propagate, Specials::NanOnly) => self.max_code() + 1,
            _ => self.max_code(),
        }
    }

    /// The magnitude code of `significand × 2^exponent` as if exponents had no upper end.
    ///
    /// Codes of one sign are consecutive integers, so a carry out of the mantissa lands on the right code by itself.
    #[inline]
    const fn encode_finite(
        &self,
        significand: u64,
        exponent: i32,
        rounding: Rounding,
        negative: bool,
    ) -> u64 {
        let top = exponent + 63 - significand.leading_zeros() as i32;
        let least = self.min_exponent();
        if top < least && !self.subnormals {
            return 0;
        }
        let binade = if top > least { top } else { least };
        let mut cut = Cut::new(significand, exponent + self.mantissa_bits as i32 - binade);
        if !self.subnormals {
            cut.kept -= 1 << self.mantissa_bits;
        }
        let code = (((binade - least) as u64) << self.mantissa_bits) + cut.kept;
        code + cut.rounds_up(rounding, code & 1 == 1, negative) as u64
    }
}

#[cfg(test)]
mod tests {
    use crate::format::{BF16, E2M1, E3M2, E4M3, E5M2, E8M0, F16, F32, Format, INT8, UE4M3};
    use crate::round::Rounding;
    use crate::{Number, Overflow};
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(E4M3, 0x7e, 448.0)]
    #[case(E4M3, 0x01, 0.001953125)]
    #[case(E5M2, 0x7b, 57344.0)]
    #[case(E3M2, 0x1f, 28.0)]
    #[case(crate::format::E2M3, 0x1f, 7.5)]
    #[case(E2M1, 0x7, 6.0)]
    #[case(INT8, 0x7f, 1.984375)]
    #[case(INT8, 0xc0, -1.0)]
    #[case(UE4M3, 0x38, 1.0)]
    fn known_values(#[case] format: Format, #[case] code: u32, #[case] value: f32) {
        let x = F32.decode(value.to_bits());
        assert_eq!(format.encode(x, Rounding::NearestEven, Overflow::Saturate), code);
        let back = F32.encode(format.decode(code), Rounding::NearestEven, Overflow::Propagate);
        assert_eq!(back, value.to_bits());
    }

    #[rstest]
    fn every_number_is_its_own_encoding(
        #[values(E4M3, E5M2, E3M2, E2M1, INT8, E8M0, UE4M3, BF16, F16)] format: Format,
    ) {
        for code in 0..format.codes() as u32 {
            let x = format.decode(code);
            // 0x80 means -2.0 but is never produced.
            if x.is_nan() || (format.name == "int8" && code == 0x80) {
                continue;
            }
            for rounding in [Rounding::NearestEven, Rounding::TowardZero, Rounding::Up] {
                assert_eq!(
                    format.encode(x, rounding, Overflow::Propagate),
                    code,
                    "{}",
                    format.name
                );
            }
        }
    }

    #[rstest]
    #[case(Rounding::NearestEven, [0x0, 0x2, 0x2, 0x4, 0x4, 0x6, 0x6])]
    #[case(Rounding::NearestAway, [0x1, 0x2, 0x3, 0x4, 0x5, 0x6, 0x7])]
    #[case(Rounding::NearestTowardZero, [0x0, 0x1, 0x2, 0x3, 0x4, 0x5, 0x6])]
    #[case(Rounding::TowardZero, [0x0, 0x1, 0x2, 0x3, 0x4, 0x5, 0x6])]
    #[case(Rounding::Up, [0x1, 0x2, 0x3, 0x4, 0x5, 0x6, 0x7])]
    fn e2m1_ties(#[case] rounding: Rounding, #[case] codes: [u32; 7]) {
        for (tie, code) in [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0].into_iter().zip(codes) {
            let x = F32.decode(tie.to_bits());
            assert_eq!(E2M1.encode(x, rounding, Overflow::Saturate), code, "{tie}");
        }
    }

    proptest! {
        #[test]
        fn floats_decode_to_what_the_host_says(bits: u32) {
            let x = f32::from_bits(bits);
            let code = F32.encode(F32.decode(bits), Rounding::NearestEven, Overflow::Propagate);
            if x.is_nan() { prop_assert_eq!(code, F32.nan_code) } else { prop_assert_eq!(code, bits) }
        }

        #[test]
        fn narrowing_agrees_with_half(bits: u32) {
            let x = f32::from_bits(bits);
            prop_assume!(!x.is_nan());
            let number = F32.decode(bits);
            let to = |f: Format| f.encode(number, Rounding::NearestEven, Overflow::Propagate) as u16;
            prop_assert_eq!(to(BF16), half::bf16::from_f32(x).to_bits());
            prop_assert_eq!(to(F16), half::f16::from_f32(x).to_bits());
        }

        #[test]
        fn encoding_is_symmetric_in_sign(significand in 1u64..1 << 24, exponent in -160..130i32) {
            for format in [E4M3, E5M2, E2M1] {
                let code = |negative| {
                    let x = Number::finite(negative, significand, exponent);
                    format.encode(x, Rounding::NearestEven, Overflow::Propagate)
                };
                prop_assert_eq!(code(true), code(false) | format.sign_bit());
            }
        }
    }
}
