//! Sums of powers of two, laid out as rows of A and of B.

use super::palette::Palette;
use std::collections::BTreeMap;

/// One product of a probe: ±2^exponent or ±1.5 × 2^exponent at k.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) k: usize,
    pub(super) negative: bool,
    pub(super) half: bool,
    pub(super) exponent: i32,
}

impl Term {
    /// 2^exponent.
    pub(super) const fn plus(k: usize, exponent: i32) -> Self {
        Self { k, negative: false, half: false, exponent }
    }

    /// -2^exponent.
    pub(super) const fn minus(k: usize, exponent: i32) -> Self {
        Self { negative: true, ..Self::plus(k, exponent) }
    }

    /// 1.5 × 2^exponent.
    pub(super) const fn three_halves(k: usize, exponent: i32) -> Self {
        Self { half: true, ..Self::plus(k, exponent) }
    }

    /// With the other sign.
    pub(super) const fn negated(self) -> Self {
        Self { negative: !self.negative, ..self }
    }
}

/// A sum to ask for.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) terms: Vec<Term>,
    pub(super) fixed: Option<Fixed>,
}

/// How the operands share an exponent, where a probe is about one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    /// The exponent of B's elements.
    pub(super) element: i32,
    /// The exponents of the scales of A and B.
    pub(super) scales: (i32, i32),
}

impl Probe {
    pub(super) fn new(terms: impl Into<Vec<Term>>) -> Self {
        Self { terms: terms.into(), fixed: None }
    }

    /// Every sign turned.
    pub(super) fn negated(mut self) -> Self {
        self.terms.iter_mut().for_each(|term| *term = term.negated());
        self
    }
}

/// A row of A or B: codes by k, and exponents of scales by block.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) codes: BTreeMap<usize, u32>,
    pub(super) scales: BTreeMap<usize, i32>,
}

/// Rows of A, each with the row of B that it meets.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// The exponents of B's elements and scales, as far as probes have settled them.
    b: Vec<(BTreeMap<usize, i32>, BTreeMap<usize, i32>)>,
    /// Each probe's row of A and the index of its row of B; `None` where the operands cannot make it.
    pub(super) a: Vec<Option<(Row, usize)>>,
}

/// One block of a probe: codes of A and exponents of B's elements by k, and the scales of both.
struct Placed {
    elements: Vec<(usize, u32, i32)>,
    scales: Option<(i32, i32)>,
}

impl Sheet {
    /// Lays out probes so that they share rows of B where they can.
    pub(super) fn new(palette: &Palette, probes: &[Probe]) -> Self {
        let mut sheet = Self::default();
        for probe in probes {
            let tried = (0..=sheet.b.len())
                .find_map(|index| Some((index, sheet.place(palette, probe, index)?)));
            let settled = tried.map(|(index, blocks)| (sheet.settle(index, blocks), index));
            sheet.a.push(settled);
        }
        sheet
    }

    /// The rows of B.
    pub(super) fn rows_of_b(&self, palette: &Palette) -> Vec<Row> {
        let code = |exponent| palette.elements().get(false, false, exponent).unwrap_or(0);
        self.b
            .iter()
            .map(|(elements, scales)| Row {
                codes: elements.iter().map(|(&k, &exponent)| (k, code(exponent))).collect(),
                scales: scales.clone(),
            })
            .collect()
    }

    /// A probe over a row of B, block by block; a new row if there is none of that index.
    fn place(&self, palette: &Palette, probe: &Probe, b: usize) -> Option<Vec<(usize, Placed)>> {
        let mut blocks: BTreeMap<usize, Vec<Term>> = BTreeMap::new();
        for &term in &probe.terms {
            let block = palette.block().map_or(0, |length| term.k / length);
            blocks.entry(block).or_default().push(term);
        }
        let place = |(block, terms): (usize, Vec<Term>)| {
            Some((block, self.place_block(palette, (block, &terms), probe.fixed, b)?))
        };
        blocks.into_iter().map(place).collect()
    }

    fn place_block(
        &self,
        palette: &Palette,
        (block, terms): (usize, &[Term]),
        fixed: Option<Fixed>,
        b: usize,
    ) -> Option<Placed> {
        let Some(codes) = palette.scales() else {
            let elements = self.place_elements(palette, (terms, 0), fixed, b)?;
            return Some(Placed { elements, scales: None });
        };
        let largest = terms.iter().map(|term| term.exponent).max()?;
        let (low, high) = (2 * palette.elements().low, 2 * palette.elements().high);
        let mut candidates: Vec<i32> = match fixed {
            Some(Fixed { scales, .. }) => vec![scales.0 + scales.1],
            None => (largest - high..=largest - low).collect(),
        };
        // Elements of 1 where they do; else a smaller scale and larger elements, or a larger one and smaller elements.
        candidates.sort_by_key(|scale| (scale - largest).abs());
        candidates.into_iter().find_map(|scale| {
            let fresh = fixed.map_or_else(|| codes.second(scale), |Fixed { scales, .. }| scales.1);
            let second = self.b.get(b).and_then(|row| row.1.get(&block)).copied().unwrap_or(fresh);
            if fixed.is_some() && second != fresh {
                return None;
            }
            codes.get(false, false, second)?;
            codes.get(false, false, scale - second)?;
            let elements = self.place_elements(palette, (terms, scale), fixed, b)?;
            Some(Placed { elements, scales: Some((scale - second, second)) })
        })
    }

    fn place_elements(
        &self,
        palette: &Palette,
        (terms, scale): (&[Term], i32),
        fixed: Option<Fixed>,
        b: usize,
    ) -> Option<Vec<(usize, u32, i32)>> {
        let codes = palette.elements();
        let place = |term: &Term| {
            let exponent = term.exponent - scale;
            let fresh = fixed.map_or_else(|| codes.second(exponent), |fixed| fixed.element);
            let second = self.b.get(b).and_then(|row| row.0.get(&term.k)).copied().unwrap_or(fresh);
            if fixed.is_some() && second != fresh {
                return None;
            }
            codes.get(false, false, second)?;
            let code = codes.get(term.negative, term.half, exponent - second)?;
            Some((term.k, code, second))
        };
        terms.iter().map(place).collect()
    }

    /// Keeps what a probe needs of B, and gives its row of A.
    fn settle(&mut self, index: usize, blocks: Vec<(usize, Placed)>) -> Row {
        if index == self.b.len() {
            self.b.push((BTreeMap::new(), BTreeMap::new()));
        }
        let (elements, scales) = &mut self.b[index];
        let mut row = Row::default();
        for (block, placed) in blocks {
            for (k, code, second) in placed.elements {
                row.codes.insert(k, code);
                elements.insert(k, second);
            }
            if let Some((first, second)) = placed.scales {
                row.scales.insert(block, first);
                scales.insert(block, second);
            }
        }
        row
    }
}
