//! Which element is read or written.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, quantizes, sides, u8s};
use mx_reference::{Axis, BlockShape, ScaleLayout};
use mx_vectors::{Call, Data, Op, Tensors};

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn plain(op: &Op) -> bool {
    quantizes(op, |q| q.layout == ScaleLayout::Plain)
}

const fn reading(about: About, applies: fn(&Op) -> bool, change: fn(&Call) -> Call) -> FaultModel {
    model(Area::Indexing, about, applies, Delta::Inputs(change))
}

const fn writing(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Indexing, about, applies, Delta::Outputs(change))
}

fn moved<T: Copy>(data: &mut Vec<T>, from: impl Fn(usize) -> usize) {
    *data = (0..data.len()).map(|i| data[from(i)]).collect();
}

/// The call whose input element (r, c) is read from another place of the same tensor.
fn read_from(call: &Call, from: impl Fn((usize, usize), usize, usize) -> (usize, usize)) -> Call {
    let mut call = call.clone();
    if matches!(call.op, Op::Quantize(q) if q.view.is_some()) {
        return call;
    }
    let Some(input) = call.inputs.get_mut("input") else { return call };
    let shape = sides(input);
    let cols = shape.1.max(1);
    let index = |i: usize| {
        let (r, c) = from(shape, i / cols, i % cols);
        r * cols + c
    };
    match &mut input.data {
        Data::U16(data) => moved(data, index),
        Data::U32(data) => moved(data, index),
        Data::U8(_) | Data::I32(_) => {}
    }
    call
}

pub(super) const MODELS: &[FaultModel] = &[
    writing(
        [
            "index-scale-one-late",
            "every scale is stored one block late",
            "cutlass 3394: scale index off by one",
        ],
        plain,
        |_, outputs| {
            if let Some(scales) = outputs.get_mut("scales").map(u8s)
                && !scales.is_empty()
            {
                scales.rotate_right(1);
            }
        },
    ),
    writing(
        [
            "index-scale-of-first-block",
            "every block of a row stores the scale of its first",
            "torchao PR 4229: one scale a row",
        ],
        plain,
        |_, outputs| {
            let Some(scales) = outputs.get_mut("scales") else { return };
            let cols = sides(scales).1.max(1);
            for row in u8s(scales).chunks_mut(cols) {
                row.fill(row[0]);
            }
        },
    ),
    reading(
        [
            "index-rows-wrap-at-256",
            "the row index is a byte",
            "torchao PR 4201, PR 4016, TransformerEngine PR 2548: index types, here narrow enough for tensors that fit memory",
        ],
        every,
        |call| read_from(call, |_, r, c| (r % 256, c)),
    ),
    reading(
        [
            "index-wraps-at-2-to-the-15",
            "the element offset is a signed 16-bit number",
            "torchao PR 4201, flashinfer PR 2642, mxDataGenerator 3ac153e: 32-bit offsets, in small",
        ],
        every,
        |call| {
            read_from(call, |(_, cols), r, c| {
                let index = (r * cols + c) % (1 << 15);
                (index / cols, index % cols)
            })
        },
    ),
    reading(
        [
            "index-columns-by-row-length",
            "a cast along columns steps by the number of rows",
            "TransformerEngine PR 2196, torchao 4652: leading dimension of the other side",
        ],
        |op| quantizes(op, |q| q.axis == Axis::Col),
        |call| {
            read_from(call, |(rows, cols), r, c| {
                let index = (r * rows + c) % (rows * cols).max(1);
                (index / cols, index % cols)
            })
        },
    ),
    reading(
        [
            "index-last-row-repeated",
            "a clamped row index reads the last row but one twice",
            "triton PR 8974: clamped loads at the edge",
        ],
        every,
        |call| {
            read_from(call, |(rows, _), r, c| (if r + 1 == rows && r > 0 { r - 1 } else { r }, c))
        },
    ),
    reading(
        [
            "index-tile-rows-swapped",
            "rows 0 to 15 and 16 to 31 of a tile are read in the other order",
            "torchao 4652, 4657: COL_TILE configurations",
        ],
        |op| quantizes(op, |q| q.block == BlockShape::TILE),
        |call| read_from(call, |_, r, c| (r ^ 16, c)),
    ),
    reading(
        [
            "index-lanes-rotated",
            "lanes of a block are read one to the right, around its end",
            "TransformerEngine PR 3136: offsets of a vector load",
        ],
        |op| quantizes(op, |q| q.axis == Axis::Row && q.block == BlockShape::MX),
        |call| read_from(call, |_, r, c| (r, c / 32 * 32 + (c + 1) % 32)),
    ),
    writing(
        [
            "index-wide-rows-from-128",
            "from column 128 on every code is that of the column 128 before",
            "torchao 4652: a tile index left out for wide tensors",
        ],
        every,
        |_, outputs| {
            let Some(elements) = outputs.get_mut("elements") else { return };
            let cols = sides(elements).1.max(1);
            for row in u8s(elements).chunks_mut(cols) {
                for c in 128..row.len() {
                    row[c] = row[c - 128];
                }
            }
        },
    ),
];
