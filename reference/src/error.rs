//! Errors of shape and layout.

use core::fmt;

/// Why an operation on whole tensors was refused. Every variant says what was expected and what came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// Rows, columns and strides do not fit the buffer.
    View {
        /// Elements the view reaches, at least.
        needed: usize,
        /// Elements the buffer holds.
        available: usize,
    },
    /// A block size other than a power of two from 8 to 128.
    BlockSize(usize),
    /// An axis that is not a multiple of the block, without padding.
    PartialBlock {
        /// `row` (along the last dimension) or `col` (along the first).
        axis: &'static str,
        /// Length of that axis.
        length: usize,
        /// The block size.
        block: usize,
    },
    /// A buffer whose length does not match the shape beside it.
    Length {
        /// Which buffer.
        what: &'static str,
        /// The length that the shape calls for.
        expected: usize,
        /// The length that came.
        got: usize,
    },
    /// Group offsets that decrease or reach beyond the tensor.
    Offsets {
        /// Which offset.
        index: usize,
        /// The one before, 0 for the first.
        previous: i64,
        /// The offset.
        got: i64,
        /// Length of the axis that is grouped.
        end: usize,
    },
    /// A group along a contraction that does not end at a block.
    GroupStart {
        /// Which offset.
        index: usize,
        /// The offset.
        got: i64,
        /// The block size.
        multiple: usize,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::View { needed, available } => write!(
                f,
                "the view reaches element {needed} of a buffer of {available}; check rows, columns, strides and offset"
            ),
            Self::BlockSize(block) => write!(
                f,
                "block size {block} is not one of 8, 16, 32, 64, 128 (or 32x32 for tiles)"
            ),
            Self::PartialBlock { axis, length, block } => write!(
                f,
                "axis {axis} has length {length}, which is not a multiple of the block size {block}; pad the tensor or ask for zero padding"
            ),
            Self::Length { what, expected, got } => {
                write!(f, "{what}: expected {expected} values for this shape, got {got}")
            }
            Self::Offsets { index, previous, got, end } => write!(
                f,
                "group offset {index} is {got}, after {previous}; expected cumulative group ends that never decrease and stay within {end}"
            ),
            Self::GroupStart { index, got, multiple } => write!(
                f,
                "group offset {index} is {got}, which is not a multiple of the block size {multiple}; pad each group to whole blocks"
            ),
        }
    }
}

impl std::error::Error for ShapeError {}
