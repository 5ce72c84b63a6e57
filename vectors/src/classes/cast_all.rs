//! Casts of all 65 536 patterns of a 16-bit input.

use super::matrix;
use crate::bits;
use crate::class::{Call, Class, Level, Source};
use crate::op::{Float, Op};
use crate::tensor::Tensors;

pub(super) const CLASS: Class = Class {
    name: "cast-all",
    aim: "every bf16 or f16 pattern: a complete proof of the cast",
    faults: &[
        "triton 5925, PR 11753: f16 and bf16 to E5M2",
        "torch-xpu-ops 2951: -0 became NaN",
        "float8 crate 0.7: NaN codes that is_nan misses",
    ],
    source: Source::Tensors { count, call },
};

fn count(op: &Op, level: Level) -> u64 {
    match op {
        Op::Cast(cast) => (level > Level::Smoke && cast.input != Float::F32).into(),
        _ => 0,
    }
}

fn call(op: &Op, _: u64) -> Call {
    let Op::Cast(cast) = op else { return Call { op: *op, inputs: Tensors::new() } };
    matrix::one(*op, "input", bits::tensor(cast.input, [1 << 16], (0..1 << 16).collect()))
}
