//! What lies between the scales of the blocked layout, and beside the buffers.

use super::blocks::{About, model};
use super::layout::{blocked, scale_shape};
use super::{Area, Delta, Device, FaultModel, quantizes, raised, u8s};
use crate::backend::Refusal;
use mx_reference::ScaleLayout;
use mx_vectors::{Call, Op, Tensors};

const fn device(
    about: About,
    applies: fn(&Op) -> bool,
    run: fn(&mut Device<'_>) -> Result<(), Refusal>,
) -> FaultModel {
    model(Area::Padding, about, applies, Delta::Device(run))
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Padding, about, applies, Delta::Outputs(change))
}

/// Fills the padding of blocked scales by what a function makes of the row and column that would be there.
fn fill(call: &Call, outputs: &mut Tensors, byte: impl Fn(&[u8], usize, usize) -> u8) {
    let Some(shape) = scale_shape(call, outputs) else { return };
    let Some(scales) = outputs.get_mut("scales") else { return };
    let data = u8s(scales);
    let own = data.to_vec();
    let whole = (shape.0.next_multiple_of(128), shape.1.next_multiple_of(4));
    if shape.0 == 0 || shape.1 == 0 {
        return;
    }
    for (at, to) in data.iter_mut().enumerate() {
        if ScaleLayout::Blocked.place(shape, at).is_none()
            && let Some((r, c)) = ScaleLayout::Blocked.place(whole, at)
        {
            let inside = (r.min(shape.0 - 1), c.min(shape.1 - 1));
            let edge = own[ScaleLayout::Blocked.offset(shape, inside.0, inside.1)];
            *to = byte(&[edge], r, c);
        }
    }
}

/// Leaves padding bytes unwritten for which `unwritten` holds, given whether they lie in a row of scales.
fn leave(device: &mut Device<'_>, unwritten: fn(in_row: bool) -> bool) -> Result<(), Refusal> {
    let right = device.right()?;
    let shape = scale_shape(device.call, &right).unwrap_or_default();
    let whole = (shape.0.next_multiple_of(128), shape.1.next_multiple_of(4));
    device.write_where(&right, |name, at| {
        let is_padding = name == "scales" && ScaleLayout::Blocked.place(shape, at).is_none();
        let place = ScaleLayout::Blocked.place(whole, at);
        !(is_padding && unwritten(place.is_some_and(|(r, _)| r < shape.0)))
    });
    Ok(())
}

pub(super) const MODELS: &[FaultModel] = &[
    device(
        [
            "padding-unwritten",
            "padding is what the allocation held",
            "vLLM PR 37564, PR 38148, 45741; flashinfer 2861: torch.empty",
        ],
        blocked,
        |device| leave(device, |_| true),
    ),
    device(
        [
            "padding-columns-unwritten",
            "padding rows are zeroed, padding columns are not",
            "TransformerEngine PR 2905, PR 3070: K a multiple of 64 and not of 128",
        ],
        blocked,
        |device| leave(device, |in_row| in_row),
    ),
    device(
        [
            "padding-rows-unwritten",
            "padding columns are zeroed, padding rows are not",
            "SuperNPUBench PR 123: odd block rows",
        ],
        blocked,
        |device| leave(device, |in_row| !in_row),
    ),
    outputs(
        ["padding-one", "padding holds scales of 1", "vLLM PR 37564: 0x7F that reaches real rows"],
        blocked,
        |call, outputs| fill(call, outputs, |_, _, _| 0x7f),
    ),
    outputs(
        ["padding-nan", "padding holds NaN scales", "vLLM PR 38148, triton PR 8974"],
        blocked,
        |call, outputs| fill(call, outputs, |_, _, _| 0xff),
    ),
    outputs(
        [
            "padding-repeats-edge",
            "padding repeats the last row and column of scales",
            "TransformerEngine PR 3041: padded scales in statistics",
        ],
        blocked,
        |call, outputs| fill(call, outputs, |edge, _, _| edge[0]),
    ),
    device(
        [
            "padding-written-beyond-end",
            "the last vector store runs past the end of the codes",
            "aiter PR 4467: bounds in elements instead of bytes",
        ],
        |op| quantizes(op, |_| true),
        |device| {
            let right = device.right()?;
            device.write(&right)?;
            let Some((bytes, payload)) = device.outputs.guarded_mut("elements") else {
                return Err(raised(&"no codes to write"));
            };
            // A store of 16 bytes where fewer are left.
            let beyond = payload.len().next_multiple_of(256) - payload.len();
            for byte in bytes.iter_mut().skip(payload.end).take(beyond.min(16)) {
                *byte = 0;
            }
            Ok(())
        },
    ),
];
