//! Every code in every position of a packing group, beside every kind of neighbour.

use super::matrix;
use crate::class::{Call, Class, Level, Source};
use crate::op::Op;
use crate::tensor::{Tensor, Tensors};

pub(super) const CLASS: Class = Class {
    name: "pack",
    aim: "all codes in all positions of a byte or three-byte group",
    faults: &[
        "triton PR 5197, torchao PR 3123: first element in the high nibble",
        "composable_kernel PR 1889, comfy-kitchen PR 41: nibble order",
        "rocjitsu PR 6870: FP4 pairs packed with 8-bit spacing",
        "torchao PR 3382: FP6 packing changed",
        "compressed-tensors PR 781: f32 read as 16 bits",
        "aiter PR 4467: bounds in elements instead of bytes",
    ],
    source: Source::Tensors { count, call },
};

fn count(op: &Op, level: Level) -> u64 {
    match (op, level) {
        (Op::Pack(pack), _) if !pack.order.applies_to(pack.element) => 0,
        (Op::Pack(_), Level::Smoke) => 1,
        (Op::Pack(_), _) => 2,
        _ => 0,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Op::Pack(pack) = op else { return Call { op: *op, inputs: Tensors::new() } };
    let codes = pack.element.format().codes() as usize;
    // Down each column every code; along a row, steps of 5 or 7.
    let (cols, step) = if n == 0 { (32, 5) } else { (96, 7) };
    let elements =
        (0..codes * cols).map(|i| ((i / cols + i % cols * step) % codes) as u8).collect();
    matrix::one(*op, "elements", Tensor::u8([codes, cols], elements))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::{Element, pack::PackOrder};
    use std::collections::BTreeSet;

    #[test]
    fn every_column_holds_every_code() {
        for element in Element::ALL {
            let order = PackOrder::LittleEndian;
            let op = Op::Pack(crate::op::Pack { element, order });
            for n in 0..CLASS.count(&op, Level::Standard) {
                let elements = &call(&op, n).inputs["elements"];
                let [rows, cols] = elements.shape[..] else { panic!("two dimensions") };
                for c in 0..cols {
                    let column: BTreeSet<u32> =
                        (0..rows).map(|r| elements.data.get(r * cols + c)).collect();
                    assert_eq!(column.len() as u64, element.format().codes());
                }
            }
        }
    }
}
