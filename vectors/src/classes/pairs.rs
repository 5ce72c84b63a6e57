//! Every pair: each finite amax of a 16-bit input type with each value up to it, both signs.
//!
//! A code depends on nothing but (amax, x), so this is a proof and not a sample, provided that blocks do not influence one
//! another and that lanes are alike; `lane-roles`, `metamorphic` and repeated calls probe that. The order is normative:
//! amax ascending, x ascending, plus before minus, 31 a block, the last block of an amax filled up with +0; the amax sits
//! in lane n mod 32 of block n, its sign is that of bit 5 of n.

use super::build::applies;
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::{Float, Quantize};
use mx_reference::{Axis, BlockShape};
use std::sync::OnceLock;

pub(super) const CLASS: Class = Class {
    name: "pairs",
    aim: "every finite amax with every value up to it, both signs: 16-bit inputs, level exhaustive",
    faults: &[
        "Quark floor and ceil: log2 in bf16, wrong for 6804 of 32512 amaxes",
        "any fault of a single (amax, x) pair",
    ],
    source: Source::Blocks { count, block },
};

/// Pairs a block, beside its amax.
const PER_BLOCK: u64 = LANES as u64 - 1;

fn count(q: &Quantize, level: Level) -> u64 {
    let row = q.axis == Axis::Row && q.block != BlockShape::TILE && applies(q);
    match (level, starts(q.input)) {
        (Level::Exhaustive, Some(starts)) if row => starts[starts.len() - 1],
        _ => 0,
    }
}

/// The first block of each amax, and the number of blocks at the end; `None` for f32, whose pairs no machine can walk.
fn starts(input: Float) -> Option<&'static [u64]> {
    static BF16: OnceLock<Vec<u64>> = OnceLock::new();
    static F16: OnceLock<Vec<u64>> = OnceLock::new();
    let (cell, largest) = match input {
        Float::F32 => return None,
        Float::Bf16 => (&BF16, bits::infinity(input) - 1),
        Float::F16 => (&F16, bits::infinity(input) - 1),
    };
    Some(cell.get_or_init(|| {
        let mut next = 0;
        let mut starts = Vec::with_capacity(largest as usize + 2);
        for amax in 0..=u64::from(largest) {
            starts.push(next);
            next += (2 * (amax + 1)).div_ceil(PER_BLOCK);
        }
        starts.push(next);
        starts
    }))
}

fn block(q: &Quantize, n: u64) -> Block {
    let Some(starts) = starts(q.input) else { return [0; LANES] };
    let amax = starts.partition_point(|&start| start <= n) - 1;
    let first = (n - starts[amax]) * PER_BLOCK;
    let amax = amax as u32;
    let lane = (n % LANES as u64) as usize;
    let mut block = [0; LANES];
    block[lane] = bits::signed(q.input, amax, n / LANES as u64 % 2 == 1);
    let others = (0..LANES).filter(|&i| i != lane);
    for (i, x) in others.zip(first..2 * (u64::from(amax) + 1)) {
        block[i] = bits::signed(q.input, (x / 2) as u32, x % 2 == 1);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::cells;
    use crate::op::Op;

    #[test]
    fn every_pair_occurs_once() {
        let op = cells().into_iter().find_map(|op| match op {
            Op::Quantize(q) if q.input == Float::F16 => Some(q),
            _ => None,
        });
        let q = op.unwrap();
        let starts = starts(Float::F16).unwrap();
        // All blocks of a few amaxes, the first and the last among them.
        for amax in [0u32, 1, 14, 15, 16, 0x3c00, 0x7bff] {
            let mut seen = Vec::new();
            for n in starts[amax as usize]..starts[amax as usize + 1] {
                let block = block(&q, n);
                let lane = (n % 32) as usize;
                assert_eq!(block[lane] & 0x7fff, amax);
                seen.extend((0..32).filter(|&i| i != lane).map(|i| block[i]));
            }
            seen.truncate(2 * (amax as usize + 1));
            let all: Vec<u32> = (0..=amax).flat_map(|x| [x, x | 0x8000]).collect();
            assert_eq!(seen, all);
        }
    }

    #[test]
    fn bf16_has_as_many_pairs_as_the_theorem_says() {
        let amaxes = u64::from(bits::infinity(Float::Bf16));
        assert_eq!(amaxes * (amaxes + 1), 1_065_402_240);
    }
}
