//! Quantising and dequantising whole tensors.

use crate::block::Profile;
use crate::element::Element;
use crate::error::ShapeError;
use crate::format::{E8M0, Format};
use crate::matrix::{Input, MatrixView};
use crate::number::Number;
use crate::{Overflow, Rounding};

/// Which way blocks run through a row-major tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Along the last dimension (torchao's dim0 cast).
    Row,
    /// Along the first dimension (torchao's dim1 cast); results are those of the transposed tensor.
    Col,
}

impl Axis {
    /// The name in ids and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Col => "col",
        }
    }
}

/// The elements that share one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockShape {
    rows: usize,
    cols: usize,
}

impl BlockShape {
    /// 32 elements along the axis: OCP MX v1.0 §5.1.
    pub const MX: Self = Self { rows: 1, cols: 32 };
    /// 32 × 32 tiles.
    pub const TILE: Self = Self { rows: 32, cols: 32 };

    /// `size` elements along the axis.
    ///
    /// # Errors
    /// [`ShapeError::BlockSize`] unless `size` is a power of two from 8 to 128.
    pub const fn line(size: usize) -> Result<Self, ShapeError> {
        if size.is_power_of_two() && size >= 8 && size <= 128 {
            Ok(Self { rows: 1, cols: size })
        } else {
            Err(ShapeError::BlockSize(size))
        }
    }

    /// Rows of the (transposed, for [`Axis::Col`]) tensor in one block: 1 or 32.
    pub const fn rows(self) -> usize {
        self.rows
    }

    /// Columns in one block.
    pub const fn cols(self) -> usize {
        self.cols
    }
}

/// How to cut a tensor into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// Which way blocks run.
    pub axis: Axis,
    /// The shape of a block.
    pub shape: BlockShape,
    /// Whether a partial last block is filled with zeros. Without it a partial block is an error.
    pub pad: bool,
}

impl Blocking {
    /// MX blocks of 32 along the last dimension, no padding.
    pub const MX_ROW: Self = Self { axis: Axis::Row, shape: BlockShape::MX, pad: false };

    /// The shape of the codes, `(rows, cols)`, for a tensor of `rows` × `cols`: transposed for [`Axis::Col`], and padded
    /// where padding is on. Scales have one row per `shape.rows()` and one column per `shape.cols()` of it.
    ///
    /// # Errors
    /// [`ShapeError::PartialBlock`] names the axis, its length and the block size.
    pub fn code_shape(self, rows: usize, cols: usize) -> Result<(usize, usize), ShapeError> {
        let along = |axis: Axis, length: usize, block: usize| {
            if length.is_multiple_of(block) {
                Ok(length)
            } else if self.pad {
                Ok(length.next_multiple_of(block))
            } else {
                Err(ShapeError::PartialBlock { axis: axis.name(), length, block })
            }
        };
        // Tiles run both ways; a line's other side is 1 and always fits.
        let (outer, inner, across, running) = match self.axis {
            Axis::Row => (rows, cols, Axis::Col, Axis::Row),
            Axis::Col => (cols, rows, Axis::Row, Axis::Col),
        };
        Ok((along(across, outer, self.shape.rows)?, along(running, inner, self.shape.cols)?))
    }
}

/// A quantised tensor: one code a byte and plain scales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantized {
    /// Rows of `elements`.
    pub rows: usize,
    /// Columns of `elements`.
    pub cols: usize,
    /// `rows × cols` codes, row major, one a byte, upper bits 0. For [`Axis::Col`] this is the transpose of the input.
    pub elements: Vec<u8>,
    /// Rows of `scales`.
    pub scale_rows: usize,
    /// Columns of `scales`.
    pub scale_cols: usize,
    /// `scale_rows × scale_cols` E8M0 bytes, row major.
    pub scales: Vec<u8>,
}

/// Quantises a tensor.
///
/// # Errors
/// [`ShapeError::PartialBlock`] if the axis is no multiple of the block and padding is off.
///
/// ```
/// use mx_reference::{Blocking, Element, MatrixView, Profile, ScaleMode, convention::PROPAGATE, quantize};
/// let profile = Profile { element: Element::E4m3, mode: ScaleMode::Rceil, convention: &PROPAGATE };
/// let x = [1.0f32; 64];
/// let q = quantize(MatrixView::contiguous(&x, 2, 32)?, profile, Blocking::MX_ROW)?;
/// assert_eq!((q.scales, q.elements), (vec![0x77; 2], vec![0x78; 64]));
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
pub fn quantize<T: Input>(
    x: MatrixView<'_, T>,
    profile: Profile,
    blocking: Blocking,
) -> Result<Quantized, ShapeError> {
    let (rows, cols) = blocking.code_shape(x.rows(), x.cols())?;
    let x = match blocking.axis {
        Axis::Row => x,
        Axis::Col => x.transposed(),
    };
    let BlockShape { rows: block_rows, cols: block_cols } = blocking.shape;
    let (scale_rows, scale_cols) = (rows / block_rows, cols / block_cols);
    let mut elements = vec![0; rows * cols];
    let mut scales = vec![0; scale_rows * scale_cols];
    let mut input = vec![Number::ZERO; block_rows * block_cols];
    let mut codes = vec![0; input.len()];
    for sr in 0..scale_rows {
        for sc in 0..scale_cols {
            for (i, number) in input.iter_mut().enumerate() {
                let (r, c) = (sr * block_rows + i / block_cols, sc * block_cols + i % block_cols);
                *number =
                    if r < x.rows() && c < x.cols() { x.at(r, c).number() } else { Number::ZERO };
            }
            scales[sr * scale_cols + sc] = profile.quantize_block(&input, &mut codes);
            for (i, line) in codes.chunks_exact(block_cols).enumerate() {
                let start = (sr * block_rows + i) * cols + sc * block_cols;
                elements[start..start + block_cols].copy_from_slice(line);
            }
        }
    }
    Ok(Quantized { rows, cols, elements, scale_rows, scale_cols, scales })
}

/// The value of one code under one scale byte: their product, NaN if the scale is.
///
/// ```
/// use mx_reference::{Number, dequantize_code, format::{E4M3, E8M0}};
/// assert_eq!(dequantize_code(&E4M3, 0x38, &E8M0, 0x00), Number::finite(false, 8, -3 - 127));
/// assert!(dequantize_code(&E4M3, 0x38, &E8M0, 0xff).is_nan());
/// ```
#[inline]
pub const fn dequantize_code(element: &Format, code: u8, scale: &Format, byte: u8) -> Number {
    element.decode(code as u32).times(scale.decode(byte as u32))
}

/// Dequantises codes with plain E8M0 scales into raw bits of `output` (f32, bf16 or f16): the exact product rounded once to
/// nearest even, overflow to infinity, NaN as the format's quiet NaN.
///
/// `rows` and `cols` are those of the codes, `shape` the block; scales are `[rows / shape.rows(), cols / shape.cols()]`.
///
/// # Errors
/// [`ShapeError::PartialBlock`] or [`ShapeError::Length`] if codes, scales and shape do not fit.
pub fn dequantize(
    element: Element,
    (rows, cols): (usize, usize),
    shape: BlockShape,
    elements: &[u8],
    scales: &[u8],
    output: &Format,
) -> Result<Vec<u32>, ShapeError> {
    check_quantized((rows, cols), shape, elements.len(), scales.len())?;
    let scale_cols = cols / shape.cols;
    Ok(elements
        .iter()
        .enumerate()
        .map(|(i, &code)| {
            let (r, c) = (i / cols, i % cols);
            let byte = scales[r / shape.rows * scale_cols + c / shape.cols];
            let value = dequantize_code(element.format(), code, &E8M0, byte);
            output.encode(value, Rounding::NearestEven, Overflow::Propagate)
        })
        .collect())
}

/// Checks that codes and plain scales of these lengths make a quantised tensor.
///
/// # Errors
/// [`ShapeError::PartialBlock`] or [`ShapeError::Length`].
pub fn check_quantized(
    (rows, cols): (usize, usize),
    shape: BlockShape,
    elements: usize,
    scales: usize,
) -> Result<(), ShapeError> {
    Blocking { axis: Axis::Row, shape, pad: false }.code_shape(rows, cols)?;
    let length = |what, expected: Option<usize>, got| match expected {
        Some(expected) if expected == got => Ok(()),
        expected => Err(ShapeError::Length { what, expected: expected.unwrap_or(usize::MAX), got }),
    };
    length("elements", rows.checked_mul(cols), elements)?;
    length("scales", (rows / shape.rows).checked_mul(cols / shape.cols), scales)
}
