//! The amax in each lane, with each sign, alone or shared.
//!
//! A reduction that drops the first or the last lane, forgets a half-warp, or takes the maximum without the absolute value
//! is right on most data. Here one lane decides the scale, and the rest would give a scale many steps lower.

use super::build::{sized, spread, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "lane-roles",
    aim: "the amax in each lane with each sign, shared by two lanes, or one ulp ahead of its neighbour",
    faults: &[
        "tail handling: last element of the block dropped from the amax",
        "maximum taken without the absolute value",
        "axolotl PR 3747: tail blocks",
        "TransformerEngine 3550: lanes joined in pairs",
    ],
    source: Source::Blocks { count, block },
};

/// 32 lanes × 2 signs, of three kinds.
const COUNT: u64 = 3 * 64;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, COUNT)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    // The last lane first, with a sign: the one that most faults overlook.
    let lane = 31 - (n % 32) as usize;
    let negative = (n / 32).is_multiple_of(2);
    let fields = u64::from(bits::infinity(q.input) >> q.input.format().mantissa_bits);
    // The middle half of the type's binades leaves room below.
    let field = fields / 2 + spread(n, fields / 4);
    let mantissa = stream.below(bits::min_normal(q.input).into()) as u32;
    let amax = (field as u32) << q.input.format().mantissa_bits | mantissa | 1;
    let x = q.input.format().decode(amax);
    let mut block = std::array::from_fn(|_| {
        let down = 10 + stream.below(4) as i32;
        let smaller = Number { negative: stream.flag(), ..x.scaled(-down) };
        bits::truncated(q.input, smaller)
    });
    let other = (lane + 1 + (n as usize / 3) % 31) % LANES;
    match n / 64 {
        0 => {}
        1 => block[other] = bits::signed(q.input, amax, !negative),
        _ => block[other] = bits::signed(q.input, amax - 1, !negative),
    }
    block[lane] = bits::signed(q.input, amax, negative);
    block
}
