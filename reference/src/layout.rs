//! Scale layouts: plain, transposed, and the blocked 128×4 order that tensor cores read; each with its inverse.

use crate::error::ShapeError;

/// How the scales of a tensor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleLayout {
    /// Row major, as computed.
    Plain,
    /// Column major.
    Transposed,
    /// Tiles of 128 rows × 4 columns, swizzled and zero padded: cuBLASLt `VEC32_UE8M0`, CUTLASS `Sm1xxBlkScaledConfig`,
    /// torchao `to_blocked`.
    Blocked,
}

impl ScaleLayout {
    /// The name in ids and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Transposed => "transposed",
            Self::Blocked => "blocked",
        }
    }

    /// Bytes that `rows` × `cols` scales take, `None` if that exceeds memory.
    pub const fn len(self, rows: usize, cols: usize) -> Option<usize> {
        match self {
            Self::Plain | Self::Transposed => rows.checked_mul(cols),
            Self::Blocked => match rows.div_ceil(128).checked_mul(cols.div_ceil(4)) {
                Some(tiles) => tiles.checked_mul(512),
                None => None,
            },
        }
    }

    /// Where the scale of (r, c) lies.
    #[inline]
    pub const fn offset(self, (rows, cols): (usize, usize), r: usize, c: usize) -> usize {
        match self {
            Self::Plain => r * cols + c,
            Self::Transposed => c * rows + r,
            Self::Blocked => blocked_offset(cols, r, c),
        }
    }

    /// The row and column whose scale lies at `offset`; `None` for padding and beyond the end.
    pub const fn place(
        self,
        (rows, cols): (usize, usize),
        offset: usize,
    ) -> Option<(usize, usize)> {
        if rows == 0 || cols == 0 {
            return None;
        }
        let (r, c) = match self {
            Self::Plain => (offset / cols, offset % cols),
            Self::Transposed => (offset % rows, offset / rows),
            Self::Blocked => {
                let (tile, within) = (offset / 512, offset % 512);
                let across = cols.div_ceil(4);
                let r = tile / across * 128 + within % 16 / 4 * 32 + within / 16;
                (r, tile % across * 4 + within % 4)
            }
        };
        if r < rows && c < cols { Some((r, c)) } else { None }
    }

    /// Brings plain scales into this layout; padding of the blocked layout is zero.
    ///
    /// # Errors
    /// [`ShapeError::Length`] unless `plain` has `rows × cols` bytes.
    pub fn arrange(
        self,
        (rows, cols): (usize, usize),
        plain: &[u8],
    ) -> Result<Vec<u8>, ShapeError> {
        let length = expect("plain scales", Self::Plain.len(rows, cols), plain.len())
            .and(Ok(self.len(rows, cols).unwrap_or(0)))?;
        let mut out = vec![0; length];
        if plain.is_empty() {
            return Ok(out);
        }
        for r in 0..rows {
            for c in 0..cols {
                out[self.offset((rows, cols), r, c)] = plain[r * cols + c];
            }
        }
        Ok(out)
    }

    /// Brings scales of this layout back to plain order, dropping padding.
    ///
    /// # Errors
    /// [`ShapeError::Length`] unless `arranged` has [`Self::len`] bytes.
    pub fn restore(
        self,
        (rows, cols): (usize, usize),
        arranged: &[u8],
    ) -> Result<Vec<u8>, ShapeError> {
        expect("arranged scales", self.len(rows, cols), arranged.len())?;
        if rows == 0 || cols == 0 {
            return Ok(Vec::new());
        }
        let mut out = Vec::with_capacity(rows.saturating_mul(cols).min(arranged.len()));
        for r in 0..rows {
            out.extend((0..cols).map(|c| arranged[self.offset((rows, cols), r, c)]));
        }
        Ok(out)
    }
}

fn expect(what: &'static str, expected: Option<usize>, got: usize) -> Result<(), ShapeError> {
    match expected {
        Some(expected) if expected == got => Ok(()),
        _ => Err(ShapeError::Length { what, expected: expected.unwrap_or(usize::MAX), got }),
    }
}

/// Byte offset of the scale of row `r`, column `c` in the blocked layout of a tensor with `cols` scale columns:
/// 512-byte tiles of 128 × 4, within which four groups of 32 rows are interleaved
/// (cuBLAS documentation, "1D block scaling factors layout").
#[inline]
pub const fn blocked_offset(cols: usize, r: usize, c: usize) -> usize {
    (r / 128 * cols.div_ceil(4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 0, 0)]
    #[case(0, 3, 3)]
    #[case(1, 0, 16)]
    #[case(31, 0, 496)]
    #[case(32, 0, 4)]
    #[case(127, 3, 511)]
    #[case(0, 4, 512)]
    #[case(128, 0, 1024)]
    fn blocked_offsets(#[case] r: usize, #[case] c: usize, #[case] offset: usize) {
        assert_eq!(blocked_offset(5, r, c), offset);
    }

    #[rstest]
    fn restoring_undoes_arranging(
        #[values(ScaleLayout::Plain, ScaleLayout::Transposed, ScaleLayout::Blocked)]
        layout: ScaleLayout,
        #[values((1, 1), (130, 5), (256, 16), (9, 3))] shape: (usize, usize),
    ) {
        let plain: Vec<u8> = (0..shape.0 * shape.1).map(|i| (i % 251) as u8).collect();
        let arranged = layout.arrange(shape, &plain).unwrap();
        assert_eq!(arranged.len(), layout.len(shape.0, shape.1).unwrap());
        assert_eq!(layout.restore(shape, &arranged).unwrap(), plain);
        let places: Vec<_> =
            (0..arranged.len() + 5).filter_map(|i| layout.place(shape, i)).collect();
        assert_eq!(places.len(), plain.len());
        for (r, c) in places {
            assert_eq!(layout.place(shape, layout.offset(shape, r, c)), Some((r, c)));
        }
    }

    #[test]
    fn padding_is_zero() {
        // A side of 0 makes the other free: nothing may walk it.
        assert_eq!(ScaleLayout::Blocked.arrange((usize::MAX / 1024, 0), &[]), Ok(vec![]));
        let arranged = ScaleLayout::Blocked.arrange((1, 1), &[0xff]).unwrap();
        assert_eq!(arranged.iter().filter(|&&b| b != 0).count(), 1);
        assert_eq!(arranged.len(), 512);
    }
}
