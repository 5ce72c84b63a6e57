//! Faults that the vectors do not detect yet, or by one case alone, each with the inputs that would.
//!
//! A new case changes the suite of its cells, and with it what committed certificates of hardware rest on, so that these wait for the next
//! run on that hardware.

use globset::Glob;

/// A model, a glob over profiles, and what would detect it.
pub const GAPS: &[[&str; 3]] = &[
    [
        "rceil-mantissa-mask",
        "quantize/e2m3/rceil/f32",
        "amaxes of 9/8, 5/4 and 3/2 times the element's max",
    ],
    [
        "decode-scale-of-block-16",
        "dequantize/*",
        "a second matrix with another scale in every block",
    ],
    ["cheat-first-batch-only", "dequantize/*", "a second matrix with another scale in every block"],
    [
        "gemm-k-tail-dropped",
        "gemm/*/mx/f32",
        "a K that is no multiple of 64 for pairs of two formats, too",
    ],
    ["gemm-rounded-twice", "gemm/*", "a second case of sums beside a tie in cells of one shape"],
    [
        "gemm-subnormal-outputs-flushed",
        "gemm/bf16-bf16/plain/f16",
        "a second case with sums below 2^-14",
    ],
    ["cheat-outputs-of-previous-call", "*", "a round of the same shapes under a hidden seed"],
    ["cheat-cached-by-shape", "*", "a round of the same shapes under a hidden seed"],
];

/// What would detect a model in a profile in which it is known to survive.
pub(super) fn gap(model: &str, profile: &str) -> Option<&'static str> {
    let holds = |pattern: &str| {
        Glob::new(pattern).is_ok_and(|glob| glob.compile_matcher().is_match(profile))
    };
    GAPS.iter()
        .find(|[name, pattern, _]| *name == model && holds(pattern))
        .map(|[.., wanted]| *wanted)
}
