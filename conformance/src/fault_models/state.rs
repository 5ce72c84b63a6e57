//! What one tile leaves to the next.

use super::blocks::{About, amax, code, model};
use super::{Area, Delta, Device, FaultModel, quantizes, raised, sides, u8s};
use crate::backend::Refusal;
use mx_reference::{Number, ScaleLayout};
use mx_vectors::{Call, Op, Tensors};

const AREA: Area = Area::State;

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn plain(op: &Op) -> bool {
    quantizes(op, |q| q.layout == ScaleLayout::Plain)
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(AREA, about, applies, Delta::Outputs(change))
}

pub(super) const MODELS: &[FaultModel] = &[
    amax(
        AREA,
        [
            "state-amax-carried",
            "the running maximum is not reset between blocks",
            "TransformerEngine PR 2921, torchao PR 4278: shared memory reused before it is ready",
        ],
        every,
        |block| {
            let own = block.largest(block.numbers.iter().copied());
            match block.before {
                Some(before) if !before.is_nan() => block.largest([own, before]),
                _ => own,
            }
        },
    ),
    amax(
        AREA,
        [
            "state-nan-sticks",
            "once a block held NaN its successor is NaN, too",
            "triton PR 8974: NaN that reaches neighbours",
        ],
        every,
        |block| {
            let own = block.largest(block.numbers.iter().copied());
            if block.before.is_some_and(Number::is_nan) { Number::NAN } else { own }
        },
    ),
    code(
        AREA,
        [
            "state-codes-by-scale-before",
            "codes of a block are computed under the scale of the block before it",
            "TransformerEngine PR 2695, torchao PR 4278: a fence is missing between scale and codes",
        ],
        every,
        |block, x| match block.before {
            Some(before) => {
                let profile = block.profile;
                profile.code(x, profile.multiplier(profile.scale(before)))
            }
            None => block.right(x),
        },
    ),
    outputs(
        [
            "state-double-buffer-late",
            "every second row of codes is stored from the buffer of the row before",
            "TransformerEngine PR 2921: a TMA store still reads the buffer",
        ],
        every,
        |_, outputs| {
            let Some(elements) = outputs.get_mut("elements") else { return };
            let (rows, cols) = sides(elements);
            let data = u8s(elements);
            for r in (1..rows).step_by(2) {
                data.copy_within((r - 1) * cols..r * cols, r * cols);
            }
        },
    ),
    outputs(
        [
            "state-scales-late-from-tile-2",
            "from the second tile of 128 rows on, scales are those of the tile before",
            "torchao PR 4278: pipelined scales one stage behind",
        ],
        plain,
        |_, outputs| {
            let Some(scales) = outputs.get_mut("scales") else { return };
            let (rows, cols) = sides(scales);
            let data = u8s(scales);
            let own = data.to_vec();
            for r in 128..rows {
                let from = (r - 128) * cols;
                data[r * cols..(r + 1) * cols].copy_from_slice(&own[from..from + cols]);
            }
        },
    ),
    model(
        AREA,
        [
            "state-adds-to-output",
            "the product is added to what the output buffer held",
            "TransformerEngine PR 501: accumulate flag left on, beta of 1",
        ],
        |op| matches!(op, Op::Gemm(_) | Op::GroupedGemm(_)),
        Delta::Device(accumulate),
    ),
];

/// Bytes that are added as integers stand for numbers that are added: either changes the answer by what was there.
fn accumulate(device: &mut Device<'_>) -> Result<(), Refusal> {
    let right = device.right()?;
    for (name, tensor) in &right {
        let Some(held) = device.outputs.bytes_mut(name) else {
            return Err(raised(&format!("no buffer `{name}`")));
        };
        for (to, from) in held.iter_mut().zip(tensor.data.as_bytes()) {
            *to = to.wrapping_add(*from);
        }
    }
    Ok(())
}
