//! Inputs that do not lie contiguously: transposed, every second column, an offset, rows farther apart than they are long.
//!
//! The gaps hold NaN, so a read that ignores strides shows at once.

use super::build::normal;
use super::matrix;
use crate::bits;
use crate::class::{Call, Class, Level, Source};
use crate::op::{Op, Quantize, View};
use crate::rng::Stream;
use crate::tensor::Tensors;
use mx_reference::{BlockShape, ScaleLayout};

pub(super) const CLASS: Class = Class {
    name: "strides",
    aim: "strided views of a larger buffer, whose gaps hold NaN",
    faults: &[
        "torchao PR 4470: gradient that is not contiguous",
        "aiter PR 4406: strided scales",
        "TransformerEngine PR 2905: shape inferred from the padded buffer",
    ],
    source: Source::Tensors { count, call },
};

const ROWS: usize = 64;
const COLS: usize = 96;
/// Offset, row stride, column stride.
const LAYOUTS: [(usize, usize, usize); 8] = [
    (0, 1, ROWS + 3),
    (0, 1, ROWS),
    (0, 2 * COLS, 2),
    (COLS, COLS, 1),
    (0, COLS + 5, 1),
    (0, 2 * COLS, 1),
    (1, COLS + 1, 1),
    (11, 3 * COLS + 7, 3),
];

fn count(op: &Op, level: Level) -> u64 {
    match (matrix::quantize(op), level) {
        (Some(q), _) if q.layout != ScaleLayout::Plain || q.block == BlockShape::TILE => 0,
        (None, _) => 0,
        (Some(_), Level::Smoke) => 1,
        (Some(_), _) => LAYOUTS.len() as u64,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(q) = matrix::quantize(op) else { return Call { op: *op, inputs: Tensors::new() } };
    let (offset, row_stride, col_stride) = LAYOUTS[n as usize];
    let view = View { offset, rows: ROWS, cols: COLS, row_stride, col_stride };
    let mut stream = Stream::new(&[CLASS.name, &op.prefix()], n);
    let last = offset + (ROWS - 1) * row_stride + (COLS - 1) * col_stride;
    let mut data = vec![bits::nans(q.input)[0]; last + 1 + COLS];
    for r in 0..ROWS {
        for c in 0..COLS {
            data[offset + r * row_stride + c * col_stride] = normal(q, &mut stream, (r % 7) as i32);
        }
    }
    let op = Op::Quantize(Quantize { view: Some(view), ..*q });
    matrix::one(op, "input", bits::tensor(q.input, [data.len()], data))
}
