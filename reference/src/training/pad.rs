//! Token groups padded to whole blocks.

use crate::error::ShapeError;
use crate::gemm::group_ranges;
use crate::matrix::{Input, MatrixView};
use crate::quantize::BlockShape;

/// A tensor of token groups, each padded with zero rows to a multiple of 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddedGroups<T> {
    /// Number of rows: those of the input and 32 for every group, rounded up to a multiple of 32. What padding does not need of this
    /// bound is zero rows at the end.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// `rows × cols` elements, row major.
    pub data: Vec<T>,
    /// Where each group starts.
    pub starts: Vec<usize>,
    /// Where each group ends with its padding: cumulative ends for a grouped product. Empty groups stay empty.
    pub ends: Vec<i32>,
}

impl<T: Copy> PaddedGroups<T> {
    /// A view of all rows.
    ///
    /// # Errors
    /// [`ShapeError::View`] if the fields were changed so that they do not fit each other.
    pub fn view(&self) -> Result<MatrixView<'_, T>, ShapeError> {
        MatrixView::contiguous(&self.data, self.rows, self.cols)
    }
}

/// Pads every group of rows with zeros to a multiple of 32; `ends` are cumulative ends, and rows beyond the last are dropped
/// (torchao `moe_training/kernels/mxfp8/quant.py::torch_pad_token_groups`, there of all rows).
///
/// # Errors
/// [`ShapeError::Offsets`] if the ends decrease or overrun, or padded ends exceed an i32; [`ShapeError::View`] if the result exceeds
/// memory.
///
/// ```
/// use mx_reference::{MatrixView, training::pad_token_groups};
/// let tokens: Vec<f32> = (0..40).map(|i| i as f32).collect();
/// let padded = pad_token_groups(MatrixView::contiguous(&tokens, 40, 1)?, &[1, 1, 40])?;
/// assert_eq!((padded.rows, &padded.starts[..], &padded.ends[..]), (160, &[0, 32, 32][..], &[32, 32, 96][..]));
/// assert_eq!(padded.data[30..35], [0.0, 0.0, 1.0, 2.0, 3.0]);
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
pub fn pad_token_groups<T: Input + Default>(
    x: MatrixView<'_, T>,
    ends: &[i32],
) -> Result<PaddedGroups<T>, ShapeError> {
    const BLOCK: usize = BlockShape::MX.cols();
    let groups = group_ranges(ends, x.rows(), 1)?;
    let cols = x.cols();
    let bound = groups.len().checked_mul(BLOCK).and_then(|padding| x.rows().checked_add(padding));
    let rows = bound.and_then(|bound| bound.checked_next_multiple_of(BLOCK));
    let elements = rows.and_then(|rows| rows.checked_mul(cols));
    let (Some(rows), Some(elements)) = (rows, elements) else {
        return Err(ShapeError::View { needed: usize::MAX, available: isize::MAX as usize });
    };
    let mut data = vec![T::default(); elements];
    let (mut starts, mut padded) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (index, group) in groups.into_iter().enumerate() {
        for r in group.clone() {
            let row = (start + r - group.start) * cols;
            for c in 0..cols {
                data[row + c] = x.at(r, c);
            }
        }
        let end = start + group.len().next_multiple_of(BLOCK);
        starts.push(start);
        padded.push(i32::try_from(end).map_err(|_| ShapeError::Offsets {
            index,
            previous: start as i64,
            got: end as i64,
            end: i32::MAX as usize,
        })?);
        start = end;
    }
    Ok(PaddedGroups { rows, cols, data, starts, ends: padded })
}
