//! NaN and infinity in every lane, alone, in pairs and everywhere.
//!
//! What a device maximum does with NaN depends on the instruction, and in a pairwise or vectorised reduction on the lane;
//! what a conversion does with a NaN depends on its payload. A test with one NaN in lane 0 sees neither.

use super::build::{normal, sized, spread, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use crate::rng::Stream;

pub(super) const CLASS: Class = Class {
    name: "special-lanes",
    aim: "every NaN payload and infinity in each of the 32 lanes, and combinations of them",
    faults: &[
        "torchao PR 4201, PR 4725: fmaxf and tl.max drop NaN",
        "TransformerEngine 3550: pairwise maximum of bf16 loses NaN",
        "torchao 0.18 FLOOR: byte 0xFF expanded to infinity",
        "TransformerEngine 2407: data under a NaN scale",
        "flashinfer PR 4023: Inf x 0 under byte 254",
        "onnxruntime 16938: signalling NaN taken for infinity",
    ],
    source: Source::Blocks { count, block },
};

const SPECIALS: u64 = 10;
const SINGLE: u64 = SPECIALS * 32;
/// Neighbours: 16 that a pairwise reduction joins, 15 that it does not.
const PAIRS: u64 = 31;
/// Blocks of one special alone; specials among zeros, largest numbers and subnormals.
const WHOLE: u64 = 4 * SPECIALS;
/// Two different specials.
const MIXED: u64 = 24;

/// NaNs and infinities, one of each first.
fn specials(q: &Quantize) -> [u32; SPECIALS as usize] {
    let infinity = bits::infinity(q.input);
    let [quiet, low, high, ones, nquiet, nlow, nhigh, nones] = bits::nans(q.input);
    let negative = bits::signed(q.input, infinity, true);
    [quiet, infinity, low, negative, nquiet, high, nlow, ones, nhigh, nones]
}

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 2, SINGLE + PAIRS + WHOLE + MIXED)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    let specials = specials(q);
    if n < SINGLE {
        let mut block = ordinary(q, &mut stream);
        // From the last lane: the second of its pair, which half-precision reductions lose.
        block[(spread(n / SPECIALS, 32) + n + 31) as usize % LANES] =
            specials[(n % SPECIALS) as usize];
        return block;
    }
    let n = n - SINGLE;
    if n < PAIRS {
        let mut block = ordinary(q, &mut stream);
        let first = (if n < 16 { 2 * n } else { 2 * (n - 16) + 1 }) as usize;
        block[first] = specials[(n % SPECIALS) as usize];
        block[first + 1] = bits::nans(q.input)[(n % 8) as usize];
        return block;
    }
    let n = n - PAIRS;
    if n < WHOLE {
        let special = specials[(n % SPECIALS) as usize];
        let around = match n / SPECIALS {
            0 => special,
            1 => 0,
            2 => bits::max_finite(q.input),
            _ => 1,
        };
        let mut block = [around; LANES];
        block[(7 * n as usize + 3) % LANES] = special;
        return block;
    }
    let n = (n - WHOLE) as usize;
    let (plus, minus) = (specials[1], specials[3]);
    let nan = bits::nans(q.input)[n % 8];
    let (a, b) = [(plus, minus), (plus, nan), (nan, minus)][n % 3];
    let mut block = ordinary(q, &mut stream);
    let first = 5 * n % LANES;
    block[first] = a;
    block[(first + 1 + n) % LANES] = b;
    block
}

/// Numbers around 1, none of them zero.
fn ordinary(q: &Quantize, stream: &mut Stream) -> Block {
    std::array::from_fn(|_| normal(q, stream, 0) | 1)
}
