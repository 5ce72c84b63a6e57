//! Blocked scales of grouped tensors: each group in the blocked 128×4 order on its own, inside a buffer whose size does not depend on
//! where the groups end; with their inverse.

use crate::error::ShapeError;
use crate::gemm::{GroupAxis, group_ranges};
use crate::layout::ScaleLayout;
use core::ops::Range;

/// The blocked layout of the scales of token groups.
///
/// | groups along | what they cut | bytes | group i starts at byte | inside |
/// |---|---|---|---|---|
/// | M | rows | (rows + 128·G) × ⌈cols⌉₄ | ⌈cols⌉₄ × Σ ⌈sizeⱼ⌉₁₂₈ over j < i | blocked, sizeᵢ × cols |
/// | K | columns | ⌈rows⌉₁₂₈ × (cols + 4·G) | ⌈rows⌉₁₂₈ × Σ ⌈sizeⱼ⌉₄ over j < i | blocked, rows × sizeᵢ |
///
/// ⌈x⌉ₙ is x rounded up to a multiple of n, G the number of groups. Whatever belongs to no scale is zero. Sizes and ends count rows or
/// columns of the scales: along K those of the elements over 32.
///
/// Source: torchao `moe_training/kernels/mxfp8/quant.py::torch_to_blocked_2d_M_groups` and `torch_to_blocked_2d_K_groups`, and the
/// `mx_block_rearrange_2d_M_groups` and `_K_groups` kernels, which pad columns along M to 4.
///
/// ```
/// use mx_reference::gemm::GroupAxis;
/// use mx_reference::grouped_layout::GroupedLayout;
/// let layout = GroupedLayout::new(GroupAxis::M, (3, 4), &[1, 3])?;
/// assert_eq!((layout.len(), layout.starts()), ((3 + 2 * 128) * 4, vec![0, 128]));
/// assert_eq!(layout.offset(2, 3), Some(128 * 4 + 16 + 3));
/// let plain: Vec<u8> = (1..=12).collect();
/// assert_eq!(layout.restore(&layout.arrange(&plain)?)?, plain);
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedLayout {
    axis: GroupAxis,
    rows: usize,
    cols: usize,
    groups: Vec<Range<usize>>,
    len: usize,
}

impl GroupedLayout {
    /// The layout of `rows` × `cols` scales in groups with these cumulative ends along `axis`. Scales beyond the last end belong to no
    /// group and are not stored.
    ///
    /// # Errors
    /// [`ShapeError::Offsets`] if ends decrease or overrun the axis; [`ShapeError::Length`] if the layout exceeds memory.
    pub fn new(
        axis: GroupAxis,
        (rows, cols): (usize, usize),
        ends: &[i32],
    ) -> Result<Self, ShapeError> {
        let (length, multiple, across, tile) = match axis {
            GroupAxis::M => (rows, 128, cols, 4),
            GroupAxis::K => (cols, 4, rows, 128),
        };
        let groups = group_ranges(ends, length, 1)?;
        let len = groups
            .len()
            .checked_mul(multiple)
            .and_then(|padding| length.checked_add(padding))
            .zip(across.checked_next_multiple_of(tile))
            .and_then(|(along, across)| along.checked_mul(across))
            .filter(|&len| isize::try_from(len).is_ok());
        match len {
            Some(len) => Ok(Self { axis, rows, cols, groups, len }),
            None => Err(ShapeError::Length {
                what: "blocked scales of groups",
                expected: usize::MAX,
                got: isize::MAX as usize,
            }),
        }
    }

    /// Bytes of the buffer.
    #[expect(clippy::len_without_is_empty, reason = "the size of a layout, not of a collection")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The row (along M) or column (along K) at which each group starts in the buffer.
    pub fn starts(&self) -> Vec<usize> {
        let multiple = match self.axis {
            GroupAxis::M => 128,
            GroupAxis::K => 4,
        };
        let sizes = self.groups.iter().map(|group| group.len().next_multiple_of(multiple));
        sizes
            .scan(0, |next, size| {
                *next += size;
                Some(*next - size)
            })
            .collect()
    }

    /// Where the scale of (r, c) lies; `None` outside the tensor and for a scale of no group.
    pub fn offset(&self, r: usize, c: usize) -> Option<usize> {
        if r >= self.rows || c >= self.cols {
            return None;
        }
        let along = match self.axis {
            GroupAxis::M => r,
            GroupAxis::K => c,
        };
        let number = self.groups.iter().position(|group| group.contains(&along))?;
        Some(self.place(self.starts()[number], &self.groups[number], r, c))
    }

    /// Where the scale of (r, c) lies in a group that starts there.
    fn place(&self, start: usize, group: &Range<usize>, r: usize, c: usize) -> usize {
        let blocked = ScaleLayout::Blocked;
        match self.axis {
            GroupAxis::M => {
                let within = blocked.offset((group.len(), self.cols), r - group.start, c);
                start * self.cols.next_multiple_of(4) + within
            }
            GroupAxis::K => {
                let within = blocked.offset((self.rows, group.len()), r, c - group.start);
                start * self.rows.next_multiple_of(128) + within
            }
        }
    }

    /// Calls `each` with the plain index and the place of every scale that belongs to a group.
    fn each(&self, mut each: impl FnMut(usize, usize)) {
        if self.rows == 0 || self.cols == 0 {
            return;
        }
        for (start, group) in self.starts().into_iter().zip(&self.groups) {
            let (rows, cols) = match self.axis {
                GroupAxis::M => (group.clone(), 0..self.cols),
                GroupAxis::K => (0..self.rows, group.clone()),
            };
            for r in rows {
                for c in cols.clone() {
                    each(r * self.cols + c, self.place(start, group, r, c));
                }
            }
        }
    }

    /// Brings plain scales into this layout.
    ///
    /// # Errors
    /// [`ShapeError::Length`] unless `plain` has rows × cols bytes.
    pub fn arrange(&self, plain: &[u8]) -> Result<Vec<u8>, ShapeError> {
        expect("plain scales", self.rows.checked_mul(self.cols), plain.len())?;
        let mut out = vec![0; self.len];
        self.each(|index, place| out[place] = plain[index]);
        Ok(out)
    }

    /// Brings scales of this layout back to plain order; those of no group are 0.
    ///
    /// # Errors
    /// [`ShapeError::Length`] unless `arranged` has [`Self::len`] bytes.
    pub fn restore(&self, arranged: &[u8]) -> Result<Vec<u8>, ShapeError> {
        expect("arranged scales", Some(self.len), arranged.len())?;
        let mut out = vec![0; self.rows.saturating_mul(self.cols)];
        self.each(|index, place| out[index] = arranged[place]);
        Ok(out)
    }
}

/// Brings the plain scales of `experts` weights, `rows` × `cols` each and one after the other, into the blocked layout, each weight on
/// its own (torchao `torch_to_blocked_per_group_3d`).
///
/// # Errors
/// [`ShapeError::Length`] unless `plain` has experts × rows × cols bytes.
pub fn arrange_experts(
    experts: usize,
    (rows, cols): (usize, usize),
    plain: &[u8],
) -> Result<Vec<u8>, ShapeError> {
    let one = ScaleLayout::Plain.len(rows, cols);
    expect("plain scales", one.and_then(|one| one.checked_mul(experts)), plain.len())?;
    each_expert(one, plain, |plain| ScaleLayout::Blocked.arrange((rows, cols), plain))
}

/// The inverse of [`arrange_experts`]: drops the padding of every weight.
///
/// # Errors
/// [`ShapeError::Length`] unless `arranged` has experts times the bytes of [`ScaleLayout::Blocked`].
pub fn restore_experts(
    experts: usize,
    (rows, cols): (usize, usize),
    arranged: &[u8],
) -> Result<Vec<u8>, ShapeError> {
    let one = ScaleLayout::Blocked.len(rows, cols);
    expect("arranged scales", one.and_then(|one| one.checked_mul(experts)), arranged.len())?;
    each_expert(one, arranged, |arranged| ScaleLayout::Blocked.restore((rows, cols), arranged))
}

fn each_expert(
    one: Option<usize>,
    data: &[u8],
    of: impl Fn(&[u8]) -> Result<Vec<u8>, ShapeError>,
) -> Result<Vec<u8>, ShapeError> {
    let parts: Result<Vec<_>, _> = data.chunks_exact(one.unwrap_or(1).max(1)).map(of).collect();
    Ok(parts?.concat())
}

fn expect(what: &'static str, expected: Option<usize>, got: usize) -> Result<(), ShapeError> {
    match expected {
        Some(expected) if expected == got => Ok(()),
        _ => Err(ShapeError::Length { what, expected: expected.unwrap_or(usize::MAX), got }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0, 0)] // the first group is empty, the second one row
    #[case(0, 4, 512)]
    #[case(1, 0, 1024)] // 128 rows of 8
    #[case(128, 4, 1024 + 512 + 31 * 16 + 12)]
    #[case(129, 0, 2048)]
    #[case(257, 1, 2048 + 1024 + 1)] // row 128 of its group
    fn groups_along_m(#[case] r: usize, #[case] c: usize, #[case] offset: usize) {
        let layout = GroupedLayout::new(GroupAxis::M, (258, 5), &[0, 1, 129, 258]).unwrap();
        assert_eq!(layout.starts(), [0, 0, 128, 256]);
        assert_eq!(layout.len(), (258 + 4 * 128) * 8);
        assert_eq!(layout.offset(r, c), Some(offset));
        assert_eq!(layout.offset(r, 5), None);
    }

    #[rstest]
    #[case(0, 0, 0)]
    #[case(129, 0, 512 + 16)]
    #[case(0, 1, 4 * 256)]
    #[case(129, 4, 1024 + 512 + 16 + 3)]
    #[case(0, 5, 8 * 256)]
    #[case(0, 9, 2048 + 512)]
    #[case(128, 9, 2048 + 3 * 512)]
    fn groups_along_k(#[case] r: usize, #[case] c: usize, #[case] offset: usize) {
        let layout = GroupedLayout::new(GroupAxis::K, (130, 11), &[0, 1, 5, 10]).unwrap();
        assert_eq!(layout.starts(), [0, 0, 4, 8]);
        assert_eq!(layout.len(), 256 * (11 + 4 * 4));
        assert_eq!(layout.offset(r, c), Some(offset));
        assert_eq!(layout.offset(r, 10), None, "of no group");
    }

    #[rstest]
    fn restoring_undoes_arranging(
        #[values(GroupAxis::M, GroupAxis::K)] axis: GroupAxis,
        #[values((260, 3), (130, 260), (1, 1), (0, 5), (5, 0))] shape: (usize, usize),
        #[values(&[0, 0, 1, 1][..], &[1][..], &[][..], &[0, 1, 129, 258][..])] ends: &[i32],
    ) {
        let length = if axis == GroupAxis::M { shape.0 } else { shape.1 };
        let Ok(layout) = GroupedLayout::new(axis, shape, ends) else {
            assert!(ends.last().is_some_and(|&end| end as usize > length));
            return;
        };
        let plain: Vec<u8> = (0..shape.0 * shape.1).map(|i| (i % 251) as u8 + 1).collect();
        let arranged = layout.arrange(&plain).unwrap();
        assert_eq!(arranged.len(), layout.len());
        let end = ends.last().map_or(0, |&end| end as usize);
        let mut stored = 0;
        for (r, c) in (0..shape.0).flat_map(|r| (0..shape.1).map(move |c| (r, c))) {
            let inside = if axis == GroupAxis::M { r < end } else { c < end };
            let byte = layout.offset(r, c).map(|offset| arranged[offset]);
            assert_eq!(byte, inside.then_some(plain[r * shape.1 + c]));
            stored += usize::from(inside);
        }
        // Every scale has a place of its own, and padding is zero.
        assert_eq!(arranged.iter().filter(|&&byte| byte != 0).count(), stored);
        let restored = layout.restore(&arranged).unwrap();
        for (i, (&byte, &restored)) in plain.iter().zip(&restored).enumerate() {
            let along = if axis == GroupAxis::M { i / shape.1 } else { i % shape.1 };
            assert_eq!(restored, if along < end { byte } else { 0 });
        }
    }

    #[test]
    fn experts_lie_one_after_the_other() {
        let plain: Vec<u8> = (0..2 * 130 * 5).map(|i| (i % 251) as u8 + 1).collect();
        let arranged = arrange_experts(2, (130, 5), &plain).unwrap();
        assert_eq!(arranged.len(), 2 * 4 * 512);
        assert_eq!(arranged[2048], plain[650]);
        assert_eq!(arranged[2048 + 3 * 512 + 16], plain[650 + 129 * 5 + 4]);
        assert_eq!(arranged.iter().filter(|&&byte| byte != 0).count(), 1300);
        assert_eq!(restore_experts(2, (130, 5), &arranged).unwrap(), plain);
        assert_eq!(arrange_experts(3, (0, 5), &[]), Ok(vec![]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for axis in GroupAxis::ALL {
            for ends in [&[3, 2][..], &[9], &[-1]] {
                let refused = GroupedLayout::new(axis, (8, 8), ends);
                assert!(matches!(refused, Err(ShapeError::Offsets { .. })));
            }
            let layout = GroupedLayout::new(axis, (8, 8), &[8]).unwrap();
            assert!(layout.arrange(&[0; 63]).is_err() && layout.restore(&[0; 64]).is_err());
            for shape in [(usize::MAX, 8), (8, usize::MAX), (0, usize::MAX), (usize::MAX, 0)] {
                assert!(GroupedLayout::new(axis, shape, &[0]).is_err());
            }
        }
        assert!(arrange_experts(2, (8, 8), &[0; 64]).is_err());
        assert!(arrange_experts(usize::MAX, (8, 8), &[0; 64]).is_err());
        assert!(restore_experts(2, (8, 8), &[0; 1023]).is_err());
    }
}
