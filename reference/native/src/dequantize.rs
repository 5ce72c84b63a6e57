//! Dequantising by table: what the reference says of every code under a scale byte, asked once.

use std::sync::OnceLock;

use mx_reference::format::{BF16, E8M0, F16, F32};
use mx_reference::{
    BlockShape, Element, Format, Overflow, Rounding, ShapeError, check_quantized, dequantize_code,
};
use rayon::prelude::*;

use crate::quantize::expect;

/// Elements of one task, a multiple of every block.
const TASK: usize = 1 << 16;

/// The values of the 256 codes under each scale byte that came up so far.
type Tables = [OnceLock<Box<[u32; 256]>>; 256];

const fn empty() -> Tables {
    [const { OnceLock::new() }; 256]
}

/// The output formats whose tables are kept.
const KEPT: [Format; 3] = [F32, BF16, F16];
static TABLES: [[Tables; Element::ALL.len()]; KEPT.len()] =
    [const { [const { empty() }; Element::ALL.len()] }; KEPT.len()];

/// Dequantises codes with plain E8M0 scales into raw bits of any format: [`mx_reference::dequantize`], faster.
///
/// # Errors
/// [`ShapeError::PartialBlock`] or [`ShapeError::Length`] if codes, scales and shape do not fit.
pub fn dequantize(
    element: Element,
    size: (usize, usize),
    shape: BlockShape,
    elements: &[u8],
    scales: &[u8],
    output: &Format,
) -> Result<Vec<u32>, ShapeError> {
    check_quantized(size, shape, elements.len(), scales.len())?;
    let mut values = vec![0; elements.len()];
    by_table(element, size, shape, (elements, scales), output, &mut values, |bits| bits)?;
    Ok(values)
}

/// Dequantises into f32 bits, a word per code.
///
/// # Errors
/// As [`dequantize`], and [`ShapeError::Length`] unless there is one value per code.
pub fn dequantize_f32_into(
    element: Element,
    size: (usize, usize),
    shape: BlockShape,
    elements: &[u8],
    scales: &[u8],
    values: &mut [u32],
) -> Result<(), ShapeError> {
    by_table(element, size, shape, (elements, scales), &F32, values, |bits| bits)
}

/// Dequantises into the bits of bf16 or f16, a word per code; of a wider format these are the low half.
///
/// # Errors
/// As [`dequantize`], and [`ShapeError::Length`] unless there is one value per code.
pub fn dequantize_u16_into(
    element: Element,
    size: (usize, usize),
    shape: BlockShape,
    elements: &[u8],
    scales: &[u8],
    output: &Format,
    values: &mut [u16],
) -> Result<(), ShapeError> {
    by_table(element, size, shape, (elements, scales), output, values, |bits| bits as u16)
}

/// [`dequantize_f32_into`] a new vector.
///
/// # Errors
/// As [`dequantize`].
pub fn dequantize_f32(
    element: Element,
    size: (usize, usize),
    shape: BlockShape,
    elements: &[u8],
    scales: &[u8],
) -> Result<Vec<u32>, ShapeError> {
    dequantize(element, size, shape, elements, scales, &F32)
}

/// [`dequantize_u16_into`] a new vector.
///
/// # Errors
/// As [`dequantize`].
pub fn dequantize_u16(
    element: Element,
    size: (usize, usize),
    shape: BlockShape,
    elements: &[u8],
    scales: &[u8],
    output: &Format,
) -> Result<Vec<u16>, ShapeError> {
    check_quantized(size, shape, elements.len(), scales.len())?;
    let mut values = vec![0; elements.len()];
    dequantize_u16_into(element, size, shape, elements, scales, output, &mut values)?;
    Ok(values)
}

fn by_table<W: Send>(
    element: Element,
    (rows, cols): (usize, usize),
    shape: BlockShape,
    (elements, scales): (&[u8], &[u8]),
    output: &Format,
    values: &mut [W],
    word: impl Fn(u32) -> W + Sync,
) -> Result<(), ShapeError> {
    check_quantized((rows, cols), shape, elements.len(), scales.len())?;
    expect("values", Some(elements.len()), values.len())?;
    let own = empty();
    let kept = KEPT.iter().position(|format| format == output);
    let tables = kept.map_or(&own, |kept| &TABLES[kept][element as usize]);
    let (block, scale_cols) = (shape.cols(), cols / shape.cols());
    let blocks = TASK / block;
    let work = |(i, (values, codes)): (usize, (&mut [W], &[u8]))| {
        let (mut r, mut sc) = (i * blocks / scale_cols, i * blocks % scale_cols);
        for (values, codes) in values.chunks_exact_mut(block).zip(codes.chunks_exact(block)) {
            let byte = scales[r / shape.rows() * scale_cols + sc];
            let table = tables[usize::from(byte)].get_or_init(|| table(element, byte, output));
            for (value, &code) in values.iter_mut().zip(codes) {
                *value = word(table[usize::from(code)]);
            }
            sc += 1;
            if sc == scale_cols {
                (r, sc) = (r + 1, 0);
            }
        }
    };
    if elements.len() <= TASK {
        values.chunks_mut(TASK).zip(elements.chunks(TASK)).enumerate().for_each(work);
    } else {
        values.par_chunks_mut(TASK).zip(elements.par_chunks(TASK)).enumerate().for_each(work);
    }
    Ok(())
}

fn table(element: Element, byte: u8, output: &Format) -> Box<[u32; 256]> {
    let mut table = Box::new([0; 256]);
    for (code, value) in (0..=u8::MAX).zip(table.iter_mut()) {
        let number = dequantize_code(element.format(), code, &E8M0, byte);
        *value = output.encode(number, Rounding::NearestEven, Overflow::Propagate);
    }
    table
}
