//! Amaxes for which the scale modes disagree, in many binades.
//!
//! Between a power of two and max only CEIL steps up; between max and EVEN's threshold CEIL and RCEIL do; above it all but
//! FLOOR. A mode that is dropped on the way to the kernel shows in one of the three, and a certificate for one mode is no
//! certificate for another.

use super::build::{filled, place, sized, spread, stream, thresholds};
use crate::bits;
use crate::class::{Block, Class, Level, Source};
use crate::op::Quantize;
use mx_reference::ScaleMode;

pub(super) const CLASS: Class = Class {
    name: "modes",
    aim: "amaxes that tell FLOOR, CEIL, EVEN and RCEIL apart, across binades",
    faults: &[
        "torchao PR 3686, 3522: scaling mode not forwarded to the kernel",
        "aiter PR 3212: FLOOR by default",
        "vLLM PR 43557: NVFP4-style rule for MXFP4 scales",
        "compressed-tensors PR 551: EVEN threshold of another format",
        "aiter PR 3451: rounding to a power of two skipped",
        "FlyDSL PR 590: nearest for RCEIL",
        "float4 crate 0.2: scale ignores the element's max",
    ],
    source: Source::Blocks { count, block },
};

const ZONES: u64 = 3;

fn binades(q: &Quantize) -> u64 {
    u64::from(bits::infinity(q.input) >> q.input.format().mantissa_bits) - 1
}

fn count(q: &Quantize, level: Level) -> u64 {
    sized(q, level, 1, ZONES * binades(q).min(64))
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut stream = stream(CLASS.name, q, n);
    let mantissa_bits = q.input.format().mantissa_bits;
    let ([_, max, even], _) = thresholds(q);
    // The zone that `thresholds` does not begin with comes first.
    let zone = if q.mode == ScaleMode::Even { n + 2 } else { n } % ZONES;
    let (first, end) = match zone {
        0 => (1, max + 1),
        // Empty for MXINT8 in bf16, where EVEN's threshold is next to max.
        1 => (max + 1, even.max(max + 2)),
        _ => (even, 1 << mantissa_bits),
    };
    let mantissa = first + stream.below(u64::from(end - first)) as u32;
    let start = q.input.format().bias as u64 - 1;
    let field = 1 + (start + spread(n / ZONES, binades(q))) % binades(q);
    let (lane, negative) = place(n);
    filled(q, &mut stream, (field as u32) << mantissa_bits | mantissa, lane, negative)
}
