//! Blocks as training and inference meet them: weights, activations with outlier channels, gradients, attention
//! probabilities.
//!
//! They catch little that the aimed classes miss, and they show what a fault costs: a failure here is one that a model
//! would have met.

use super::build::{normal, sized, stream};
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::Quantize;
use crate::rng::Stream;
use mx_reference::Number;

pub(super) const CLASS: Class = Class {
    name: "real-tensors",
    aim: "weights, activations with outlier channels, heavy-tailed gradients, attention probabilities",
    faults: &[
        "rMLX 463: half of Gaussian groups clip",
        "aiter PR 3212: 37 % of FP4 groups clip",
        "vLLM _mxfp8_e4m3_quantize_torch: element exponent left out of the scale",
        "miles PR 1054: quantisers that differ in few elements",
    ],
    source: Source::Blocks { count, block },
};

const KINDS: u64 = 4;

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 0, 40 * KINDS)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    match n % KINDS {
        // Standard deviations 2^-4 to 2^-7, as initialisation gives them.
        0 => {
            let exponent = -4 - (n / KINDS % 4) as i32;
            std::array::from_fn(|_| normal(q, &mut stream, exponent))
        }
        // Channels 3 and 20 run 2^5 to 2^7 times higher.
        1 => std::array::from_fn(|i| {
            let outlier = if i % 17 == 3 { 5 + (n / KINDS % 3) as i32 } else { 0 };
            normal(q, &mut stream, outlier)
        }),
        2 => std::array::from_fn(|_| gradient(q, &mut stream)),
        _ => probabilities(q, &mut stream),
    }
}

/// Small, with each further binade above half as likely.
fn gradient(q: &Quantize, stream: &mut Stream) -> u32 {
    let tail = stream.word().trailing_zeros().min(12) as i32;
    normal(q, stream, -14 + tail)
}

/// Weights whose binades are random, divided by their sum: in [0, 1], most of them near 0.
fn probabilities(q: &Quantize, stream: &mut Stream) -> Block {
    let weights: [u64; LANES] =
        std::array::from_fn(|_| (1 << 15 | stream.below(1 << 15)) << stream.below(16));
    let sum: u64 = weights.iter().sum();
    weights.map(|weight| bits::nearest(q.input, Number::finite(false, (weight << 24) / sum, -24)))
}
