//! What a call leaves in its buffers.

use super::blocks::{About, model};
use super::{Area, Delta, Device, FaultModel, quantizes};
use crate::backend::Refusal;
use mx_reference::gemm::GroupAxis;
use mx_vectors::op::GroupedGemm;
use mx_vectors::{Data, Op};

const fn device(
    about: About,
    applies: fn(&Op) -> bool,
    run: fn(&mut Device<'_>) -> Result<(), Refusal>,
) -> FaultModel {
    model(Area::Stale, about, applies, Delta::Device(run))
}

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

pub(super) const MODELS: &[FaultModel] = &[
    device(
        [
            "stale-nothing-written",
            "the launch fails silently and nothing is written",
            "TransformerEngine PR 3246: noop flag; OpenCL-CTS: 0xdead buffers against it",
        ],
        |_| true,
        |_| Ok(()),
    ),
    device(
        [
            "stale-zeros-skipped",
            "codes of zero are not stored, since buffers come zeroed",
            "NVIDIA Fuser 5182: inputs of zeros that hid a bug; buffers taken for zeroed",
        ],
        every,
        |device| {
            let right = device.right()?;
            let zero = |name: &str, index: usize| match &right[name].data {
                Data::U8(data) => name == "elements" && data[index] == 0,
                _ => false,
            };
            device.write_where(&right, |name, index| !zero(name, index));
            Ok(())
        },
    ),
    device(
        [
            "stale-scales-unwritten",
            "codes are written and scales are not",
            "TransformerEngine PR 3246, vLLM 45741: a flag that skips half of the work",
        ],
        every,
        |device| {
            let right = device.right()?;
            device.write_where(&right, |name, _| name != "scales");
            Ok(())
        },
    ),
    device(
        [
            "stale-nan-blocks-unwritten",
            "codes of a block whose scale is NaN are not stored",
            "torchao PR 4744: code bytes under a NaN scale taken for free",
        ],
        |op| quantizes(op, |q| q.element.format().has_nan()),
        |device| {
            let right = device.right()?;
            let nan = match device.call.op {
                Op::Quantize(q) => q.element.format(),
                _ => return device.write(&right),
            };
            device.write_where(&right, |name, index| {
                name != "elements" || !nan.is_nan(right[name].data.get(index))
            });
            Ok(())
        },
    ),
    device(
        [
            "stale-empty-groups-unwritten",
            "the output of a group without tokens is not written, along K where it must be zero",
            "TransformerEngine PR 2782, PR 3067: groups without rows",
        ],
        |op| matches!(op, Op::GroupedGemm(GroupedGemm { axis: GroupAxis::K, .. })),
        |device| {
            let right = device.right()?;
            let ends = match device.call.inputs.get("offsets").map(|tensor| &tensor.data) {
                Some(Data::I32(ends)) => ends.clone(),
                _ => Vec::new(),
            };
            let each = right["output"].data.len() / ends.len().max(1);
            let empty = |group: usize| {
                let start = if group == 0 { 0 } else { ends[group - 1] };
                ends[group] == start
            };
            device.write_where(&right, |_, index| !empty(index / each.max(1)));
            Ok(())
        },
    ),
];
