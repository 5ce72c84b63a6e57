//! Seeded random blocks of six distributions.
//!
//! Random data alone finds little in block formats (uniform patterns underflow beside a huge amax, normal ones see three
//! binades), so it comes last and wide: it is there for what no aim foresaw.

use super::build::{normal, sized, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use crate::rng::Stream;
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "random",
    aim: "uniform patterns, normal, log-uniform, small integers, sparse, one outlier",
    faults: &[
        "aiter PR 3451: true division instead of the reciprocal",
        "onnxruntime 16938: wrong neighbour for 1.8131605",
        "compressed-tensors PR 781: f32 read as 16 bits",
        "flashinfer PR 3497: bf16 read as f32",
    ],
    source: Source::Blocks { count, block },
};

const DISTRIBUTIONS: u64 = 6;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 0, 40 * DISTRIBUTIONS)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    let kind = n % DISTRIBUTIONS;
    // A centre that the narrow types reach too.
    let centre = stream.below(17) as i32 - 8;
    let mut block = std::array::from_fn(|_| match kind {
        0 => finite_pattern(q, &mut stream),
        2 => log_uniform(q, &mut stream, centre),
        3 => small_integer(q, &mut stream),
        4 if stream.below(8) > 0 => bits::signed(q.input, 0, stream.flag()),
        _ => normal(q, &mut stream, centre),
    });
    if kind == 5 {
        let exponent = centre.max(0) + 5;
        block[stream.below(LANES as u64) as usize] = normal(q, &mut stream, exponent);
    }
    block
}

/// Any finite pattern; infinities and NaNs lose the lowest bit of their exponent.
fn finite_pattern(q: &Quantize, stream: &mut Stream) -> u32 {
    let bits = (stream.word() >> 32) as u32 >> (32 - q.input.format().bits);
    if bits::magnitude(q.input, bits) > bits::max_finite(q.input) {
        bits ^ bits::min_normal(q.input)
    } else {
        bits
    }
}

/// Exponents spread over 24 binades.
fn log_uniform(q: &Quantize, stream: &mut Stream, centre: i32) -> u32 {
    let significand = 1 << 23 | stream.below(1 << 23);
    let exponent = centre - 23 + stream.below(24) as i32 - 16;
    bits::nearest(q.input, Number::finite(stream.flag(), significand, exponent))
}

fn small_integer(q: &Quantize, stream: &mut Stream) -> u32 {
    bits::nearest(q.input, Number::finite(stream.flag(), stream.below(9), 0))
}
