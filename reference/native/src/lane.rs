//! One element: from the raw bits of an input and a grid to a code, without a branch.

use mx_reference::format::{BF16, F16, F32};
use mx_reference::{Input, Overflow};

use crate::dispatch::Spec;

/// What is derived from an input format.
pub(crate) trait Lane: Input {
    /// The bits below the sign.
    const MAGNITUDE: u32;
    /// Infinity.
    const INFINITY: u32;
    /// The bias of the exponent that [`normal`] gives.
    const BIAS: i32;
}

impl<T: Input> Lane for T {
    const MAGNITUDE: u32 = (1 << (T::FORMAT.bits - 1)) - 1;
    const INFINITY: u32 = ((1 << T::FORMAT.exponent_bits) - 1) << T::FORMAT.mantissa_bits;
    const BIAS: i32 = {
        let known = [F32, BF16, F16];
        let mut i = 0;
        while known[i].bits != T::FORMAT.bits || known[i].mantissa_bits != T::FORMAT.mantissa_bits {
            i += 1;
            assert!(i < known.len(), "inputs are f32, bf16 or f16");
        }
        if is_f16::<T>() { F16_BIAS } else { F32.bias }
    };
}

/// An f16 is taken for an integer in units of its least subnormal 2^-24, turned into an f32.
const F16_BIAS: i32 = F32.bias + 24;

const fn is_f16<T: Input>() -> bool {
    T::FORMAT.mantissa_bits == F16.mantissa_bits
}

/// An input magnitude as f32 bits whose exponent field, biased by [`Lane::BIAS`], may be negative; subnormals are brought
/// into that form as well. The implicit bit is always 1, so zero looks like a power of two, but like one that no grid
/// reaches: under the largest multiplier, 2^127, it is 2^-24 for f16 and 2^-149 else, against 2^-17 for half the least step
/// of any element format.
#[inline(always)]
fn normal<T: Lane>(magnitude: u32) -> i32 {
    if is_f16::<T>() {
        let subnormal = float_bits(magnitude as i32);
        let normal = (magnitude << 13) as i32 + ((F16_BIAS - F16.bias) << 23);
        if magnitude < 1 << 10 { subnormal } else { normal }
    } else {
        let bits = (magnitude << (F32.bits - T::FORMAT.bits)) as i32;
        let subnormal = float_bits(bits).wrapping_sub(149 << 23);
        if bits < 1 << 23 { subnormal } else { bits }
    }
}

/// The f32 bits of an integer below 2^24, whose conversion is exact.
#[inline(always)]
#[allow(clippy::cast_precision_loss, reason = "where it would round, the result is not used")]
fn float_bits(x: i32) -> i32 {
    (x as f32).to_bits() as i32
}

/// The magnitude of `bits` as f32 bits. Every f16 is an f32 too.
#[inline(always)]
pub(crate) fn to_f32<T: Lane>(bits: u32) -> u32 {
    let magnitude = bits & T::MAGNITUDE;
    if !is_f16::<T>() {
        magnitude << (F32.bits - T::FORMAT.bits)
    } else if magnitude == 0 {
        0
    } else if magnitude >= T::INFINITY {
        (magnitude << 13) | F32_INFINITY
    } else {
        (normal::<T>(magnitude) - (24 << 23)) as u32
    }
}

/// The bits of an infinite f32.
pub(crate) const F32_INFINITY: u32 = 0x7f80_0000;

/// The code of the finite input `bits`, rounded to nearest even, then overflow handled. An infinity counts as the next
/// power of two after the largest number.
///
/// A scale moves the grid of codes among the inputs, not the input: `least` is the exponent, biased by [`Lane::BIAS`], of
/// inputs that become the format's smallest normals.
#[inline(always)]
pub(crate) fn encode<S: Spec, T: Lane>(bits: u32, least: i32, overflow: Overflow) -> u8 {
    let mantissa_bits = S::FORMAT.mantissa_bits as i32;
    let x = normal::<T>(bits & T::MAGNITUDE);
    let significand = (x & 0x7f_ffff) | 0x80_0000;
    // Two places below the grid nothing is left but zero, so more depth changes nothing.
    let height = (x >> 23).wrapping_sub(least).max(-2 - mantissa_bits);
    let below = height.min(0);
    let drop = (23 - mantissa_bits - below) as u32;
    let odd = significand.wrapping_shr(drop) & 1;
    // One less than half a unit of the last place, `2^(drop - 1) - 1`.
    let half = i32::MAX.wrapping_shr((9 + mantissa_bits + below) as u32);
    let kept = (significand + half + odd).wrapping_shr(drop);
    let code = (height.max(0) << mantissa_bits) + kept;
    let max = S::FORMAT.max_code() as i32;
    let code = match overflow {
        Overflow::Saturate => code.min(max),
        Overflow::Propagate => code.min(max + S::FORMAT.has_nan() as i32),
    };
    let negative = (bits >> (T::FORMAT.bits - 1)) as i32;
    if S::FORMAT.sign_bit() == 0 {
        ((code ^ -negative) + negative) as u8
    } else {
        (code | negative << (S::FORMAT.bits - 1)) as u8
    }
}
