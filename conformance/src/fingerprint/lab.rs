//! Asking for products, and keeping what was asked and answered.

use super::palette::Palette;
use super::probe::{Probe, Row, Sheet};
use super::{Operands, Options, PlainGemm};
use mx_reference::gemm::{BlockScales, Codes, Gemm, GemmShape, Operand};
use mx_vectors::op::Split;

/// Positions of k at which everything is looked for that a few steps show.
const SHORT: usize = 128;

/// The longest contraction that is worth asking for.
const LONGEST: usize = 1 << 14;

/// Positions of k between the places where [`super::walk`] looks; whole blocks of every kind of operands.
pub(super) const UNIT: usize = 32;

/// One operand's tensors.
#[derive(Debug, Default)]
pub(super) struct Side {
    bytes: Vec<u8>,
    halves: Vec<u16>,
    scales: Vec<u8>,
}

impl Side {
    pub(super) fn push(&mut self, operands: Operands, code: u32) {
        if operands.element().bits > 8 {
            self.halves.push(code as u16);
        } else {
            self.bytes.push(code as u8);
        }
    }

    pub(super) fn push_scale(&mut self, code: u32) {
        self.scales.push(code as u8);
    }

    fn operand(&self, operands: Operands) -> Operand<'_> {
        let format = operands.element();
        let codes =
            if format.bits > 8 { Codes::Halves(&self.halves) } else { Codes::Bytes(&self.bytes) };
        let scales = operands.scales().map(|(format, block)| BlockScales {
            format,
            bytes: &self.scales,
            block,
        });
        Operand { format, codes, scales }
    }

    /// Rows one after the other, the first of them repeated up to `rows`.
    fn of_rows(palette: &Palette, rows: &[Row], count: usize, k: usize, empty: u32) -> Self {
        let operands = palette.operands;
        let mut side = Self::default();
        for index in 0..count {
            let row = rows.get(index);
            let code = |k| row.and_then(|row| row.codes.get(&k)).copied().unwrap_or(empty);
            (0..k).for_each(|k| side.push(operands, code(k)));
            let Some((scales, block)) = palette.scales().zip(palette.block()) else { continue };
            for block in 0..k / block {
                let exponent = row.and_then(|row| row.scales.get(&block)).copied().unwrap_or(0);
                side.push_scale(scales.get(false, false, exponent).unwrap_or(0));
            }
        }
        side
    }
}

/// A product that was asked for.
#[derive(Debug)]
pub(super) struct Product {
    shape: GemmShape,
    a: Side,
    b: Side,
    /// How K was split, if that was said.
    pub(super) split: Option<Split>,
    /// The outputs that are looked at, and their bits where the answer had them.
    pub(super) used: Vec<(usize, usize, Option<u32>)>,
}

impl Product {
    /// How long a replay takes, roughly.
    pub(super) const fn cost(&self) -> usize {
        self.used.len() * self.shape.k
    }

    /// The product; `None` never comes, as the tensors are made for the shape.
    pub(super) fn gemm(&self, operands: Operands) -> Option<Gemm<'_>> {
        let (a, b) = (self.a.operand(operands), self.b.operand(operands));
        Gemm::new(self.shape, a, b, None, None).ok()
    }
}

/// The product under test, and all that it has answered.
pub(super) struct Lab<'g, G> {
    gemm: &'g mut G,
    options: Options,
    pub(super) palette: Palette,
    /// Parts that K is split into, as far as is known: contractions are so long that the first part holds all positions looked at.
    parts: usize,
    pub(super) record: Vec<Product>,
}

impl<'g, G: PlainGemm> Lab<'g, G> {
    pub(super) fn new(gemm: &'g mut G, operands: Operands, options: Options) -> Self {
        let palette = Palette::new(operands, true);
        Self { gemm, options, palette, parts: 1, record: Vec::new() }
    }

    /// The least legal length that is not below `k`.
    pub(super) fn length(&self, k: usize) -> usize {
        let multiple = self.options.multiple.2.clamp(1, LONGEST);
        let step = (1..=UNIT).map(|n| n * multiple).find(|n| n.is_multiple_of(UNIT));
        k.next_multiple_of(step.unwrap_or(UNIT))
    }

    /// A contraction whose parts have another length for these tiles than for any others, if K is split; `None` if it is too long.
    pub(super) fn uneven(&self, tile: usize) -> Option<usize> {
        let k = self.length(tile * (2 * self.parts + 1));
        (self.parts > 1 && k <= self.longest()).then_some(k)
    }

    /// How many positions of k are looked at for what a few steps show.
    pub(super) fn reach(&self) -> usize {
        self.length(SHORT)
    }

    /// The length of short contractions.
    pub(super) fn short(&self) -> usize {
        self.length(SHORT * self.parts).min(self.longest())
    }

    /// A contraction longer than the short ones, in which whatever depends on K lies elsewhere; `None` if it may not be asked for.
    pub(super) fn longer(&self) -> Option<usize> {
        Some(self.length(2 * self.short())).filter(|&k| k <= self.longest())
    }

    /// Makes short contractions so long that parts of a split K do not end within what is looked at. True if that changes them.
    pub(super) fn split(&mut self, parts: usize) -> bool {
        let before = self.short();
        self.parts = parts;
        self.short() > before
    }

    /// The length of the longest contraction.
    pub(super) fn longest(&self) -> usize {
        self.length(self.options.k.clamp(SHORT, LONGEST))
    }

    /// Rows of B that fit one product.
    pub(super) fn columns(&self) -> usize {
        self.options.multiple.1.max(1)
    }

    /// The sums that probes ask for, over contractions of length `k`. `None` where the operands cannot make one, and where the
    /// answer is not a number or not there.
    pub(super) fn ask(&mut self, k: usize, probes: &[Probe]) -> Result<Vec<Option<f64>>, G::Error> {
        let sheet = Sheet::new(&self.palette, probes);
        let one = self.palette.elements().get(false, false, 0).unwrap_or(0);
        let mut answers = vec![None; probes.len()];
        for (chunk, b) in sheet.rows_of_b(&self.palette).chunks(self.columns()).enumerate() {
            let first = chunk * self.columns();
            let mut rows = Vec::new();
            let mut used = Vec::new();
            for (index, placed) in sheet.a.iter().enumerate() {
                if let Some((row, j)) = placed
                    && let Some(j) = j.checked_sub(first).filter(|&j| j < b.len())
                {
                    used.push((index, rows.len(), j));
                    rows.push(row.clone());
                }
            }
            let shape = self.shape(rows.len(), b.len(), k);
            let a = Side::of_rows(&self.palette, &rows, shape.m, k, 0);
            let b = Side::of_rows(&self.palette, b, shape.n, k, one);
            let pairs = used.iter().map(|&(_, i, j)| (i, j)).collect();
            let bits = self.multiply(shape, a, b, pairs)?;
            for ((index, ..), bits) in used.into_iter().zip(bits) {
                answers[index] = bits.map(f32::from_bits).filter(|x| x.is_finite()).map(f64::from);
            }
        }
        Ok(answers)
    }

    /// The legal shape for so many rows of A and of B.
    pub(super) fn shape(&self, m: usize, n: usize, k: usize) -> GemmShape {
        let multiple = self.options.multiple;
        let (m, n) = (m.max(1), n.max(1));
        GemmShape {
            m: m.next_multiple_of(multiple.0.clamp(1, LONGEST)),
            n: n.next_multiple_of(multiple.1.clamp(1, LONGEST)),
            k,
        }
    }

    /// Asks for a product and keeps it; the bits of the outputs named.
    pub(super) fn multiply(
        &mut self,
        shape: GemmShape,
        a: Side,
        b: Side,
        pairs: Vec<(usize, usize)>,
    ) -> Result<Vec<Option<u32>>, G::Error> {
        let mut product = Product { shape, a, b, split: None, used: Vec::new() };
        let Some(gemm) = product.gemm(self.palette.operands) else {
            return Ok(vec![None; pairs.len()]);
        };
        let split = self.gemm.split(&gemm)?;
        let d = self.gemm.multiply(&gemm)?;
        let bits: Vec<_> = pairs.iter().map(|&(i, j)| d.get(i * shape.n + j).copied()).collect();
        product.split = split;
        product.used = pairs.into_iter().zip(&bits).map(|((i, j), &bits)| (i, j, bits)).collect();
        self.record.push(product);
        Ok(bits)
    }
}
