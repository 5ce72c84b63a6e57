//! What block classes are built from: where they apply, spreads over a range, and ordinary values below an amax.

use crate::bits;
use crate::class::{Block, LANES, Level};
use crate::op::Quantize;
use crate::rng::Stream;
use mx_reference::scale::even_threshold;
use mx_reference::{Magnitude, Number, Overflow, Rounding, ScaleLayout, ScaleMode};

/// Whether block classes apply: the layout of scales and strides are not what they look at.
pub(super) fn applies(q: &Quantize) -> bool {
    q.layout == ScaleLayout::Plain && q.view.is_none() && q.block.cols() == LANES
}

/// The count of a block class that has `standard` cases, of which the first `smoke` make the smoke level.
pub(super) fn sized(q: &Quantize, level: Level, smoke: u64, standard: u64) -> u64 {
    match level {
        _ if !applies(q) => 0,
        Level::Smoke => smoke.min(standard),
        Level::Standard | Level::Exhaustive => standard,
    }
}

/// The stream of a case. Axis and block shape are left out: the same cases run along every axis.
pub(super) fn stream(class: &str, q: &Quantize, n: u64) -> Stream {
    Stream::new(&[class, q.element.name(), q.mode.name(), q.input.name()], n)
}

/// Position `i` of a permutation of 0..n whose neighbours lie far apart: multiples of a number near n / 1.618 that shares
/// no factor with n.
pub(super) const fn spread(i: u64, n: u64) -> u64 {
    let mut stride = n * 618 / 1000;
    while stride > 1 && gcd(stride, n) != 1 {
        stride -= 1;
    }
    if n < 2 { 0 } else { (i % n) * if stride == 0 { 1 } else { stride } % n }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The scale exponents s for which both `low × 2^s` (given by the exponent of its lowest bit) and the element's largest
/// binade times 2^s are numbers of the input type; first and last.
pub(super) fn scale_range(q: &Quantize, low: i32) -> (i32, i32) {
    let first = (bits::min_exponent(q.input) - low).max(-127);
    (first, bits::max_exponent(q.input) - q.element.format().max_exponent())
}

/// How many scale exponents that range has.
pub(super) fn scale_count(q: &Quantize, low: i32) -> u64 {
    let (first, last) = scale_range(q, low);
    (last - first + 1).unsigned_abs().into()
}

/// Scale exponent number `i`: a permutation of [`scale_range`] that starts at 0 (byte 0x7f) or next to it.
pub(super) fn scale_exponent(q: &Quantize, low: i32, i: u64) -> i32 {
    let (first, last) = scale_range(q, low);
    let n = scale_count(q, low);
    let start = (0.clamp(first, last) - first) as u64;
    first + ((start + spread(i, n)) % n) as i32
}

/// The exponent of half the element's smallest subnormal: the lowest bit of its first tie.
pub(super) fn tie_exponent(q: &Quantize) -> i32 {
    let format = q.element.format();
    format.min_exponent() - format.mantissa_bits as i32 - 1
}

/// The largest code that an unbumped scale leaves room for: under CEIL no amax above the top binade's first value stays
/// without bump, under the other modes max itself does.
pub(super) fn top_code(q: &Quantize) -> u32 {
    let format = q.element.format();
    match q.mode {
        ScaleMode::Ceil => {
            let top = Number::finite(false, 1, format.max_exponent());
            format.encode(top, Rounding::NearestEven, Overflow::Saturate)
        }
        _ => format.max_code(),
    }
}

/// The mantissas, in the input type's width, at which scale modes step: 0 (FLOOR and CEIL), that of max (RCEIL), and
/// EVEN's; and the place in that list of the op's own.
pub(super) fn thresholds(q: &Quantize) -> ([u32; 3], usize) {
    let drop = 23 - q.input.format().mantissa_bits;
    let own = match q.mode {
        ScaleMode::Floor | ScaleMode::Ceil => 0,
        ScaleMode::Rceil => 1,
        ScaleMode::Even => 2,
    };
    ([0, max_fraction(q) >> drop, even_threshold(q.element) >> drop], own)
}

/// The 23-bit fraction of the element's max.
fn max_fraction(q: &Quantize) -> u32 {
    let format = q.element.format();
    match format.decode(format.max_code()).magnitude {
        Magnitude::Finite { significand, .. } => {
            (significand << (23 - significand.ilog2())) as u32 & 0x7f_ffff
        }
        _ => 0,
    }
}

/// Which side of the op's own threshold tells faults apart: above where the scale steps up just past it, below where a
/// rounded amax would reach it.
pub(super) fn telling_side(q: &Quantize) -> i32 {
    match q.mode {
        ScaleMode::Ceil | ScaleMode::Rceil => 1,
        ScaleMode::Floor | ScaleMode::Even => -1,
    }
}

/// Where amax goes in case n, and whether it is negative: every lane with both signs within 64 cases.
pub(super) fn place(n: u64) -> (usize, bool) {
    ((n % 32) as usize, (n + n / 32) % 2 == 1)
}

/// A block with `amax` (a finite magnitude) in one lane and ordinary values that do not exceed it in the others: ties of the
/// element under FLOOR's scale, values within sixteen binades of amax, and tiny ones.
pub(super) fn filled(
    q: &Quantize,
    stream: &mut Stream,
    amax: u32,
    lane: usize,
    negative: bool,
) -> Block {
    let mut block = std::array::from_fn(|_| {
        let magnitude = match stream.below(8) {
            0..=2 => tie_below(q, stream, amax),
            3..=5 => amax.saturating_sub(stream.below(16 << q.input.format().mantissa_bits) as u32),
            6 => stream.below(8) as u32,
            _ => 0,
        };
        bits::signed(q.input, magnitude.min(amax), stream.flag())
    });
    block[lane] = bits::signed(q.input, amax, negative);
    block
}

/// A random tie of the element under the scale that FLOOR gives this amax.
fn tie_below(q: &Quantize, stream: &mut Stream, amax: u32) -> u32 {
    let (element, input) = (q.element.format(), q.input.format());
    let Some(exponent) = input.decode(amax).exponent() else { return 0 };
    let code = stream.below(element.max_code().into()) as u32;
    let scale = (exponent - element.max_exponent()).max(-127);
    bits::truncated(q.input, bits::midpoint(element, code).scaled(scale))
}

/// The magnitude of `(2^23 + fraction) × 2^(exponent - 23)`, truncated to the type.
pub(super) fn magnitude(q: &Quantize, exponent: i32, fraction: u32) -> u32 {
    bits::truncated(q.input, Number::finite(false, u64::from(1 << 23 | fraction), exponent - 23))
}

/// A nearly normal value of `2^exponent` standard deviation.
pub(super) fn normal(q: &Quantize, stream: &mut Stream, exponent: i32) -> u32 {
    let x = stream.normal();
    bits::nearest(q.input, Number::finite(x < 0, x.unsigned_abs(), exponent - 16))
}
