//! Accumulations: what a machine computes instead of the exact sum, bit for bit.
//!
//! Tensor cores of NVIDIA share one step, here [`FusedDot`]: products and accumulator are aligned to the largest exponent among
//! them, cut there, summed as integers, and cut again to the accumulator's precision. Sources: Khattak and Mikaitis, "Accurate
//! models of NVIDIA tensor cores" (arXiv 2512.07004), whose hardware recordings replay; Microsoft's MMA-Sim (arXiv 2511.10909),
//! algorithms 7 to 9; SASS of `mma.sync` as ptxas 13 compiles it.

use super::total::Total;
use super::{Gemm, Operand};
use crate::format::{E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, F32, Format, UE4M3};
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

/// Alignment never happens below this exponent on `sm_90` and `sm_100` (Khattak and Mikaitis; Hawkeye agrees). It is -132 on
/// Ampere and Ada. FP8 products do not reach it.
const LEAST_ALIGNMENT: i32 = -133;

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
    /// For each 32 k two chained fused steps from zero, over k mod 4 in {0, 1} and then {2, 3}, added to the accumulator in f32.
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
    /// The five floating-point MX formats in any pair, under E8M0 scales for blocks of a multiple of 32.
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
    /// Split-K: contiguous parts of whole 128-wide tiles, evaluated each on its own from zero and added in order in f32; c last.
    /// 1 is none.
    pub split: usize,
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

/// A product before it is aligned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) negative: bool,
    /// Not zero.
    pub(super) significand: u64,
    /// The weight of the significand's lowest bit.
    pub(super) weight: i32,
    /// The exponent that alignment looks at.
    pub(super) alignment: i32,
}

impl Term {
    fn new(x: Number, alignment: i32) -> Option<Self> {
        match x.magnitude {
            Magnitude::Finite { significand, exponent } => {
                Some(Self { negative: x.negative, significand, weight: exponent, alignment })
            }
            _ => None,
        }
    }
}

/// e(x): the exponent of a number as a format holds it.
fn held(x: Number, format: &Format) -> i32 {
    x.exponent().unwrap_or(i32::MIN / 4).max(format.min_exponent())
}

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
            Accepts::MxFloat => is(&[E4M3, E5M2, E3M2, E2M3, E2M1]) && scaled(&[E8M0], 32),
            Accepts::Mxf4 => is(&[E2M1]) && scaled(&[E8M0], 16),
            Accepts::Nvfp4 => is(&[E2M1]) && scaled(&[UE4M3, E8M0], 16),
            Accepts::Dequantized => {
                let format = self.registers.unwrap_or(&F32);
                (0..rows).all(|r| (0..k).all(|k_| is_number_of(operand.value(k, r, k_), format)))
            }
        }
    }

    /// D at (i, j) in the output type's bits; operands are those that [`Self::check`] lets pass.
    pub(super) fn output(&self, gemm: &Gemm<'_>, i: usize, j: usize, output: &Format) -> u32 {
        if self.scheme == Scheme::Exact {
            return gemm.dot(i, j).total.round(output);
        }
        let exact = gemm.dot(i, j).total;
        if exact.finite().is_none() {
            return match (exact, self.scheme) {
                // The tensor cores' NaN has every bit but the sign.
                (
                    Total::Nan,
                    Scheme::Chain { .. } | Scheme::Halves { .. } | Scheme::Groups { .. },
                ) => (1 << (output.bits - 1)) - 1,
                _ => exact.round(output),
            };
        }
        let c = gemm.addend(i, j).unwrap_or(Number::ZERO);
        // A tensor scale is the epilogue's alpha, rounded to f32, and C joins there.
        let first = if gemm.tensor_scales.is_some() || self.split > 1 { Number::ZERO } else { c };
        let mut sum = self.parts(gemm, i, j, f32_bits(first));
        if gemm.tensor_scales.is_some() {
            let alpha = F32.decode(f32_bits(gemm.tensor_scale()));
            sum = add(F32.decode(sum).times(alpha), c);
        } else if self.split > 1 && gemm.c.is_some() {
            sum = add(F32.decode(sum), c);
        }
        output.encode(F32.decode(sum), Rounding::NearestEven, Overflow::Propagate)
    }

    /// The sum over all parts of a split K.
    fn parts(&self, gemm: &Gemm<'_>, i: usize, j: usize, start: u32) -> u32 {
        const TILE: usize = 128;
        let k = gemm.shape.k;
        let part = k.div_ceil(TILE).div_ceil(self.split.max(1)).max(1) * TILE;
        if self.split <= 1 || part >= k {
            return self.range(gemm, (i, j), (0, k), start);
        }
        let mut sum = None;
        for from in (0..k).step_by(part) {
            let partial = self.range(gemm, (i, j), (from, (from + part).min(k)), 0);
            sum = Some(sum.map_or(partial, |sum| add(F32.decode(sum), F32.decode(partial))));
        }
        sum.unwrap_or(start)
    }

    fn range(
        &self,
        gemm: &Gemm<'_>,
        (i, j): (usize, usize),
        (from, to): (usize, usize),
        start: u32,
    ) -> u32 {
        let terms =
            |from: usize, to: usize| (from..to).filter_map(move |k| self.term(gemm, i, j, k));
        match self.scheme {
            Scheme::Exact | Scheme::AnyOrder => start,
            Scheme::Sequential => {
                (from..to).fold(start, |sum, k| add(F32.decode(sum), product(gemm, i, j, k)))
            }
            Scheme::Pairwise => {
                let products = (from..to).map(|k| f32_bits(product(gemm, i, j, k))).collect();
                add(F32.decode(pairwise(products)), F32.decode(start))
            }
            Scheme::Chain { step, promote } => {
                let chain = |from: usize, to: usize, start: u32| {
                    (from..to).step_by(step.length).fold(start, |sum, at| {
                        step.apply(sum, terms(at, (at + step.length).min(to)))
                    })
                };
                match promote {
                    None => chain(from, to, start),
                    Some(interval) => (from..to).step_by(interval).fold(start, |sum, at| {
                        let fresh = chain(at, (at + interval).min(to), 0);
                        add(F32.decode(sum), F32.decode(fresh))
                    }),
                }
            }
            Scheme::Halves { step } => (from..to).step_by(32).fold(start, |sum, at| {
                let half = |low: bool| {
                    (at..(at + 32).min(to))
                        .filter(move |k| (k % 4 < 2) == low)
                        .filter_map(|k| self.term(gemm, i, j, k))
                };
                let both = step.apply(step.apply(0, half(true)), half(false));
                add(F32.decode(sum), F32.decode(both))
            }),
            Scheme::Groups { step } => (from..to).step_by(step.length).fold(start, |sum, at| {
                let end = (at + step.length).min(to);
                let groups = (at..end).step_by(GROUP);
                step.apply(sum, groups.filter_map(|g| group(gemm, i, j, (g, (g + GROUP).min(end)))))
            }),
        }
    }

    /// The product at k as alignment sees it, `None` for zero.
    pub(super) fn term(&self, gemm: &Gemm<'_>, i: usize, j: usize, k: usize) -> Option<Term> {
        let length = gemm.shape.k;
        let mut alignment = 0;
        for (operand, row) in [(&gemm.a, i), (&gemm.b, j)] {
            alignment += if let Some(format) = self.registers {
                held(operand.value(length, row, k), format)
            } else {
                let scale = operand.scale(length, row, k).exponent().unwrap_or(0);
                held(operand.element(length, row, k), operand.format) + scale
            };
        }
        Term::new(product(gemm, i, j, k), alignment)
    }
}

/// Products of one exact sum inside [`Scheme::Groups`].
pub(super) const GROUP: usize = 16;

/// The exact sum of a group of products under its scales, `None` for zero. Its exponent is that of the scales alone.
pub(super) fn group(
    gemm: &Gemm<'_>,
    i: usize,
    j: usize,
    (from, to): (usize, usize),
) -> Option<Term> {
    let length = gemm.shape.k;
    let mut sum = Total::ZERO;
    for k in from..to {
        sum.add(gemm.a.element(length, i, k).times(gemm.b.element(length, j, k)));
    }
    let mut scaled = sum.number();
    let mut alignment = 0;
    for (operand, row) in [(&gemm.a, i), (&gemm.b, j)] {
        let scale = operand.scale(length, row, from);
        let format = operand.scales.map_or(&E8M0, |scales| scales.format);
        alignment += held(scale, format);
        scaled = short(scaled).times(scale);
    }
    Term::new(scaled, alignment)
}

/// The same number with the least significand.
const fn short(x: Number) -> Number {
    match x.magnitude {
        Magnitude::Finite { significand, exponent } => {
            let zeros = significand.trailing_zeros();
            Number::finite(x.negative, significand >> zeros, exponent + zeros as i32)
        }
        _ => x,
    }
}

fn product(gemm: &Gemm<'_>, i: usize, j: usize, k: usize) -> Number {
    let length = gemm.shape.k;
    gemm.a.value(length, i, k).times(gemm.b.value(length, j, k))
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

fn f32_bits(x: Number) -> u32 {
    F32.encode(x, Rounding::NearestEven, Overflow::Propagate)
}

/// One IEEE addition, rounded to f32.
fn add(a: Number, b: Number) -> u32 {
    if a.is_zero() && b.is_zero() {
        return f32_bits(Number { negative: a.negative && b.negative, ..a });
    }
    let mut sum = Total::ZERO;
    sum.add(a);
    sum.add(b);
    sum.round(&F32)
}

/// Neighbours added level by level.
fn pairwise(mut level: Vec<u32>) -> u32 {
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match *pair {
                [a, b] => add(F32.decode(a), F32.decode(b)),
                _ => pair[0],
            })
            .collect();
    }
    level.first().copied().unwrap_or(0)
}

impl FusedDot {
    /// One step from an f32 accumulator over terms that are not zero.
    fn apply(&self, accumulator: u32, terms: impl Iterator<Item = Term>) -> u32 {
        let c = F32.decode(accumulator);
        if c.magnitude == Magnitude::Infinite {
            return accumulator;
        }
        let terms: Vec<Term> = Term::new(c, held(c, &F32)).into_iter().chain(terms).collect();
        let Some(largest) = terms.iter().map(|term| term.alignment).max() else { return 0 };
        let unit = largest.max(LEAST_ALIGNMENT) - self.fraction as i32;
        let sum: i64 = terms
            .iter()
            .map(|term| {
                let shift = term.weight - unit;
                // No term reaches 2^(fraction + 12) units, so a shift to the left loses nothing.
                let magnitude = if shift >= 0 {
                    term.significand << shift
                } else {
                    term.significand.checked_shr(shift.unsigned_abs()).unwrap_or(0)
                };
                if term.negative { -(magnitude as i64) } else { magnitude as i64 }
            })
            .sum();
        let sum = Number::finite(sum < 0, sum.unsigned_abs(), unit);
        if sum.exponent().is_some_and(|exponent| exponent > F32.max_exponent()) {
            return f32_bits(Number { magnitude: Magnitude::Infinite, ..sum });
        }
        let code = self.accumulator.encode(sum, Rounding::TowardZero, Overflow::Propagate);
        code << (F32.bits - self.accumulator.bits)
    }
}
