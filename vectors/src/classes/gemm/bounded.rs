//! Data on which accumulations differ: the answer is held to a derived bound (G3), and to the bits of the declared model (G4).

use super::operands::{
    Side, call as build, code, full, gemm, negated, none, number, positive, scale_byte, stream,
};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Float, Gemm, Op, Scaling, Test};
use crate::rng::Stream;
use mx_reference::gemm::Scheme;

const FAULTS: &[&str] = &[
    "DeepSeek-V3 issue 197, DeepGEMM issue 37: FP8 tensor cores that keep 14 bits",
    "aiter 2421, 600: no justified error bound",
];

pub(in crate::classes) const G3: Class = Class {
    name: "g3-bounded",
    aim: "random, heavy-tailed, cancelling, all-positive and adversarial data and sums beside a tie, each output within the derived bound of the exact sum",
    faults: FAULTS,
    source: Source::Tensors {
        count: |op, level| count(op, level, Test::Bounded),
        call: |op, n| call(op, n, Test::Bounded),
    },
};

pub(in crate::classes) const G4: Class = Class {
    name: "g4-modelled",
    aim: "the same data, each output equal to the bits of the declared accumulation model",
    faults: FAULTS,
    source: Source::Tensors {
        count: |op, level| count(op, level, Test::Modelled),
        call: |op, n| call(op, n, Test::Modelled),
    },
};

/// M, N, K; the first are multiples of 128. K is a multiple of 64 for the cancelling kind.
const SHAPES: [(usize, usize, usize); 7] = [
    (128, 128, 128),
    (128, 128, 256),
    (17, 129, 192),
    (16, 16, 1184),
    (4, 3, 8192),
    (1, 272, 160),
    (2, 2, 16384),
];
/// Shapes of cells that do not get all.
const FEW: usize = 1;

#[derive(Clone, Copy)]
enum Kind {
    Random,
    HeavyTailed,
    Positive,
    Cancelling,
    Adversarial,
    NearTie,
}

const KINDS: [Kind; 6] = [
    Kind::Random,
    Kind::HeavyTailed,
    Kind::Positive,
    Kind::Cancelling,
    Kind::Adversarial,
    Kind::NearTie,
];

/// Whether there are bits to be held to that are not the exact sum's.
pub(super) fn is_modelled(g: &Gemm) -> bool {
    !matches!(g.accumulation().scheme, Scheme::Exact | Scheme::AnyOrder)
}

fn count(op: &Op, level: Level, test: Test) -> u64 {
    let Some(g) = gemm(op) else { return 0 };
    if test == Test::Modelled && !is_modelled(g) {
        return 0;
    }
    let shapes = if full(g) { SHAPES.len() } else { FEW };
    match level {
        Level::Smoke => 0,
        _ => (shapes * KINDS.len()) as u64,
    }
}

fn call(op: &Op, n: u64, test: Test) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let (m, columns, k) = SHAPES[n as usize / KINDS.len()];
    let kind = KINDS[n as usize % KINDS.len()];
    // G4 asks the questions of G3 again.
    let mut stream = stream(G3.name, g, n);
    let mut a = data(g, g.a, m, k, kind, &mut stream);
    let mut b = data(g, g.b, columns, k, kind, &mut stream);
    match kind {
        Kind::Cancelling => cancel(&mut a, &mut b, n),
        Kind::Adversarial => swamp(&mut a, &mut b),
        Kind::NearTie => near_ties(&mut a, &mut b, g),
        _ => {}
    }
    build(g, test, a, b)
}

fn data(
    g: &Gemm,
    factor: crate::op::Factor,
    rows: usize,
    k: usize,
    kind: Kind,
    stream: &mut Stream,
) -> Side {
    let mut side = Side::new(factor, g.scaling, rows, k);
    side.codes.fill_with(|| number(factor, stream));
    if matches!(kind, Kind::Positive) {
        for code in &mut side.codes {
            *code = positive(factor, *code);
        }
    }
    // f16 outputs end at 65504.
    let centre = if g.output == Float::F16 { -7 } else { 0 };
    for r in 0..rows {
        for block in 0..side.blocks() {
            let exponent = match (kind, g.scaling) {
                (Kind::HeavyTailed, Scaling::Mx) => {
                    let tail = stream.word().leading_zeros() as i32;
                    if stream.flag() { 3 * tail } else { -3 * tail }
                }
                _ => stream.below(9) as i32 - 4,
            };
            side.scale(r, block, scale_byte(g.scaling, (centre + exponent).clamp(-60, 40)));
        }
    }
    side
}

/// The second half of K undoes the first, up to what is left in one last block under a smaller scale: condition numbers from 10^3
/// to 10^12 and beyond.
fn cancel(a: &mut Side, b: &mut Side, n: u64) {
    let half = a.k / 2 / 32 * 32;
    for (side, negate) in [(&mut *a, false), (&mut *b, true)] {
        for r in 0..side.rows {
            for k in 0..half {
                let code = side.codes[r * side.k + k];
                let mirrored = if negate { negated(side.factor, code) } else { code };
                // -128 of INT8 has no opposite, so both become 127.
                if negate && negated(side.factor, mirrored) != code {
                    side.set(r, k, negated(side.factor, mirrored));
                }
                side.set(r, half + k, mirrored);
            }
            for k in 2 * half..side.k {
                side.set(r, k, 0);
            }
            for block in 0..side.block_of(half) {
                let blocks = side.blocks();
                let byte = side.scales[r * blocks + block];
                side.scale(r, side.block_of(half) + block, byte);
            }
        }
    }
    // What is left: one element a row, 2^-10 to 2^-40 below the rest.
    let depth = [10, 20, 30, 40][(n as usize / KINDS.len()) % 4] / 2;
    let last = 2 * half - 1;
    for side in [a, b] {
        let one = code(side.factor, false, 1, 0);
        for r in 0..side.rows {
            side.set(r, half - 1, 0);
            side.set(r, last, one);
            let block = side.block_of(last);
            let first = side.scaling.block().map_or(last, |(size, _)| block * size);
            if side.scaling == Scaling::Mx {
                // The whole block moves down, and its mirror with it.
                for k in first..last {
                    side.set(r, k, 0);
                    side.set(r, k - half, 0);
                }
                side.scale(r, block, scale_byte(side.scaling, -depth));
            }
        }
    }
}

/// One large product and many just below half a unit of its last place; then as many large ones that cancel.
fn swamp(a: &mut Side, b: &mut Side) {
    for side in [&mut *a, &mut *b] {
        let small = match side.scaling {
            Scaling::Mx => 0,
            Scaling::Nvfp4 | Scaling::Unit | Scaling::Plain => {
                let format = side.factor.format();
                (-format.max_exponent()).max(format.min_exponent()).max(-6)
            }
        };
        let tiny = code(side.factor, false, 1, small);
        let large = code(side.factor, false, 1, side.factor.format().max_exponent().min(7));
        for r in 0..side.rows {
            for k in 0..side.k {
                side.set(r, k, tiny);
            }
            side.set(r, 0, large);
            for block in 0..side.blocks() {
                let exponent = if block == 0 { 4 } else { -8 - (r as i32 % 3) };
                side.scale(r, block, scale_byte(side.scaling, exponent));
            }
        }
    }
    // Every second row of A ends in the large product's opposite.
    for r in (1..a.rows).step_by(2) {
        let (first, last) = (a.codes[r * a.k], a.k - 1);
        a.set(r, last, negated(a.factor, first));
        let block = a.block_of(last);
        a.scale(r, block, scale_byte(a.scaling, 4));
    }
    for r in 0..b.rows {
        let last = b.k - 1;
        b.set(r, last, b.codes[r * b.k]);
        let block = b.block_of(last);
        b.scale(r, block, scale_byte(b.scaling, 4));
    }
}

/// Three products to a sum: 2^e, half a unit of its last place in the output type, and something beyond f32's precision that decides
/// the tie. Rounding to f32 first loses it, and gives the even neighbour.
fn near_ties(a: &mut Side, b: &mut Side, g: &Gemm) {
    let digits = g.output.format().mantissa_bits as i32;
    for side in [&mut *a, &mut *b] {
        side.codes.fill(0);
        for r in 0..side.rows {
            for block in 0..side.blocks() {
                side.scale(r, block, scale_byte(side.scaling, 0));
            }
        }
    }
    let top = match g.scaling {
        Scaling::Mx => 0,
        Scaling::Nvfp4 | Scaling::Unit | Scaling::Plain => 14,
    };
    let small = (top - 31) / 2;
    for r in 0..a.rows {
        put(a, r, 0, top - top / 2, false);
        // The last digit is odd in every other group of four rows; the tie falls to either side.
        if r / 4 % 2 == 1 {
            let last = top - digits;
            put(a, r, a.k / 4, last - last / 2, false);
        }
        let half = top - digits - 1;
        put(a, r, a.k / 2, half - half / 2, false);
        let beyond = top - BEYOND - (r % 2) as i32;
        put(a, r, a.k / 4 * 3, beyond - small, r / 2 % 2 == 1);
    }
    for r in 0..b.rows {
        for (k, exponent) in [(0, top), (b.k / 4, top - digits), (b.k / 2, top - digits - 1)] {
            put(b, r, k, exponent / 2, false);
        }
        put(b, r, b.k / 4 * 3, small, false);
    }
}

/// Octaves below a sum at which f32 sees nothing any more.
const BEYOND: i32 = 26;

/// ±2^exponent: by the block's scale where there are scales, else by the element.
fn put(side: &mut Side, r: usize, k: usize, exponent: i32, negative: bool) {
    match side.scaling {
        Scaling::Mx | Scaling::Nvfp4 => {
            side.set(r, k, code(side.factor, negative, 1, 0));
            let block = side.block_of(k);
            side.scale(r, block, scale_byte(side.scaling, exponent));
        }
        Scaling::Unit | Scaling::Plain => {
            side.set(r, k, code(side.factor, negative, 1, exponent));
        }
    }
}
