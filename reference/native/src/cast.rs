//! Casts without a scale.

use mx_reference::{Element, Format, Input, Matrix, MatrixView, Overflow, Rounding, ShapeError};
use rayon::prelude::*;

use crate::dispatch::{E2m1, E2m3, E3m2, E4m3, E5m2, Int8, Kernel, Spec, dispatch};
use crate::lane::{self, Lane};
use crate::quantize::expect;

/// Elements of one task.
const TASK: usize = 1 << 16;

/// The code of one element, rounded to nearest even: [`Format::encode`] for the element formats.
///
/// ```
/// use mx_native::encode;
/// use mx_reference::{Element, Overflow};
/// assert_eq!(encode(Element::E4m3, Overflow::Saturate, 1e9f32), 0x7e);
/// assert_eq!(encode(Element::E5m2, Overflow::Propagate, -1e9f32), 0xfc);
/// ```
#[inline]
pub fn encode<T: Input>(element: Element, overflow: Overflow, x: T) -> u8 {
    match element {
        Element::E4m3 => one::<E4m3, T>(overflow, x),
        Element::E5m2 => one::<E5m2, T>(overflow, x),
        Element::E3m2 => one::<E3m2, T>(overflow, x),
        Element::E2m3 => one::<E2m3, T>(overflow, x),
        Element::E2m1 => one::<E2m1, T>(overflow, x),
        Element::Int8 => one::<Int8, T>(overflow, x),
    }
}

/// Casts a slice, on the current rayon pool if it is long: [`Format::encode`] of every element, as a byte.
///
/// Element formats under nearest even take the fast path; every other rounding and format is the reference's. Codes wider than
/// a byte are cut to their low byte.
///
/// # Errors
/// [`ShapeError::Length`] unless there is one code per element.
pub fn encode_slice<T: Input>(
    format: &'static Format,
    rounding: Rounding,
    overflow: Overflow,
    input: &[T],
    out: &mut [u8],
) -> Result<(), ShapeError> {
    expect("elements", Some(input.len()), out.len())?;
    match MatrixView::contiguous(input, 1, input.len())?.into() {
        Matrix::F32(x) => typed(format, rounding, overflow, x.row(0).unwrap_or_default(), out),
        Matrix::Bf16(x) => typed(format, rounding, overflow, x.row(0).unwrap_or_default(), out),
        Matrix::F16(x) => typed(format, rounding, overflow, x.row(0).unwrap_or_default(), out),
    }
    Ok(())
}

fn typed<T: Input>(
    format: &'static Format,
    rounding: Rounding,
    overflow: Overflow,
    input: &[T],
    out: &mut [u8],
) {
    let element = Element::ALL.into_iter().find(|element| element.format() == format);
    let work = |(input, out): (&[T], &mut [u8])| match (element, rounding) {
        (Some(element), Rounding::NearestEven) => dispatch(element, Cast { overflow, input, out }),
        _ => {
            for (code, x) in out.iter_mut().zip(input) {
                *code = format.encode(x.number(), rounding, overflow) as u8;
            }
        }
    };
    if input.len() <= TASK {
        work((input, out));
    } else {
        input.par_chunks(TASK).zip(out.par_chunks_mut(TASK)).for_each(work);
    }
}

#[inline(always)]
fn one<S: Spec, T: Lane>(overflow: Overflow, x: T) -> u8 {
    let code = lane::encode::<S, T>(x.bits(), S::FORMAT.min_exponent() + T::BIAS, overflow);
    if x.bits() & T::MAGNITUDE > T::INFINITY { S::FORMAT.nan_code as u8 } else { code }
}

struct Cast<'a, T> {
    overflow: Overflow,
    input: &'a [T],
    out: &'a mut [u8],
}

impl<T: Lane> Kernel for Cast<'_, T> {
    #[inline(always)]
    fn run<S: Spec>(self) {
        match self.overflow {
            Overflow::Saturate => self.each(|x| one::<S, T>(Overflow::Saturate, x)),
            Overflow::Propagate => self.each(|x| one::<S, T>(Overflow::Propagate, x)),
        }
    }
}

impl<T: Lane> Cast<'_, T> {
    #[inline(always)]
    fn each(self, encode: impl Fn(T) -> u8) {
        for (code, &x) in self.out.iter_mut().zip(self.input) {
            *code = encode(x);
        }
    }
}
