//! Why a vector class is there although others detect every fault model that it detects.

/// Class and reason.
pub const REASONS: &[(&str, &str)] = &[
    (
        "thresholds",
        "every binade of the input type; others detect the same rules where they happen to look",
    ),
    ("modes", "tells modes apart by amaxes that are no thresholds, and stays small enough to read"),
    (
        "extreme-scales",
        "the only blocks on purpose at bytes 0, 1 and the top, which others reach by chance",
    ),
    ("epsilon", "the bounds that recipes put under an amax, whatever they are"),
    ("special-lanes", "every NaN payload and infinity in every lane; others have them in some"),
    (
        "lane-roles",
        "the amax in every lane with both signs; faults of other lanes than those modelled",
    ),
    ("ties", "every midpoint of every format, both signs; rounding faults of single codes"),
    (
        "double-rounding",
        "values within half an ulp of bf16 and f16, which other f32 data rarely has",
    ),
    ("saturation", "values between max and the next power of two, whatever the mode"),
    ("subnormals", "subnormal inputs and quarters of the smallest subnormal code"),
    ("signed-zero", "zeros of both signs in every lane, and underflow to each"),
    ("own-grid", "every finite code comes back: holds without a reference"),
    ("metamorphic", "relations between blocks: hold without a reference"),
    ("cross-type", "the same numbers in all three input types"),
    ("bug-blocks", "the block of each public fault, so that a failure names it"),
    ("real-tensors", "what models hold: nobody's aim, so that no aim is a blind spot"),
    ("random", "what no aim foresaw"),
    ("pairs", "level exhaustive: a proof over every (amax, x) pair, not a sample"),
    ("layout-fingerprint", "every byte tells its place, in shapes of several tiles"),
    ("padding", "shapes that leave padding in every direction, without a zero beside it"),
    ("cast-codes", "every code and midpoint of every target"),
    ("cast-all", "a proof: every 16-bit pattern"),
    ("cast-ladder", "every binade and single mantissa bit of f32"),
    ("cast-same-shape", "tensors of one shape, for answers kept from another call"),
    ("swizzle", "the layout alone, without a cast before it"),
    ("g0-products", "every code times every code"),
    ("g0-one-hot", "every element and scale of one operand told apart"),
    ("g0-scale-pairs", "every scale byte times every scale byte"),
    ("g1-x11", "sums that an f16 accumulator does not round: products of backends that have one"),
    ("g1-x14", "sums that 14 bits do not round: products of FP8 tensor cores"),
    ("g1-x24", "sums that f32 does not round and 14 bits do"),
];
