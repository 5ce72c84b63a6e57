//! Blocks that are quantised already: every value is a code of the element format times a power of two.
//!
//! Under FLOOR they come back unchanged, code for code. They hold every code there is, so a wrong table entry or a wrong
//! bias shows whatever the rounding.

use super::build::{scale_count, scale_exponent, sized};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use mx_reference::format::INT8;

pub(super) const CLASS: Class = Class {
    name: "own-grid",
    aim: "every finite code times a power of two: quantising again changes nothing",
    faults: &[
        "compressed-tensors PR 538: scale bias off by 2",
        "FlyDSL PR 590: exponent one low for formats whose max is no power of two",
        "aiter PR 3212: scale sized for the max of another format",
        "ROCm triton 330: subnormal codes with a fixed exponent",
        "microxcaling 3: MXINT8 as sign and magnitude",
    ],
    source: Source::Blocks { count, block },
};

const OTHERS: usize = LANES - 1;

/// Finite codes of both signs, MXINT8's -2 left out: it is never produced.
fn codes(q: &Quantize) -> Vec<u32> {
    let format = q.element.format();
    let all = 0..format.codes() as u32;
    all.filter(|&code| match format.decode(code).magnitude {
        mx_reference::Magnitude::Nan | mx_reference::Magnitude::Infinite => false,
        _ => format != &INT8 || code != 0x80,
    })
    .collect()
}

/// The exponent of the smallest subnormal.
fn lowest(q: &Quantize) -> i32 {
    q.element.format().min_exponent() - q.element.format().mantissa_bits as i32
}

fn blocks(q: &Quantize) -> u64 {
    (q.element.format().codes() - 1).div_ceil(OTHERS as u64)
}

fn count(q: &Quantize, level: Level) -> u64 {
    let scales = (108 / blocks(q)).min(scale_count(q, lowest(q)));
    sized(q, level, 1, blocks(q) * scales)
}

fn block(q: &Quantize, n: u64) -> Block {
    let scale = scale_exponent(q, lowest(q), n / blocks(q));
    let codes = codes(q);
    let first = (n % blocks(q)) as usize * OTHERS;
    let lane = n as usize % LANES;
    std::array::from_fn(|i| {
        let code = if i == lane {
            q.element.format().max_code()
        } else {
            // 97 shares no factor with any number of codes, so each block has codes of every size.
            codes[(first + i - usize::from(i > lane)) * 97 % codes.len()]
        };
        bits::truncated(q.input, q.element.format().decode(code).scaled(scale))
    })
}
