//! Accumulations: what a machine computes instead of the exact sum, bit for bit.
//!
//! Tensor cores of NVIDIA share one step, here [`FusedDot`]: products and accumulator are aligned to the largest exponent among
//! them, cut there, summed as integers, and cut again to the accumulator's precision. Sources: Khattak and Mikaitis, "Accurate
//! models of NVIDIA tensor cores" (arXiv 2512.07004), whose hardware recordings replay; Microsoft's MMA-Sim (arXiv 2511.10909),
//! algorithms 7 to 9; SASS of `mma.sync` as ptxas 13 compiles it.

use super::evaluate::short;
use super::{Gemm, Operand};
use crate::format::{E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, F32, Format, INT8, UE4M3};
use crate::number::{Magnitude, Number};
use crate::{Overflow, Rounding};

/// One step of a tensor core: a dot product of `length` products and the accumulator, fused.
///
/// A product of elements counts with exponent e(a) + e(b), where e(x) is `floor(log2 |x|)` but not below the least normal exponent of
/// the format that holds x: products are not normalised, so 1.5 × 1.5 is aligned as 2^0. All terms are cut toward zero to a
/// multiple of 2^(E - fraction), E the largest exponent of a term that is not zero, and summed exactly; the sum is cut toward
/// zero to the accumulator's format. Beyond 2^128 it becomes infinite; a sum of zero is +0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusedDot {
    /// L: products summed in one step; longer contractions chain steps in order of k.
    pub length: usize,
    /// F: bits kept below the largest exponent.
    pub fraction: u32,
    /// What the sum is cut to: [`F32`] or [`E8M13`].
    pub accumulator: &'static Format,
}

/// The accumulator of FP8 tensor cores on Ada and Hopper: f32 whose ten lowest bits are zero.
pub const E8M13: Format = Format { name: "e8m13", bits: 22, mantissa_bits: 13, ..F32 };

/// How partial sums are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// One exact sum, rounded once.
    Exact,
    /// f32 additions in an order and a rounding (nearest or toward zero) that are not known: a class, not a model.
    AnyOrder,
    /// Exact products added in order of k to one f32 accumulator, nearest even each time; it starts from c.
    Sequential,
    /// Products rounded to f32, neighbours added pairwise level by level (an odd one out is carried), c last.
    Pairwise,
    /// A chain of fused steps over k, starting from c. With `promote` a fresh chain from zero every so many k, whose results are
    /// added in order to an f32 accumulator, nearest even, that starts from c.
    Chain {
        /// The step.
        step: FusedDot,
        /// k between promotions.
        promote: Option<usize>,
    },
    /// For each 32 k two chained fused steps from zero, over k mod 4 in {0, 1} and then {2, 3}, of elements without their block
    /// scales; their sum times those scales is added to the accumulator by one f32 multiply-add, rounded once to nearest even. Blocks
    /// that are no multiple of 32 are multiplied into the elements first.
    Halves {
        /// The step.
        step: FusedDot,
    },
    /// Chained fused steps over 64 k, whose terms are exact sums of 16 products with their block scales.
    Groups {
        /// The step; its length is in products.
        step: FusedDot,
    },
}

/// Which operands a model is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Any.
    Any,
    /// E4M3 and E5M2, scales absent or all 1: FP8 hardware without block scaling.
    Fp8,
    /// Any whose scaled values are numbers of the registers' format, so that dequantising first loses nothing.
    Dequantized,
    /// The six MX formats in any pair, under E8M0 scales for blocks of a multiple of 32.
    Mx,
    /// The five floating-point ones of those.
    MxFloat,
    /// E2M1 under E8M0 scales for blocks of a multiple of 16.
    Mxf4,
    /// E2M1 under UE4M3 or E8M0 scales for blocks of a multiple of 16.
    Nvfp4,
}

impl Accepts {
    const fn describe(self) -> &'static str {
        match self {
            Self::Any => "any operands",
            Self::Fp8 => "e4m3 or e5m2 without scales (or every scale 0x7F)",
            Self::Dequantized => {
                "operands whose scaled values are exact in the format of the registers"
            }
            Self::Mx => "an MX format with E8M0 scales for blocks of 32",
            Self::MxFloat => "e4m3, e5m2, e3m2, e2m3 or e2m1 with E8M0 scales for blocks of 32",
            Self::Mxf4 => "e2m1 with E8M0 scales for blocks of 32",
            Self::Nvfp4 => "e2m1 with UE4M3 scales for blocks of 16",
        }
    }
}

/// Everything that decides the bits of an accumulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulation {
    /// Which operands it is of.
    pub accepts: Accepts,
    /// The format that scaled values are unpacked to before they are multiplied; `None` if elements are multiplied as they are.
    pub registers: Option<&'static Format>,
    /// How partial sums are formed.
    pub scheme: Scheme,
    /// Split-K: contiguous parts of whole tiles, evaluated each on its own from zero and added in order in f32; c last. 1 is none.
    pub split: usize,
    /// The k of such a tile: every part but the last has ceil(ceil(K / tile) / split) tiles.
    pub tile: usize,
}

/// Why a model has no answer for a product.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelError {
    /// Operands that the modelled hardware does not take.
    Operands {
        /// `A` or `B`.
        side: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What came.
        got: String,
    },
    /// A class of accumulations, which does not decide the bits.
    NotAModel,
}

impl core::fmt::Display for ModelError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Operands { side, expected, got } => {
                write!(
                    f,
                    "operand {side} is {got}; this accumulation model is of {expected}; use `exact` or a model of these operands"
                )
            }
            Self::NotAModel => {
                write!(f, "f32 additions in any order do not decide the bits; name a model")
            }
        }
    }
}

impl std::error::Error for ModelError {}

impl Accumulation {
    /// Checks that the operands are what the model is of.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn check(&self, gemm: &Gemm<'_>) -> Result<(), ModelError> {
        if self.scheme == Scheme::AnyOrder {
            return Err(ModelError::NotAModel);
        }
        let k = gemm.shape().k;
        let rows = [gemm.shape().m, gemm.shape().n];
        for ((operand, rows), side) in gemm.operands().into_iter().zip(rows).zip(["A", "B"]) {
            if !self.takes(operand, rows, k) {
                let scales = match operand.scales {
                    None => "without scales".to_owned(),
                    Some(s) if operand.is_unscaled() => {
                        format!("with {} scales of 1 for blocks of {}", s.format.name, s.block)
                    }
                    Some(s) => format!("with {} scales for blocks of {}", s.format.name, s.block),
                };
                let got = format!("{} {scales}", operand.format.name);
                return Err(ModelError::Operands { side, expected: self.accepts.describe(), got });
            }
        }
        Ok(())
    }

    fn takes(&self, operand: &Operand<'_>, rows: usize, k: usize) -> bool {
        let is = |formats: &[Format]| formats.contains(operand.format);
        let scaled = |formats: &[Format], block: usize| {
            operand
                .scales
                .is_none_or(|s| formats.contains(s.format) && s.block.is_multiple_of(block))
        };
        match self.accepts {
            Accepts::Any => true,
            Accepts::Fp8 => is(&[E4M3, E5M2]) && operand.is_unscaled(),
            Accepts::Mx => is(&[E4M3, E5M2, E3M2, E2M3, E2M1, INT8]) && scaled(&[E8M0], 32),
            Accepts::MxFloat => is(&[E4M3, E5M2, E3M2, E2M3, E2M1]) && scaled(&[E8M0], 32),
            Accepts::Mxf4 => is(&[E2M1]) && scaled(&[E8M0], 16),
            Accepts::Nvfp4 => is(&[E2M1]) && scaled(&[UE4M3, E8M0], 16),
            Accepts::Dequantized => {
                let format = self.registers.unwrap_or(&F32);
                (0..rows).all(|r| (0..k).all(|k_| is_number_of(operand.value(k, r, k_), format)))
            }
        }
    }
}

fn is_number_of(x: Number, format: &Format) -> bool {
    let code = format.encode(x, Rounding::TowardZero, Overflow::Propagate);
    match (x.magnitude, format.decode(code).magnitude) {
        (Magnitude::Finite { .. }, Magnitude::Finite { .. }) => {
            let Number { magnitude, .. } = short(x);
            short(format.decode(code)).magnitude == magnitude
        }
        (a, b) => a == b,
    }
}
