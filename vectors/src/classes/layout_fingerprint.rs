//! Scales that tell where they belong, and codes that tell their lane.
//!
//! A scale at position (r, c) has the byte (7 r + 3 c) modulo the number of bytes the input type reaches, so a transposed,
//! shifted or badly swizzled scale tensor differs almost everywhere.

use super::matrix;
use crate::bits;
use crate::class::{Call, Class, Level, Source};
use crate::op::{Op, Quantize};
use crate::tensor::Tensors;
use mx_reference::{BlockShape, Number, Overflow, Rounding};

pub(super) const CLASS: Class = Class {
    name: "layout-fingerprint",
    aim: "each scale byte tells its row and column, each code its lane",
    faults: &[
        "cutlass 3535, 3394: scale index of the wrong operand",
        "torchao PR 4229: orientation of block scales",
        "TransformerEngine PR 3344: swizzled shape",
        "aiter PR 4506: tests asserted the scramble",
        "triton 11111, torchao 3357: transposed stores",
        "pytorch 172627: blocked layout required",
    ],
    source: Source::Tensors { count, call },
};

/// Scale rows and columns: several tiles of 128 x 4 in both directions, and parts of them.
const LINES: [(usize, usize); 4] = [(130, 5), (256, 16), (33, 4), (257, 3)];
/// The same for 32 x 32 blocks, which have 32 times as many rows of codes.
const TILES: [(usize, usize); 4] = [(5, 5), (8, 16), (3, 4), (9, 3)];

fn count(op: &Op, level: Level) -> u64 {
    match (matrix::quantize(op), level) {
        (None, _) => 0,
        (Some(_), Level::Smoke) => 1,
        (Some(_), _) => LINES.len() as u64,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(q) = matrix::quantize(op) else { return Call { op: *op, inputs: Tensors::new() } };
    let shapes = if q.block == BlockShape::TILE { TILES } else { LINES };
    let (rows, blocks) = shapes[n as usize];
    let shape = matrix::code_shape(q, rows * q.block.rows(), blocks);
    matrix::call(q, shape, |r, c, lane| value(q, r, c, lane))
}

fn value(q: &Quantize, r: usize, c: usize, lane: usize) -> u32 {
    let p = q.element.format().max_exponent();
    // Scales whose codes the type can hold down to the element's second binade.
    let lowest = (bits::min_exponent(q.input) + 3).max(p - 127);
    let binades = (bits::max_exponent(q.input) - lowest + 1) as usize;
    let exponent = lowest + ((7 * r + 3 * c) % binades) as i32;
    let lanes = q.block.rows() * q.block.cols();
    let negative = (r + lane).is_multiple_of(3);
    if lane == (5 * r + c) % lanes {
        let amax = Number::finite(negative, 1, exponent);
        return bits::truncated(q.input, amax);
    }
    let element = q.element.format();
    let one = Number::finite(false, 1, p);
    let largest = element.encode(one, Rounding::NearestEven, Overflow::Saturate) as usize;
    let code = (5 * lane + 11 * r + 2 * c) % (largest + 1);
    let x = element.decode(code as u32).scaled(exponent - p);
    bits::truncated(q.input, Number { negative, ..x })
}
