//! Products that own their operands, and what they come to.

use super::cast::area;
use super::error::TrainingError;
use crate::format::{E8M0, Format};
use crate::gemm::{
    Accumulation, BlockScales, Codes, Gemm, GemmShape, GroupAxis, GroupedGemm, ModelError, Operand,
};
use crate::quantize::BlockShape;
use core::convert::Infallible;

/// Element codes that are owned; see [`Codes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedCodes {
    /// One code a byte.
    Bytes(Vec<u8>),
    /// bf16 or f16 bits.
    Halves(Vec<u16>),
}

/// One side of a product, owned: row major, the contraction contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedOperand {
    /// The element format, or the type that elements were dequantised to.
    pub format: &'static Format,
    /// The elements.
    pub codes: OwnedCodes,
    /// One plain E8M0 byte for every 32 elements along the contraction; `None` where elements count by their own value.
    pub scales: Option<Vec<u8>>,
}

impl OwnedOperand {
    /// The operand, borrowed.
    pub fn operand(&self) -> Operand<'_> {
        Operand {
            format: self.format,
            codes: match &self.codes {
                OwnedCodes::Bytes(codes) => Codes::Bytes(codes),
                OwnedCodes::Halves(codes) => Codes::Halves(codes),
            },
            scales: self.scales.as_deref().map(|bytes| BlockScales {
                format: &E8M0,
                bytes,
                block: BlockShape::MX.cols(),
            }),
        }
    }
}

/// A matrix as raw bits, row major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// The type.
    pub format: &'static Format,
    /// `rows × cols` codes of that type.
    pub bits: Vec<u32>,
}

/// One matrix product D = A·Bᵀ with its operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    shape: GemmShape,
    a: OwnedOperand,
    b: OwnedOperand,
}

impl Product {
    /// Checks that operands fit the shape.
    pub(super) fn new(
        shape: GemmShape,
        a: OwnedOperand,
        b: OwnedOperand,
    ) -> Result<Self, TrainingError> {
        area("output", shape.m, shape.n)?;
        Gemm::new(shape, a.operand(), b.operand(), None, None)
            .map_err(TrainingError::of("operands"))?;
        Ok(Self { shape, a, b })
    }

    /// A [m, k] and B [n, k].
    pub const fn operands(&self) -> [&OwnedOperand; 2] {
        [&self.a, &self.b]
    }

    /// The product, to be evaluated exactly, element by element, or by a model of an accumulation.
    ///
    /// # Panics
    /// Never: the operands were checked when the product was made.
    pub fn gemm(&self) -> Gemm<'_> {
        Gemm::new(self.shape, self.a.operand(), self.b.operand(), None, None)
            .expect("operands that were checked")
    }

    /// D, each exact value rounded once to nearest even.
    pub fn exact(&self, format: &'static Format) -> Output {
        Output { rows: self.shape.m, cols: self.shape.n, format, bits: self.gemm().exact(format) }
    }
}

/// A product in groups with its operands; see [`GroupedGemm`] for their shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedProduct {
    shape: GemmShape,
    axis: GroupAxis,
    ends: Vec<i32>,
    a: OwnedOperand,
    b: OwnedOperand,
}

impl GroupedProduct {
    /// Checks that operands and groups fit the shape.
    pub(super) fn new(
        shape: GemmShape,
        axis: GroupAxis,
        ends: Vec<i32>,
        [a, b]: [OwnedOperand; 2],
    ) -> Result<Self, TrainingError> {
        GroupedGemm::new(shape, axis, &ends, a.operand(), b.operand())
            .map_err(TrainingError::of("operands"))?;
        let product = Self { shape, axis, ends, a, b };
        match product.output_shape() {
            Some((rows, cols)) => area("output", rows, cols)?,
            None => area("output", usize::MAX, usize::MAX)?,
        };
        Ok(product)
    }

    /// A, and the B of every group one after the other (along M), or A and B whole (along K).
    pub const fn operands(&self) -> [&OwnedOperand; 2] {
        [&self.a, &self.b]
    }

    /// Cumulative ends of the groups along the grouped axis of the operands, which padding may have moved.
    pub fn ends(&self) -> &[i32] {
        &self.ends
    }

    /// The product, to be evaluated group by group.
    ///
    /// # Panics
    /// Never: operands and groups were checked when the product was made.
    pub fn gemm(&self) -> GroupedGemm<'_> {
        let (a, b) = (self.a.operand(), self.b.operand());
        GroupedGemm::new(self.shape, self.axis, &self.ends, a, b)
            .expect("operands that were checked")
    }

    /// D, each exact value rounded once to nearest even. Along M rows that belong to no group are zero; along K the matrices of the
    /// groups lie one after the other, zero for empty groups.
    pub fn exact(&self, format: &'static Format) -> Output {
        let Ok(output) = self.evaluate(format, |gemm| Ok::<_, Infallible>(gemm.exact(format)));
        output
    }

    /// D as a model of an accumulation computes it, laid out as by [`Self::exact`].
    ///
    /// # Errors
    /// [`ModelError`] if the operands are not what the model is of.
    pub fn accumulate(
        &self,
        accumulation: &Accumulation,
        format: &'static Format,
    ) -> Result<Output, ModelError> {
        self.evaluate(format, |gemm| gemm.accumulate(accumulation, format))
    }

    fn evaluate<E>(
        &self,
        format: &'static Format,
        of: impl Fn(&Gemm<'_>) -> Result<Vec<u32>, E>,
    ) -> Result<Output, E> {
        let GemmShape { m, n, .. } = self.shape;
        let (rows, cols) = self.output_shape().unwrap_or_default();
        let mut bits = vec![0; rows * cols];
        let grouped = self.gemm();
        grouped.try_each(|number, gemm| {
            let first = match self.axis {
                GroupAxis::M => grouped.groups()[number].start,
                GroupAxis::K => number * m,
            };
            let part = of(&gemm)?;
            bits[first * n..][..part.len()].copy_from_slice(&part);
            Ok(())
        })?;
        Ok(Output { rows, cols, format, bits })
    }

    /// Rows and columns of D, `None` if that exceeds memory.
    fn output_shape(&self) -> Option<(usize, usize)> {
        let GemmShape { m, n, .. } = self.shape;
        match self.axis {
            GroupAxis::M => Some((m, n)),
            GroupAxis::K => Some((m.checked_mul(self.ends.len())?, n)),
        }
    }
}
