//! The ends of the scale range: bytes 0, 1, 2, ... and the highest that a finite amax reaches, with every kind of content.
//!
//! Byte 0 is 2^-127, a subnormal f32 whose reciprocal is none: implementations take it for zero, for 1, or clamp it. At the
//! top, EVEN's rounding carries out of the exponent field, and reciprocals of the largest scales are subnormal.

use super::build::{filled, magnitude, place, sized, stream, thresholds};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::{Float, Quantize};

pub(super) const CLASS: Class = Class {
    name: "extreme-scales",
    aim: "the lowest and the highest scale bytes, byte 0 with every kind of content",
    faults: &[
        "torchao <= 0.18, TransformerEngine exp2f_rcp: byte 0 taken for no scaling",
        "torchao <= 0.18 FLOOR: byte-0 scale clamped to 2^-126",
        "flashinfer 2440, PR 2441: flushed reciprocal of byte 0",
        "flashinfer PR 5024: 448 / amax overflows for a tiny amax",
        "torchao PR 4117, TransformerEngine 2407: reciprocal of byte 254 built as 0",
        "tilelang-metax PR 101: subnormal amax rounded up, 0xFE stepped to 0xFF",
        "torchao EVEN: finite amax from 0x7F780000 gives NaN",
        "llama.cpp MXFP4: byte wraps below 2^-125",
    ],
    source: Source::Blocks { count, block },
};

/// Amaxes at which published implementations part ways.
const F32: [u32; 45] = [
    0x00400000, 0x007fffff, 0x00000001, 0x000000e0, 0x00400001, 0x00800000, 0x04000000, 0x047fffff,
    0x04600000, 0x04600001, 0x07e00001, 0x02600001, 0x01700001, 0x01400001, 0x04780000, 0x3f800000,
    0x3f800001, 0x3fb50000, 0x3fc00000, 0x3fc00001, 0x40600000, 0x40600001, 0x43e00001, 0x43e80001,
    0x43efffff, 0x43f7ffff, 0x43f80000, 0x43ff8000, 0x43ffffff, 0x71e00001, 0x7f000000, 0x7f5fffff,
    0x7f600001, 0x7f600027, 0x7f600028, 0x7f700000, 0x7f77ffff, 0x7f780000, 0x7f7e0000, 0x7f7fffff,
    0x04600002, 0x07e00002, 0x02600002, 0x01700002, 0x01400002,
];
const BF16: [u32; 20] = [
    0x0040, 0x007f, 0x0001, 0x0041, 0x0080, 0x0400, 0x0460, 0x0461, 0x0478, 0x3f80, 0x3fb5, 0x437f,
    0x43e0, 0x43f8, 0x7f00, 0x7f60, 0x7f70, 0x7f78, 0x7f7e, 0x7f7f,
];
const F16: [u32; 12] = [
    0x0200, 0x0001, 0x0002, 0x03ff, 0x0400, 0x0401, 0x3c00, 0x5f00, 0x7800, 0x7b00, 0x7bc0, 0x7bff,
];

/// Binades from the lowest scale byte up, and from the highest down.
const LOW: u64 = 11;
const HIGH: u64 = 8;
/// Fractions asked in each of them.
const FRACTIONS: u64 = 5;
/// Blocks that hold one value in every lane.
const FILLS: u64 = 5;
/// Blocks of random subnormals.
const SUBNORMAL: u64 = 16;

const fn named(float: Float) -> &'static [u32] {
    match float {
        Float::F32 => &F32,
        Float::Bf16 => &BF16,
        Float::F16 => &F16,
    }
}

fn count(q: &Quantize, level: Level) -> u64 {
    let named = 2 * named(q.input).len() as u64;
    sized(q, level, 1, named + (LOW + HIGH) * FRACTIONS + FILLS + SUBNORMAL)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    let (lane, negative) = place(n);
    let named = named(q.input);
    if n < 2 * named.len() as u64 {
        let amax = named[(n / 2) as usize];
        return if n.is_multiple_of(2) {
            halved(q, amax, lane)
        } else {
            filled(q, &mut stream, amax, lane, negative)
        };
    }
    let n = n - 2 * named.len() as u64;
    if n < (LOW + HIGH) * FRACTIONS {
        let amax = magnitude(q, binade(q, n / FRACTIONS), fraction(q, n % FRACTIONS));
        return filled(q, &mut stream, amax, lane, negative);
    }
    let n = n - (LOW + HIGH) * FRACTIONS;
    let normal = bits::min_normal(q.input);
    if n < FILLS {
        return [[1, normal / 2, normal - 1, normal, normal + 1][n as usize]; LANES];
    }
    std::array::from_fn(|_| {
        bits::signed(q.input, stream.below(normal.into()) as u32, stream.flag())
    })
}

/// The lowest binades begin where FLOOR's byte would be -3, or at the type's smallest number.
fn binade(q: &Quantize, i: u64) -> i32 {
    if i < LOW {
        let lowest = q.element.format().max_exponent() - 130;
        lowest.max(bits::min_exponent(q.input)) + i as i32
    } else {
        bits::max_exponent(q.input) - (i - LOW) as i32
    }
}

fn fraction(q: &Quantize, i: u64) -> u32 {
    let mantissa_bits = q.input.format().mantissa_bits;
    let ([_, max, even], _) = thresholds(q);
    [0, max, max + 1, even, (1 << mantissa_bits) - 1][i as usize] << (23 - mantissa_bits)
}

/// Amax and its halves: every lane one binade below the one before it, down to underflow.
fn halved(q: &Quantize, amax: u32, lane: usize) -> Block {
    let x = q.input.format().decode(amax);
    std::array::from_fn(|i| {
        let steps = (LANES + i - lane) % LANES;
        let magnitude = bits::truncated(q.input, x.scaled(-(steps as i32)));
        bits::signed(q.input, magnitude, steps % 2 == 1)
    })
}
