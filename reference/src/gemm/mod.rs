//! D = A·Bᵀ (+ C) over block-scaled operands: the exact answer, models of how hardware accumulates, and bounds on how far an
//! accumulation can be from exact.

mod accumulation;
mod bound;
mod evaluate;
mod grouped;
mod model;
mod operand;
mod sum;
mod total;

pub use accumulation::{Accepts, Accumulation, E8M13, FusedDot, ModelError, Scheme};
pub use bound::{Bound, Intervals};
pub use evaluate::Accumulated;
pub use grouped::{GroupAxis, GroupedGemm, group_ranges};
pub use model::{Model, Standing};
pub use operand::{BlockScales, Codes, Operand};
pub use sum::ExactSum;
pub use total::{Dot, Total};

use crate::error::ShapeError;
use crate::format::{F32, Format};
use crate::number::Number;

/// Rows of A (and D), rows of B (columns of D), and the length of the contraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of A and of D.
    pub m: usize,
    /// Rows of B, columns of D.
    pub n: usize,
    /// Columns of A and of B.
    pub k: usize,
}

/// A matrix product whose tensors fit each other: D = t·A·Bᵀ + C, with both operands contiguous along K (the "TN" form of every
/// block-scaled GEMM), t the product of the two tensor scales where there are any, and C where it is given.
///
/// ```
/// use mx_reference::format::{E4M3, F32, E8M0};
/// use mx_reference::gemm::{BlockScales, Codes, Gemm, GemmShape, Operand};
/// let ones = [0x38; 32];
/// let operand = |scale: &'static [u8; 1]| Operand {
///     format: &E4M3,
///     codes: Codes::Bytes(&ones),
///     scales: Some(BlockScales { format: &E8M0, bytes: scale, block: 32 }),
/// };
/// let shape = GemmShape { m: 1, n: 1, k: 32 };
/// let gemm = Gemm::new(shape, operand(&[0x80]), operand(&[0x7f]), None, None)?;
/// assert_eq!(gemm.exact(&F32), [64f32.to_bits()]);
/// assert!(Gemm::new(GemmShape { k: 48, ..shape }, operand(&[0x80]), operand(&[0x7f]), None, None).is_err());
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a> {
    shape: GemmShape,
    a: Operand<'a>,
    b: Operand<'a>,
    c: Option<&'a [u32]>,
    tensor_scales: Option<[u32; 2]>,
}

impl<'a> Gemm<'a> {
    /// Checks that the tensors fit the shape: A [m, k], B [n, k] with one scale a block, C [m, n] f32 bits, two f32 tensor scales
    /// (those of A and of B).
    ///
    /// # Errors
    /// [`ShapeError`] names the tensor, what was expected and what came.
    pub fn new(
        shape: GemmShape,
        a: Operand<'a>,
        b: Operand<'a>,
        c: Option<&'a [u32]>,
        tensor_scales: Option<[u32; 2]>,
    ) -> Result<Self, ShapeError> {
        let GemmShape { m, n, k } = shape;
        a.check((m, k), ["a_elements", "a_scales"])?;
        b.check((n, k), ["b_elements", "b_scales"])?;
        let outputs = m.saturating_mul(n);
        match c {
            Some(c) if c.len() != outputs => {
                Err(ShapeError::Length { what: "c", expected: outputs, got: c.len() })
            }
            _ => Ok(Self { shape, a, b, c, tensor_scales }),
        }
    }

    /// The shape.
    pub const fn shape(&self) -> GemmShape {
        self.shape
    }

    /// A and B.
    pub const fn operands(&self) -> [&Operand<'a>; 2] {
        [&self.a, &self.b]
    }

    /// C's bits, where there is one.
    pub const fn c(&self) -> Option<&'a [u32]> {
        self.c
    }

    /// The tensor scales of A and of B as f32 bits, where there are any.
    pub const fn tensor_scales(&self) -> Option<[u32; 2]> {
        self.tensor_scales
    }

    /// The product of the tensor scales, exactly; 1 without any.
    fn tensor_scale(&self) -> Number {
        self.tensor_scales
            .map_or(Number::finite(false, 1, 0), |[a, b]| F32.decode(a).times(F32.decode(b)))
    }

    /// The element of C at (i, j); zero without C.
    fn addend(&self, i: usize, j: usize) -> Option<Number> {
        self.c.map(|c| F32.decode(c[i * self.shape.n + j]))
    }

    /// The exact value of D at (i, j), before any rounding.
    ///
    /// NaN elements, scales (also over zeros), C and tensor scales give NaN; so do infinity times zero and infinities of both
    /// signs. Otherwise an infinity wins.
    ///
    /// # Panics
    /// If (i, j) is outside D.
    pub fn dot(&self, i: usize, j: usize) -> Dot {
        assert!(i < self.shape.m && j < self.shape.n, "({i}, {j}) of {:?}", self.shape);
        let (a, b) = (self.a.row(self.shape.k, i), self.b.row(self.shape.k, j));
        let mut magnitude = Total::ZERO;
        for (a, &b) in a.iter().zip(&b) {
            magnitude.add(a.times(b).abs());
        }
        if self.tensor_scales.is_some() {
            magnitude = magnitude.times(self.tensor_scale().abs());
        }
        let negative = !self.tensor_scale().negative;
        let addend_is_negative_zero = self.addend(i, j).is_none_or(|c| c.is_zero() && c.negative);
        let only_negative_zeros = self.shape.k > 0
            && addend_is_negative_zero
            && a.iter().zip(&b).all(|(a, &b)| {
                let product = a.times(b);
                product.is_zero() && product.negative == negative
            });
        Dot { total: self.total(&a, &b, i, j), magnitude, only_negative_zeros }
    }

    /// The exact value at (i, j), given the values of its row of A and its row of B.
    fn total(&self, a: &[Number], b: &[Number], i: usize, j: usize) -> Total {
        let mut total = Total::ZERO;
        for (a, &b) in a.iter().zip(b) {
            total.add(a.times(b));
        }
        if self.tensor_scales.is_some() {
            total = total.times(self.tensor_scale());
        }
        if let Some(c) = self.addend(i, j) {
            total.add(c);
        }
        total
    }

    /// D: each exact value rounded once to nearest even; overflow gives infinity, an exactly zero value gives +0.
    pub fn exact(&self, output: &Format) -> Vec<u32> {
        let GemmShape { m, n, k } = self.shape;
        let columns: Vec<Vec<Number>> = (0..n).map(|j| self.b.row(k, j)).collect();
        let mut d = Vec::with_capacity(m * n);
        for i in 0..m {
            let row = self.a.row(k, i);
            let totals = columns.iter().enumerate().map(|(j, b)| self.total(&row, b, i, j));
            d.extend(totals.map(|total| total.round(output)));
        }
        d
    }

    /// D as a model of an accumulation computes it: f32 bits, then rounded to nearest even to the output type.
    ///
    /// # Errors
    /// [`ModelError`] if the operands are not what the model is of.
    pub fn accumulate(
        &self,
        accumulation: &Accumulation,
        output: &Format,
    ) -> Result<Vec<u32>, ModelError> {
        let accumulated = self.accumulated(accumulation, output, 0..self.shape.n)?;
        Ok((0..self.shape.m).flat_map(|i| accumulated.row(i)).collect())
    }
}
