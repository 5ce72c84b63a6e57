//! One side of a matrix product, and its rows as integers times powers of two.

use std::sync::OnceLock;

use crate::{Big, Exact, Extended, Float, Format, Value};

/// The elements of an operand, K contiguous.
#[derive(Clone, Copy, Debug)]
pub enum GemmElements<'a> {
    /// Codes, one a byte, of one of [`Format::ELEMENTS`].
    Codes(Format, &'a [u8]),
    /// Patterns of [`Float::Bf16`] or [`Float::F16`].
    Floats(Float, &'a [u16]),
}

/// The scales of an operand.
#[derive(Clone, Copy, Debug)]
pub struct GemmScales<'a> {
    /// [`Format::E8m0`], or [`Format::Ue4m3`], of which bit 7 is ignored.
    pub format: Format,
    /// One for each block of each row, row major.
    pub bytes: &'a [u8],
    /// How many elements of a row share a scale; the last block of a row may be shorter.
    pub block: usize,
}

/// One side of a matrix product: elements times scales.
#[derive(Clone, Copy, Debug)]
pub struct GemmOperand<'a> {
    /// The elements.
    pub elements: GemmElements<'a>,
    /// The scales, 1 where there are none; only codes may have them.
    pub scales: Option<GemmScales<'a>>,
}

impl GemmOperand<'_> {
    /// Panics unless this is an operand of `rows` rows of `k`.
    pub(crate) fn check(&self, rows: usize, k: usize) {
        let count = match self.elements {
            GemmElements::Codes(format, codes) => {
                assert!(Format::ELEMENTS.contains(&format), "{format:?} is no element format");
                codes.len()
            }
            GemmElements::Floats(float, patterns) => {
                assert!(float != Float::F32, "elements of 32 bits");
                assert!(self.scales.is_none(), "floats with scales");
                patterns.len()
            }
        };
        assert_eq!(count, rows * k, "elements of {rows} rows of {k}");
        if let Some(GemmScales { format, bytes, block }) = self.scales {
            assert!(
                matches!(format, Format::E8m0 | Format::Ue4m3),
                "{format:?} is no scale format"
            );
            assert!(block > 0, "blocks of nothing");
            assert_eq!(bytes.len(), rows * k.div_ceil(block), "scales of {rows} rows of {k}");
        }
    }

    /// One row.
    pub(crate) fn line(&self, row: usize, k: usize) -> Line {
        let mut line = match self.elements {
            GemmElements::Codes(format, codes) => Line::of_codes(format, &codes[row * k..][..k]),
            GemmElements::Floats(float, bits) => Line::of_floats(float, &bits[row * k..][..k]),
        };
        if let Some(GemmScales { format, bytes, block }) = self.scales {
            let across = k.div_ceil(block);
            line.scale(format, &bytes[row * across..][..across], block);
        }
        line
    }
}

/// What a run of numerators is multiplied by: `numerator × 2^exponent`.
#[derive(Clone, Copy, Debug)]
struct Factor {
    numerator: u32,
    exponent: i32,
}

/// One row of an operand.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Up to 2^40; of infinities only the sign counts.
    numerators: Vec<i64>,
    /// One for each run of numerators.
    factors: Vec<Factor>,
    run: usize,
    /// Where infinities are, ascending.
    infinite: Vec<usize>,
    /// Whether an element or a scale is NaN.
    nan: bool,
}

/// A value over a power of two.
#[derive(Clone, Copy, Debug)]
struct Element {
    numerator: i64,
    unit: i32,
    infinite: bool,
    nan: bool,
}

impl Element {
    /// Over `2^unit`, or over the power that suits the value.
    fn new(value: Value, unit: Option<i32>) -> Self {
        let (negative, magnitude, infinite) = match value {
            Value::Finite { negative, magnitude } => (negative, magnitude, false),
            Value::Infinite { negative } => (negative, Exact::ONE, true),
            Value::Nan => (false, Exact::ZERO, false),
        };
        let unit = unit.unwrap_or(magnitude.exponent());
        let numerator = magnitude.over(unit) as i64;
        let numerator = if negative { -numerator } else { numerator };
        Self { numerator, unit, infinite, nan: value == Value::Nan }
    }
}

impl Line {
    /// Codes are multiples of their format's least value.
    fn of_codes(format: Format, codes: &[u8]) -> Self {
        static FOUND: [OnceLock<Vec<Element>>; Format::ALL.len()] =
            [const { OnceLock::new() }; Format::ALL.len()];
        let unit = format.magnitude(1).exponent();
        let elements = FOUND[format as usize].get_or_init(|| {
            (0..=u8::MAX).map(|code| Element::new(format.value(code), Some(unit))).collect()
        });
        Self::new(codes.iter().map(|&code| elements[usize::from(code)]), Some(unit))
    }

    /// So are f16; bf16 reaches too far for one unit, and each has its own.
    fn of_floats(float: Float, patterns: &[u16]) -> Self {
        let unit = (float == Float::F16).then(|| float.magnitude(1).exponent());
        let element = |&bits: &u16| Element::new(float.value(bits.into()), unit);
        Self::new(patterns.iter().map(element), unit)
    }

    /// Elements that share a unit, or do not.
    fn new(elements: impl ExactSizeIterator<Item = Element>, unit: Option<i32>) -> Self {
        let k = elements.len();
        let mut line = Self {
            numerators: Vec::with_capacity(k),
            factors: Vec::new(),
            run: if unit.is_some() { k.max(1) } else { 1 },
            infinite: Vec::new(),
            nan: false,
        };
        line.factors.extend(unit.map(|exponent| Factor { numerator: 1, exponent }));
        for (index, element) in elements.enumerate() {
            line.numerators.push(element.numerator);
            line.nan |= element.nan;
            if element.infinite {
                line.infinite.push(index);
            }
            if unit.is_none() {
                line.factors.push(Factor { numerator: 1, exponent: element.unit });
            }
        }
        line
    }

    /// Gives each block of codes its scale.
    fn scale(&mut self, format: Format, bytes: &[u8], block: usize) {
        let unit = self.factors[0].exponent;
        self.run = block;
        self.factors.clear();
        for &byte in bytes {
            let Value::Finite { magnitude, .. } = format.value(byte) else {
                self.nan = true;
                self.factors.push(Factor { numerator: 0, exponent: 0 });
                continue;
            };
            let magnitude = magnitude.scaled(unit);
            let (numerator, exponent) = (magnitude.numerator() as u32, magnitude.exponent());
            self.factors.push(Factor { numerator, exponent });
        }
    }

    /// The row with every number replaced by its absolute value.
    pub(crate) fn abs(mut self) -> Self {
        for numerator in &mut self.numerators {
            *numerator = numerator.abs();
        }
        self
    }

    /// Element times scale, unless one is NaN.
    fn at(&self, index: usize) -> Extended {
        let numerator = self.numerators[index];
        let Factor { numerator: factor, exponent } = self.factors[index / self.run];
        let scale = Extended::Finite(Big::new(factor.into(), exponent));
        if self.infinite.binary_search(&index).is_ok() {
            scale.times(&Extended::Infinite { negative: numerator < 0 })
        } else {
            scale.times(&Extended::Finite(Big::new(numerator.into(), 0)))
        }
    }

    /// The sum of the products of two rows of one length.
    pub(crate) fn dot(&self, other: &Self) -> Extended {
        if self.nan || other.nan {
            return Extended::Nan;
        }
        if self.infinite.is_empty() && other.infinite.is_empty() {
            return Extended::Finite(self.finite_dot(other));
        }
        // Next to an infinite product the finite ones do not count.
        let infinite = self.infinite.iter().chain(&other.infinite);
        let products = infinite.map(|&index| self.at(index).times(&other.at(index)));
        products.fold(Extended::Finite(Big::default()), |sum, product| sum.plus(&product))
    }

    /// Products within one run of both rows are added up as integers: 2^80 a product and 2^8 of scales leave room in 128
    /// bits for more of them than there is memory.
    fn finite_dot(&self, other: &Self) -> Big {
        let k = self.numerators.len();
        let mut sum = Big::default();
        let mut start = 0;
        while start < k {
            let (i, j) = (start / self.run, start / other.run);
            let end = |run: usize, index: usize| run.saturating_mul(index + 1);
            let end = k.min(end(self.run, i)).min(end(other.run, j));
            let pairs = self.numerators[start..end].iter().zip(&other.numerators[start..end]);
            let total: i128 = pairs.map(|(&x, &y)| i128::from(x) * i128::from(y)).sum();
            if total != 0 {
                let (f, g) = (self.factors[i], other.factors[j]);
                let factor = i128::from(f.numerator * g.numerator);
                sum.accumulate(total * factor, f.exponent + g.exponent);
            }
            start = end;
        }
        sum
    }
}
