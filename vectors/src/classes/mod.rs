//! The vector classes: one file each, named for what it aims at.

mod build;
mod matrix;

pub mod bug_blocks;
mod cast_all;
mod cast_codes;
mod cast_ladder;
mod cast_same_shape;
mod cross_type;
mod decode;
mod double_rounding;
mod epsilon;
mod extreme_scales;
mod gemm;
mod lane_roles;
mod layout_fingerprint;
mod metamorphic;
mod modes;
mod mosaic;
mod own_grid;
mod pack;
mod padding;
mod pairs;
mod random;
mod real_tensors;
mod saturation;
mod shapes;
mod signed_zero;
mod special_lanes;
mod strides;
mod subnormals;
mod swizzle;
mod thresholds;
mod ties;
mod training;

use crate::Class;

/// Every class, in the order of runs: what decides scales, what decides codes, families, data, then whole tensors.
pub static ALL: [Class; 43] = [
    thresholds::CLASS,
    modes::CLASS,
    extreme_scales::CLASS,
    epsilon::CLASS,
    special_lanes::CLASS,
    lane_roles::CLASS,
    ties::CLASS,
    double_rounding::CLASS,
    saturation::CLASS,
    subnormals::CLASS,
    signed_zero::CLASS,
    own_grid::CLASS,
    metamorphic::CLASS,
    cross_type::CLASS,
    bug_blocks::CLASS,
    real_tensors::CLASS,
    random::CLASS,
    pairs::CLASS,
    layout_fingerprint::CLASS,
    padding::CLASS,
    shapes::CLASS,
    strides::CLASS,
    decode::CLASS,
    cast_codes::CLASS,
    cast_all::CLASS,
    cast_ladder::CLASS,
    cast_same_shape::CLASS,
    pack::CLASS,
    swizzle::CLASS,
    gemm::products::CLASS,
    gemm::one_hot::CLASS,
    gemm::scale_pairs::CLASS,
    gemm::order_invariant::X11,
    gemm::order_invariant::X14,
    gemm::order_invariant::X24,
    gemm::specials::CLASS,
    gemm::bounded::G3,
    gemm::bounded::G4,
    gemm::masks::CLASS,
    gemm::grouped::CLASS,
    training::linear::CLASS,
    training::all_to_all::CLASS,
    training::group_swizzle::CLASS,
];
