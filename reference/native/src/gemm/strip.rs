//! A strip of D: rows that one thread computes, from tiles to bits.

use mx_reference::format::F32;
use mx_reference::gemm::{Bound, Gemm, Total};
use mx_reference::{ExactSum, Format, Number, Overflow, Rounding};

use super::panel::{BLOCK, Line, Panel, value};
use super::sum::{Sum, power};
use super::tile::{COLS, ROWS, Tile, additions, sums};
use crate::dispatch::Work;

/// What all strips share.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    pub(super) gemm: &'a Gemm<'a>,
    pub(super) b: &'a [Panel<COLS>],
    pub(super) output: &'a Format,
}

/// Consecutive rows of D.
#[derive(Debug)]
pub(super) struct Strip<'a> {
    pub(super) whole: &'a Whole<'a>,
    /// The rows of A.
    pub(super) a: &'a [Panel<ROWS>],
    /// The number of the first row.
    pub(super) first: usize,
    pub(super) d: &'a mut [u32],
    /// As long as `d`, or empty if magnitudes are not asked for.
    pub(super) magnitudes: &'a mut [f64],
}

impl Work for Strip<'_> {
    #[inline(always)]
    fn run(mut self) {
        for (q, b) in self.whole.b.iter().enumerate() {
            for (p, a) in self.a.iter().enumerate() {
                if self.magnitudes.is_empty() {
                    self.tile::<false>((p * ROWS, a), (q * COLS, b));
                } else {
                    self.tile::<true>((p * ROWS, a), (q * COLS, b));
                }
            }
        }
    }
}

impl Strip<'_> {
    #[inline(always)]
    fn tile<const M: bool>(&mut self, a: (usize, &Panel<ROWS>), b: (usize, &Panel<COLS>)) {
        // A sum of n products below 2^bits is below 2^(bits + ceil(log2 n)).
        let terms = (BLOCK * a.1.shifts.len()).next_power_of_two().trailing_zeros();
        match a.1.bits() + b.1.bits() + terms {
            ..=62 => self.write(a, b, sums::<i64, M>(a.1, b.1)),
            63..=126 => self.write(a, b, sums::<i128, M>(a.1, b.1)),
            _ => self.write(a, b, sums::<ExactSum, M>(a.1, b.1)),
        }
    }

    #[inline(always)]
    fn write<S: Sum>(
        &mut self,
        (top, a): (usize, &Panel<ROWS>),
        (left, b): (usize, &Panel<COLS>),
        (sums, magnitudes): (Tile<S>, Tile<f64>),
    ) {
        let n = self.whole.gemm.shape().n;
        let rows = (self.d.len() / n - top).min(ROWS);
        for (i, a) in a.lines.iter().enumerate().take(rows) {
            for (j, b) in b.lines.iter().enumerate().take(n - left) {
                let at = (top + i) * n + left + j;
                let unit = a.unit() + b.unit();
                let lines = (a, b);
                let place = (self.first + top + i, left + j);
                let (bits, magnitude) = self.whole.output(place, lines, sums[i][j], unit);
                self.d[at] = bits;
                if let Some(to) = self.magnitudes.get_mut(at) {
                    *to = magnitude.unwrap_or_else(|| self.whole.above(magnitudes[i][j], unit));
                }
            }
        }
    }
}

impl Whole<'_> {
    /// An output, and its magnitude where it is not that of the tile.
    #[inline(always)]
    fn output<S: Sum>(
        &self,
        place: (usize, usize),
        lines: (&Line, &Line),
        sum: S,
        unit: i32,
    ) -> (u32, Option<f64>) {
        let finite = matches!(lines, (Line::Finite { .. }, Line::Finite { .. }));
        if !finite {
            return self.special(place, lines);
        }
        if self.gemm.c().is_some() || self.gemm.tensor_scales().is_some() {
            return self.finished(place, Total::Finite(sum.exact(unit)));
        }
        let number = sum.number(unit);
        (self.output.encode(number, Rounding::NearestEven, Overflow::Propagate), None)
    }

    #[cold]
    fn special(&self, (i, j): (usize, usize), lines: (&Line, &Line)) -> (u32, Option<f64>) {
        let total = match lines {
            (Line::Nan, _) | (_, Line::Nan) => Total::Nan,
            (Line::Infinite(ks), other) | (other, Line::Infinite(ks)) => {
                let [a, b] = self.gemm.operands();
                let k = self.gemm.shape().k;
                let others = if let Line::Infinite(ks) = other { ks.as_slice() } else { &[] };
                let mut total = Total::ZERO;
                // Beside them no finite product counts.
                for &at in ks.iter().chain(others) {
                    total.add(value(a, k, i, at).times(value(b, k, j, at)));
                }
                total
            }
            _ => {
                let dot = self.gemm.dot(i, j);
                let finite = dot.total.finite().is_some();
                let above = if finite { Bound::above(&dot.magnitude) } else { f64::INFINITY };
                return (dot.total.round(self.output), Some(above));
            }
        };
        self.finished((i, j), total)
    }

    /// The output for a sum of products: tensor scales and C.
    fn finished(&self, (i, j): (usize, usize), mut total: Total) -> (u32, Option<f64>) {
        if let Some(scale) = self.tensor_scale() {
            total = total.times(scale);
        }
        if let Some(c) = self.gemm.c() {
            total.add(F32.decode(c[i * self.gemm.shape().n + j]));
        }
        let infinite = total.finite().is_none().then_some(f64::INFINITY);
        (total.round(self.output), infinite)
    }

    fn tensor_scale(&self) -> Option<Number> {
        self.gemm.tensor_scales().map(|[a, b]| F32.decode(a).times(F32.decode(b)))
    }

    /// An upper bound of |t| × magnitude × 2^unit. Everything here is far from both ends of the doubles.
    fn above(&self, magnitude: f64, unit: i32) -> f64 {
        let additions = additions(self.gemm.shape().k.div_ceil(BLOCK));
        let (significand, exponent) = match self.tensor_scale().map(|scale| scale.magnitude) {
            None => (1, 0),
            Some(mx_reference::Magnitude::Finite { significand, exponent }) => {
                (significand, exponent)
            }
            Some(_) => (0, 0),
        };
        if magnitude == 0.0 || significand == 0 {
            return 0.0;
        }
        // Twice the error of the additions, and four roundings here.
        let error = (additions + 4) as f64 * f64::EPSILON;
        (magnitude * (1.0 + error) * significand as f64).next_up() * power(unit + exponent)
    }
}
