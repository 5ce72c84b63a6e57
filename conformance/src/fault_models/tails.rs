//! What does not fill a tile of rows, blocks or elements.

use super::blocks::{About, model};
use super::{Area, Delta, Device, FaultModel, quantizes, set, sides};
use crate::backend::Refusal;
use mx_reference::ScaleLayout;
use mx_vectors::{Call, Op, Tensors};

const fn device(
    about: About,
    applies: fn(&Op) -> bool,
    run: fn(&mut Device<'_>) -> Result<(), Refusal>,
) -> FaultModel {
    model(Area::Tails, about, applies, Delta::Device(run))
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Tails, about, applies, Delta::Outputs(change))
}

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn plain(op: &Op) -> bool {
    quantizes(op, |q| q.layout == ScaleLayout::Plain)
}

/// Clears the elements of an output for which `lost` holds, given rows and columns and the place of the element.
fn clear(outputs: &mut Tensors, name: &str, lost: impl Fn((usize, usize), usize, usize) -> bool) {
    let Some(tensor) = outputs.get_mut(name) else { return };
    let (rows, cols) = sides(tensor);
    for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
        if lost((rows, cols), r, c) {
            set(tensor, r * cols + c, 0);
        }
    }
}

pub(super) const MODELS: &[FaultModel] = &[
    outputs(
        [
            "tail-blocks-dropped",
            "blocks beyond the last four of a row are not computed",
            "axolotl PR 3747: blocks that do not fill a tile of four",
        ],
        every,
        |_, outputs| {
            clear(outputs, "elements", |(_, cols), _, c| c >= cols / 128 * 128 && cols > 128);
        },
    ),
    outputs(
        [
            "tail-rows-dropped",
            "rows beyond the last multiple of 16 are not computed",
            "SuperNPUBench PR 123, torchao PR 1516: rows beyond whole tiles",
        ],
        every,
        |_, outputs| clear(outputs, "elements", |(rows, _), r, _| r >= rows / 16 * 16 && rows > 16),
    ),
    outputs(
        [
            "tail-scales-dropped",
            "scales of rows beyond the last multiple of 128 are not stored",
            "flashinfer PR 1611: rows of scales beyond whole tiles",
        ],
        plain,
        |_, outputs| {
            clear(outputs, "scales", |(rows, _), r, _| r >= rows / 128 * 128 && rows > 128);
        },
    ),
    outputs(
        [
            "tail-last-element-dropped",
            "the last element of the tensor is not stored",
            "TransformerEngine PR 1988: bounds off by one",
        ],
        every,
        |_, outputs| {
            clear(outputs, "elements", |(rows, cols), r, c| r + 1 == rows && c + 1 == cols);
        },
    ),
    outputs(
        [
            "tail-store-mask-swapped",
            "the store mask compares rows with the number of columns and columns with that of rows",
            "torchao PR 1516",
        ],
        every,
        |_, outputs| clear(outputs, "elements", |(rows, cols), r, c| r >= cols || c >= rows),
    ),
    device(
        [
            "tail-grid-rounded-down",
            "the grid has elements / 1024 thread blocks, and the rest is never written",
            "triton PR 8974, axolotl PR 3747: launch sizes",
        ],
        every,
        |device| {
            let right = device.right()?;
            let total = right.get("elements").map_or(0, |tensor| tensor.data.len());
            let reached = total / 1024 * 1024;
            device.write_where(&right, |name, index| name != "elements" || index < reached);
            Ok(())
        },
    ),
    device(
        [
            "tail-empty-refused",
            "a tensor without rows is refused",
            "TransformerEngine PR 2782, PR 3067; flashinfer 4531: zero-size launches",
        ],
        every,
        |device| {
            if device.call.inputs.values().any(|tensor| tensor.data.is_empty()) {
                return Err(Refusal::Unsupported("invalid launch: 0 blocks".to_owned()));
            }
            let right = device.right()?;
            device.write(&right)
        },
    ),
];
