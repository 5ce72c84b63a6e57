//! What tensor classes are built from: an input of a quantize op, given by block position and lane.

use crate::bits;
use crate::class::Call;
use crate::op::{Op, Quantize};
use crate::tensor::{Tensor, Tensors};
use mx_reference::Axis;

/// The op if it is an unstrided quantize.
pub(super) fn quantize(op: &Op) -> Option<&Quantize> {
    match op {
        Op::Quantize(q) if q.view.is_none() => Some(q),
        _ => None,
    }
}

/// The shape of the codes that holds at least `rows` rows and exactly `blocks` blocks along the axis.
pub(super) const fn code_shape(q: &Quantize, rows: usize, blocks: usize) -> (usize, usize) {
    (rows.next_multiple_of(q.block.rows()), blocks * q.block.cols())
}

/// The call whose codes have shape (rows, cols): `value` gives the bits of the lane `lane` of the block at scale position
/// (r, c).
pub(super) fn call(
    q: &Quantize,
    (rows, cols): (usize, usize),
    mut value: impl FnMut(usize, usize, usize) -> u32,
) -> Call {
    let (block_rows, block_cols) = (q.block.rows(), q.block.cols());
    let mut at = |r: usize, c: usize| {
        let lane = r % block_rows * block_cols + c % block_cols;
        value(r / block_rows, c / block_cols, lane)
    };
    let mut data = Vec::with_capacity(rows * cols);
    let shape = match q.axis {
        Axis::Row => {
            (0..rows).for_each(|r| data.extend((0..cols).map(|c| at(r, c))));
            [rows, cols]
        }
        // The codes of a column-wise op are the transpose of its input.
        Axis::Col => {
            (0..cols).for_each(|c| data.extend((0..rows).map(|r| at(r, c))));
            [cols, rows]
        }
    };
    one(Op::Quantize(*q), "input", bits::tensor(q.input, shape, data))
}

/// A call with one input.
pub(super) fn one(op: Op, name: &str, tensor: Tensor) -> Call {
    Call { op, inputs: Tensors::from([(name.to_owned(), tensor)]) }
}
