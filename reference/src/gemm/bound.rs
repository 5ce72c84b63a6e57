//! Rigorous bounds: how far an accumulation can be from the exact sum.
//!
//! With T = Σ |pₖ| + |c| over n terms:
//!
//! * f32 additions to nearest, in any order: (n - 1)·2^-24·T, without terms of higher order (Jeannerod and Rump, SIAM J. Matrix
//!   Anal. Appl. 34(2), 2013). Toward zero magnitudes never grow, so every partial sum stays within T of its own terms and the
//!   bound holds with 2^-23. A product that f32 cannot hold adds half a unit of its last place, 2^-150 (2^-149 toward zero).
//! * a chain of N [`FusedDot`](super::FusedDot) steps: every step cuts at most L products and the accumulator to multiples of
//!   2^(E - F), and then the sum to P bits. Cutting toward zero never grows a magnitude, so no accumulator exceeds T and no
//!   E exceeds Ē = max(maxₖ εₖ, floor(log2 T)): (K + N)·2^(Ē - F) + N·(2^-P·T + 2^(-126 - P)).
//!
//! * blocks of 32 summed by a chain of two steps, each sum t times its scales s added by a multiply-add to nearest: the chain's bound
//!   times s for each block, and for B additions of numbers that f32 need not hold, of which each makes an error of 2^-24 of its
//!   result and 2^-150: ((1 + 2^-24)^B - 1)·(T + B·2^-150) + B·2^-150 <= (B·2^-24 + B²·2^-48)·T + B·2^-149 for B <= 2^24.
//!
//! Everything here is rounded upwards.

use super::Gemm;
use super::accumulation::{Accumulation, FusedDot, Scheme};
use super::evaluate::{GROUP, Line, Pair, Term};
use super::sum::ExactSum;
use super::total::Total;
use crate::block::Rule;
use crate::format::{F32, Format};
use crate::number::{Magnitude, Number};
use core::ops::Range;

/// An upper bound of a non-negative number: `significand × 2^exponent`, every operation rounded upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    significand: u64,
    exponent: i32,
}

impl Bound {
    /// Zero: an exact answer is called for.
    pub const ZERO: Self = Self { significand: 0, exponent: 0 };

    /// The bound as a number.
    pub const fn number(self) -> Number {
        Number::finite(false, self.significand, self.exponent)
    }

    const fn new(significand: u128, exponent: i32) -> Self {
        // 40 bits are plenty, and leave room for the sums and products below.
        let excess = (128 - significand.leading_zeros()).saturating_sub(40);
        let kept = significand >> excess;
        let cut = (kept << excess) != significand;
        Self { significand: kept as u64 + cut as u64, exponent: exponent + excess as i32 }
    }

    /// An upper bound of a magnitude.
    fn of(x: Number) -> Self {
        match x.magnitude {
            Magnitude::Finite { significand, exponent } => Self::new(significand.into(), exponent),
            _ => Self::ZERO,
        }
    }

    fn of_sum(sum: &ExactSum) -> Self {
        // The sticky bit of `number` stands for something below itself, so it rounds up like a bit.
        Self::of(sum.abs().number())
    }

    const fn power(exponent: i32) -> Self {
        Self { significand: 1, exponent }
    }

    fn times(self, factor: u64, power: i32) -> Self {
        Self::new(u128::from(self.significand) * u128::from(factor), self.exponent + power)
    }

    fn product(self, other: Self) -> Self {
        self.times(other.significand, other.exponent)
    }

    fn plus(self, other: Self) -> Self {
        if self.significand == 0 || other.significand == 0 {
            return if self.significand == 0 { other } else { self };
        }
        let (high, low) =
            if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let apart = (high.exponent - low.exponent) as u32;
        if apart > 64 {
            return Self::new(u128::from(high.significand) + 1, high.exponent);
        }
        Self::new(
            (u128::from(high.significand) << apart) + u128::from(low.significand),
            low.exponent,
        )
    }

    /// `floor(log2 bound)`, or far below everything for zero.
    fn exponent(self) -> i32 {
        self.number().exponent().unwrap_or(i32::MIN / 4)
    }

    /// The bound as a double, rounded upwards; infinite beyond its range.
    pub fn to_f64(self) -> f64 {
        let mut x = self.significand as f64;
        let mut exponent = self.exponent;
        while exponent > 0 && x.is_finite() {
            x *= 2.0;
            exponent -= 1;
        }
        while exponent < 0 && x != 0.0 {
            // Halving loses a bit only where doubles end; the next one up keeps the bound.
            let half = x / 2.0;
            x = if half * 2.0 < x { half.next_up() } else { half };
            exponent += 1;
        }
        x
    }

    /// An upper bound of a total's magnitude as a double; infinite for what is not finite.
    pub fn above(total: &Total) -> f64 {
        total.finite().map_or(f64::INFINITY, |sum| Self::of_sum(sum).to_f64())
    }
}

impl Accumulation {
    /// How far the result of this accumulation, before it is rounded to the output type, can be from the exact value at (i, j);
    /// `None` where that is not finite.
    pub fn bound(&self, gemm: &Gemm<'_>, i: usize, j: usize) -> Option<Bound> {
        let [a, b] = self.lines(gemm, (i, j));
        let pair = Pair { a: &a, b: &b };
        pair.total(gemm, i, j).finite()?;
        self.bound_of(gemm, pair, i, j)
    }

    fn bound_of(&self, gemm: &Gemm<'_>, pair: Pair<'_>, i: usize, j: usize) -> Option<Bound> {
        if self.scheme == Scheme::Exact {
            return Some(Bound::ZERO);
        }
        let k = gemm.shape().k;
        let addend = Bound::of(gemm.addend(i, j).unwrap_or(Number::ZERO));
        let magnitude = Bound::of_sum(&pair.magnitude(0..k)?);
        let Some([a, b]) = gemm.tensor_scales() else {
            return Some(self.sum_bound(pair, k, magnitude.plus(addend)));
        };
        // The sum is formed without tensor scales; alpha is rounded once (2^-24 of itself), and so is alpha times the sum plus c. The
        // product of normal scales is normal for every case that is judged by an interval.
        let error = self.sum_bound(pair, k, magnitude);
        let alpha = Bound::of(F32.decode(a).times(F32.decode(b)));
        let most = magnitude.plus(error).product(alpha);
        Some(
            error
                .product(alpha)
                .times(2, 0)
                .plus(most.times(1, -22))
                .plus(addend.times(1, -22))
                .plus(Bound::power(-148)),
        )
    }

    /// The bound over all of K, given T.
    fn sum_bound(&self, pair: Pair<'_>, k: usize, total: Bound) -> Bound {
        let steps = |step: usize| (0..k).step_by(step).map(move |at| at..(at + step).min(k));
        let terms = || pair.terms(0..k);
        let count = k as u64 + 1;
        // Splitting K adds an f32 addition a part, and c's own.
        let splits = if self.split > 1 { self.split as u64 + 1 } else { 0 };
        let split = total.times(splits, -23);
        let bound = match self.scheme {
            Scheme::Exact => Bound::ZERO,
            Scheme::Sequential | Scheme::Pairwise => {
                total.times(count, -24).plus(Bound::power(-150).times(count, 0))
            }
            Scheme::AnyOrder => {
                let largest = total.exponent().max(largest(terms()));
                total
                    .plus(Bound::power(largest))
                    .times(count, -23)
                    .plus(Bound::power(-149).times(count, 0))
            }
            Scheme::Chain { step, promote: None } => chain(step, k as u64, total, terms()),
            Scheme::Chain { step, promote: Some(interval) } => {
                let each = steps(interval).map(|range| chunk(step, pair, range));
                each.fold(total.times(k.div_ceil(interval) as u64, -24), Bound::plus)
            }
            Scheme::Halves { step } => {
                let each = steps(32).map(|range| block(step, pair, range));
                let blocks = k.div_ceil(32) as u64;
                let rounded = total
                    .times(blocks, -24)
                    .plus(total.times(blocks * blocks, -48))
                    .plus(Bound::power(-149).times(blocks, 0));
                each.fold(rounded, Bound::plus)
            }
            Scheme::Groups { step } => {
                // A group is one term, so a step cuts four of them and the accumulator.
                let step = FusedDot { length: step.length / GROUP, ..step };
                chain(step, k.div_ceil(GROUP) as u64, total, pair.groups(0..k))
            }
        };
        bound.plus(split)
    }

    /// What an output at (i, j) may be: between the exact value less the bound and plus the bound, each rounded to the output type.
    /// Rounding keeps order, so every result within the bound lies between them.
    pub fn rule(&self, gemm: &Gemm<'_>, i: usize, j: usize, output: &Format) -> Rule {
        let [a, b] = self.lines(gemm, (i, j));
        self.rule_of(gemm, Pair { a: &a, b: &b }, (i, j), output)
    }

    fn rule_of(
        &self,
        gemm: &Gemm<'_>,
        pair: Pair<'_>,
        (i, j): (usize, usize),
        output: &Format,
    ) -> Rule {
        let exact = match pair.total(gemm, i, j) {
            Total::Finite(exact) => exact,
            Total::Infinite { .. } => return Rule::Exact,
            Total::Nan => return Rule::AnyNan,
        };
        match self.bound_of(gemm, pair, i, j) {
            Some(bound) if bound != Bound::ZERO => {
                let end = |negative| {
                    let mut end = exact;
                    add_up(&mut end, negative, bound);
                    Total::Finite(end).round(output)
                };
                Rule::Between { low: end(true), high: end(false) }
            }
            _ => gemm.dot(i, j).rule(),
        }
    }
}

/// The intervals of a product's outputs, for many of them: rows are decoded once.
#[derive(Clone, Debug)]
pub struct Intervals<'a> {
    gemm: Gemm<'a>,
    accumulation: Accumulation,
    output: &'a Format,
    rows: Vec<Line>,
    columns: Vec<Line>,
}

impl<'a> Gemm<'a> {
    /// The intervals that the bound of an accumulation allows around the exact values.
    pub fn intervals(self, accumulation: &Accumulation, output: &'a Format) -> Intervals<'a> {
        let k = self.shape.k;
        let rows = (0..self.shape.m).map(|i| accumulation.line(&self.a, k, i)).collect();
        let columns = (0..self.shape.n).map(|j| accumulation.line(&self.b, k, j)).collect();
        Intervals { gemm: self, accumulation: *accumulation, output, rows, columns }
    }
}

impl Intervals<'_> {
    /// [`Accumulation::rule`] at (i, j).
    ///
    /// # Panics
    /// If (i, j) is outside D.
    pub fn rule(&self, i: usize, j: usize) -> Rule {
        let pair = Pair { a: &self.rows[i], b: &self.columns[j] };
        self.accumulation.rule_of(&self.gemm, pair, (i, j), self.output)
    }
}

/// Adds ± an upper bound, rounded away to the accumulator's unit.
fn add_up(sum: &mut ExactSum, negative: bool, bound: Bound) {
    let below = ExactSum::UNIT - bound.exponent;
    if below <= 0 {
        sum.add(Number { negative, ..bound.number() });
    } else {
        let kept = bound.significand.checked_shr(below.unsigned_abs()).unwrap_or(0) + 1;
        sum.add(Number::finite(negative, kept, ExactSum::UNIT));
    }
}

fn largest(terms: impl Iterator<Item = Term>) -> i32 {
    terms.map(|term| term.alignment).max().unwrap_or(i32::MIN / 4)
}

/// (K + N)·2^(Ē - F) + N·(2^-P·T + 2^(-126 - P)).
fn chain(step: FusedDot, k: u64, total: Bound, terms: impl Iterator<Item = Term>) -> Bound {
    const LEAST: i32 = -132;
    let steps = k.div_ceil(step.length as u64);
    let aligned = total.exponent().max(largest(terms)).max(LEAST);
    let precision = step.accumulator.mantissa_bits as i32;
    let cut = Bound::power(aligned - step.fraction as i32).times(k + steps, 0);
    let rounded = total.times(steps, -precision);
    let subnormal = Bound::power(F32.min_exponent() - precision).times(steps, 0);
    cut.plus(rounded).plus(subnormal)
}

/// The same of a chain over elements without their scales, from zero, times the scales.
fn block(step: FusedDot, pair: Pair<'_>, range: Range<usize>) -> Bound {
    let mut sum = Total::ZERO;
    pair.unscaled(range.clone()).for_each(|product| sum.add(product.abs()));
    let sum = sum.finite().map_or(Bound::ZERO, Bound::of_sum);
    let scale = Bound::of(pair.scale(range.start));
    chain(step, range.len() as u64, sum, pair.unscaled_terms(range)).product(scale)
}

/// The same of a chain that starts from zero, over a range of k.
fn chunk(step: FusedDot, pair: Pair<'_>, range: Range<usize>) -> Bound {
    let sum = pair.magnitude(range.clone()).unwrap_or(ExactSum::ZERO);
    chain(step, range.len() as u64, Bound::of_sum(&sum), pair.terms(range))
}
