//! Shapes that leave padding in the blocked scale layout.
//!
//! Tensor cores read whole 128 x 4 tiles of scales. Padding that nobody wrote holds what was there before, and a NaN byte
//! there reaches real rows; it must be zero, whatever the buffer held.

use super::build::normal;
use super::matrix;
use crate::class::{Call, Class, Level, Source};
use crate::op::Op;
use crate::rng::Stream;
use crate::tensor::Tensors;
use mx_reference::ScaleLayout;

pub(super) const CLASS: Class = Class {
    name: "padding",
    aim: "scale rows and columns that do not fill 128 x 4 tiles: padding is zero",
    faults: &[
        "vLLM PR 37564, PR 38148, 45741: padding from torch.empty",
        "flashinfer 2861: unwritten padded scales",
        "TransformerEngine PR 2905, PR 3070: padded region not zeroed",
        "TransformerEngine PR 3041: padding in the minimum of scales",
        "flashinfer PR 1611: rows padded to the wrong tile",
        "SuperNPUBench PR 123: odd block rows",
    ],
    source: Source::Tensors { count, call },
};

const ROWS: [usize; 3] = [20, 1, 129];
const BLOCKS: [usize; 3] = [3, 1, 5];

fn count(op: &Op, level: Level) -> u64 {
    match (matrix::quantize(op), level) {
        (Some(q), Level::Smoke) if q.layout == ScaleLayout::Blocked => 1,
        (Some(q), _) if q.layout == ScaleLayout::Blocked => (ROWS.len() * BLOCKS.len()) as u64,
        _ => 0,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(q) = matrix::quantize(op) else { return Call { op: *op, inputs: Tensors::new() } };
    let (rows, blocks) = (ROWS[n as usize / BLOCKS.len()], BLOCKS[n as usize % BLOCKS.len()]);
    let mut stream = Stream::new(&[CLASS.name, &op.prefix()], n);
    // No value is zero, so neither is a scale.
    matrix::call(q, matrix::code_shape(q, rows, blocks), |_, _, _| normal(q, &mut stream, 2) | 1)
}
