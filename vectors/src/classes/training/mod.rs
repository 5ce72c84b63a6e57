//! Training steps: linear layers, grouped layers, exchanges, and scale layouts of groups.

pub(super) mod all_to_all;
pub(super) mod group_swizzle;
pub(super) mod linear;

use crate::tensor::{Data, Tensor};

/// Sizes of token groups in blocks of 32: equal ones, and an empty one in every place.
const GROUPS: [&[usize]; 5] = [&[1, 1, 1, 1], &[0, 1, 2, 1], &[1, 0, 0, 3], &[2, 1, 1, 0], &[4]];
/// Sizes in tokens that are no multiples of a block.
const RAGGED: [&[usize]; 3] = [&[1, 0, 95, 32], &[33, 31, 0, 64], &[0, 0, 127, 1]];

fn ends(sizes: impl Iterator<Item = usize>) -> Tensor {
    let ends: Vec<i32> = sizes
        .scan(0, |end, size| {
            *end += size as i32;
            Some(*end)
        })
        .collect();
    Tensor { shape: vec![ends.len()], data: Data::I32(ends) }
}
