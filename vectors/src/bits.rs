//! Input values as raw bits of their type. A magnitude is a value's bits without the sign; magnitudes of one type are
//! consecutive integers, so an ulp is a step of 1.

use crate::op::Float;
use crate::tensor::{Data, Tensor};
use mx_reference::{Format, Magnitude, Number, Overflow, Rounding};

/// The largest finite magnitude.
pub const fn max_finite(float: Float) -> u32 {
    float.format().max_code()
}

/// Positive infinity.
pub const fn infinity(float: Float) -> u32 {
    max_finite(float) + 1
}

/// The smallest normal magnitude; everything below is subnormal, down to 1.
pub const fn min_normal(float: Float) -> u32 {
    1 << float.format().mantissa_bits
}

/// The exponent of the smallest subnormal.
pub const fn min_exponent(float: Float) -> i32 {
    float.format().min_exponent() - float.format().mantissa_bits as i32
}

/// The exponent of the largest finite magnitude.
pub const fn max_exponent(float: Float) -> i32 {
    float.format().max_exponent()
}

/// NaNs that implementations tell apart though they should not: quiet, signalling with the lowest payload bit (which
/// narrowing by truncation turns into infinity), signalling with the highest, and all ones; then the same with a sign.
pub const fn nans(float: Float) -> [u32; 8] {
    let (infinity, sign) = (infinity(float), float.format().sign_bit());
    let bits = float.format().mantissa_bits;
    let quiet = infinity | 1 << (bits - 1);
    let (low, high) = (infinity | 1, infinity | 1 << (bits - 2));
    let ones = infinity | ((1 << bits) - 1);
    [quiet, low, high, ones, sign | quiet, sign | low, sign | high, sign | ones]
}

/// The bits of a number rounded toward zero; beyond the largest finite magnitude they stay there.
pub const fn truncated(float: Float, x: Number) -> u32 {
    float.format().encode(x, Rounding::TowardZero, Overflow::Saturate)
}

/// The bits of a number rounded to nearest even; beyond the largest finite magnitude they stay there.
pub const fn nearest(float: Float, x: Number) -> u32 {
    float.format().encode(x, Rounding::NearestEven, Overflow::Saturate)
}

/// The bits of a number that the type holds exactly, `None` for any other.
///
/// ```
/// use mx_reference::Number;
/// use mx_vectors::{Float, bits};
/// assert_eq!(bits::exact(Float::Bf16, Number::finite(true, 255, 0)), Some(0xc37f));
/// assert_eq!(bits::exact(Float::Bf16, Number::finite(true, 257, 0)), None);
/// assert_eq!(bits::exact(Float::F16, Number::finite(false, 1, 16)), None);
/// ```
pub fn exact(float: Float, x: Number) -> Option<u32> {
    let bits = truncated(float, x);
    (odd(float.format().decode(bits)) == odd(x)).then_some(bits)
}

/// The magnitude of 2^k, if the type has it.
pub fn power(float: Float, k: i32) -> Option<u32> {
    exact(float, Number::finite(false, 1, k))
}

/// The magnitude some ulps away, within 0 and the largest finite one.
pub const fn step(float: Float, magnitude: u32, ulps: i32) -> u32 {
    let moved = magnitude.saturating_add_signed(ulps);
    if moved > max_finite(float) { max_finite(float) } else { moved }
}

/// Bits with a sign set where `negative`.
pub const fn signed(float: Float, magnitude: u32, negative: bool) -> u32 {
    if negative { magnitude | float.format().sign_bit() } else { magnitude }
}

/// The magnitude, NaN and infinity included.
pub const fn magnitude(float: Float, bits: u32) -> u32 {
    bits & !float.format().sign_bit()
}

/// The number halfway between magnitude codes `code` and `code + 1` of a format; both must be finite.
///
/// ```
/// use mx_reference::{Number, format::E2M1};
/// assert_eq!(mx_vectors::bits::midpoint(&E2M1, 6), Number::finite(false, 5, 0)); // between 4 and 6
/// ```
pub const fn midpoint(format: &Format, code: u32) -> Number {
    let (a, ae) = parts(format.decode(code));
    let (b, be) = parts(format.decode(code + 1));
    // Zero has no weight of its own.
    let low = if a == 0 || be < ae { be } else { ae };
    let shifted = if a == 0 { 0 } else { a << (ae - low) };
    odd(Number::finite(false, shifted + (b << (be - low)), low - 1))
}

/// A tensor of this type.
pub fn tensor(float: Float, shape: impl Into<Vec<usize>>, bits: Vec<u32>) -> Tensor {
    let data = match float {
        Float::F32 => Data::U32(bits),
        Float::Bf16 | Float::F16 => Data::U16(bits.into_iter().map(|bits| bits as u16).collect()),
    };
    Tensor { shape: shape.into(), data }
}

/// Significand and exponent; zero for what is not finite.
const fn parts(x: Number) -> (u64, i32) {
    match x.magnitude {
        Magnitude::Finite { significand, exponent } => (significand, exponent),
        _ => (0, 0),
    }
}

/// The same value with an odd significand, so that equal values are equal numbers.
const fn odd(x: Number) -> Number {
    match x.magnitude {
        Magnitude::Finite { significand, exponent } => {
            let zeros = significand.trailing_zeros();
            Number::finite(x.negative, significand >> zeros, exponent + zeros as i32)
        }
        _ => x,
    }
}

/// A quarter of the value, sign kept; zero for NaN, infinity and what lies near the bottom of the range. No lane of a
/// quieter copy of a block reaches the block's amax.
pub const fn quieter(input: Float, bits: u32) -> u32 {
    let magnitude = magnitude(input, bits);
    let quarter = 2 << input.format().mantissa_bits;
    if magnitude >= infinity(input) || magnitude < 2 * quarter {
        bits - magnitude
    } else {
        bits - quarter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::format::{E4M3, E5M2, E8M0, INT8};
    use rstest::rstest;

    #[rstest]
    #[case(Float::F32, -149, Some(1))]
    #[case(Float::F32, -127, Some(0x0040_0000))]
    #[case(Float::F32, 127, Some(0x7f00_0000))]
    #[case(Float::Bf16, -134, None)]
    #[case(Float::Bf16, -133, Some(1))]
    #[case(Float::F16, -24, Some(1))]
    #[case(Float::F16, 15, Some(0x7800))]
    #[case(Float::F16, 16, None)]
    fn powers_of_two(#[case] float: Float, #[case] k: i32, #[case] bits: Option<u32>) {
        assert_eq!(power(float, k), bits);
    }

    #[rstest]
    #[case(E4M3, 0, Number::finite(false, 1, -10))]
    #[case(E4M3, 0x7d, Number::finite(false, 432, 0))]
    #[case(E5M2, 0x7a, Number::finite(false, 53248, 0))]
    #[case(INT8, 0, Number::finite(false, 1, -7))]
    #[case(E8M0, 127, Number::finite(false, 3, -1))]
    fn midpoints(#[case] format: Format, #[case] code: u32, #[case] expected: Number) {
        assert_eq!(midpoint(&format, code), odd(expected));
    }

    #[rstest]
    fn nans_are_nans_and_differ(#[values(Float::F32, Float::Bf16, Float::F16)] float: Float) {
        let nans = nans(float);
        assert!(nans.iter().all(|&bits| float.format().is_nan(bits)));
        assert_eq!(nans.into_iter().collect::<std::collections::BTreeSet<_>>().len(), nans.len());
        assert_eq!(float.format().decode(infinity(float)).magnitude, Magnitude::Infinite);
        assert_eq!(step(float, max_finite(float), 1), max_finite(float));
        assert_eq!(step(float, 0, -1), 0);
    }
}
