//! The RCEIL of torchao up to 0.18, whose logarithm rounds: `ceil(torch.log2(amax / max))`.

use crate::element::Element;
use crate::format::F32;
use crate::number::{Magnitude, Number};
use crate::{Overflow, Rounding};

/// The byte of `clamp(ceil(fl(log2(fl(amax / max)))), -127, 127) + 127`, with both `fl` correctly rounded f32.
///
/// `log2 (2^k × (1 + f))` rounds to the integer k itself when `log2 (1 + f)` is below half the spacing of f32 above k
/// (or, for negative k, toward zero from k); the ceiling is then one too low. Just below a power of two the rounding goes
/// up to an integer that the ceiling gives anyway.
#[inline(always)]
pub(crate) const fn rceil_ceil_log2(significand: u64, exponent: i32, element: Element) -> u8 {
    let quotient = quotient(significand, exponent, element);
    let Magnitude::Finite { significand, exponent } = quotient.magnitude else {
        return 0;
    };
    let width = significand.ilog2();
    let k = exponent + width as i32;
    // The fraction in units of 2^-23; subnormal quotients have fewer bits, which this restores.
    let fraction = (significand << (23 - width)) & 0x7f_ffff;
    let log2 = if fraction <= lost_below(k) { k } else { k + 1 };
    if log2 < -127 {
        0
    } else if log2 > 127 {
        254
    } else {
        (log2 + 127) as u8
    }
}

/// The f32 quotient amax / max, subnormals kept.
#[inline(always)]
const fn quotient(significand: u64, exponent: i32, element: Element) -> Number {
    let format = element.format();
    let Magnitude::Finite { significand: max, exponent: max_exponent } =
        format.decode(format.max_code()).magnitude
    else {
        return Number::NAN;
    };
    // 24 bits over at most 7: 34 more quotient bits than f32 holds, and a sticky bit for the rest.
    let wide = significand << 38;
    let exact = ((wide / max) << 1) | !wide.is_multiple_of(max) as u64;
    let x = Number::finite(false, exact, exponent - max_exponent - 39);
    F32.decode(F32.encode(x, Rounding::NearestEven, Overflow::Propagate))
}

/// The largest fraction, in units of 2^-23, that `log2 (2^k × (1 + fraction))` loses when rounded to f32.
///
/// With s the exponent of the f32 spacing's binade, `log2 (1 + j × 2^-23) < 2^(s - 24)` bounds j by `2^(s - 1) ln 2`:
/// 22.18, 11.09, 5.54, 2.77, 1.38 for s from 6 to 2. The oracle proves the table with exact powers.
const fn lost_below(k: i32) -> u64 {
    let magnitude = k.unsigned_abs();
    // Away from zero the spacing above a positive k is that of its own binade; a negative k moves toward zero, where a
    // power of two has the finer spacing of the binade below.
    let spacing = if k < 0 && magnitude.is_power_of_two() { magnitude - 1 } else { magnitude };
    match spacing {
        64.. => 22,
        32..64 => 11,
        16..32 => 5,
        8..16 => 2,
        4..8 => 1,
        _ => 0,
    }
}
