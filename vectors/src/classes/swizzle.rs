//! Plain scales into the blocked layout: fingerprints of position, and NaN bytes up to the padding.

use super::matrix;
use crate::class::{Call, Class, Level, Source};
use crate::op::Op;
use crate::tensor::Tensor;

pub(super) const CLASS: Class = Class {
    name: "swizzle",
    aim: "bytes that tell their row and column, in shapes that fill 128 x 4 tiles or leave padding",
    faults: &[
        "cutlass 3394, 3046: swizzled scale index",
        "vLLM PR 38148: padding from torch.empty",
        "TransformerEngine PR 3344: swizzled output shape",
        "flashinfer PR 1611: rows padded to the wrong tile",
        "aiter PR 4506: tests asserted the scramble",
    ],
    source: Source::Tensors { count, call },
};

const SHAPES: [(usize, usize); 6] = [(130, 5), (1, 1), (128, 4), (256, 16), (9, 3), (129, 17)];

fn count(op: &Op, level: Level) -> u64 {
    match (op, level) {
        (Op::Swizzle, Level::Smoke) => 1,
        (Op::Swizzle, _) => 2 * SHAPES.len() as u64,
        _ => 0,
    }
}

/// First every shape with fingerprints, then with 0xFF at every place that a fingerprint does not mark.
fn call(op: &Op, n: u64) -> Call {
    let (rows, cols) = SHAPES[n as usize % SHAPES.len()];
    let fingerprint = |i: usize| ((7 * (i / cols) + 3 * (i % cols)) % 251) as u8;
    let scale = |i| match fingerprint(i) {
        byte if n < SHAPES.len() as u64 || byte % 5 == 1 => byte,
        _ => 0xff,
    };
    let scales = (0..rows * cols).map(scale).collect();
    matrix::one(*op, "scales", Tensor::u8([rows, cols], scales))
}
