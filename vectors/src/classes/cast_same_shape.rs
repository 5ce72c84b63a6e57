//! Casts of one shape after another, so that an answer kept from another call shows.

use super::matrix;
use crate::bits;
use crate::class::{Call, Class, Level, Source};
use crate::op::{Cast, Op};
use crate::tensor::Tensors;
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "cast-same-shape",
    aim: "three tensors of one shape with specials, zeros, ties and single mantissa bits, each in another place",
    faults: &[
        "KernelBench: results reused from an earlier call of the same shape",
        "onnxruntime 16938: signalling NaN taken for infinity",
        "onnx PR 7784: mantissa mask 0x4FFFFF",
        "ml_dtypes, XLA: E8M0 of zero and of negatives",
    ],
    source: Source::Tensors { count, call },
};

const CASES: u64 = 3;
/// Ties of the target, spread over its codes.
const TIES: u32 = 12;

fn count(op: &Op, level: Level) -> u64 {
    match (op, level) {
        (_, Level::Smoke) => 0,
        (Op::Cast(_), _) => CASES,
        _ => 0,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let &Op::Cast(cast) = op else { return Call { op: *op, inputs: Tensors::new() } };
    let mut data = values(cast);
    let places = data.len() * n as usize / CASES as usize;
    data.rotate_right(places);
    matrix::one(*op, "input", bits::tensor(cast.input, [data.len()], data))
}

fn values(cast: Cast) -> Vec<u32> {
    let (input, target) = (cast.input, cast.target.format());
    let max = target.max_code();
    let ties = (0..TIES).map(|i| bits::midpoint(target, i * max / TIES));
    let single = (0..input.format().mantissa_bits).map(|bit| {
        let one = 1u64 << input.format().mantissa_bits;
        Number::finite(false, one | 1 << bit, -(input.format().mantissa_bits as i32))
    });
    let numbers = ties.chain(single).map(|x| bits::truncated(input, x));
    let ends = [0, 1, bits::min_normal(input), bits::max_finite(input), bits::infinity(input)];
    let magnitudes: Vec<u32> = numbers.chain(ends).collect();
    magnitudes
        .into_iter()
        .flat_map(|x| [false, true].map(|negative| bits::signed(input, x, negative)))
        .chain(bits::nans(input))
        .collect()
}
