//! Matrix products against values worked out here: by hand for single sums, in integers for long ones.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the report")]

mod bounds;
mod exact;
mod grouped;
mod models;
mod noise;
mod refused;
mod shapes;
mod side;
mod specials;
