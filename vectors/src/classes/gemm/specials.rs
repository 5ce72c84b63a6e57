//! NaN, infinities, zeros of both signs, and the ends of the range, each against each.

use super::operands::{Side, call as build, code, full, gemm, none};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Factor, Gemm, Op, Scaling, Test};

pub(in crate::classes) const CLASS: Class = Class {
    name: "g2-specials",
    aim: "NaN and infinite elements, NaN scales over zeros, zeros of both signs and the ends of the range, each against each",
    faults: &[
        "triton PR 8974: NaN scales of a masked tail reach the sum",
        "transformers 5.24 convert_moe_packed_tensors: byte 255 decoded as 2^128",
        "LLVM 215445: E8M0 NaN decoded as infinity",
        "rocm-libraries PR 7439: signed zero",
    ],
    source: Source::Tensors { count, call },
};

/// K, how often the list of rows is repeated, and whether the last block of B is zero in every row: NaN counts over zeros too.
const SHAPES: [(usize, usize, bool); 6] = [
    (128, 8, false),
    (128, 8, true),
    (64, 1, false),
    (96, 1, true),
    (2048, 1, false),
    (3072, 1, true),
];
/// Shapes of cells that do not get all.
const FEW: u64 = 2;
/// Kinds of row.
const KINDS: usize = 16;

fn count(op: &Op, level: Level) -> u64 {
    match (gemm(op), level) {
        (None, _) => 0,
        (Some(g), Level::Smoke) => u64::from(full(g) && g.a == g.b),
        (Some(g), _) if full(g) => SHAPES.len() as u64,
        (Some(_), _) => FEW,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let (k, repeat, zero_tail) = SHAPES[n as usize];
    let side = |factor| {
        let mut side = Side::new(factor, g.scaling, KINDS * repeat, k);
        for r in 0..side.rows {
            row(&mut side, r, g);
        }
        side
    };
    let mut b = side(g.b);
    if zero_tail {
        for r in 0..b.rows {
            for k in k - 32..k {
                b.set(r, k, 0);
            }
        }
    }
    build(g, Test::Exact, side(g.a), b)
}

/// One row. A large or tiny element stands alone, so that no order of additions overflows or rounds before the end.
fn row(side: &mut Side, r: usize, g: &Gemm) {
    let factor = side.factor;
    let format = factor.format();
    let sign = |negative: bool, bits: u32| match factor {
        Factor::Element(mx_reference::Element::Int8) if negative => (0x100 - bits) & 0xff,
        _ if negative => bits | format.sign_bit(),
        _ => bits,
    };
    let infinity = format.max_code() + 1;
    let has_infinity = format.decode(infinity).exponent().is_none() && !format.is_nan(infinity);
    let last = side.k - 24;
    let ordinary = |side: &mut Side| {
        for k in 0..side.k {
            let negative = (k * 5 + r).is_multiple_of(3);
            side.set(r, k, code(factor, negative, 1, -((k + r) as i32 % 2)));
        }
    };
    let fill = |side: &mut Side, of: fn(usize) -> bool| {
        for k in 0..side.k {
            // INT8 has one zero.
            let negative = of(k) && format.sign_bit() != 0;
            side.set(r, k, if negative { format.sign_bit() } else { 0 });
        }
    };
    match r % KINDS {
        1 => {}
        2 => fill(side, |_| true),
        3 => fill(side, |k| k.is_multiple_of(2)),
        4 if format.has_nan() => {
            ordinary(side);
            side.set(r, last, format.nan_code);
        }
        5 => {
            // A NaN scale counts over zeros too.
            let block = side.block_of(last);
            side.scale(r, block, nan_scale(g.scaling));
        }
        6 => {
            ordinary(side);
            side.scale(r, 0, nan_scale(g.scaling));
        }
        7 if has_infinity => {
            ordinary(side);
            side.set(r, 3, infinity);
        }
        8 if has_infinity => {
            ordinary(side);
            side.set(r, 3, sign(true, infinity));
        }
        9 if has_infinity => {
            side.set(r, 3, infinity);
            side.set(r, last, sign(true, infinity));
        }
        10 | 11 => {
            side.set(r, 7, sign(r % KINDS == 11, top(factor)));
            side.scale(r, 0, largest_scale(g.scaling));
        }
        12 | 13 => {
            side.set(r, 7, sign(r % KINDS == 13, 1));
            side.scale(r, 0, 0);
        }
        14 => {
            side.set(r, 7, code(factor, false, 1, 0));
            side.scale(r, 0, 0);
        }
        _ => ordinary(side),
    }
}

/// The largest number, or of bf16 one whose square is infinite in f32 and whose double is not.
fn top(factor: Factor) -> u32 {
    match factor {
        Factor::Bf16 => code(factor, false, 0xff, 119),
        _ => factor.format().max_code(),
    }
}

const fn nan_scale(scaling: Scaling) -> u8 {
    match scaling {
        Scaling::Nvfp4 => 0x7f,
        _ => 0xff,
    }
}

const fn largest_scale(scaling: Scaling) -> u8 {
    match scaling {
        Scaling::Nvfp4 => 0x7e,
        _ => 0xfe,
    }
}
