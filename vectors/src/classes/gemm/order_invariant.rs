//! Sums that no order of additions rounds: signed powers of two whose magnitudes add up to 2^W units at most, so that every partial sum
//! is an integer of W bits in that unit.
//!
//! W = 11 suits f16 accumulators, 14 the FP8 tensor cores of Ada and Hopper, 24 f32 and everything that keeps at least 23 bits
//! below its largest exponent.

use super::operands::{Side, call as build, code, full, gemm, none, scale_byte, stream};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Float, Gemm, Op, Scaling, Test};
use crate::rng::Stream;
use mx_reference::gemm::Scheme;

const FAULTS: &[&str] = &[
    "DeepSeek-V3 issue 197, DeepGEMM issue 37: FP8 tensor cores that keep 14 bits",
    "vLLM PR 53709: blocks whose scales lie far apart rounded to zero",
];

pub(in crate::classes) const X11: Class = Class {
    name: "g1-x11",
    aim: "sums of at most 2^11 units: exact in every order, even in f16 accumulators",
    faults: FAULTS,
    source: Source::Tensors {
        count: |op, level| count(op, level, 11),
        call: |op, n| call(op, n, 11),
    },
};

pub(in crate::classes) const X14: Class = Class {
    name: "g1-x14",
    aim: "sums of at most 2^14 units: exact in every order, even in the FP8 tensor cores of Ada and Hopper",
    faults: FAULTS,
    source: Source::Tensors {
        count: |op, level| count(op, level, 14),
        call: |op, n| call(op, n, 14),
    },
};

pub(in crate::classes) const X24: Class = Class {
    name: "g1-x24",
    aim: "sums of at most 2^24 units: exact in every order of f32 additions; accumulators of fewer bits lose some",
    faults: FAULTS,
    source: Source::Tensors {
        count: |op, level| count(op, level, 24),
        call: |op, n| call(op, n, 24),
    },
};

/// M, N, K; the first are multiples of 128.
const SHAPES: [(usize, usize, usize); 16] = [
    (128, 128, 128),
    (128, 128, 1024),
    (1, 1, 32),
    (17, 129, 96),
    (129, 17, 160),
    (16, 16, 1184),
    (272, 16, 64),
    (16, 272, 128),
    (3, 5, 4096),
    (2, 2, 16384),
    (33, 64, 160),
    (64, 33, 96),
    (257, 20, 64),
    (12, 36, 32),
    (80, 48, 384),
    (1, 257, 2048),
];
/// Exponents that the scales of A and B start from: ordinary, byte 0 of A, byte 0 of B, the top of A, the top of B, subnormal
/// outputs, and large ones.
const REGIMES: [[i32; 2]; 7] =
    [[0, 0], [-127, 20], [20, -127], [115, -60], [-60, 115], [-66, -66], [49, 49]];

fn count(op: &Op, level: Level, width: u32) -> u64 {
    let Some(g) = gemm(op) else { return 0 };
    if width > 14 && kept_bits(g) < 23 {
        return 0;
    }
    match level {
        Level::Smoke => u64::from(full(g) && g.a == g.b),
        _ => shapes(g) + regimes(g, width) - 1,
    }
}

/// Bits that the accumulation keeps below its largest exponent.
fn kept_bits(g: &Gemm) -> u32 {
    match g.accumulation().scheme {
        Scheme::Chain { step, .. } | Scheme::Halves { step } | Scheme::Groups { step } => {
            step.fraction.min(step.accumulator.mantissa_bits)
        }
        Scheme::Exact | Scheme::AnyOrder | Scheme::Sequential | Scheme::Pairwise => 23,
    }
}

fn shapes(g: &Gemm) -> u64 {
    if full(g) { SHAPES.len() as u64 } else { 1 }
}

/// Extreme scales where there are scales, accumulators that hold them and outputs that can show them.
fn regimes(g: &Gemm, width: u32) -> u64 {
    let widest = if kept_bits(g) < 23 { 14 } else { 24 };
    if g.scaling == Scaling::Mx && g.output != Float::F16 && width == widest {
        REGIMES.len() as u64
    } else {
        1
    }
}

fn call(op: &Op, n: u64, width: u32) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    // Every shape under ordinary scales, then the first under extreme ones.
    let regime = (n + 1).saturating_sub(shapes(g)) as usize;
    let (m, columns, k) = SHAPES[if regime == 0 { n as usize } else { 0 }];
    let names = ["g1-x11", "g1-x14", "g1-x24"];
    let name = names[usize::from(width > 11) + usize::from(width > 14)];
    let mut stream = stream(name, g, n);
    // A product is 1, 1/2 or 1/4 times its scales: two octaves of its own, and those of the scales.
    let octaves = [width / 2, 2, 0][n as usize % 3];
    // Half of the units are the head's.
    let most = ((1usize << (width - 3 - octaves)) - 1).clamp(1, k);
    let [first, second] = REGIMES[regime];
    let scales = [octaves / 2, octaves - octaves / 2];
    let mut a = Side::new(g.a, g.scaling, m, k);
    let mut b = Side::new(g.b, g.scaling, columns, k);
    let signs = n % 4;
    for r in 0..m {
        let start = stream.below(k as u64) as usize;
        for step in 0..most {
            let at = (start + step * (k / most)) % k;
            let negative = sign(&mut stream, signs, r, step, most);
            set(&mut a, r, at, negative, scales[0], &mut stream);
        }
    }
    for r in 0..columns {
        for at in 0..k {
            let negative = signs == 0 && stream.flag();
            set(&mut b, r, at, negative, scales[1], &mut stream);
        }
    }
    scale(&mut a, first, scales[0], &mut stream);
    scale(&mut b, second, scales[1], &mut stream);
    if k > 32 {
        let own = match g.scaling {
            Scaling::Unit | Scaling::Plain => octaves as i32,
            Scaling::Mx | Scaling::Nvfp4 => 0,
        };
        head(&mut a, &mut b, [first, second], width as i32 - 3 - own, own, n % 2 == 1);
    }
    build(g, Test::Exact, a, b)
}

/// One product of 2^(W - 1) units and one of a unit, each alone in its block, so that sums need all of their W bits. Products of
/// elements and scales of 1 are 2^(2 + own) units.
fn head(a: &mut Side, b: &mut Side, bases: [i32; 2], exponent: i32, own: i32, last: bool) {
    let block = a.scaling.block().map_or(1, |(block, _)| block);
    let (low, high) = (block / 2, a.k - 1 - block / 4);
    let (large, unit) = if last { (high, low) } else { (low, high) };
    // What B takes of the large product where one operand's range does not do.
    let shared = match b.scaling {
        Scaling::Mx => 0,
        Scaling::Nvfp4 => 8,
        Scaling::Unit | Scaling::Plain => 5,
    };
    for (side, base, powers) in
        [(a, bases[0], [exponent - shared, -2 - own]), (b, bases[1], [shared, 0])]
    {
        let base = if side.scaling == Scaling::Mx { base } else { 0 };
        for r in 0..side.rows {
            for (k, power) in [large, unit].into_iter().zip(powers) {
                let first = k / block * block;
                for k in first..first + block {
                    side.set(r, k, 0);
                }
                let (scale, element) = match side.scaling {
                    Scaling::Mx => (power, 0),
                    Scaling::Nvfp4 => (power.min(8), (power - 8).clamp(0, 2)),
                    Scaling::Unit | Scaling::Plain => {
                        let format = side.factor.format();
                        (0, power.clamp(format.min_exponent(), format.max_exponent()))
                    }
                };
                side.set(r, k, code(side.factor, false, 1, element));
                let block = side.block_of(k);
                side.scale(r, block, scale_byte(side.scaling, base + scale));
            }
        }
    }
}

/// The sign of a row's element: random, half against half so that sums cancel, Hadamard, or all positive.
fn sign(stream: &mut Stream, signs: u64, r: usize, step: usize, most: usize) -> bool {
    match signs {
        0 => stream.flag(),
        1 => step >= most / 2,
        2 => (r & step).count_ones() % 2 == 1,
        _ => false,
    }
}

/// ±1 or ±1/2; without scales the octaves are the element's own.
fn set(side: &mut Side, r: usize, k: usize, negative: bool, octaves: u32, stream: &mut Stream) {
    let own = match side.scaling {
        Scaling::Mx | Scaling::Nvfp4 => 0,
        Scaling::Unit | Scaling::Plain => stream.below(u64::from(octaves) + 1) as i32,
    };
    let half = stream.flag();
    // Where elements have octaves of their own they fall below 1, which FP8 formats can down to 2^-6.
    let exponent = -i32::from(half) - own.min(if octaves > 5 { 5 } else { own });
    side.set(r, k, code(side.factor, negative, 1, exponent));
}

fn scale(side: &mut Side, base: i32, octaves: u32, stream: &mut Stream) {
    let base = if side.scaling == Scaling::Nvfp4 { 0 } else { base };
    let top = octaves.min(if side.scaling == Scaling::Nvfp4 { 8 } else { octaves });
    for r in 0..side.rows {
        for block in 0..side.blocks() {
            let exponent = base + stream.below(u64::from(top) + 1) as i32;
            side.scale(r, block, scale_byte(side.scaling, exponent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::product;
    use crate::cells::cells;
    use crate::op::Factor;
    use mx_reference::{Element, ExactSum};
    use rstest::rstest;

    /// Every partial sum is an integer of `width` bits in a common unit, and the unit is one that f32 has.
    #[rstest]
    fn sums_fit_their_width(#[values(11, 14, 24)] width: u32) {
        for op in cells() {
            let Op::Gemm(g) = op else { continue };
            for n in (0..count(&op, Level::Standard, width)).step_by(3) {
                let call = call(&op, n, width);
                let product = product(&g, &call.inputs).unwrap();
                let shape = product.shape();
                for (i, j) in [(0, 0), (shape.m - 1, shape.n / 2)] {
                    let magnitude = *product.dot(i, j).magnitude.finite().unwrap();
                    if magnitude.is_zero() {
                        continue;
                    }
                    let unit = magnitude_unit(&magnitude);
                    let top = magnitude.exponent().unwrap();
                    assert!(top - unit <= width as i32, "{} #{n}: {top} {unit}", op.prefix());
                    assert!(unit >= -149 && top < 127, "{} #{n}: {top} {unit}", op.prefix());
                }
            }
        }
    }

    /// Some sums need every bit: an accumulator of one less must lose something.
    #[rstest]
    fn sums_need_their_width(#[values((14, 14), (24, 24))] (width, bits): (u32, i32)) {
        for element in Element::ALL {
            let op = cells().into_iter().find(|op| {
                matches!(op, Op::Gemm(g) if g.a == Factor::Element(element) && g.a == g.b && g.scaling == Scaling::Mx)
            });
            let Some(Op::Gemm(g)) = op else { panic!("no cell") };
            let needed = (0..4).flat_map(|n| {
                let call = call(&Op::Gemm(g), n, width);
                let product = product(&g, &call.inputs).unwrap();
                let shape = product.shape();
                let dots: Vec<i32> = (0..shape.m.min(16))
                    .filter_map(|i| {
                        let sum = product.dot(i, i % shape.n).total.finite().copied()?.abs();
                        Some(sum.exponent()? - magnitude_unit(&sum) + 1)
                    })
                    .collect();
                dots
            });
            assert_eq!(needed.max(), Some(bits), "{}", element.name());
        }
    }

    fn magnitude_unit(sum: &ExactSum) -> i32 {
        let limbs = sum.limbs();
        let first = limbs.iter().position(|&limb| limb != 0).unwrap();
        ExactSum::UNIT + 64 * first as i32 + limbs[first].trailing_zeros() as i32
    }
}
