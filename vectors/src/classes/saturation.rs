//! Values from the element's max up to the next power of two, where a scale leaves them unreachable.
//!
//! FLOOR (and EVEN, less) gives scales under which an amax lies beyond max. Conversions that do not saturate then give NaN
//! or infinity, each from its own point: above 464 for E4M3, from 61440 for E5M2; MXINT8 wraps to -2.

use super::build::{scale_count, scale_exponent, sized};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use mx_reference::{Magnitude, Number};

pub(super) const CLASS: Class = Class {
    name: "saturation",
    aim: "values between max and the next power of two, relative to the scale",
    faults: &[
        "torchao 1912, pytorch 150756: NaN beyond 464",
        "pytorch PR 178817: saturation differs between E4M3 and E5M2",
        "ml_dtypes 260, 400: overflow to NaN",
        "Model-Optimizer 1633: unclamped conversion",
        "microxcaling 3, tt-metal 56526: MXINT8 range",
    ],
    source: Source::Blocks { count, block },
};

/// Values of one block family, in input ulp from a few marks.
const AMAXES: u64 = 13;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, AMAXES * scale_count(q, quarter(q)).min(10))
}

fn block(q: &Quantize, n: u64) -> Block {
    let scale = scale_exponent(q, quarter(q), n / AMAXES);
    let values = values(q, scale);
    // The middle of the gap first: it is a step beyond every rounding.
    let amax = values[((n + 9) % AMAXES) as usize];
    std::array::from_fn(|i| {
        let lane = (i + n as usize) % LANES;
        let magnitude = if lane == 31 { amax } else { values[lane % AMAXES as usize].min(amax) };
        bits::signed(q.input, magnitude, (lane + lane / 13 + n as usize) % 2 == 1)
    })
}

/// Significand and exponent of max.
fn max(q: &Quantize) -> (u64, i32) {
    let format = q.element.format();
    match format.decode(format.max_code()).magnitude {
        Magnitude::Finite { significand, exponent } => (significand, exponent),
        _ => (0, 0),
    }
}

/// The exponent of a quarter of the step at max.
fn quarter(q: &Quantize) -> i32 {
    max(q).1 - 2
}

/// Max, the tie above it and the step above that, each with its neighbours; the middle of the gap; and the last value
/// before the next power of two.
fn values(q: &Quantize, scale: i32) -> [u32; AMAXES as usize] {
    let (significand, _) = max(q);
    let at = |quarters: u64| {
        let x = Number::finite(false, 4 * significand + quarters, quarter(q) + scale);
        bits::truncated(q.input, x)
    };
    let next = Number::finite(false, 1, q.element.format().max_exponent() + 1 + scale);
    let last = bits::truncated(q.input, next).min(bits::infinity(q.input)) - 1;
    let step = |magnitude, ulps| bits::step(q.input, magnitude, ulps);
    let (max, tie, full) = (at(0), at(2), at(4));
    [
        max,
        step(max, -1),
        step(max, 1),
        tie,
        step(tie, -1),
        step(tie, 1),
        full,
        step(full, -1),
        step(full, 1),
        at(3),
        at(1),
        last,
        step(last, -1),
    ]
    .map(|magnitude| magnitude.min(last))
}
