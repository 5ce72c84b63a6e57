//! Why a vector class is there although others detect every fault model that it detects.

/// Class and reason.
pub const REASONS: &[(&str, &str)] =
    &[("pairs", "level exhaustive: a proof over every (amax, x) pair, not a sample")];
