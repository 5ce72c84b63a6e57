//! Quantising whole tensors on the current rayon pool.

use mx_reference::{
    Axis, BlockShape, Blocking, Input, Matrix, MatrixView, Profile, Quantized, ShapeError,
};
use rayon::prelude::*;

use crate::columns::{Columns, SPAN};
use crate::dispatch::dispatch;
use crate::plan::Plan;
use crate::rows::Lines;
use crate::tiles::Tiles;

/// Elements of one task, about; tensors up to this size are done by the calling thread.
const TASK: usize = 1 << 16;

/// Quantises a tensor: [`mx_reference::quantize()`], faster.
///
/// # Errors
/// [`ShapeError::PartialBlock`] if the axis is no multiple of the block and padding is off.
pub fn quantize<'a>(
    x: impl Into<Matrix<'a>>,
    profile: Profile,
    blocking: Blocking,
) -> Result<Quantized, ShapeError> {
    let x = x.into();
    let (rows, cols) = x.shape();
    let (rows, cols) = blocking.code_shape(rows, cols)?;
    let (scale_rows, scale_cols) = (rows / blocking.shape.rows(), cols / blocking.shape.cols());
    let mut elements = vec![0; rows * cols];
    let mut scales = vec![0; scale_rows * scale_cols];
    quantize_into(x, profile, blocking, &mut elements, &mut scales)?;
    Ok(Quantized { rows, cols, elements, scale_rows, scale_cols, scales })
}

/// Quantises a tensor into buffers of the caller's: `elements` has the shape that [`Blocking::code_shape`] gives, `scales` one
/// entry per block of it, both row major.
///
/// # Errors
/// [`ShapeError::PartialBlock`] as in [`quantize`], [`ShapeError::Length`] if a buffer has another length; nothing is written
/// then.
pub fn quantize_into<'a>(
    x: impl Into<Matrix<'a>>,
    profile: Profile,
    blocking: Blocking,
    elements: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ShapeError> {
    // From here on nothing is generic for callers: kernels are compiled once, in this crate.
    match x.into() {
        Matrix::F32(x) => typed(x, profile, blocking, elements, scales),
        Matrix::Bf16(x) => typed(x, profile, blocking, elements, scales),
        Matrix::F16(x) => typed(x, profile, blocking, elements, scales),
    }
}

fn typed<T: Input>(
    x: MatrixView<'_, T>,
    profile: Profile,
    blocking: Blocking,
    elements: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ShapeError> {
    let (rows, cols) = blocking.code_shape(x.rows(), x.cols())?;
    let shape = blocking.shape;
    expect("elements", rows.checked_mul(cols), elements.len())?;
    expect("scales", (rows / shape.rows()).checked_mul(cols / shape.cols()), scales.len())?;
    if elements.is_empty() {
        return Ok(());
    }
    let x = match blocking.axis {
        Axis::Row => x,
        Axis::Col => x.transposed(),
    };
    let plan = &Plan::new::<T>(profile);
    let (block, scale_cols) = (shape.cols(), cols / shape.cols());
    let element = profile.element;
    let across = x.transposed();
    if x.row(0).is_none() && across.row(0).is_some() {
        let chunks = (SPAN * cols, SPAN / shape.rows() * scale_cols);
        each(chunks, elements, scales, |i, codes, scales| {
            let left = i * SPAN;
            dispatch(
                element,
                Columns { plan, shape, x: across, left, codes, length: cols, scales },
            );
        });
    } else if shape.rows() > 1 {
        let strip = shape.rows();
        each((strip * cols, scale_cols), elements, scales, |i, codes, scales| {
            let top = i * strip;
            dispatch(element, Tiles { plan, x, top, codes, scales });
        });
    } else {
        let blocks = TASK / block;
        each((blocks * block, blocks), elements, scales, |i, codes, scales| {
            let first = i * blocks;
            dispatch(element, Lines { plan, block, x, first, codes, scales });
        });
    }
    Ok(())
}

/// Quantises `input`, blocks of `block` elements side by side, on the calling thread: for sweeps that bring their own threads.
///
/// # Errors
/// [`ShapeError::BlockSize`] or [`ShapeError::PartialBlock`] for the block, [`ShapeError::Length`] unless there is one code per
/// element and one scale per block.
///
/// ```
/// use mx_reference::{Element, Profile, ScaleMode, convention::PROPAGATE};
/// let profile = Profile { element: Element::E2m1, mode: ScaleMode::Even, convention: &PROPAGATE };
/// let (mut codes, mut scales) = ([0; 32], [0; 1]);
/// mx_native::quantize_row(profile, 32, &[7.0f32; 32], &mut codes, &mut scales)?;
/// assert_eq!((codes[0], scales[0]), (0x6, 0x80));
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
pub fn quantize_row<T: Input>(
    profile: Profile,
    block: usize,
    input: &[T],
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ShapeError> {
    match MatrixView::contiguous(input, 1, input.len())?.into() {
        Matrix::F32(x) => typed_row(profile, block, x, codes, scales),
        Matrix::Bf16(x) => typed_row(profile, block, x, codes, scales),
        Matrix::F16(x) => typed_row(profile, block, x, codes, scales),
    }
}

fn typed_row<T: Input>(
    profile: Profile,
    block: usize,
    x: MatrixView<'_, T>,
    codes: &mut [u8],
    scales: &mut [u8],
) -> Result<(), ShapeError> {
    let shape = BlockShape::line(block)?;
    Blocking { axis: Axis::Row, shape, pad: false }.code_shape(1, x.cols())?;
    expect("elements", Some(x.cols()), codes.len())?;
    expect("scales", Some(x.cols() / block), scales.len())?;
    let plan = &Plan::new::<T>(profile);
    dispatch(profile.element, Lines { plan, block, x, first: 0, codes, scales });
    Ok(())
}

/// Cuts the output into chunks of these many elements and scales and does the work on each, whose number it is given.
fn each(
    chunks: (usize, usize),
    elements: &mut [u8],
    scales: &mut [u8],
    work: impl Fn(usize, &mut [u8], &mut [u8]) + Sync,
) {
    if elements.len() <= TASK {
        let parts = elements.chunks_mut(chunks.0).zip(scales.chunks_mut(chunks.1));
        parts.enumerate().for_each(|(i, (codes, scales))| work(i, codes, scales));
    } else {
        let parts = elements.par_chunks_mut(chunks.0).zip(scales.par_chunks_mut(chunks.1));
        parts.enumerate().for_each(|(i, (codes, scales))| work(i, codes, scales));
    }
}

/// Checks the length of a buffer.
pub(crate) fn expect(
    what: &'static str,
    expected: Option<usize>,
    got: usize,
) -> Result<(), ShapeError> {
    match expected {
        Some(expected) if expected == got => Ok(()),
        _ => Err(ShapeError::Length { what, expected: expected.unwrap_or(usize::MAX), got }),
    }
}
