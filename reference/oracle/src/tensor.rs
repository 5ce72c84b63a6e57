//! Whole tensors.

use crate::Profile;

/// Which way blocks run through a row-major tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Along the last dimension.
    Row,
    /// Along the first: results are those of the transposed tensor.
    Col,
}

/// How a tensor is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// Which way blocks run.
    pub axis: Axis,
    /// Rows of a block, in the transposed tensor for [`Axis::Col`].
    pub rows: usize,
    /// Columns of a block.
    pub cols: usize,
}

/// A quantised tensor, row major; transposed for [`Axis::Col`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantized {
    /// Rows of `elements`.
    pub rows: usize,
    /// Columns of `elements`.
    pub cols: usize,
    /// One code a byte.
    pub elements: Vec<u8>,
    /// One byte a block: a row for each row of blocks.
    pub scales: Vec<u8>,
}

/// Quantises a tensor of which `at(row × cols + col)` gives the bits. Partial blocks are filled up with positive zeros, and
/// their codes are part of the result.
///
/// # Panics
/// If a side of the block is 0, or the profile's element no element format.
pub fn quantize(
    profile: Profile,
    blocking: Blocking,
    rows: usize,
    cols: usize,
    at: impl Fn(usize) -> u32,
) -> Quantized {
    let (height, width) = match blocking.axis {
        Axis::Row => (rows, cols),
        Axis::Col => (cols, rows),
    };
    let bits = |r: usize, c: usize| match blocking.axis {
        _ if r >= height || c >= width => 0,
        Axis::Row => at(r * cols + c),
        Axis::Col => at(c * cols + r),
    };
    let (down, across) = (height.div_ceil(blocking.rows), width.div_ceil(blocking.cols));
    let (out_rows, out_cols) = (down * blocking.rows, across * blocking.cols);
    let mut elements = vec![0; out_rows * out_cols];
    let mut scales = Vec::with_capacity(down * across);
    let mut input = vec![0; blocking.rows * blocking.cols];
    let mut codes = vec![0; input.len()];
    for block in 0..down * across {
        let (top, left) = (block / across * blocking.rows, block % across * blocking.cols);
        for (line, r) in input.chunks_exact_mut(blocking.cols).zip(top..) {
            for (slot, c) in line.iter_mut().zip(left..) {
                *slot = bits(r, c);
            }
        }
        scales.push(profile.quantize_block(&input, &mut codes));
        for (line, r) in codes.chunks_exact(blocking.cols).zip(top..) {
            elements[r * out_cols + left..][..blocking.cols].copy_from_slice(line);
        }
    }
    Quantized { rows: out_rows, cols: out_cols, elements, scales }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Convention, Float, Format, Mode};

    const PROFILE: Profile = Profile {
        element: Format::E2m1,
        mode: Mode::Floor,
        convention: Convention::Propagate,
        input: Float::F32,
    };

    #[test]
    fn columns_are_rows_of_the_transpose() {
        let (rows, cols) = (6, 4);
        let x: Vec<u32> = (0..24u8).map(|i| (f32::from(i) * 1.7 - 20.0).to_bits()).collect();
        let transposed: Vec<u32> = (0..24).map(|i| x[i % rows * cols + i / rows]).collect();
        for (block_rows, block_cols) in [(1, 3), (2, 2), (3, 4)] {
            let blocking = |axis| Blocking { axis, rows: block_rows, cols: block_cols };
            let by_col = quantize(PROFILE, blocking(Axis::Col), rows, cols, |i| x[i]);
            let by_row = quantize(PROFILE, blocking(Axis::Row), cols, rows, |i| transposed[i]);
            assert_eq!(by_col, by_row);
        }
    }

    #[test]
    fn tiles_and_padding() {
        // Amax 4 on the left, 32 on the right of a 2 × 3 tensor in 2 × 2 tiles.
        let x = [1.0f32, 4.0, 32.0, 2.0, -3.0, -8.0].map(f32::to_bits);
        let blocking = Blocking { axis: Axis::Row, rows: 2, cols: 2 };
        let q = quantize(PROFILE, blocking, 2, 3, |i| x[i]);
        assert_eq!((q.rows, q.cols), (2, 4));
        assert_eq!(q.scales, [0x7f, 0x82]);
        assert_eq!(q.elements, [0x2, 0x6, 0x6, 0x0, 0x4, 0xd, 0xa, 0x0]);
    }
}
