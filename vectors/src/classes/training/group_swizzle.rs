//! Scales of groups into the blocked layout, each group on its own.

use super::ends;
use crate::class::{Call, Class, Level, Source};
use crate::op::{GroupSwizzle, Op};
use crate::tensor::{Tensor, Tensors};
use mx_reference::gemm::GroupAxis;

pub(in crate::classes) const CLASS: Class = Class {
    name: "group-swizzle",
    aim: "bytes that tell their row and column, in groups that fill 128 x 4 tiles, leave padding, or have no rows",
    faults: &[
        "vLLM PR 38148: padding rows from torch.empty",
        "TransformerEngine PR 2905, 3070: padded scale region not zeroed",
        "TransformerEngine PR 2782, 3067, flashinfer 4531: groups without rows",
    ],
    source: Source::Tensors { count, call },
};

/// Group sizes along M in rows of scales, and columns.
const ALONG_M: [(&[usize], usize); 4] =
    [(&[128, 128], 4), (&[0, 1, 128, 129], 5), (&[31, 0, 0, 97], 3), (&[300, 0], 9)];
/// Group sizes along K in columns of scales, and rows.
const ALONG_K: [(&[usize], usize); 4] =
    [(&[4, 4], 128), (&[0, 1, 4, 5], 129), (&[3, 0, 0, 2], 40), (&[17, 0], 260)];
/// Experts, rows and columns.
const EXPERTS: [[usize; 3]; 4] = [[2, 128, 4], [3, 130, 5], [1, 9, 3], [5, 32, 8]];

fn count(op: &Op, level: Level) -> u64 {
    match (op, level) {
        (Op::GroupSwizzle(_), Level::Smoke) => 2,
        (Op::GroupSwizzle(_), _) => 4,
        _ => 0,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let n = n as usize;
    let mut inputs = Tensors::new();
    let Op::GroupSwizzle(kind) = op else { return Call { op: *op, inputs } };
    let shape = match kind {
        GroupSwizzle::Axis(axis) => {
            let (sizes, across) = match axis {
                GroupAxis::M => ALONG_M[n],
                GroupAxis::K => ALONG_K[n],
            };
            inputs.insert("offsets".to_owned(), ends(sizes.iter().copied()));
            let length = sizes.iter().sum();
            match axis {
                GroupAxis::M => vec![length, across],
                GroupAxis::K => vec![across, length],
            }
        }
        GroupSwizzle::Experts => EXPERTS[n].to_vec(),
    };
    let cols = shape.last().copied().unwrap_or(1);
    let total: usize = shape.iter().product();
    // Never 0, which padding is.
    let byte = |i: usize| (1 + (7 * (i / cols) + 3 * (i % cols)) % 251) as u8;
    inputs.insert("scales".to_owned(), Tensor::u8(shape, (0..total).map(byte).collect()));
    Call { op: *op, inputs }
}
