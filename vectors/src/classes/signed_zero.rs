//! Zeros: blocks of nothing else, zeros with a sign, and negatives so small that only their sign is left.
//!
//! A zero block has no exponent to take, so its byte is a special case everywhere; and a sign is lost by comparing with
//! zero, by an integer detour, or by a format that has no negative zero (FNUZ reads 0x80 as NaN).

use super::build::{sized, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;

pub(super) const CLASS: Class = Class {
    name: "signed-zero",
    aim: "zero blocks, negative zeros in every lane, and negatives that underflow to -0",
    faults: &[
        "torch-xpu-ops 2951: -0 became NaN",
        "llm-scaler PR 569: sign of zero lost",
        "triton PR 3997: 0x80 read as FNUZ NaN",
        "Model-Optimizer MXFP4: both zeros give code 8",
        "DeepGEMM, ggml FP4: negative underflow gives code 0",
        "aiter PR 4195, ROCm TransformerEngine PR 737: zero amax gives an infinite reciprocal",
        "Model-Optimizer PR 1397: a zero block gave NaN",
    ],
    source: Source::Blocks { count, block },
};

/// Blocks of zeros: all +0, all -0, alternating, halves.
const WHOLE: u64 = 4;
const COUNT: u64 = 2 * 32 + WHOLE + 32;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, COUNT)
}

fn block(q: &Quantize, n: u64) -> Block {
    let zero = bits::signed(q.input, 0, true);
    let lane = (n % 32) as usize;
    match n / 32 {
        0 => underflowing(q, n, lane),
        // One negative zero among positive numbers.
        1 => {
            let mut block = [large(q); LANES];
            block[lane] = zero;
            block
        }
        // One negative zero among positive ones.
        2 => std::array::from_fn(|i| if i == lane { zero } else { 0 }),
        _ => match n % WHOLE {
            0 => [0; LANES],
            1 => [zero; LANES],
            2 => std::array::from_fn(|i| if i % 2 == 0 { zero } else { 0 }),
            _ => std::array::from_fn(|i| if i < LANES / 2 { 0 } else { zero }),
        },
    }
}

/// Values far below the smallest code beside a large one, of both signs, and both zeros.
fn underflowing(q: &Quantize, n: u64, lane: usize) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    std::array::from_fn(|i| match (LANES + i - lane) % LANES {
        0 => bits::signed(q.input, 1, true),
        1 => zero_of(q, true),
        2 => 1,
        3 => zero_of(q, false),
        4 => large(q),
        _ => bits::signed(q.input, stream.below(4) as u32, stream.flag()),
    })
}

fn zero_of(q: &Quantize, negative: bool) -> u32 {
    bits::signed(q.input, 0, negative)
}

/// 1, or in f16, whose subnormals are not far below 1 for E5M2, the largest power of two.
fn large(q: &Quantize) -> u32 {
    let exponent = if bits::min_exponent(q.input) < -100 { 0 } else { bits::max_exponent(q.input) };
    bits::power(q.input, exponent).unwrap_or(bits::max_finite(q.input))
}
