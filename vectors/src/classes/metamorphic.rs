//! Families of blocks whose answers follow from one another: a base, then its transforms as the next cases.
//!
//! Negated lanes give negated codes, moved lanes moved codes, a power of two only another scale; and what lies next to a
//! block changes nothing. The relations need no reference, so they can be checked where none is at hand.

use super::build::{sized, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::{Float, Quantize};
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "metamorphic",
    aim: "a block, then the same negated, permuted, times powers of two, and beside strangers",
    faults: &[
        "compressed-tensors PR 630: exponent truncated toward zero breaks the power-of-two shift",
        "triton 11111: mis-lowered transposed store depends on position",
        "TransformerEngine 3550: the lane decides",
        "maximum taken without the absolute value",
    ],
    source: Source::Blocks { count, block },
};

/// Base, negated, reversed, rotated by one, rotated by half, shifted up, shifted down, unrelated.
const FAMILY: u64 = 8;
const FAMILIES: u64 = 32;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, FAMILY * FAMILIES)
}

fn block(q: &Quantize, n: u64) -> Block {
    let family = n / FAMILY;
    let base = base(q, family);
    let shift = if q.input == Float::F16 { 1 + family % 5 } else { 1 + family * 3 } as i32;
    let scaled = |power| {
        base.map(|bits| bits::truncated(q.input, q.input.format().decode(bits).scaled(power)))
    };
    match n % FAMILY {
        0 => base,
        1 => base.map(|bits| bits ^ q.input.format().sign_bit()),
        2 => std::array::from_fn(|i| base[LANES - 1 - i]),
        3 => std::array::from_fn(|i| base[(i + 1) % LANES]),
        4 => std::array::from_fn(|i| base[(i + LANES / 2) % LANES]),
        5 => scaled(shift),
        6 => scaled(-shift),
        _ => base_from(q, "neighbour", family),
    }
}

fn base(q: &Quantize, family: u64) -> Block {
    base_from(q, "base", family)
}

/// Values from 2^-6 to 2^6: every shift of f16 stays among its normal numbers.
fn base_from(q: &Quantize, role: &str, family: u64) -> Block {
    let mut stream = stream(role, q, family);
    let mantissa_bits = q.input.format().mantissa_bits;
    std::array::from_fn(|_| {
        let mantissa = stream.below(bits::min_normal(q.input).into());
        let significand = u64::from(bits::min_normal(q.input)) + mantissa;
        let exponent = stream.below(12) as i32 - 6 - mantissa_bits as i32;
        let x = Number::finite(stream.flag(), significand, exponent);
        if stream.below(16) == 0 { 0 } else { bits::truncated(q.input, x) }
    })
}
