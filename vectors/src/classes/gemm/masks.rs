//! Loud and quiet terms: where along K a sum is cut shows in every output.

use super::bounded::is_modelled;
use super::operands::{Side, call as build, code, full, gemm, none, scale_byte, stream};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Gemm, Op, Scaling, Test};
use crate::rng::Stream;

pub(in crate::classes) const CLASS: Class = Class {
    name: "g4-masks",
    aim: "a large term, its opposite further along K, and small ones everywhere: which of those survive tells the order of sums, promotions and parts of a split, and must be what the declared accumulation model loses",
    faults: &[
        "FPRev (Xie, Gao and Yang, USENIX ATC 2025): libraries change their order of summation with the shape",
        "DeepSeek-V3 issue 197, DeepGEMM issue 37: FP8 tensor cores that keep 14 bits",
    ],
    source: Source::Tensors { count, call },
};

/// M, N, K; the first are multiples of 128.
const SHAPES: [(usize, usize, usize); 5] =
    [(128, 128, 256), (16, 4, 1184), (16, 2, 4096), (16, 2, 8192), (8, 2, 16384)];
/// Cases of each shape.
const CASES: u64 = 2;
/// Places for large terms: one in each part of K of equal length.
const PLACES: usize = 8;

fn count(op: &Op, level: Level) -> u64 {
    let Some(g) = gemm(op).filter(|g| is_modelled(g)) else { return 0 };
    let shapes = if full(g) { SHAPES.len() as u64 } else { 1 };
    match level {
        Level::Smoke => 0,
        _ => shapes * CASES,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let (m, columns, k) = SHAPES[(n / CASES) as usize];
    let mut stream = stream(CLASS.name, g, n);
    let length = k / PLACES;
    let places: Vec<usize> =
        (0..PLACES).map(|i| i * length + stream.below(length as u64) as usize).collect();
    let mut a = quiet(g, true, m, k, &mut stream);
    let mut b = quiet(g, false, columns, k, &mut stream);
    for side in [&mut a, &mut b] {
        for &place in &places {
            silence(side, place);
        }
    }
    for r in 0..columns {
        // The same at every place, so that large terms cancel; another for every column.
        let significand = 4 + (r % 4) as u64;
        for &place in &places {
            loud(&mut b, r, place, significand, false);
        }
    }
    let pairs: Vec<(usize, usize)> =
        (0..PLACES).flat_map(|i| (i + 1..PLACES).map(move |j| (i, j))).collect();
    for r in 0..m {
        let (plus, minus) = pairs[(r + stream.below(2) as usize) % pairs.len()];
        loud(&mut a, r, places[plus], 4, r % 2 == 1);
        loud(&mut a, r, places[minus], 4, r % 2 == 0);
    }
    build(g, Test::Modelled, a, b)
}

/// Octaves that elements without scales are above or below 1; the product of two makes f32 lose a small term beside a large one.
const fn octaves(g: &Gemm) -> i32 {
    let format = match g.scaling {
        Scaling::Unit | Scaling::Plain => g.a.format(),
        Scaling::Mx | Scaling::Nvfp4 => return 0,
    };
    if format.max_exponent() < 7 { format.max_exponent() } else { 7 }
}

/// Small terms: elements of some octaves below 1 in A, of one in B, so that no two sums are alike.
fn quiet(g: &Gemm, varied: bool, rows: usize, k: usize, stream: &mut Stream) -> Side {
    let factor = if varied { g.a } else { g.b };
    let mut side = Side::new(factor, g.scaling, rows, k);
    let low = -octaves(g);
    for at in 0..rows * k {
        // 1 and 1.5 are numbers of every format.
        let significand = if varied { 2 + stream.below(2) } else { 2 };
        let negative = varied && stream.below(8) == 0;
        side.codes[at] = code(factor, negative, significand, low - 1);
    }
    for r in 0..rows {
        for block in 0..side.blocks() {
            side.scale(r, block, scale_byte(g.scaling, QUIET));
        }
    }
    side
}

/// The exponents of scales of small and of large terms; UE4M3 has both.
const QUIET: i32 = -6;
const LOUD: i32 = 8;

/// Leaves nothing but zeros in the block of a place, or at the place alone where there are no scales.
fn silence(side: &mut Side, place: usize) {
    let block = side.block_of(place);
    let range = match side.scaling {
        Scaling::Mx | Scaling::Nvfp4 => {
            let size = side.scaling.block().map_or(1, |(size, _)| size);
            block * size..(block + 1) * size
        }
        Scaling::Unit | Scaling::Plain => place..place + 1,
    };
    for r in 0..side.rows {
        for k in range.clone() {
            side.set(r, k, 0);
        }
        side.scale(r, block, scale_byte(side.scaling, LOUD));
    }
}

/// `±significand / 4` of the largest octave.
fn loud(side: &mut Side, r: usize, place: usize, significand: u64, negative: bool) {
    let octave = match side.scaling {
        Scaling::Mx | Scaling::Nvfp4 => 0,
        Scaling::Unit | Scaling::Plain => side.factor.format().max_exponent().min(7),
    };
    // Formats of one mantissa bit have 1 and 1.5 alone.
    let fine = side.factor.format().mantissa_bits > 1;
    let significand = if fine { significand } else { significand / 2 * 2 };
    side.set(r, place, code(side.factor, negative, significand, octave - 2));
}
