//! Products and layouts of groups.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, set, sides, u8s};
use mx_reference::ScaleLayout;
use mx_reference::gemm::GroupAxis;
use mx_vectors::op::{GroupSwizzle, GroupedGemm};
use mx_vectors::{Call, Data, Op, Tensors};
use std::ops::Range;

fn grouped(op: &Op, axis: GroupAxis) -> bool {
    matches!(op, Op::GroupedGemm(GroupedGemm { axis: own, .. }) if *own == axis)
}

fn along_m(op: &Op) -> bool {
    grouped(op, GroupAxis::M)
}

fn along_k(op: &Op) -> bool {
    grouped(op, GroupAxis::K)
}

fn either(op: &Op) -> bool {
    along_m(op) || along_k(op)
}

const fn inputs(about: About, applies: fn(&Op) -> bool, change: fn(&Call) -> Call) -> FaultModel {
    model(Area::Grouped, about, applies, Delta::Inputs(change))
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Grouped, about, applies, Delta::Outputs(change))
}

fn ends(call: &Call) -> Vec<usize> {
    match call.inputs.get("offsets").map(|tensor| &tensor.data) {
        Some(Data::I32(ends)) => ends.iter().map(|&end| end.max(0) as usize).collect(),
        _ => Vec::new(),
    }
}

fn groups(call: &Call) -> Vec<Range<usize>> {
    let ends = ends(call);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, &end)| start..end).collect()
}

/// The call with other ends.
fn with_ends(call: &Call, change: impl FnOnce(&mut Vec<i32>)) -> Call {
    let mut call = call.clone();
    if let Some(Data::I32(ends)) = call.inputs.get_mut("offsets").map(|tensor| &mut tensor.data) {
        change(ends);
    }
    call
}

/// The call in which group i meets the operand of expert `expert(i)`.
fn with_experts(call: &Call, expert: impl Fn(usize) -> usize) -> Call {
    let mut call = call.clone();
    let count = ends(&call).len().max(1);
    for name in ["b_elements", "b_scales"] {
        let Some(tensor) = call.inputs.get_mut(name) else { continue };
        let (own, each) = (tensor.clone(), tensor.data.len() / count);
        if each == 0 {
            continue;
        }
        for i in 0..own.data.len() {
            let from = expert(i / each).min(count - 1) * each + i % each;
            set(tensor, i, own.data.get(from));
        }
    }
    call
}

pub(super) const MODELS: &[FaultModel] = &[
    inputs(
        [
            "grouped-empty-groups-skipped",
            "groups without rows are left out, so those behind them meet the expert before theirs",
            "TransformerEngine PR 2782, PR 3067; flashinfer 4531",
        ],
        along_m,
        |call| {
            let groups = groups(call);
            with_experts(call, |i| groups[..i].iter().filter(|group| !group.is_empty()).count())
        },
    ),
    inputs(
        [
            "grouped-first-expert-for-all",
            "every group meets the first expert",
            "cutlass 3394: a pointer that is not advanced",
        ],
        along_m,
        |call| with_experts(call, |_| 0),
    ),
    inputs(
        [
            "grouped-boundary-inclusive",
            "the first row of a group still belongs to the one before",
            "TransformerEngine PR 1988: bounds off by one",
        ],
        along_m,
        |call| {
            with_ends(call, |ends| {
                let last = ends.last().copied().unwrap_or(0);
                for end in ends {
                    *end = (*end + 1).min(last);
                }
            })
        },
    ),
    inputs(
        [
            "grouped-ends-taken-for-starts",
            "cumulative ends are read as starts",
            "torchao PR 4470, TransformerEngine PR 2034: offsets with and without a leading zero",
        ],
        either,
        |call| {
            with_ends(call, |ends| {
                if !ends.is_empty() {
                    ends.rotate_right(1);
                    ends[0] = 0;
                }
            })
        },
    ),
    outputs(
        [
            "grouped-last-group-dropped",
            "the last group is not computed",
            "flashinfer 4531, TransformerEngine PR 3067: loops over groups",
        ],
        either,
        |call, outputs| {
            let (groups, Some(output)) = (groups(call), outputs.get_mut("output")) else { return };
            let (rows, cols) = sides(output);
            let Some(last) = groups.iter().rposition(|group| !group.is_empty()) else { return };
            let lost = match call.op {
                Op::GroupedGemm(g) if g.axis == GroupAxis::M => groups[last].clone(),
                _ => last * rows..(last + 1) * rows,
            };
            (lost.start * cols..lost.end * cols).for_each(|i| set(output, i, 0));
        },
    ),
    outputs(
        [
            "grouped-tile-tail-dropped",
            "rows of a group beyond its last multiple of 16 are not computed",
            "torchao PR 1516, SuperNPUBench PR 123: rows beyond whole tiles",
        ],
        along_m,
        |call, outputs| {
            let (groups, Some(output)) = (groups(call), outputs.get_mut("output")) else { return };
            let cols = sides(output).1;
            for group in groups {
                let whole = group.start + group.len() / 16 * 16;
                (whole * cols..group.end * cols).for_each(|i| set(output, i, 0));
            }
        },
    ),
    outputs(
        [
            "grouped-scales-as-one-tensor",
            "scales of groups are swizzled as one tensor, not each group on its own",
            "TransformerEngine PR 2905, PR 3070: layouts of groups",
        ],
        |op| matches!(op, Op::GroupSwizzle(GroupSwizzle::Axis(_))),
        |call, outputs| {
            let (Some(plain), Some(scales)) =
                (call.inputs.get("scales"), outputs.get_mut("scales"))
            else {
                return;
            };
            let Data::U8(bytes) = &plain.data else { return };
            let data = u8s(scales);
            data.fill(0);
            if let Ok(whole) = ScaleLayout::Blocked.arrange(sides(plain), bytes) {
                data.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
            }
        },
    ),
    outputs(
        [
            "grouped-scales-expert-0",
            "every expert gets the scales of the first",
            "cutlass 3394: a pointer that is not advanced",
        ],
        |op| matches!(op, Op::GroupSwizzle(GroupSwizzle::Experts)),
        |call, outputs| {
            let experts = call.inputs.get("scales").map_or(1, |tensor| tensor.shape[0]).max(1);
            let Some(scales) = outputs.get_mut("scales") else { return };
            let data = u8s(scales);
            let each = data.len() / experts;
            for i in each..data.len() {
                data[i] = data[i % each];
            }
        },
    ),
    outputs(
        [
            "grouped-scales-padding-nan",
            "the padding between groups holds NaN scales",
            "vLLM PR 38148, TransformerEngine PR 3070",
        ],
        |op| matches!(op, Op::GroupSwizzle(_)),
        |_, outputs| {
            // No scale of a group is 0 where padding is told apart by it.
            if let Some(scales) = outputs.get_mut("scales") {
                u8s(scales).iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = 0xff);
            }
        },
    ),
];
