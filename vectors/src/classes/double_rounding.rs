//! f32 inputs that a detour through bf16 or f16 would move onto a tie or across a threshold.
//!
//! A value just beyond a tie rounds up; narrowed first, it lands on the tie and goes to even. One ulp of f32 shows it, and
//! so does anything up to half an ulp of the narrow type.

use super::build::{
    filled, magnitude, place, scale_count, scale_exponent, sized, spread, stream, thresholds,
    tie_exponent, top_code,
};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::{Float, Quantize};

pub(super) const CLASS: Class = Class {
    name: "double-rounding",
    aim: "f32 values within half a bf16 or f16 ulp of element ties and scale thresholds",
    faults: &[
        "flashinfer PR 4167: f32 to bf16 to e4m3",
        "torchao PR 4725: amax narrowed to bf16",
        "Megatron-LM PR 6588: values materialised as bf16",
    ],
    source: Source::Blocks { count, block },
};

/// Offsets in f32 ulp: the closest, and the last before half an ulp of f16 (2^12) and of bf16 (2^15).
const OFFSETS: [i32; 6] = [1, -1, 0xfff, -0xfff, 0x7fff, -0x7fff];
const VARIANTS: u64 = OFFSETS.len() as u64;
const OTHERS: u64 = LANES as u64 - 1;
/// Amaxes: three thresholds, each offset, two binades.
const AMAXES: u64 = 3 * VARIANTS * 2;

fn values(q: &Quantize) -> u64 {
    VARIANTS * u64::from(top_code(q))
}

fn blocks(q: &Quantize) -> u64 {
    values(q).div_ceil(OTHERS)
}

fn ties(q: &Quantize) -> u64 {
    blocks(q) * (100 / blocks(q)).min(scale_count(q, tie_exponent(q)))
}

fn count(q: &Quantize, level: Level) -> u64 {
    match q.input {
        Float::F32 => sized(q, level, 1, ties(q) + AMAXES),
        Float::Bf16 | Float::F16 => 0,
    }
}

fn block(q: &Quantize, n: u64) -> Block {
    let (lane, negative) = place(n);
    if n >= ties(q) {
        let n = n - ties(q);
        let (thresholds, _) = thresholds(q);
        let exponent = if n < AMAXES / 2 { q.element.format().max_exponent() } else { -3 };
        let base = magnitude(q, exponent, thresholds[(n % 3) as usize]);
        let amax = bits::step(q.input, base, OFFSETS[(n / 3 % VARIANTS) as usize]);
        return filled(q, &mut stream(CLASS.name, q, n), amax, lane, negative);
    }
    let scale = scale_exponent(q, tie_exponent(q), n / blocks(q));
    let amax = bits::truncated(q.input, q.element.format().decode(top_code(q)).scaled(scale));
    std::array::from_fn(|i| {
        if i == lane {
            return bits::signed(q.input, amax, negative);
        }
        let i = n % blocks(q) * OTHERS + (i - usize::from(i > lane)) as u64;
        let value = spread(i, values(q));
        let tie = bits::midpoint(q.element.format(), (value / VARIANTS) as u32).scaled(scale);
        let offset = OFFSETS[(value % VARIANTS) as usize];
        let magnitude = bits::step(q.input, bits::truncated(q.input, tie), offset);
        bits::signed(q.input, magnitude.min(amax), (value / VARIANTS + n) % 2 == 1)
    })
}
