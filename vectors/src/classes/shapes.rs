//! Shapes: rows and blocks around the sizes that kernels tile by, and tensors without rows, filled with the blocks of every
//! other class.

use super::matrix;
use super::mosaic::Mosaic;
use crate::class::{Call, Class, Level, Source};
use crate::op::Op;
use crate::rng::Stream;
use crate::tensor::Tensors;

pub(super) const CLASS: Class = Class {
    name: "shapes",
    aim: "block cases of every class side by side, in shapes around tile sizes, and no rows at all",
    faults: &[
        "torchao PR 1516: store mask with rows and columns swapped",
        "TransformerEngine PR 2782, 3067: groups without rows",
        "TransformerEngine 1700, PR 3344: shapes that vary",
        "axolotl PR 3747: tail blocks",
        "triton PR 8974: scales beyond the end not masked",
        "aiter PR 4467: packed bounds",
    ],
    source: Source::Tensors { count, call },
};

/// Rows and blocks along the axis.
const SHAPES: [(usize, usize); 24] = [
    (129, 3),
    (1, 1),
    (3, 2),
    (17, 3),
    (31, 4),
    (33, 5),
    (64, 8),
    (256, 8),
    (128, 4),
    (129, 5),
    (130, 1),
    (272, 2),
    (1, 33),
    (3, 16),
    (17, 9),
    (31, 8),
    (33, 1),
    (64, 5),
    (127, 4),
    (1, 16),
    (130, 5),
    (272, 3),
    (1, 4),
    (0, 1),
];

fn count(op: &Op, level: Level) -> u64 {
    match (matrix::quantize(op), level) {
        (None, _) => 0,
        (Some(_), Level::Smoke) => 1,
        (Some(_), _) => SHAPES.len() as u64,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(q) = matrix::quantize(op) else { return Call { op: *op, inputs: Tensors::new() } };
    let (rows, blocks) = SHAPES[n as usize];
    let (rows, cols) = matrix::code_shape(q, rows, blocks);
    let mut stream = Stream::new(&[CLASS.name, &op.prefix()], n);
    let mosaic = Mosaic::new(q, rows / q.block.rows(), blocks, &mut stream);
    matrix::call(q, (rows, cols), |r, c, lane| mosaic.at(q, r, c, lane))
}
