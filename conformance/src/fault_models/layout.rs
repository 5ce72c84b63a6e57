//! Where scales and codes lie.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, quantizes, sides, u8s};
use mx_reference::{Axis, BlockShape, ScaleLayout};
use mx_vectors::{Call, Op, Tensors};

type Shape = (usize, usize);

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Layout, about, applies, Delta::Outputs(change))
}

/// Ops whose scales come out in the blocked layout.
pub(super) fn blocked(op: &Op) -> bool {
    matches!(op, Op::Swizzle) || quantizes(op, |q| q.layout == ScaleLayout::Blocked)
}

fn plain(op: &Op) -> bool {
    quantizes(op, |q| q.layout == ScaleLayout::Plain)
}

/// Rows and columns of the scales that an op brings into the blocked layout.
pub(super) fn scale_shape(call: &Call, outputs: &Tensors) -> Option<Shape> {
    match call.op {
        Op::Swizzle => call.inputs.get("scales").map(sides),
        Op::Quantize(q) => {
            let (rows, cols) = sides(outputs.get("elements")?);
            Some((rows, cols / q.block.cols()))
        }
        _ => None,
    }
}

/// Places blocked scales by another function of shape, row and column; what lands outside the buffer is lost.
fn place(call: &Call, outputs: &mut Tensors, offset: impl Fn(Shape, usize, usize) -> usize) {
    let Some(shape) = scale_shape(call, outputs) else { return };
    let Some(scales) = outputs.get_mut("scales") else { return };
    let data = u8s(scales);
    let Ok(own) = ScaleLayout::Blocked.restore(shape, data) else { return };
    data.fill(0);
    for (i, byte) in own.into_iter().enumerate() {
        if let Some(to) = data.get_mut(offset(shape, i / shape.1, i % shape.1)) {
            *to = byte;
        }
    }
}

/// The offset in tiles of 128 × 4, given the tile's number and how a row within it is split.
fn in_tile(tile: usize, r: usize, c: usize) -> usize {
    tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
}

pub(super) const MODELS: &[FaultModel] = &[
    outputs(
        [
            "layout-not-swizzled",
            "blocked scales are row major, with the padding of the blocked layout",
            "torchao 4929, pytorch 172627: plain scales where the swizzled ones are read",
        ],
        blocked,
        |call, outputs| {
            place(call, outputs, |(_, cols), r, c| r * cols.next_multiple_of(4) + c);
        },
    ),
    outputs(
        [
            "layout-rows-within-tile",
            "rows r and r + 32 of a tile trade roles",
            "cutlass 3394, 3046: swizzled scale index",
        ],
        blocked,
        |call, outputs| {
            place(call, outputs, |(_, cols), r, c| {
                let tile = r / 128 * cols.div_ceil(4) + c / 4;
                tile * 512 + r % 128 / 4 * 16 + r % 4 * 4 + c % 4
            });
        },
    ),
    outputs(
        [
            "layout-tiles-column-major",
            "tiles follow one another down the columns",
            "torchao PR 4229: K-major scales",
        ],
        blocked,
        |call, outputs| {
            place(call, outputs, |(rows, _), r, c| {
                in_tile(c / 4 * rows.div_ceil(128) + r / 128, r, c)
            });
        },
    ),
    outputs(
        [
            "layout-tile-count-rounded-down",
            "the number of tiles in a row is cols / 4 rounded down",
            "TransformerEngine PR 3344, PR 2905: swizzled shapes",
        ],
        blocked,
        |call, outputs| {
            place(call, outputs, |(_, cols), r, c| {
                in_tile(r / 128 * (cols / 4).max(1) + c / 4, r, c)
            });
        },
    ),
    outputs(
        [
            "layout-8x4",
            "tiles are 8 × 4",
            "flashinfer PR 1611: 8x4 and 128x4 taken for one another",
        ],
        blocked,
        |call, outputs| {
            place(call, outputs, |(_, cols), r, c| {
                (r / 8 * cols.div_ceil(4) + c / 4) * 32 + r % 8 * 4 + c % 4
            });
        },
    ),
    outputs(
        [
            "layout-swizzled-twice",
            "scales that are swizzled already are swizzled again",
            "aiter PR 4506: tests asserted the scramble",
        ],
        blocked,
        |call, outputs| {
            let Some((_, cols)) = scale_shape(call, outputs) else { return };
            let Some(scales) = outputs.get_mut("scales") else { return };
            let shape =
                (scales.data.len() / cols.next_multiple_of(4).max(1), cols.next_multiple_of(4));
            let data = u8s(scales);
            if let Ok(again) = ScaleLayout::Blocked.arrange(shape, data) {
                data.copy_from_slice(&again);
            }
        },
    ),
    outputs(
        [
            "layout-scales-transposed",
            "plain scales are column major",
            "torchao PR 4229: orientation of block scales",
        ],
        plain,
        |_, outputs| {
            let Some(scales) = outputs.get_mut("scales") else { return };
            let shape = sides(scales);
            let data = u8s(scales);
            if let Ok(transposed) = ScaleLayout::Transposed.arrange(shape, data) {
                data.copy_from_slice(&transposed);
            }
        },
    ),
    outputs(
        [
            "layout-codes-not-transposed",
            "codes of a cast along columns are stored in the order of the input",
            "triton 11111, torchao 3357, 3362: transposed stores",
        ],
        |op| quantizes(op, |q| q.axis == Axis::Col),
        |_, outputs| {
            let Some(elements) = outputs.get_mut("elements") else { return };
            let (rows, cols) = sides(elements);
            let data = u8s(elements);
            let own = data.to_vec();
            for r in 0..rows {
                for c in 0..cols {
                    data[c * rows + r] = own[r * cols + c];
                }
            }
        },
    ),
    outputs(
        [
            "layout-codes-swapped-in-pairs",
            "neighbouring codes trade places in a vector store",
            "comfy-kitchen PR 41, triton PR 5197: order within a pair",
        ],
        |op| quantizes(op, |_| true),
        |_, outputs| {
            if let Some(elements) = outputs.get_mut("elements") {
                u8s(elements).chunks_exact_mut(2).for_each(<[u8]>::reverse);
            }
        },
    ),
    outputs(
        [
            "layout-tile-scale-once",
            "the scale of a tile stands in its first row alone",
            "torchao PR 4229: 32x32 scales for a kernel that reads one a row",
        ],
        |op| blocked(op) && quantizes(op, |q| q.block == BlockShape::TILE),
        |call, outputs| {
            let Some(shape) = scale_shape(call, outputs) else { return };
            let Some(scales) = outputs.get_mut("scales") else { return };
            let data = u8s(scales);
            for (r, c) in (0..shape.0).flat_map(|r| (0..shape.1).map(move |c| (r, c))) {
                if r % 32 > 0 {
                    data[ScaleLayout::Blocked.offset(shape, r, c)] = 0;
                }
            }
        },
    ),
];
