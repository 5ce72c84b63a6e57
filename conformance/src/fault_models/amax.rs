//! The block's largest magnitude: which lanes count, and how NaN passes through a maximum.

use super::blocks::{amax, load};
use super::{Area, Block, FaultModel, quantizes};
use mx_reference::{BlockShape, Magnitude, Number};
use mx_vectors::{Float, LANES, Op};

const AREA: Area = Area::Amax;

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn tiles(op: &Op) -> bool {
    quantizes(op, |q| q.block == BlockShape::TILE)
}

/// The amax of the lanes for which `counts` holds, lanes numbered within a row.
fn of_lanes(block: &Block<'_>, counts: impl Fn(usize) -> bool) -> Number {
    let lanes = block.numbers.iter().enumerate();
    block.largest(lanes.filter(|(i, _)| counts(i % LANES)).map(|(_, &x)| x))
}

/// Whether |x| > |y|; false where either is NaN.
fn exceeds(block: &Block<'_>, x: Number, y: Number) -> bool {
    let either = block.largest([x, y]);
    !either.is_nan()
        && either.magnitude == x.abs().magnitude
        && block.largest([y, y]).magnitude != either.magnitude
}

pub(super) const MODELS: &[FaultModel] = &[
    amax(
        AREA,
        [
            "amax-drops-nan",
            "the maximum passes over NaN, so a block with one gets a finite scale",
            "torchao PR 4201, PR 4725: fmaxf and tl.max",
        ],
        every,
        |block| block.largest(block.numbers.iter().copied().filter(|x| !x.is_nan())),
    ),
    amax(
        AREA,
        [
            "amax-pair-drops-nan",
            "lanes are joined in pairs by a comparison that loses a NaN in the second lane of its pair",
            "TransformerEngine 3550: abs_max_2x of bf16 and f16",
        ],
        |op| quantizes(op, |q| q.input != Float::F32),
        |block| {
            let pairs = block.numbers.chunks(2).map(|pair| match *pair {
                [a, b] if a.is_nan() || !exceeds(block, b, a) => a,
                [.., last] => last,
                [] => Number::ZERO,
            });
            block.largest(pairs)
        },
    ),
    amax(
        AREA,
        [
            "amax-nan-resets",
            "`amax > x ? amax : x` takes a NaN and then forgets it with all that came before",
            "torchao PR 4201: NaN in a maximum by comparison, here with its operands the other way around",
        ],
        every,
        |block| {
            let lanes = block.numbers.iter().rev().take_while(|x| !x.is_nan());
            let last = block.numbers.last().copied().unwrap_or(Number::ZERO);
            if last.is_nan() { Number::NAN } else { block.largest(lanes.copied()) }
        },
    ),
    amax(
        AREA,
        [
            "amax-signed",
            "the maximum is taken without the absolute value",
            "dossier A: abs missing in a maximum; lane-roles aims at it",
        ],
        every,
        |block| {
            let counts = |x: &Number| x.is_nan() || !x.negative;
            block.largest(block.numbers.iter().copied().filter(counts))
        },
    ),
    amax(
        AREA,
        [
            "amax-skips-last-lane",
            "the reduction ends one lane early",
            "axolotl PR 3747: tails of a reduction",
        ],
        every,
        |block| of_lanes(block, |lane| lane != LANES - 1),
    ),
    amax(
        AREA,
        [
            "amax-skips-first-lane",
            "the reduction starts at the second lane",
            "axolotl PR 3747: tails of a reduction",
        ],
        every,
        |block| of_lanes(block, |lane| lane != 0),
    ),
    amax(
        AREA,
        [
            "amax-half-warp",
            "lanes 16 to 31 never join the shuffle",
            "TransformerEngine PR 2921, torchao PR 4278: reductions that miss part of a warp",
        ],
        every,
        |block| of_lanes(block, |lane| lane < LANES / 2),
    ),
    amax(
        AREA,
        [
            "amax-even-lanes",
            "of each packed pair only the low half counts",
            "TransformerEngine 3550: half-precision pairs",
        ],
        |op| quantizes(op, |q| q.input != Float::F32),
        |block| of_lanes(block, |lane| lane.is_multiple_of(2)),
    ),
    amax(
        AREA,
        [
            "amax-ignores-infinity",
            "the maximum runs over finite numbers",
            "TransformerEngine 2407: infinities masked before the reduction",
        ],
        every,
        |block| {
            let finite = |x: &Number| x.magnitude != Magnitude::Infinite;
            block.largest(block.numbers.iter().copied().filter(finite))
        },
    ),
    amax(
        AREA,
        [
            "amax-first-row-of-tile",
            "a tile's scale comes from its first row",
            "torchao PR 4229: 32x32 scales with the orientation of rows",
        ],
        tiles,
        |block| block.largest(block.numbers.iter().copied().take(LANES)),
    ),
    amax(
        AREA,
        [
            "amax-last-row-of-tile-missing",
            "a tile's scale leaves out its last row",
            "SuperNPUBench PR 123: odd block rows",
        ],
        tiles,
        |block| {
            let rows = block.numbers.len() - LANES;
            block.largest(block.numbers.iter().copied().take(rows))
        },
    ),
    amax(
        AREA,
        [
            "amax-subnormals-flushed",
            "subnormal inputs count as zero in the maximum",
            "pytorch 125557, triton: denormals flushed by the reduction",
        ],
        every,
        |block| {
            let least = block.input.format().min_exponent();
            let counts = |x: &Number| x.exponent().is_none_or(|e| e >= least);
            block.largest(block.numbers.iter().copied().filter(counts))
        },
    ),
    load(
        AREA,
        [
            "inputs-flushed",
            "subnormal inputs are flushed to zero as they are read",
            "pytorch 125557, PR 185878; tt-metal PR 42106",
        ],
        every,
        |input, bits| {
            let format = input.format();
            let x = format.decode(bits);
            match x.exponent() {
                Some(e) if e < format.min_exponent() => {
                    Number { negative: x.negative, ..Number::ZERO }
                }
                _ => x,
            }
        },
    ),
    load(
        AREA,
        [
            "inputs-read-as-other-half",
            "bf16 bits are read as f16, and f16 bits as bf16",
            "flashinfer PR 3497: one 16-bit type read as another",
        ],
        |op| quantizes(op, |q| q.input != Float::F32),
        |input, bits| {
            let other = if input == Float::Bf16 { Float::F16 } else { Float::Bf16 };
            other.format().decode(bits)
        },
    ),
    load(
        AREA,
        [
            "inputs-narrowed-to-bf16",
            "f32 values are materialised as bf16 before anything else",
            "Megatron-LM PR 6588",
        ],
        |op| quantizes(op, |q| q.input == Float::F32),
        |_, bits| {
            // Rounded to nearest even in the bits; NaN stays NaN.
            if bits & 0x7fff_ffff > 0x7f80_0000 {
                return Number::NAN;
            }
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
            Float::F32.format().decode(rounded)
        },
    ),
];
