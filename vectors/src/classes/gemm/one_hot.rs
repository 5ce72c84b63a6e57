//! One operand picks single elements of the other: the output is the other, decoded, and every scale tells where it belongs.

use super::operands::{Side, call as build, code, full, gemm, none, number, scale_byte, stream};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Float, Gemm, Op, Scaling, Test};

pub(in crate::classes) const CLASS: Class = Class {
    name: "g0-one-hot",
    aim: "single ones pick out every element of the other operand, under scales that tell their row and block",
    faults: &[
        "cutlass 3535, 3394, 3046: scale index of the wrong operand or swizzle",
        "torchao PR 4229: orientation of block scales",
        "flashinfer PR 1611: rows padded to the wrong tile",
        "vLLM PR 38148: padding from torch.empty",
    ],
    source: Source::Tensors { count, call },
};

/// Picked elements (the length of K) and rows of the other operand: beyond one tile of 128 x 4 scales in both directions.
const SHAPES: [(usize, usize); 3] = [(256, 128), (256, 272), (160, 17)];

fn count(op: &Op, level: Level) -> u64 {
    match (gemm(op), level) {
        (None, _) => 0,
        (Some(g), Level::Smoke) => u64::from(full(g) && g.a == g.b),
        (Some(g), _) if full(g) => 2 * SHAPES.len() as u64,
        (Some(_), _) => 2,
    }
}

/// Even cases pick with A, odd ones with B.
fn call(op: &Op, n: u64) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let (k, rows) = SHAPES[n as usize / 2];
    let mut stream = stream(CLASS.name, g, n);
    let (picking, picked) = if n.is_multiple_of(2) { (g.a, g.b) } else { (g.b, g.a) };
    let mut one_hot = Side::new(picking, g.scaling, k, k);
    let one = code(picking, false, 1, 0);
    for r in 0..k {
        one_hot.set(r, r, one);
    }
    fingerprint(&mut one_hot, g);
    let mut other = Side::new(picked, g.scaling, rows, k);
    other.codes.fill_with(|| number(picked, &mut stream));
    fingerprint(&mut other, g);
    let (a, b) = if n.is_multiple_of(2) { (one_hot, other) } else { (other, one_hot) };
    build(g, Test::Exact, a, b)
}

/// Scales that tell their row and block.
fn fingerprint(side: &mut Side, g: &Gemm) {
    let window = match (g.scaling, g.output) {
        (Scaling::Nvfp4, _) => 13,
        (_, Float::F16) => 9,
        _ => 61,
    };
    for r in 0..side.rows {
        for block in 0..side.blocks() {
            let exponent = ((7 * r + 3 * block) % window) as i32 - window as i32 / 2;
            side.scale(r, block, scale_byte(g.scaling, exponent));
        }
    }
}
