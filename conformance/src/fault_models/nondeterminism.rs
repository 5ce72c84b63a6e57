//! Another answer to the same question. What a race does at random is done here in turn, so that runs repeat.

use super::blocks::{About, model};
use super::{Area, Delta, Device, FaultModel, quantizes, set, sides};
use crate::backend::Refusal;
use mx_vectors::Op;

const fn device(
    about: About,
    applies: fn(&Op) -> bool,
    run: fn(&mut Device<'_>) -> Result<(), Refusal>,
) -> FaultModel {
    model(Area::Nondeterminism, about, applies, Delta::Device(run))
}

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

pub(super) const MODELS: &[FaultModel] = &[
    device(
        [
            "race-every-second-call",
            "every second call stores one wrong code",
            "torchao PR 4278, TransformerEngine PR 2695: a fence in the wrong place",
        ],
        every,
        |device| {
            let mut outputs = device.right()?;
            if device.memory.calls.is_multiple_of(2)
                && let Some(elements) = outputs.get_mut("elements")
                && !elements.data.is_empty()
            {
                let at = (device.memory.calls * 7919) as usize % elements.data.len();
                let code = elements.data.get(at);
                set(elements, at, code ^ 1);
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "race-lost-store",
            "in each call the store of another block is lost",
            "TransformerEngine PR 2921: a TMA store whose buffer is reused",
        ],
        every,
        |device| {
            let right = device.right()?;
            let blocks = (right.get("elements").map_or(0, |t| t.data.len()) / 32).max(1);
            let lost = (device.memory.calls * 7919) as usize % blocks;
            device.write_where(&right, |name, index| name != "elements" || index / 32 != lost);
            Ok(())
        },
    ),
    device(
        [
            "race-scale-before-reduction",
            "in every third call a row's first scale is stored before its reduction is done",
            "torchao PR 4278, TransformerEngine PR 2921: a missing barrier after the reduction",
        ],
        every,
        |device| {
            let mut outputs = device.right()?;
            if device.memory.calls.is_multiple_of(3)
                && let Some(scales) = outputs.get_mut("scales")
                && !scales.data.is_empty()
            {
                let (rows, cols) = sides(scales);
                let at = device.memory.calls as usize % rows.max(1) * cols;
                let byte = scales.data.get(at);
                set(scales, at, byte.saturating_sub(1));
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "race-first-call-cold",
            "the first call of a shape computes with a scale rule that is not yet loaded",
            "triton 11111, torchao 4652: autotuned configurations that differ",
        ],
        every,
        |device| {
            let mut outputs = device.right()?;
            let key = device.shapes();
            if device.memory.by_shape.insert(key, mx_vectors::Tensors::new()).is_none()
                && let Some(scales) = outputs.get_mut("scales")
            {
                for i in 0..scales.data.len() {
                    let byte = scales.data.get(i);
                    set(scales, i, byte.saturating_sub(1));
                }
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "race-split-k-order",
            "partial sums of a split product are added by whoever comes first, and one is lost in every second call",
            "TransformerEngine PR 365, aiter 2421: split-K without a barrier",
        ],
        |op| matches!(op, Op::Gemm(_)),
        |device| {
            let mut outputs = device.right()?;
            if device.memory.calls.is_multiple_of(2)
                && let Some(output) = outputs.get_mut("output")
            {
                for i in (0..output.data.len()).step_by(97) {
                    set(output, i, 0);
                }
            }
            device.write(&outputs)
        },
    ),
];
