//! Values that f32, bf16 and f16 all hold, so that the three inputs must give the same bytes.
//!
//! Case n is the same block of numbers whatever the input type.

use super::build::sized;
use crate::bits;
use crate::class::{Block, Class, Level, Source};
use crate::op::Quantize;
use crate::rng::Stream;
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "cross-type",
    aim: "the same numbers as f32, bf16 and f16: the same scales and codes",
    faults: &[
        "TransformerEngine 3550: half-precision path of its own",
        "compressed-tensors PR 551: helper for bf16 only",
        "compressed-tensors PR 781: f32 packed as 16 bits",
        "flashinfer PR 3497: bf16 bytes read as f32",
        "TransformerEngine PR 2355: amax of a value before it was rounded",
    ],
    source: Source::Blocks { count, block },
};

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, 128)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = Stream::new(&[CLASS.name, q.element.name()], n);
    let highest = stream.below(30) as i32 - 14;
    std::array::from_fn(|_| {
        // bf16 has 8 significant bits; f16 goes down to 2^-24.
        let exponent = (highest - stream.below(10) as i32).max(-24 + 7) - 7;
        let x = Number::finite(stream.flag(), stream.below(256), exponent);
        bits::truncated(q.input, x)
    })
}
