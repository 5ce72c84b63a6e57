//! Scale thresholds: every binade of the input type, an amax at each fraction at which a scale mode steps, and around it.
//!
//! A scale byte is decided by one comparison of the amax's fraction. Faults move that comparison: a logarithm that rounds
//! is wrong for up to 22 ulp beyond a power of two, an amax narrowed to bf16 first for up to 2^15 ulp, a strict comparison
//! or a wrong constant at the threshold itself. All thresholds are asked in every profile, the profile's own more closely.

use super::build::{filled, magnitude, place, sized, stream, telling_side, thresholds};
use crate::bits;
use crate::class::{Block, Class, Level, Source};
use crate::op::{Float, Quantize};
use mx_reference::ScaleMode;

pub(super) const CLASS: Class = Class {
    name: "thresholds",
    aim: "amax at and around the fractions where scale modes step, in every binade of the input type",
    faults: &[
        "torchao <= 0.18 RCEIL: ceil of a rounded f32 log2",
        "rocm-libraries PR 4368: ceil(log2f(amax / 448))",
        "torchao PR 4725: Triton FLOOR read the exponent of an amax narrowed to bf16",
        "mlx PR 4353: scale exponent rounded to nearest",
        "compressed-tensors PR 630: exponent truncated toward zero",
        "compressed-tensors PR 551: EVEN threshold of another format",
        "onnx PR 7784: mantissa mask 0x4FFFFF",
        "amd-quark 0.13: log2 taken in bf16",
    ],
    source: Source::Blocks { count, block },
};

/// Exponents at which f32 logarithms lose the most, or begin to; the widest first.
const LADDERS: [i32; 19] =
    [100, -100, 64, -64, 32, -32, 16, -16, 8, -8, 7, -7, 1, -1, 0, -126, -127, 126, 127];
/// Offsets 3 to 44, both ways.
const RUNGS: u64 = 84;

/// The four parts of the class, in the order of their cases.
struct Parts {
    ladders: Vec<u32>,
    offsets: Vec<u32>,
    fields: u64,
    rotated: u64,
}

impl Parts {
    fn new(q: &Quantize) -> Self {
        let wide = q.input == Float::F32;
        let fields = (bits::infinity(q.input) >> q.input.format().mantissa_bits) as u64 - 1;
        Self {
            ladders: if wide { ladders(q) } else { Vec::new() },
            offsets: offsets(q),
            fields,
            rotated: if wide { 2 * fields } else { 0 },
        }
    }

    fn closest(&self) -> u64 {
        self.offsets.len() as u64 * self.fields
    }

    fn climbing(&self) -> u64 {
        self.ladders.len() as u64 * RUNGS
    }
}

fn count(q: &Quantize, level: Level) -> u64 {
    let parts = Parts::new(q);
    let total = parts.climbing() + parts.closest() + parts.rotated + subnormals(q).len() as u64;
    sized(q, level, 1, total)
}

fn block(q: &Quantize, n: u64) -> Block {
    let (lane, negative) = place(n);
    filled(q, &mut stream(CLASS.name, q, n), amax(q, n), lane, negative)
}

fn amax(q: &Quantize, n: u64) -> u32 {
    let parts = Parts::new(q);
    if n < parts.climbing() {
        return rung(q, parts.ladders[(n / RUNGS) as usize], n % RUNGS);
    }
    let n = n - parts.climbing();
    let mantissa_bits = q.input.format().mantissa_bits;
    if n < parts.closest() {
        let per = parts.offsets.len() as u64;
        // Binades from 1.0 up, then from the lowest.
        let field = 1 + (q.input.format().bias as u64 - 1 + n / per) % parts.fields;
        return (field as u32) << mantissa_bits | parts.offsets[(n % per) as usize];
    }
    let n = n - parts.closest();
    if n < parts.rotated {
        let (thresholds, own) = thresholds(q);
        let (field, offset) = (1 + n / 2, 3 + (n / 2 % 42) as i32);
        let base = (field as u32) << mantissa_bits | thresholds[own];
        return bits::step(q.input, base, if n.is_multiple_of(2) { offset } else { -offset });
    }
    subnormals(q)[(n - parts.rotated) as usize]
}

/// The op's own threshold at the binades of [`LADDERS`]: exponents of amax / max for RCEIL, of amax itself elsewhere,
/// since those are what an implementation would take the logarithm of.
fn ladders(q: &Quantize) -> Vec<u32> {
    let (thresholds, own) = thresholds(q);
    let p = if q.mode == ScaleMode::Rceil { q.element.format().max_exponent() } else { 0 };
    let highest = bits::max_exponent(q.input);
    LADDERS
        .into_iter()
        .filter(|k| k + p <= highest)
        .map(|k| magnitude(q, k + p, thresholds[own]))
        .collect()
}

/// Rung 0 is 22 ulp on the telling side, the farthest that a rounded log2 reaches.
fn rung(q: &Quantize, base: u32, i: u64) -> u32 {
    let distance = 3 + (19 + i as i32 / 2) % 42;
    let side = if i.is_multiple_of(2) { telling_side(q) } else { -telling_side(q) };
    bits::step(q.input, base, side * distance)
}

/// Mantissas within 2 ulp of each threshold (in the narrow types within 4 of the op's own), the telling one first.
/// Neighbours across the end of a binade count in the binade where they lie.
fn offsets(q: &Quantize) -> Vec<u32> {
    let (thresholds, own) = thresholds(q);
    let mask = bits::min_normal(q.input) - 1;
    let near = if q.input == Float::F32 { 2 } else { 4 };
    let side = telling_side(q);
    let mut found = Vec::new();
    let around = |threshold: u32, reach: i32| {
        (0..=reach).flat_map(move |d| {
            [threshold.wrapping_add_signed(side * d), threshold.wrapping_add_signed(-side * d)]
        })
    };
    let first = thresholds[own].wrapping_add_signed(side);
    let all = thresholds.into_iter().flat_map(|threshold| around(threshold, 2));
    for offset in std::iter::once(first).chain(around(thresholds[own], near)).chain(all) {
        if !found.contains(&(offset & mask)) {
            found.push(offset & mask);
        }
    }
    found
}

/// Subnormal magnitudes within 2 ulp of a threshold of the binade they would lie in, where the threshold is a number, or of
/// the smallest normal.
fn subnormals(q: &Quantize) -> Vec<u32> {
    let normal = bits::min_normal(q.input);
    let mantissa_bits = q.input.format().mantissa_bits;
    let (thresholds, _) = thresholds(q);
    let mut found = Vec::new();
    for threshold in thresholds.map(|threshold| threshold | normal) {
        for drop in (0..=mantissa_bits).filter(|&drop| threshold.trailing_zeros() >= drop) {
            let base = threshold >> drop;
            found.extend((base.saturating_sub(2)..=base + 2).filter(|x| (1..normal).contains(x)));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
