//! Every tie of the element format, exact and one ulp of the input to either side, with both signs, under many scales.
//!
//! Rounding is where implementations differ most quietly: ties away from zero, toward zero or up, truncation, sticky bits
//! lost in the subnormal range. The block's amax is the largest value that leaves the scale alone, so the scale is known.

use super::build::{scale_count, scale_exponent, sized, spread, tie_exponent, top_code};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;

pub(super) const CLASS: Class = Class {
    name: "ties",
    aim: "every midpoint between two codes, exact and 1 ulp to either side, both signs, across scale bytes",
    faults: &[
        "triton 5925, PR 6102, PR 11753: E5M2 ties rounded up",
        "aiter 974, PR 3992, PR 4030: E2M1 ties away from zero",
        "microxcaling: rounding mode nearest goes away from zero",
        "onnxruntime 16938: wrong neighbour",
        "bitstring 342: truncation",
        "tt-metal 51971: ties in FP4",
        "triton 0616e64: sticky bits lost in the subnormal shift",
    ],
    source: Source::Blocks { count, block },
};

/// Values per tie: three offsets, two signs.
const VARIANTS: u64 = 6;
/// Lanes beside the amax.
const OTHERS: u64 = LANES as u64 - 1;

fn values(q: &Quantize) -> u64 {
    VARIANTS * u64::from(top_code(q))
}

fn blocks(q: &Quantize) -> u64 {
    values(q).div_ceil(OTHERS)
}

fn count(q: &Quantize, level: Level) -> u64 {
    let scales = (300 / blocks(q)).max(8).min(scale_count(q, tie_exponent(q)));
    sized(q, level, 1, blocks(q) * scales)
}

fn block(q: &Quantize, n: u64) -> Block {
    let scale = scale_exponent(q, tie_exponent(q), n / blocks(q));
    let top = q.element.format().decode(top_code(q)).scaled(scale);
    let amax = bits::truncated(q.input, top);
    let first = n % blocks(q) * OTHERS;
    let lane = (n % 32) as usize;
    std::array::from_fn(|i| {
        if i == lane {
            return bits::signed(q.input, amax, n / 32 % 2 == 1);
        }
        let i = first + (i - usize::from(i > lane)) as u64;
        // Spread, so that each block has ties of small and large codes.
        let value = spread(i, values(q));
        let tie = bits::midpoint(q.element.format(), (value / VARIANTS) as u32).scaled(scale);
        let magnitude = bits::step(q.input, bits::truncated(q.input, tie), value as i32 % 3 - 1);
        bits::signed(q.input, magnitude.min(amax), value % VARIANTS >= 3)
    })
}
