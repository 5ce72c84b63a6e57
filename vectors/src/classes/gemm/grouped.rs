//! Grouped products: groups of every size, empty ones in every place, and operands that tell their group.

use super::operands::{Side, code, grouped_inputs, none, scale_byte};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Factor, Float, GroupedGemm, Op, Test};
use crate::rng::Stream;
use mx_reference::gemm::GroupAxis;

pub(in crate::classes) const CLASS: Class = Class {
    name: "grouped",
    aim: "groups of unequal size, empty first, middle and last ones, each with its own expert, in sums that no order rounds",
    faults: &[
        "TransformerEngine PR 2782, 3067, flashinfer 4531: groups without rows",
        "cutlass 3394: scales by the wrong operand",
        "vLLM PR 38148: padding rows from torch.empty",
    ],
    source: Source::Tensors { count, call },
};

/// Sizes of groups in units of 32; the last lists cut within a block, which groups of tokens may.
const SIZES: [&[usize]; 8] = [
    &[4, 4, 4, 4],
    &[0, 3, 4, 9],
    &[5, 0, 0, 11],
    &[7, 8, 1, 0],
    &[16],
    &[0, 0, 16, 0],
    &[1, 2, 3, 4, 0, 6],
    &[1, 1, 0, 2, 1, 3, 1, 1, 2, 1],
];
/// Token counts that are no multiple of anything.
const RAGGED: [&[usize]; 3] = [&[1, 0, 130, 17], &[0, 33, 31, 64], &[129, 3]];
/// Cases at level smoke, of f32 outputs: groups of one size, and an empty one first.
const SMOKE: u64 = 2;
/// Rows of each expert, and K (along M) or rows of A (along K).
const SIDE: [usize; 2] = [48, 96];

fn gemm(op: &Op) -> Option<&GroupedGemm> {
    match op {
        Op::GroupedGemm(g) if g.gemm.is_of_its_model() => Some(g),
        _ => None,
    }
}

fn count(op: &Op, level: Level) -> u64 {
    match (gemm(op), level) {
        (None, _) => 0,
        (Some(g), Level::Smoke) if g.gemm.output != Float::F32 => 0,
        (Some(_), Level::Smoke) => SMOKE,
        (Some(g), _) if g.axis == GroupAxis::M => (SIZES.len() + RAGGED.len()) as u64,
        (Some(_), _) => SIZES.len() as u64,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let n = n as usize;
    let sizes: Vec<usize> = match SIZES.get(n) {
        Some(sizes) => sizes.iter().map(|size| size * 32).collect(),
        None => RAGGED[n - SIZES.len()].to_vec(),
    };
    let ends: Vec<i32> = sizes
        .iter()
        .scan(0, |end, &size| {
            *end += size as i32;
            Some(*end)
        })
        .collect();
    let tokens: usize = sizes.iter().sum();
    let [narrow, wide] = SIDE;
    let gemm = &g.gemm;
    let (rows, k, experts, shape) = match g.axis {
        GroupAxis::M => (tokens, wide, sizes.len() * narrow, vec![sizes.len(), narrow, wide]),
        GroupAxis::K => (wide, tokens, narrow, vec![narrow, tokens]),
    };
    let mut stream = Stream::new(&[CLASS.name, gemm.a.name(), g.axis.name()], n as u64);
    let mut a = Side::new(gemm.a, gemm.scaling, rows, k);
    let mut b = Side::new(gemm.b, gemm.scaling, experts, k);
    // A is sparse, so that sums of at most 12 products of at most 2^8 units stay exact in 14 bits.
    fill(&mut a, gemm.a, 12, &mut stream);
    fill(&mut b, gemm.b, usize::MAX, &mut stream);
    let inputs = grouped_inputs(a, b, &shape, &ends);
    let op = GroupedGemm { gemm: crate::op::Gemm { test: Test::Exact, ..*gemm }, ..*g };
    Call { op: Op::GroupedGemm(op), inputs }
}

/// ±1 and ±1/2 in at most `most` places a row, under scales that tell their row and block.
fn fill(side: &mut Side, factor: Factor, most: usize, stream: &mut Stream) {
    for r in 0..side.rows {
        let step = (side.k / most.min(side.k.max(1)).max(1)).max(1);
        for k in (r % step..side.k).step_by(step) {
            let exponent = -i32::from(stream.flag());
            side.set(r, k, code(factor, stream.flag(), 1, exponent));
        }
        for block in 0..side.blocks() {
            let exponent = ((r + 2 * block) % 4) as i32;
            side.scale(r, block, scale_byte(side.scaling, exponent));
        }
    }
}
