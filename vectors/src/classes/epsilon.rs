//! Tiny blocks, on which a lower bound for the amax would show.
//!
//! Recipes keep amax above 1e-4, 1e-10 or 1e-30 to avoid dividing by zero; the scale of a quieter block then is not what its
//! values call for. Such a bound is a policy of its own, not MX.

use super::build::{filled, place, sized, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;

pub(super) const CLASS: Class = Class {
    name: "epsilon",
    aim: "amaxes below and above the bounds that recipes put under them",
    faults: &[
        "DeepGEMM: amax clamped to 1e-4",
        "ROCm TransformerEngine PR 737: amax epsilon",
        "aiter PR 4195: amax epsilon",
        "flashinfer PR 5024: scale of a tiny amax overflows",
    ],
    source: Source::Blocks { count, block },
};

/// Exponents around 1e-38, 1e-30, 1e-20, 1e-15, 1e-12, 1e-10, 1e-8, f32 epsilon, 1e-6, 1e-5, 1e-4, 1e-3; the lowest first.
const EXPONENTS: [i32; 26] = [
    -124, -110, -101, -100, -99, -90, -67, -66, -50, -49, -41, -39, -35, -34, -33, -30, -27, -24,
    -23, -20, -17, -16, -15, -14, -13, -10,
];

fn exponents(q: &Quantize) -> impl Iterator<Item = i32> {
    let lowest = bits::min_exponent(q.input);
    EXPONENTS.into_iter().filter(move |&exponent| exponent >= lowest)
}

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, 2 * exponents(q).count() as u64)
}

fn block(q: &Quantize, n: u64) -> Block {
    let amax = exponents(q)
        .nth((n / 2) as usize)
        .and_then(|exponent| bits::power(q.input, exponent))
        .unwrap_or(1);
    let (lane, negative) = place(n);
    if n.is_multiple_of(2) {
        [amax; LANES]
    } else {
        filled(q, &mut stream(CLASS.name, q, n), amax, lane, negative)
    }
}
