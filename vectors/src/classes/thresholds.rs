//! Scale thresholds: every binade of the input type, an amax at each fraction at which a scale mode steps, and around it.
//!
//! A scale byte is decided by one comparison of the amax's fraction. Faults move that comparison: a logarithm that rounds
//! is wrong for up to 22 ulp beyond a power of two, an amax narrowed to bf16 first for up to 2^15 ulp, a strict comparison
//! or a wrong constant at the threshold itself. In every binade the profile's own
//! threshold is asked within 44 ulp, those of the other modes within 2.

use super::build::{filled, place, sized, stream, telling_side, thresholds};
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

/// How far the ladder at the profile's own threshold reaches, in ulp: twice what a rounded f32 log2 loses at most.
const REACH: u32 = 44;
/// Mantissas of that ladder.
const WINDOW: u64 = 2 * REACH as u64 + 1;
/// The rung that comes first: 22 ulp on the telling side for f32, where logarithms round, and 1 ulp for the narrow types.
const fn first_rung(q: &Quantize) -> u64 {
    match q.input {
        Float::F32 => 43,
        Float::Bf16 | Float::F16 => 1,
    }
}

/// What there is to ask in one binade, and how many binades there are.
struct Ladder {
    own: u32,
    mask: u32,
    others: Vec<u32>,
    fields: u64,
}

impl Ladder {
    fn new(q: &Quantize) -> Self {
        let (thresholds, own) = thresholds(q);
        let mask = bits::min_normal(q.input) - 1;
        let own = thresholds[own];
        let mut others = Vec::new();
        for threshold in thresholds {
            for mantissa in (0..5).map(|d| (threshold + d).wrapping_sub(2) & mask) {
                let distance = mantissa.wrapping_sub(own) & mask;
                let outside = distance > REACH && distance <= mask - REACH;
                if outside && !others.contains(&mantissa) {
                    others.push(mantissa);
                }
            }
        }
        let fields = (bits::infinity(q.input) >> q.input.format().mantissa_bits) as u64 - 1;
        Self { own, mask, others, fields }
    }

    fn per_binade(&self) -> u64 {
        WINDOW + self.others.len() as u64
    }

    /// Mantissa `i` of a binade: from the first rung round the ladder of the own threshold, then the other thresholds.
    /// Neighbours across the end of a binade count in the binade where they lie.
    fn mantissa(&self, q: &Quantize, i: u64) -> u32 {
        if i >= WINDOW {
            return self.others[(i - WINDOW) as usize];
        }
        let rung = (i + first_rung(q)) % WINDOW;
        let distance = rung.div_ceil(2) as i32;
        let side = telling_side(q);
        let up = if rung % 2 == 1 { side } else { -side };
        self.own.wrapping_add_signed(up * distance) & self.mask
    }
}

fn count(q: &Quantize, level: Level) -> u64 {
    let ladder = Ladder::new(q);
    sized(q, level, 1, ladder.per_binade() * ladder.fields + subnormals(q).len() as u64)
}

fn block(q: &Quantize, n: u64) -> Block {
    let (lane, negative) = place(n);
    filled(q, &mut stream(CLASS.name, q, n), amax(q, n), lane, negative)
}

fn amax(q: &Quantize, n: u64) -> u32 {
    let ladder = Ladder::new(q);
    let per = ladder.per_binade();
    if n >= per * ladder.fields {
        return subnormals(q)[(n - per * ladder.fields) as usize];
    }
    let field = 1 + (first_field(q) - 1 + n / per) % ladder.fields;
    let mantissa = ladder.mantissa(q, n % per);
    (field as u32) << q.input.format().mantissa_bits | mantissa
}

/// The binade that comes first: where amax / max (amax itself except under RCEIL) has exponent 100 and an f32 logarithm
/// loses the most, or that of 1.0 where the input type has no such binade.
fn first_field(q: &Quantize) -> u64 {
    let p = if q.mode == ScaleMode::Rceil { q.element.format().max_exponent() } else { 0 };
    let bias = q.input.format().bias;
    let exponent = if q.input == Float::F32 { 100 + p } else { 0 };
    (bias + exponent) as u64
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
