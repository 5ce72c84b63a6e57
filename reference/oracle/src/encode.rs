//! The code of a value, by search among the values of all codes.

use std::cmp::Ordering;
use std::sync::OnceLock;

use crate::{Exact, Float, Format, Steps, Value};

/// How a value between two codes becomes one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearer, ties to the code whose lowest bit is 0.
    NearestEven,
    /// To the nearer, ties to the larger magnitude.
    TiesAway,
    /// To the nearer, ties to the smaller magnitude.
    TiesTowardZero,
    /// To the smaller magnitude.
    TowardZero,
    /// Toward positive infinity.
    Up,
    /// The fraction of the way from the smaller magnitude to the larger, plus `random / 2^32`, decides: the larger from 1.
    Stochastic {
        /// The random word.
        random: u32,
    },
}

/// What becomes of a value that rounds beyond the largest finite code, and of infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The largest finite code.
    Saturate,
    /// Infinity, else NaN, else the largest finite code; rounding a finite magnitude down still stays finite.
    Propagate,
}

/// The finite magnitudes of a format in ascending order.
struct Ladder {
    /// Ends with one more than there are codes: the value that would come next.
    rungs: Vec<Exact>,
    positive: Vec<u8>,
    negative: Vec<u8>,
}

impl Ladder {
    fn of(format: Format) -> &'static Self {
        static LADDERS: [OnceLock<Ladder>; Format::ALL.len()] =
            [const { OnceLock::new() }; Format::ALL.len()];
        LADDERS[format as usize].get_or_init(|| Self::build(format))
    }

    fn build(format: Format) -> Self {
        let codes = || (0..format.codes()).map(|code| code as u8);
        let mut finite: Vec<(Exact, u8)> = codes()
            .filter_map(|code| match format.value(code) {
                Value::Finite { negative: false, magnitude } => Some((magnitude, code)),
                _ => None,
            })
            .collect();
        finite.sort_unstable();
        // A magnitude without a negative code of its own is INT8's zero, or belongs to an unsigned format.
        let negative = |&(magnitude, code): &(Exact, u8)| {
            let wanted = Value::Finite { negative: true, magnitude };
            codes().find(|&code| format.value(code) == wanted).unwrap_or(code)
        };
        let largest = finite[finite.len() - 1].1;
        Self {
            rungs: finite
                .iter()
                .map(|&(magnitude, _)| magnitude)
                .chain([format.magnitude(u32::from(largest) + 1)])
                .collect(),
            positive: finite.iter().map(|&(_, code)| code).collect(),
            negative: finite.iter().map(negative).collect(),
        }
    }

    fn code(&self, rung: usize, negative: bool) -> u8 {
        if negative { self.negative[rung] } else { self.positive[rung] }
    }

    /// Whether a magnitude from `rungs[low]` up to the next rung takes that next one.
    fn takes_next(&self, low: usize, magnitude: Exact, negative: bool, rounding: Rounding) -> bool {
        let (below, above) = (self.rungs[low], self.rungs[low + 1]);
        let side = magnitude.scaled(1).cmp(&(below + above));
        match rounding {
            _ if magnitude == below => false,
            Rounding::NearestEven if side == Ordering::Equal => self.positive[low] % 2 == 1,
            Rounding::TiesAway => side.is_ge(),
            Rounding::NearestEven | Rounding::TiesTowardZero => side.is_gt(),
            Rounding::TowardZero => false,
            Rounding::Up => !negative,
            Rounding::Stochastic { random } => {
                let missing = Exact::new((1 << 32) - u128::from(random), -32);
                magnitude - below >= missing * (above - below)
            }
        }
    }
}

/// The code of a value. Unsigned formats take the magnitude; E8M0, which has no zero, gives its least code below it.
pub fn encode(format: Format, value: Value, rounding: Rounding, overflow: Overflow) -> u8 {
    let ladder = Ladder::of(format);
    let largest = ladder.positive.len() - 1;
    let overflowed = |negative: bool| match overflow {
        Overflow::Saturate => None,
        Overflow::Propagate => format.overflow_code(negative),
    };
    match value {
        Value::Nan => format.nan_code(),
        Value::Infinite { negative } => {
            let negative = negative && format.is_signed();
            overflowed(negative).unwrap_or(ladder.code(largest, negative))
        }
        Value::Finite { negative, magnitude } => {
            let negative = negative && format.is_signed();
            let reached = ladder.rungs.partition_point(|&rung| rung <= magnitude);
            let rung = match reached.checked_sub(1) {
                None => 0,
                Some(low) if low <= largest => {
                    low + usize::from(ladder.takes_next(low, magnitude, negative, rounding))
                }
                Some(_) if rounding == Rounding::TowardZero => largest,
                Some(_) if rounding == Rounding::Up && negative => largest,
                Some(beyond) => beyond,
            };
            let overflow = if rung > largest { overflowed(negative) } else { None };
            overflow.unwrap_or_else(|| ladder.code(rung.min(largest), negative))
        }
    }
}

/// The codes of all patterns of a float format.
pub fn cast_steps(format: Format, rounding: Rounding, overflow: Overflow, input: Float) -> Steps {
    Steps::tabulate(&input.stretches(), |bits| {
        encode(format, input.value(bits), rounding, overflow)
    })
}

/// Converts `count` elements, of which `at` gives the bits.
pub fn cast(
    format: Format,
    rounding: Rounding,
    overflow: Overflow,
    input: Float,
    count: usize,
    at: impl Fn(usize) -> u32,
) -> Vec<u8> {
    let steps = cast_steps(format, rounding, overflow, input);
    (0..count).map(|i| steps.code(at(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Overflow::{Propagate, Saturate};
    use Rounding::{NearestEven, Stochastic, TiesAway, TiesTowardZero, TowardZero, Up};

    fn f32_to(format: Format, x: f32, rounding: Rounding, overflow: Overflow) -> u8 {
        encode(format, Float::F32.value(x.to_bits()), rounding, overflow)
    }

    #[test]
    fn fp4_ties() {
        let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
        let codes = |rounding| ties.map(|x| f32_to(Format::E2m1, x, rounding, Saturate));
        assert_eq!(codes(NearestEven), [0, 2, 2, 4, 4, 6, 6]);
        assert_eq!(codes(TiesAway), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(codes(TiesTowardZero), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(codes(TowardZero), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(codes(Up), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(f32_to(Format::E2m1, -0.75, Up, Saturate), 0x9);
        assert_eq!(f32_to(Format::E2m1, -0.25, NearestEven, Saturate), 0x8);
    }

    /// `OFP8` §5.2 and PTX ISA `cvt`: where overflow begins, and what it gives.
    #[test]
    fn overflow() {
        let rows = [
            (Format::E4m3, 464.0, 0x7e, 0x7e),
            (Format::E4m3, 464.00003, 0x7e, 0x7f),
            (Format::E4m3, -464.00003, 0xfe, 0xff),
            (Format::E4m3, f32::NEG_INFINITY, 0xfe, 0xff),
            (Format::E5m2, 61439.996, 0x7b, 0x7b),
            (Format::E5m2, 61440.0, 0x7b, 0x7c),
            (Format::E5m2, -1e30, 0xfb, 0xfc),
            (Format::E5m2, f32::INFINITY, 0x7b, 0x7c),
            (Format::E3m2, 1e9, 0x1f, 0x1f),
            (Format::E2m3, -1e9, 0x3f, 0x3f),
            (Format::E2m1, 7.0, 0x7, 0x7),
            (Format::Int8, -2.0, 0x81, 0x81),
            (Format::Int8, f32::INFINITY, 0x7f, 0x7f),
            (Format::Ue4m3, -f32::INFINITY, 0x7e, 0x7f),
        ];
        for (format, x, saturated, propagated) in rows {
            assert_eq!(f32_to(format, x, NearestEven, Saturate), saturated, "{format:?} {x}");
            assert_eq!(f32_to(format, x, NearestEven, Propagate), propagated, "{format:?} {x}");
        }
        for x in [450.0, 1e30] {
            assert_eq!(f32_to(Format::E4m3, x, TowardZero, Propagate), 0x7e);
            assert_eq!(f32_to(Format::E4m3, -x, Up, Propagate), 0xfe);
            assert_eq!(f32_to(Format::E4m3, x, Up, Propagate), 0x7f);
            assert_eq!(f32_to(Format::Ue4m3, -x, Up, Propagate), 0x7f);
        }
        assert_eq!(f32_to(Format::E4m3, f32::INFINITY, TowardZero, Propagate), 0x7f);
    }

    #[test]
    fn nan_and_zero() {
        let nan = Format::ALL.map(|format| f32_to(format, -f32::NAN, NearestEven, Saturate));
        assert_eq!(nan, [0x7f, 0x7f, 0x1f, 0x1f, 0x7, 0x7f, 0xff, 0x7f]);
        let zero = Format::ALL.map(|format| f32_to(format, -0.0, NearestEven, Saturate));
        assert_eq!(zero, [0x80, 0x80, 0x20, 0x20, 0x8, 0, 0, 0]);
    }

    /// CUDA 13 `cuda_fp8.hpp`, `__nv_cvt_float_to_e8m0`, `cudaRoundPosInf` and `cudaRoundZero`.
    #[test]
    fn e8m0_as_the_cuda_headers_have_it() {
        let rows = [
            (0x00000000, 0, 0, 0),
            (0x00000001, 0, 0, 0),
            (0x00400000, 0, 0, 0),
            (0x00400001, 1, 1, 0),
            (0x007fffff, 1, 1, 0),
            (0x00800000, 1, 1, 1),
            (0x3f800000, 127, 127, 127),
            (0x3f800001, 128, 128, 127),
            (0xbf800001, 128, 128, 127),
            (0x7f000000, 254, 254, 254),
            (0x7f000001, 255, 254, 254),
            (0x7f7fffff, 255, 254, 254),
            (0x7f800000, 255, 254, 255),
            (0x7fc00000, 255, 255, 255),
        ];
        for (bits, up, up_saturated, down) in rows {
            let code = |rounding, overflow| {
                encode(Format::E8m0, Float::F32.value(bits), rounding, overflow)
            };
            assert_eq!(code(Up, Propagate), up, "{bits:#x}");
            assert_eq!(code(Up, Saturate), up_saturated, "{bits:#x}");
            assert_eq!(code(TowardZero, Propagate), down, "{bits:#x}");
        }
    }

    #[test]
    fn stochastic_counts_exactly() {
        // 2.5 lies halfway between 2 and 3, 0.125 a quarter of the way to 0.5; 448 + 8 a quarter beyond the largest.
        let rows = [
            (Format::E2m1, 2.5, 1 << 31, 4, 5),
            (Format::E2m1, -0.125, 3 << 30, 0x8, 0x9),
            (Format::E4m3, 456.0, 3 << 30, 0x7e, 0x7f),
        ];
        for (format, x, random, down, up) in rows {
            assert_eq!(f32_to(format, x, Stochastic { random: random - 1 }, Propagate), down);
            assert_eq!(f32_to(format, x, Stochastic { random }, Propagate), up);
        }
        assert_eq!(f32_to(Format::E2m1, 3.0, Stochastic { random: u32::MAX }, Saturate), 5);
        // A fraction of 2^-148 counts only if a word could make up for it.
        assert_eq!(
            f32_to(Format::E2m1, f32::from_bits(1), Stochastic { random: u32::MAX }, Saturate),
            0
        );
    }

    /// Nearness by f64, which holds every value and difference here exactly.
    #[test]
    fn no_other_code_is_nearer() {
        for format in Format::ELEMENTS {
            let steps = cast_steps(format, NearestEven, Saturate, Float::F16);
            let decoded: Vec<f64> =
                (0..format.codes()).map(|code| as_f64(format.value(code as u8))).collect();
            let largest = decoded.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
            let usable = |v: &&f64| v.is_finite() && v.abs() <= largest;
            for bits in (0..Float::F16.infinity()).flat_map(|b| [b, b + Float::F16.sign_bit()]) {
                let x = as_f64(Float::F16.value(bits));
                let code = steps.code(bits);
                let distance = (decoded[usize::from(code)] - x).abs();
                let least = decoded
                    .iter()
                    .filter(usable)
                    .map(|v| (v - x).abs())
                    .fold(f64::INFINITY, f64::min);
                assert!(distance <= least, "{format:?} {bits:#x} {code:#x}");
                assert_eq!(code, encode(format, Float::F16.value(bits), NearestEven, Saturate));
            }
        }
    }

    fn as_f64(value: Value) -> f64 {
        match value {
            Value::Finite { negative, magnitude } => {
                // All values here are multiples of 2^-24 below 2^17.
                let (mut size, mut rest) = (0.0, magnitude);
                for power in (-24..17).rev() {
                    if Exact::power_of_two(power) <= rest {
                        rest = rest - Exact::power_of_two(power);
                        size += f64::from_bits(((power + 1023) as u64) << 52);
                    }
                }
                assert!(rest.is_zero());
                if negative { -size } else { size }
            }
            Value::Infinite { .. } => f64::INFINITY,
            Value::Nan => f64::NAN,
        }
    }
}
