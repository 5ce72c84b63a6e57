//! From tensors to operands: casts, dequantised casts, and tensors as they are.

use super::config::{KernelPreference, TrainingConfig};
use super::error::TrainingError;
use super::product::{OwnedCodes, OwnedOperand};
use crate::ShapeError;
use crate::format::{BF16, F16, F32, Format};
use crate::matrix::{Input, Matrix, MatrixView};
use crate::quantize::{Axis, BlockShape, Blocking, Quantized, dequantize, quantize};

/// A tensor and its name in errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) name: &'static str,
    pub(super) tensor: Matrix<'a>,
}

impl Named<'_> {
    /// The type of the elements.
    pub(super) const fn format(&self) -> &'static Format {
        match self.tensor {
            Matrix::F32(_) => &F32,
            Matrix::Bf16(_) => &BF16,
            Matrix::F16(_) => &F16,
        }
    }

    /// Checks the shape against what other tensors call for; `None` leaves a side free.
    pub(super) fn fits(
        &self,
        rows: Option<usize>,
        columns: Option<usize>,
    ) -> Result<(), TrainingError> {
        let shape = self.tensor.shape();
        for (side, expected, got) in [("rows", rows, shape.0), ("columns", columns, shape.1)] {
            if let Some(expected) = expected.filter(|&expected| expected != got) {
                return Err(TrainingError::Mismatch { tensor: self.name, side, expected, got });
            }
        }
        Ok(())
    }

    /// Checks that the type is that of the other tensors.
    pub(super) fn like(&self, other: &Self) -> Result<(), TrainingError> {
        let (expected, got) = (other.format().name, self.format().name);
        if expected == got {
            Ok(())
        } else {
            Err(TrainingError::MixedTypes { tensor: self.name, expected, got })
        }
    }

    /// Quantises along an axis in blocks of 32.
    pub(super) fn cast(
        &self,
        config: &TrainingConfig,
        axis: Axis,
    ) -> Result<Quantized, TrainingError> {
        let of = TrainingError::of(self.name);
        let (rows, cols) = self.tensor.shape();
        area(self.name, rows, cols)?;
        let blocking = Blocking { axis, shape: BlockShape::MX, pad: false };
        let profile = config.profile();
        match self.tensor {
            Matrix::F32(view) => quantize(view, profile, blocking),
            Matrix::Bf16(view) => quantize(view, profile, blocking),
            Matrix::F16(view) => quantize(view, profile, blocking),
        }
        .map_err(of)
    }

    /// The transposed tensor as it is: the operand of a weight gradient in high precision.
    pub(super) fn transposed(&self) -> Result<OwnedOperand, TrainingError> {
        fn halves<T: Input>(view: MatrixView<'_, T>) -> OwnedCodes {
            let view = view.transposed();
            let bits = (0..view.rows())
                .flat_map(|r| (0..view.cols()).map(move |c| view.at(r, c).bits() as u16));
            OwnedCodes::Halves(bits.collect())
        }
        let (rows, cols) = self.tensor.shape();
        area(self.name, rows, cols)?;
        let codes = match self.tensor {
            Matrix::F32(_) => {
                return Err(TrainingError::InputType {
                    tensor: self.name,
                    expected: "bf16 or f16 for a weight gradient in high precision; products of f32 matrices are not modelled here, so convert the tensors or turn wgrad_with_hp off",
                    got: self.format().name,
                });
            }
            Matrix::Bf16(view) => halves(view),
            Matrix::F16(view) => halves(view),
        };
        Ok(OwnedOperand { format: self.format(), codes, scales: None })
    }
}

/// The elements of a matrix, if there can be so many.
pub(super) fn area(tensor: &'static str, rows: usize, cols: usize) -> Result<usize, TrainingError> {
    rows.checked_mul(cols).filter(|&n| isize::try_from(n).is_ok()).ok_or(TrainingError::Shape {
        tensor,
        error: ShapeError::View { needed: usize::MAX, available: isize::MAX as usize },
    })
}

/// A cast as an operand: codes under their scales, or dequantised to `emulated` where kernels are emulated.
pub(super) fn operand(
    config: &TrainingConfig,
    tensor: &'static str,
    cast: Quantized,
    emulated: &'static Format,
) -> Result<OwnedOperand, TrainingError> {
    let Quantized { rows, cols, elements, scales, .. } = cast;
    match config.kernel {
        KernelPreference::Auto => Ok(OwnedOperand {
            format: config.element.format(),
            codes: OwnedCodes::Bytes(elements),
            scales: Some(scales),
        }),
        KernelPreference::Emulated => {
            let shape = BlockShape::MX;
            dequantize(config.element, (rows, cols), shape, &elements, &scales, emulated)
                .map(|bits| OwnedOperand {
                    format: emulated,
                    codes: OwnedCodes::Halves(bits.into_iter().map(|bits| bits as u16).collect()),
                    scales: None,
                })
                .map_err(TrainingError::of(tensor))
        }
    }
}
