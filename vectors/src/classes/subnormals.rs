//! Subnormals on both sides: inputs below the type's smallest normal, and ratios below the element's.
//!
//! Hardware and compilers flush the first (FTZ, DAZ); encoders flush or misround the second, most of all around half the
//! smallest subnormal, where the answer is zero or one code.

use super::build::{
    filled, place, scale_count, scale_exponent, sized, spread, stream, tie_exponent, top_code,
};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "subnormals",
    aim: "subnormal inputs, and ratios around quarters of the element's smallest subnormal",
    faults: &[
        "pytorch 125557, triton: subnormal inputs flushed",
        "tt-metal PR 42106: element subnormals flushed",
        "ROCm triton 330: missing exponent compensation below the smallest normal",
        "triton 0616e64: sticky bits lost in the subnormal shift",
        "flashinfer PR 3387: subnormal edge",
    ],
    source: Source::Blocks { count, block },
};

/// Blocks of subnormal or barely normal inputs.
const INPUTS: u64 = 40;
const OTHERS: u64 = LANES as u64 - 1;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, ratios(q) + INPUTS)
}

fn ratios(q: &Quantize) -> u64 {
    blocks(q) * (96 / blocks(q)).min(scale_count(q, tie_exponent(q)))
}

/// Values around quarters of the smallest subnormal up to the smallest normal (of MXINT8, up to code 8): each with both
/// neighbours.
fn values(q: &Quantize) -> u64 {
    let format = q.element.format();
    3 * 4 * (1 << format.mantissa_bits.min(3))
}

fn blocks(q: &Quantize) -> u64 {
    values(q).div_ceil(OTHERS)
}

fn block(q: &Quantize, n: u64) -> Block {
    if n >= ratios(q) {
        return inputs(q, n - ratios(q));
    }
    let scale = scale_exponent(q, tie_exponent(q), n / blocks(q));
    let amax = bits::truncated(q.input, q.element.format().decode(top_code(q)).scaled(scale));
    let (lane, negative) = place(n);
    let mut block = std::array::from_fn(|i| {
        let value = spread(n % blocks(q) * OTHERS + i as u64, values(q));
        let quarters = Number::finite(false, value / 3 + 1, tie_exponent(q) - 1 + scale);
        let near = bits::truncated(q.input, quarters);
        let magnitude = bits::step(q.input, near, value as i32 % 3 - 1);
        bits::signed(q.input, magnitude.min(amax), (value + n) % 2 == 1)
    });
    block[lane] = bits::signed(q.input, amax, negative);
    block
}

/// An amax within the subnormals, or up to eight binades above them with subnormals beside it.
fn inputs(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    let normal = bits::min_normal(q.input);
    let (lane, negative) = place(n);
    let amax = match n % 4 {
        0 => normal - 1 - stream.below(u64::from(normal) / 2) as u32,
        1 => 1 << stream.below(q.input.format().mantissa_bits.into()),
        2 => 1 + stream.below(15) as u32,
        _ => normal + stream.below(8 * u64::from(normal)) as u32,
    };
    let mut block = filled(q, &mut stream, amax, lane, negative);
    for (i, bits) in block.iter_mut().enumerate() {
        if i != lane && i % 2 == 0 {
            let subnormal = stream.below(amax.min(normal).into()) as u32;
            *bits = bits::signed(q.input, subnormal, i % 4 == 0);
        }
    }
    block
}
