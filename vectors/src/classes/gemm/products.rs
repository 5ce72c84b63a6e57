//! Every code of A times every code of B, one product to a sum.

use super::operands::{Side, call as build, code, full, gemm, none, scale_byte};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Factor, Op, Test};

pub(in crate::classes) const CLASS: Class = Class {
    name: "g0-products",
    aim: "every code of A times every code of B, alone in its sum, and zeros under any scale around it",
    faults: &[
        "intel-xpu-triton PR 7029: 0x7F decoded as 480",
        "rocm-libraries PR 7439: signed zero and subnormals",
    ],
    source: Source::Tensors { count, call },
};

/// K and the place of the one element.
const PLACES: [(usize, usize); 4] = [(128, 0), (32, 31), (64, 37), (96, 95)];
/// Codes of 16-bit factors that are asked.
const SAMPLES: u32 = 256;

fn count(op: &Op, level: Level) -> u64 {
    match (gemm(op), level) {
        (None, _) | (_, Level::Smoke) => 0,
        (Some(g), _) if full(g) => PLACES.len() as u64,
        (Some(_), _) => 1,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let (k, place) = PLACES[n as usize];
    let side = |factor: Factor, step: usize| {
        let rows = codes(factor).max(128) as usize;
        let mut side = Side::new(factor, g.scaling, rows, k);
        for r in 0..rows {
            for block in 0..side.blocks() {
                // Zeros stay zeros under every number; the element's own block keeps its product within f32.
                let exponent = if block == side.block_of(place) {
                    (r * step % 9) as i32 - 4
                } else {
                    (r * 3 + block * 7 + step) as i32 % 255 - 127
                };
                side.scale(r, block, scale_byte(g.scaling, exponent));
            }
            side.set(r, place, nth(factor, r as u32 % codes(factor)));
        }
        side
    };
    build(g, Test::Exact, side(g.a, 5), side(g.b, 7))
}

fn codes(factor: Factor) -> u32 {
    if factor.is_element() { factor.format().codes() as u32 } else { SAMPLES }
}

/// Code number i: all of a narrow format; of 16-bit formats numbers whose products f32 holds, and the specials.
fn nth(factor: Factor, i: u32) -> u32 {
    match factor {
        Factor::Element(_) => i,
        // A third of a stride apart, so that exponents and mantissas both move.
        Factor::F16 => i * 257 % (1 << 16),
        Factor::Bf16 => match i {
            0 => 0,
            1 => 0x8000,
            2 => 0x7f80,
            3 => 0xff80,
            4 => 0x7fc1,
            _ => {
                let significand = 128 + u64::from(i * 37 % 128);
                code(factor, i.is_multiple_of(3), significand, (i % 127) as i32 - 63 - 7)
            }
        },
    }
}
