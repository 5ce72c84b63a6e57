//! Views of larger buffers.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, quantizes};
use mx_reference::{BlockShape, ScaleLayout};
use mx_vectors::op::View;
use mx_vectors::{Call, Op, Quantize};

/// Ops that are asked with views.
fn viewed(op: &Op) -> bool {
    quantizes(op, |q| q.layout == ScaleLayout::Plain && q.block == BlockShape::MX)
}

const fn reading(about: About, change: fn(&Call) -> Call) -> FaultModel {
    model(Area::Strides, about, viewed, Delta::Inputs(change))
}

/// The call with another view, cut to what the buffer holds.
fn with(call: &Call, change: impl Fn(View) -> View) -> Call {
    match call.op {
        Op::Quantize(q) => match q.view {
            Some(view) => {
                let view = Some(change(view));
                Call { op: Op::Quantize(Quantize { view, ..q }), inputs: call.inputs.clone() }
            }
            None => call.clone(),
        },
        _ => call.clone(),
    }
}

pub(super) const MODELS: &[FaultModel] = &[
    reading(
        [
            "strides-ignored",
            "a view is read as if it were contiguous from its first element",
            "torchao PR 4470",
        ],
        |call| with(call, |view| View { row_stride: view.cols, col_stride: 1, ..view }),
    ),
    reading(
        [
            "strides-offset-ignored",
            "the storage offset of a view is ignored",
            "aiter PR 4406, torchao PR 4470",
        ],
        |call| with(call, |view| View { offset: 0, ..view }),
    ),
    reading(
        [
            "strides-columns-taken-for-1",
            "the distance between columns is taken for 1",
            "aiter PR 4406",
        ],
        |call| with(call, |view| View { col_stride: 1, ..view }),
    ),
    reading(
        [
            "strides-row-is-width",
            "the distance between rows is taken for the width",
            "TransformerEngine PR 2905: shape inferred from a padded buffer",
        ],
        |call| {
            // Transposed views are handled on a path of their own.
            with(call, |view| {
                if view.col_stride == 1 { View { row_stride: view.cols, ..view } } else { view }
            })
        },
    ),
];
