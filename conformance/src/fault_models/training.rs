//! Training steps: which tensor is cast along which axis, and who receives which row.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, set, sides};
use crate::backends::native;
use mx_reference::convention::PROPAGATE;
use mx_reference::{Axis, BlockShape, Blocking, dequantize, quantize};
use mx_vectors::answer::matrix;
use mx_vectors::op::{Linear, View};
use mx_vectors::{Call, Data, Op, Tensors};

const fn inputs(about: About, applies: fn(&Op) -> bool, change: fn(&Call) -> Call) -> FaultModel {
    model(Area::Training, about, applies, Delta::Inputs(change))
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Training, about, applies, Delta::Outputs(change))
}

fn linear(op: &Op) -> bool {
    matches!(op, Op::Linear(_))
}

fn exchange(op: &Op) -> bool {
    matches!(op, Op::AllToAll(_))
}

/// The call with one of its inputs replaced by its transpose in the same shape.
fn transposed(call: &Call, name: &str) -> Call {
    let mut call = call.clone();
    if let Some(tensor) = call.inputs.get_mut(name) {
        let (rows, cols) = sides(tensor);
        let own = tensor.clone();
        for i in 0..own.data.len() {
            set(tensor, i, own.data.get(i % rows * cols + i / rows));
        }
    }
    call
}

/// One output as the right step computes it from other inputs.
fn output_of(call: &Call, outputs: &mut Tensors, name: &str) {
    // Training steps are asked under the default convention.
    if let Ok(mut other) = native::answer(&call.op, &PROPAGATE, &call.inputs)
        && let Some(output) = other.remove(name)
    {
        outputs.insert(name.to_owned(), output);
    }
}

/// The call with an input quantised along rows and dequantised again.
fn requantised(call: &Call, name: &str) -> Call {
    let mut call = call.clone();
    let Op::Linear(op) = call.op else { return call };
    let Some(tensor) = call.inputs.get(name) else { return call };
    let shape = sides(tensor);
    let config = op.config();
    let done = matrix(tensor, Linear::INPUT, View::contiguous(shape)).ok().and_then(|x| {
        let mx_reference::Matrix::Bf16(x) = x else { return None };
        let blocking = Blocking { axis: Axis::Row, shape: BlockShape::MX, pad: false };
        let codes = quantize(x, config.profile(), blocking).ok()?;
        let format = Linear::INPUT.format();
        let (elements, scales) = (&codes.elements, &codes.scales);
        dequantize(config.element, shape, BlockShape::MX, elements, scales, format).ok()
    });
    if let (Some(bits), Some(tensor)) = (done, call.inputs.get_mut(name)) {
        tensor.data = Data::U16(bits.into_iter().map(|bits| bits as u16).collect());
    }
    call
}

pub(super) const MODELS: &[FaultModel] = &[
    inputs(
        [
            "linear-gradient-strides",
            "the output's gradient is not contiguous and read as if it were",
            "torchao PR 4470",
        ],
        linear,
        |call| transposed(call, "grad_output"),
    ),
    outputs(
        [
            "linear-weight-cast-twice",
            "the weight that the input's gradient needs is cast from the one that was cast along rows",
            "TransformerEngine 2408: columnwise data from rowwise data",
        ],
        linear,
        |call, outputs| output_of(&requantised(call, "w"), outputs, "grad_input"),
    ),
    outputs(
        [
            "linear-input-cast-twice",
            "the input that the weight's gradient needs is dequantised from the forward pass",
            "torchao moe_training: saved activations in low precision",
        ],
        |op| linear(op) && matches!(op, Op::Linear(l) if l.config().wgrad_with_hp),
        |call, outputs| output_of(&requantised(call, "x"), outputs, "grad_weight"),
    ),
    outputs(
        [
            "linear-nan-lost",
            "NaN in an output is stored as zero",
            "TransformerEngine PR 3041, torch.nan_to_num behind a step",
        ],
        linear,
        |_, outputs| {
            for tensor in outputs.values_mut() {
                for i in 0..tensor.data.len() {
                    if Linear::OUTPUT.format().is_nan(tensor.data.get(i)) {
                        set(tensor, i, 0);
                    }
                }
            }
        },
    ),
    outputs(
        [
            "linear-weight-gradient-skipped",
            "the weight's gradient is left at zero",
            "TransformerEngine PR 3246: noop flag",
        ],
        linear,
        |_, outputs| {
            if let Some(tensor) = outputs.get_mut("grad_weight") {
                (0..tensor.data.len()).for_each(|i| set(tensor, i, 0));
            }
        },
    ),
    inputs(
        [
            "exchange-rows-stay",
            "every rank keeps its own rows",
            "torchao moe_training comms: splits of the way back taken for those of the way there",
        ],
        exchange,
        |call| {
            let mut call = call.clone();
            let Some(splits) = call.inputs.get_mut("splits") else { return call };
            let ranks = sides(splits).1.max(1);
            if let Data::I32(sizes) = &mut splits.data {
                for (rank, sent) in sizes.chunks_mut(ranks).enumerate() {
                    let all = sent.iter().sum();
                    sent.fill(0);
                    sent[rank] = all;
                }
            }
            call
        },
    ),
    outputs(
        [
            "exchange-scales-stay",
            "codes travel and scales do not",
            "torchao moe_training comms: two collectives, one of them with the wrong splits",
        ],
        exchange,
        |call, outputs| {
            // The scales of a call in which every rank keeps its rows.
            let stay = MODELS.iter().find(|model| model.name == "exchange-rows-stay");
            if let Some(Delta::Inputs(change)) = stay.map(|model| model.delta) {
                output_of(&change(call), outputs, "scales");
            }
        },
    ),
    outputs(
        [
            "exchange-values-not-dequantised",
            "values that arrive are the codes alone, without their scales",
            "sglang PR 19948: scales left out",
        ],
        exchange,
        |call, outputs| {
            let Op::AllToAll(op) = call.op else { return };
            let (Some(codes), Some(values)) =
                (outputs.get("elements").cloned(), outputs.get_mut("output"))
            else {
                return;
            };
            let (element, output) = (op.element().format(), Linear::OUTPUT.format());
            for i in 0..codes.data.len() {
                let x = element.decode(codes.data.get(i));
                let even = mx_reference::Rounding::NearestEven;
                set(values, i, output.encode(x, even, mx_reference::Overflow::Propagate));
            }
        },
    ),
];
