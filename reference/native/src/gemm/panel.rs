//! Operands unpacked for the tile kernel: blocks of integers, each under a power of two of its own.
//!
//! Which scales an operand has, of which format and for how many elements, ends here: an element times its scale is an integer
//! times a power of two, and the kernel's blocks take the least such power among their own elements as their unit.

use mx_reference::gemm::{Codes, Operand};
use mx_reference::{Magnitude, Number};
use rayon::prelude::*;

/// Elements of a block along K.
pub(super) const BLOCK: usize = 32;
/// Bits of an integer that one plane holds. Sums of 32 products of two planes stay within 2^51, which f64 holds exactly in
/// whatever order they are added, and [`super::sum::integer`] converts.
pub(super) const PLANE: u32 = 23;
/// The bits of an element within its block that two planes hold: all 40 of f16, all 32 of E5M2, all 22 of NVFP4 with its
/// scales; bf16 reaches further.
const WIDEST: i32 = 2 * PLANE as i32;
/// From the unit of a row to its largest element: more than any MX operand under any scales, and little enough for the
/// powers of two of two rows to be normal doubles together.
const LONGEST: i32 = 400;

/// A block of a plane: `W` rows side by side for each k.
pub(super) type Block<const W: usize> = [[f64; W]; BLOCK];

/// `W` rows of an operand.
#[derive(Debug)]
pub(super) struct Panel<const W: usize> {
    /// The low bits of all integers, and the high ones if there are any, both with the element's sign.
    pub(super) planes: [Vec<Block<W>>; 2],
    /// The unit of a block over the row's.
    pub(super) shifts: Vec<[u32; W]>,
    /// What the rows are. Rows that are not [`Line::Finite`] or not there have zeros for elements.
    pub(super) lines: [Line; W],
}

/// What a row of an operand is.
#[derive(Debug)]
pub(super) enum Line {
    /// Numbers that its integers hold: multiples of 2^unit, less than 2^(unit + bits) in magnitude.
    Finite {
        /// The exponent of the row's unit.
        unit: i32,
        /// From the unit to above the largest element.
        bits: u32,
    },
    /// Numbers too far apart for that.
    Wide,
    /// Infinities at these k, and no NaN.
    Infinite(Vec<usize>),
    /// NaN somewhere, in an element or a scale.
    Nan,
}

impl Line {
    const ZEROS: Self = Self::Finite { unit: 0, bits: 0 };

    /// The exponent of the unit of what the panel holds for this row.
    #[inline(always)]
    pub(super) const fn unit(&self) -> i32 {
        match *self {
            Self::Finite { unit, .. } => unit,
            _ => 0,
        }
    }

    const fn bits(&self) -> u32 {
        match *self {
            Self::Finite { bits, .. } => bits,
            _ => 0,
        }
    }
}

/// A number as `significand × 2^exponent` with an odd significand, or zero.
#[derive(Clone, Copy, Debug)]
struct Odd {
    significand: i64,
    exponent: i32,
}

/// The element at (row, k) times its scale, where rows have `length` elements.
pub(super) fn value(operand: &Operand<'_>, length: usize, row: usize, k: usize) -> Number {
    element(operand, row * length + k).times(scale(operand, length, row, k))
}

fn element(operand: &Operand<'_>, at: usize) -> Number {
    operand.format.decode(match operand.codes {
        Codes::Bytes(codes) => codes[at].into(),
        Codes::Halves(codes) => codes[at].into(),
    })
}

fn scale(operand: &Operand<'_>, length: usize, row: usize, k: usize) -> Number {
    operand.scales.map_or(Number::finite(false, 1, 0), |scales| {
        let byte = scales.bytes[row * (length / scales.block) + k / scales.block];
        scales.format.decode(byte.into())
    })
}

/// All rows of an operand.
pub(super) fn panels<const W: usize>(
    operand: &Operand<'_>,
    rows: usize,
    length: usize,
) -> Vec<Panel<W>> {
    let panel = |first: usize| {
        let first = first * W;
        Panel::new(operand, first..rows.min(first + W), length)
    };
    (0..rows.div_ceil(W)).into_par_iter().map(panel).collect()
}

impl<const W: usize> Panel<W> {
    fn new(operand: &Operand<'_>, rows: std::ops::Range<usize>, length: usize) -> Self {
        let blocks = length.div_ceil(BLOCK);
        let mut panel = Self {
            planes: [vec![[[0.0; W]; BLOCK]; blocks], Vec::new()],
            shifts: vec![[0; W]; blocks],
            lines: [const { Line::ZEROS }; W],
        };
        let mut elements = Vec::with_capacity(length);
        for (w, row) in rows.enumerate() {
            panel.lines[w] = match unpack(operand, length, row, &mut elements) {
                Some(special) => special,
                None => panel.fill(w, &elements),
            };
        }
        panel
    }

    /// The most bits of any row.
    pub(super) fn bits(&self) -> u32 {
        self.lines.iter().map(Line::bits).max().unwrap_or(0)
    }

    fn fill(&mut self, w: usize, elements: &[Odd]) -> Line {
        let ranges: Vec<_> = elements.chunks(BLOCK).map(range).collect();
        let Some((unit, top)) = ranges.iter().copied().flatten().reduce(hull) else {
            return Line::ZEROS;
        };
        let widest = ranges.iter().flatten().map(|(unit, top)| top - unit).max();
        if top - unit > LONGEST || widest > Some(WIDEST) {
            return Line::Wide;
        }
        for (b, (block, range)) in elements.chunks(BLOCK).zip(ranges).enumerate() {
            let Some((least, top)) = range else { continue };
            self.shifts[b][w] = (least - unit) as u32;
            if top - least > PLANE as i32 && self.planes[1].is_empty() {
                self.planes[1] = vec![[[0.0; W]; BLOCK]; self.planes[0].len()];
            }
            for (k, x) in block.iter().enumerate().filter(|(_, x)| x.significand != 0) {
                let integer = x.significand << (x.exponent - least);
                self.planes[0][b][k][w] = (integer % (1 << PLANE)) as f64;
                let high = integer / (1 << PLANE);
                if high != 0 {
                    self.planes[1][b][k][w] = high as f64;
                }
            }
        }
        Line::Finite { unit, bits: (top - unit) as u32 }
    }
}

/// Takes a row apart, unless there is something special in it.
fn unpack(
    operand: &Operand<'_>,
    length: usize,
    row: usize,
    elements: &mut Vec<Odd>,
) -> Option<Line> {
    let run = operand.scales.map_or(length, |scales| scales.block).max(1);
    let mut infinities = Vec::new();
    elements.clear();
    for start in (0..length).step_by(run) {
        let scale = scale(operand, length, row, start);
        for k in start..start + run {
            let x = element(operand, row * length + k).times(scale);
            let (significand, exponent) = match x.magnitude {
                Magnitude::Nan => return Some(Line::Nan),
                Magnitude::Infinite => {
                    infinities.push(k);
                    (0, 0)
                }
                Magnitude::Zero => (0, 0),
                Magnitude::Finite { significand, exponent } => {
                    let zeros = significand.trailing_zeros();
                    ((significand >> zeros) as i64, exponent + zeros as i32)
                }
            };
            let significand = if x.negative { -significand } else { significand };
            elements.push(Odd { significand, exponent });
        }
    }
    (!infinities.is_empty()).then_some(Line::Infinite(infinities))
}

/// The least exponent among what is not zero, and the first above all of it.
fn range(elements: &[Odd]) -> Option<(i32, i32)> {
    let of = |x: &Odd| {
        let width = u64::BITS - x.significand.unsigned_abs().leading_zeros();
        (x.exponent, x.exponent + width as i32)
    };
    elements.iter().filter(|x| x.significand != 0).map(of).reduce(hull)
}

fn hull(a: (i32, i32), b: (i32, i32)) -> (i32, i32) {
    (a.0.min(b.0), a.1.max(b.1))
}
