//! Evaluating an accumulation: rows as it sees them, terms, steps, and their order.

use super::accumulation::{Accumulation, FusedDot, ModelError, Scheme};
use super::sum::ExactSum;
use super::total::Total;
use super::{Gemm, Operand};
use crate::format::{E8M0, F32, Format};
use crate::number::{Magnitude, Number};
use crate::{Overflow, Rounding};
use core::ops::Range;

/// Alignment never happens below this exponent on `sm_90` and `sm_100` (Khattak and Mikaitis; Hawkeye agrees). It is -132 on
/// Ampere and Ada. FP8 products do not reach it.
const LEAST_ALIGNMENT: i32 = -133;

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

impl Term {
    /// The term in units of 2^unit, cut toward zero.
    const fn cut(self, unit: i32) -> i64 {
        let shift = self.weight - unit;
        let magnitude = if shift >= 0 {
            // No term reaches 2^(fraction + 12) units, so nothing is lost.
            self.significand << shift
        } else if shift > -64 {
            self.significand >> -shift
        } else {
            0
        };
        if self.negative { -(magnitude as i64) } else { magnitude as i64 }
    }
}

/// e(x): the exponent of a number as a format holds it.
fn held(x: Number, format: &Format) -> i32 {
    x.exponent().unwrap_or(i32::MIN / 4).max(format.min_exponent())
}

/// A row of an operand as an accumulation sees it.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Elements times scales.
    values: Vec<Number>,
    /// The exponents that alignment looks at.
    alignments: Vec<i32>,
    /// For schemes that scale sums: elements without their scales, and the scale of every [`GROUP`] with its exponent.
    elements: Vec<Number>,
    scales: Vec<(Number, i32)>,
    /// True if any value is infinite or NaN.
    special: bool,
}

impl Line {
    fn new(accumulation: &Accumulation, operand: &Operand<'_>, length: usize, r: usize) -> Self {
        let values = operand.row(length, r);
        let special = values.iter().any(|x| !x.is_zero() && x.exponent().is_none());
        let groups = matches!(accumulation.scheme, Scheme::Groups { .. });
        let halves = matches!(accumulation.scheme, Scheme::Halves { .. });
        // Sums of 32 are scaled where each has one scale.
        let apart = groups || halves && operand.scales.is_none_or(|s| s.block.is_multiple_of(32));
        let element =
            |k| if apart { operand.element(length, r, k) } else { operand.value(length, r, k) };
        let alignment = |(k, &value): (usize, &Number)| match accumulation.registers {
            Some(format) if halves => held(element(k), format),
            Some(format) => held(value, format),
            None => {
                let scale = operand.scale(length, r, k).exponent().unwrap_or(0);
                let scale = if halves && apart { 0 } else { scale };
                held(operand.element(length, r, k), operand.format) + scale
            }
        };
        let alignments = values.iter().enumerate().map(alignment).collect();
        let format = operand.scales.map_or(&E8M0, |scales| scales.format);
        let scale = |k| {
            let one = Number::finite(false, 1, 0);
            let scale = if apart { operand.scale(length, r, k) } else { one };
            (scale, held(scale, format))
        };
        let parts = if groups || halves { length } else { 0 };
        let elements = (0..parts).map(element).collect();
        let scales = (0..parts).step_by(GROUP).map(scale).collect();
        Self { values, alignments, elements, scales, special }
    }
}

/// Products of one exact sum inside [`Scheme::Groups`].
pub(super) const GROUP: usize = 16;

/// A row of A and a row of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) a: &'a Line,
    pub(super) b: &'a Line,
}

impl Pair<'_> {
    fn product(&self, k: usize) -> Number {
        self.a.values[k].times(self.b.values[k])
    }

    /// The exact value at (i, j), whose rows these are.
    pub(super) fn total(&self, gemm: &Gemm<'_>, i: usize, j: usize) -> Total {
        gemm.total(&self.a.values, &self.b.values, i, j)
    }

    /// Σ |pₖ| over a range of k, `None` if it is not finite.
    pub(super) fn magnitude(&self, range: Range<usize>) -> Option<ExactSum> {
        let mut sum = Total::ZERO;
        for k in range {
            sum.add(self.product(k).abs());
        }
        sum.finite().copied()
    }

    /// The product at k as alignment sees it, `None` for zero.
    fn term(&self, k: usize) -> Option<Term> {
        Term::new(self.product(k), self.a.alignments[k] + self.b.alignments[k])
    }

    pub(super) fn terms(&self, range: Range<usize>) -> impl Iterator<Item = Term> + Clone {
        range.filter_map(|k| self.term(k))
    }

    /// Products of elements without their scales.
    pub(super) fn unscaled(&self, range: Range<usize>) -> impl Iterator<Item = Number> + Clone {
        range.map(|k| self.a.elements[k].times(self.b.elements[k]))
    }

    /// The same as alignment sees them.
    pub(super) fn unscaled_terms(
        &self,
        range: impl Iterator<Item = usize> + Clone,
    ) -> impl Iterator<Item = Term> + Clone {
        range.filter_map(|k| {
            let product = self.a.elements[k].times(self.b.elements[k]);
            Term::new(product, self.a.alignments[k] + self.b.alignments[k])
        })
    }

    /// The product of the scales at k.
    pub(super) fn scale(&self, k: usize) -> Number {
        let [a, b] = [self.a, self.b].map(|line| line.scales[k / GROUP].0);
        a.times(b)
    }

    /// The sum of a block of [`Scheme::Halves`], without its scales.
    fn block(&self, step: FusedDot, range: Range<usize>) -> Number {
        if self.a.special || self.b.special {
            let mut sum = Total::ZERO;
            self.unscaled(range.clone()).for_each(|product| sum.add(product));
            if sum.finite().is_none() {
                return sum.number();
            }
        }
        let half = |low| self.unscaled_terms(range.clone().filter(move |k| (k % 4 < 2) == low));
        F32.decode(step.apply(step.apply(0, half(true)), half(false)))
    }

    /// The exact sum of a group of products under its scales, `None` for zero. Its exponent is that of the scales alone.
    fn group(&self, range: Range<usize>) -> Option<Term> {
        let (mut scaled, mut alignment) = (Number::ZERO, 0);
        let mut sum = Total::ZERO;
        self.unscaled(range.clone()).for_each(|product| sum.add(product));
        if let Total::Finite(sum) = sum {
            scaled = sum.number();
        }
        for line in [self.a, self.b] {
            let (scale, exponent) = line.scales[range.start / GROUP];
            alignment += exponent;
            scaled = short(scaled).times(scale);
        }
        Term::new(scaled, alignment)
    }

    pub(super) fn groups(&self, range: Range<usize>) -> impl Iterator<Item = Term> + Clone {
        let end = range.end;
        range.step_by(GROUP).filter_map(move |at| self.group(at..(at + GROUP).min(end)))
    }
}

/// An accumulation of some columns of D, ready to compute them row by row.
#[derive(Clone, Debug)]
pub struct Accumulated<'a> {
    gemm: &'a Gemm<'a>,
    accumulation: Accumulation,
    output: &'a Format,
    first: usize,
    columns: Vec<Line>,
}

impl<'a> Gemm<'a> {
    /// Prepares an accumulation of these columns of D, for callers that spread rows over threads.
    ///
    /// # Errors
    /// [`ModelError`] if the operands are not what the model is of.
    ///
    /// # Panics
    /// If columns lie outside D.
    pub fn accumulated(
        &'a self,
        accumulation: &Accumulation,
        output: &'a Format,
        columns: Range<usize>,
    ) -> Result<Accumulated<'a>, ModelError> {
        accumulation.check(self)?;
        let first = columns.start;
        let columns = columns.map(|j| accumulation.line(&self.b, self.shape.k, j)).collect();
        Ok(Accumulated { gemm: self, accumulation: *accumulation, output, first, columns })
    }
}

impl Accumulated<'_> {
    /// Row i of the columns.
    ///
    /// # Panics
    /// If i is outside D.
    pub fn row(&self, i: usize) -> Vec<u32> {
        let a = &self.accumulation.line(&self.gemm.a, self.gemm.shape.k, i);
        let columns = self.columns.iter().zip(self.first..);
        columns
            .map(|(b, j)| self.accumulation.output(self.gemm, Pair { a, b }, (i, j), self.output))
            .collect()
    }
}

impl Accumulation {
    pub(super) fn line(&self, operand: &Operand<'_>, length: usize, r: usize) -> Line {
        Line::new(self, operand, length, r)
    }

    /// The rows behind (i, j).
    pub(super) fn lines(&self, gemm: &Gemm<'_>, (i, j): (usize, usize)) -> [Line; 2] {
        let k = gemm.shape.k;
        [self.line(&gemm.a, k, i), self.line(&gemm.b, k, j)]
    }

    /// D at (i, j) in the output type's bits.
    fn output(
        &self,
        gemm: &Gemm<'_>,
        pair: Pair<'_>,
        (i, j): (usize, usize),
        output: &Format,
    ) -> u32 {
        let c = gemm.addend(i, j).unwrap_or(Number::ZERO);
        let special = |x: Number| !x.is_zero() && x.exponent().is_none();
        // Blocks that are added one by one meet what is special in its place.
        let by_blocks = matches!(self.scheme, Scheme::Halves { .. });
        if self.scheme == Scheme::Exact
            || (pair.a.special || pair.b.special) && !by_blocks
            || special(c)
            || special(gemm.tensor_scale())
        {
            let exact = pair.total(gemm, i, j);
            match (exact, self.scheme) {
                (Total::Nan, _) => return self.nan(output),
                (Total::Finite(_), scheme) if scheme != Scheme::Exact => {}
                _ => return exact.round(output),
            }
        }
        // A tensor scale is the epilogue's alpha, rounded to f32, and C joins there.
        let first = if gemm.tensor_scales.is_some() || self.split > 1 { Number::ZERO } else { c };
        let mut sum = self.parts(pair, gemm.shape.k, f32_bits(first));
        if gemm.tensor_scales.is_some() {
            let alpha = F32.decode(f32_bits(gemm.tensor_scale()));
            sum = add(F32.decode(sum).times(alpha), c);
        } else if self.split > 1 && gemm.c.is_some() {
            sum = add(F32.decode(sum), c);
        }
        let sum = F32.decode(sum);
        if sum.is_nan() {
            return self.nan(output);
        }
        output.encode(sum, Rounding::NearestEven, Overflow::Propagate)
    }

    /// NaN: of hardware every bit but the sign, in definitions the quiet one.
    const fn nan(&self, output: &Format) -> u32 {
        match self.scheme {
            Scheme::Chain { .. } | Scheme::Halves { .. } | Scheme::Groups { .. } => {
                (1 << (output.bits - 1)) - 1
            }
            _ => output.nan_code,
        }
    }

    /// The sum over all parts of a split K.
    fn parts(&self, pair: Pair<'_>, k: usize, start: u32) -> u32 {
        let tile = self.tile.max(1);
        let part = k.div_ceil(tile).div_ceil(self.split.max(1)).max(1) * tile;
        if self.split <= 1 || part >= k {
            return self.range(pair, 0..k, start);
        }
        let mut sum = None;
        for from in (0..k).step_by(part) {
            let partial = self.range(pair, from..(from + part).min(k), 0);
            sum = Some(sum.map_or(partial, |sum| add(F32.decode(sum), F32.decode(partial))));
        }
        sum.unwrap_or(start)
    }

    fn range(
        &self,
        pair: Pair<'_>,
        Range { start: from, end: to }: Range<usize>,
        start: u32,
    ) -> u32 {
        let steps = |step: usize| (from..to).step_by(step).map(move |at| at..(at + step).min(to));
        match self.scheme {
            Scheme::Exact | Scheme::AnyOrder => start,
            Scheme::Sequential => {
                (from..to).fold(start, |sum, k| add(F32.decode(sum), pair.product(k)))
            }
            Scheme::Pairwise => {
                let products = (from..to).map(|k| f32_bits(pair.product(k))).collect();
                add(F32.decode(pairwise(products)), F32.decode(start))
            }
            Scheme::Chain { step, promote: None } => {
                steps(step.length).fold(start, |sum, range| step.apply(sum, pair.terms(range)))
            }
            Scheme::Chain { step, promote: Some(interval) } => {
                let fresh = Self { scheme: Scheme::Chain { step, promote: None }, ..*self };
                steps(interval).fold(start, |sum, range| {
                    add(F32.decode(sum), F32.decode(fresh.range(pair, range, 0)))
                })
            }
            Scheme::Halves { step } => steps(32).fold(start, |sum, range| {
                let scale = pair.scale(range.start);
                add(F32.decode(sum), pair.block(step, range).times(scale))
            }),
            Scheme::Groups { step } => {
                steps(step.length).fold(start, |sum, range| step.apply(sum, pair.groups(range)))
            }
        }
    }
}

/// The same number with the least significand.
pub(super) const fn short(x: Number) -> Number {
    match x.magnitude {
        Magnitude::Finite { significand, exponent } => {
            let zeros = significand.trailing_zeros();
            Number::finite(x.negative, significand >> zeros, exponent + zeros as i32)
        }
        _ => x,
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
    fn apply(&self, accumulator: u32, terms: impl Iterator<Item = Term> + Clone) -> u32 {
        let c = F32.decode(accumulator);
        if c.magnitude == Magnitude::Infinite {
            return accumulator;
        }
        let terms = Term::new(c, held(c, &F32)).into_iter().chain(terms);
        let Some(largest) = terms.clone().map(|term| term.alignment).max() else { return 0 };
        let unit = largest.max(LEAST_ALIGNMENT) - self.fraction as i32;
        let sum: i64 = terms.map(|term| term.cut(unit)).sum();
        let sum = Number::finite(sum < 0, sum.unsigned_abs(), unit);
        if sum.exponent().is_some_and(|exponent| exponent > F32.max_exponent()) {
            return f32_bits(Number { magnitude: Magnitude::Infinite, ..sum });
        }
        let code = self.accumulator.encode(sum, Rounding::TowardZero, Overflow::Propagate);
        code << (F32.bits - self.accumulator.bits)
    }
}
