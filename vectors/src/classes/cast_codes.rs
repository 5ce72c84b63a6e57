//! Casts around everything the target can say: each value, each midpoint, one ulp of the input to either side, the first
//! step below the smallest and the first steps beyond the largest.

use super::matrix;
use crate::bits;
use crate::class::{Call, Class, Level, Source};
use crate::op::{Cast, Op};
use crate::tensor::Tensors;
use mx_reference::{Magnitude, Number};

pub(super) const CLASS: Class = Class {
    name: "cast-codes",
    aim: "values of the target, midpoints, 1 ulp to either side, and the saturation edge, both signs",
    faults: &[
        "pytorch 150756, 154028, PR 178817: saturation",
        "triton 5925: E5M2 ties rounded up",
        "aiter PR 3992: E2M1 boundaries",
        "bitstring 342: truncation",
        "tilelang 2042, Fuser 4665, ml_dtypes: E8M0 rounded half up",
        "onnx 6220: infinity to FNUZ",
        "ggml UE4M3: mantissa rounded half up",
        "flashinfer PR 3932: subnormal UE4M3",
    ],
    source: Source::Tensors { count, call },
};

fn count(op: &Op, _: Level) -> u64 {
    u64::from(matches!(op, Op::Cast(_)))
}

fn call(op: &Op, _: u64) -> Call {
    let &Op::Cast(cast) = op else { return Call { op: *op, inputs: Tensors::new() } };
    let mut magnitudes: Vec<u32> = marks(cast)
        .into_iter()
        .map(|x| bits::truncated(cast.input, x))
        .flat_map(|x| [-1, 0, 1].map(|ulps| bits::step(cast.input, x, ulps)))
        .chain([bits::infinity(cast.input), bits::nans(cast.input)[0]])
        .collect();
    magnitudes.sort_unstable();
    magnitudes.dedup();
    let data: Vec<u32> = magnitudes
        .into_iter()
        .flat_map(|x| [false, true].map(|negative| bits::signed(cast.input, x, negative)))
        .collect();
    matrix::one(*op, "input", bits::tensor(cast.input, [data.len()], data))
}

/// Halves of steps from zero to two steps beyond the largest value. One ulp of a narrow input may be more than half a step;
/// the marks are then truncated, and their neighbours lie beyond them.
fn marks(cast: Cast) -> Vec<Number> {
    let format = cast.target.format();
    let max = format.max_code();
    let mut marks = Vec::new();
    for code in 0..max {
        marks.extend([format.decode(code), bits::midpoint(format, code)]);
    }
    if let Magnitude::Finite { significand, exponent } = format.decode(max).magnitude {
        let beyond = |halves: u64| Number::finite(false, 2 * significand + halves, exponent - 1);
        marks.extend((0..=4).map(beyond));
    }
    // E8M0 has no zero: quarters and halves of its smallest value lie below it.
    let first = format.decode(u32::from(format.subnormals));
    marks.extend([first.scaled(-2), first.scaled(-1)]);
    marks
}
