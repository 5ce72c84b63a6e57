//! Which powers of two operands can make.

use super::Operands;
use mx_reference::format::{E8M0, Format};
use mx_reference::{Magnitude, Number};
use std::collections::BTreeMap;

/// Exponents that probes keep within. Sums stay far from where f32 ends, and scaled values are numbers of bf16.
const WINDOW: (i32, i32) = (-50, 60);

/// The largest exponent of an E8M0 scale that probes use; two of them reach f32's subnormals.
const LARGEST_SCALE: i32 = 80;

/// The codes of ±1 and ±1.5 times powers of two, and of the scales that are powers of two.
#[derive(Debug)]
pub(super) struct Palette {
    pub(super) operands: Operands,
    elements: Codes,
    scales: Option<Codes>,
}

/// The codes of one format.
#[derive(Debug)]
pub(super) struct Codes {
    /// By sign, whether 1.5 instead of 1, and exponent.
    by_value: BTreeMap<(bool, bool, i32), u32>,
    /// The exponents of 1 × 2^e.
    pub(super) low: i32,
    /// The largest of them.
    pub(super) high: i32,
}

impl Codes {
    fn new(format: &Format, keep: impl Fn(i32) -> bool) -> Self {
        let mut by_value = BTreeMap::new();
        for code in 0..format.codes() as u32 {
            let Number { negative, magnitude: Magnitude::Finite { significand, exponent } } =
                format.decode(code)
            else {
                continue;
            };
            let zeros = significand.trailing_zeros();
            let exponent = exponent + zeros as i32;
            let (half, exponent) = match significand >> zeros {
                1 => (false, exponent),
                3 => (true, exponent + 1),
                _ => continue,
            };
            if keep(exponent) {
                by_value.insert((negative, half, exponent), code);
            }
        }
        let ones = || by_value.keys().filter(|&&(negative, half, _)| !negative && !half);
        let exponents = || ones().map(|&(_, _, exponent)| exponent);
        let (low, high) = (exponents().min().unwrap_or(0), exponents().max().unwrap_or(0));
        Self { by_value, low, high }
    }

    /// The code of ±2^exponent, or ±1.5 × 2^exponent.
    pub(super) fn get(&self, negative: bool, half: bool, exponent: i32) -> Option<u32> {
        self.by_value.get(&(negative, half, exponent)).copied()
    }

    /// How two factors share an exponent: the second has one of three exponents, so that probes can share rows of B.
    pub(super) const fn second(&self, exponent: i32) -> i32 {
        if exponent > self.high {
            self.high
        } else if exponent < self.low {
            self.low
        } else {
            0
        }
    }
}

impl Palette {
    /// `subnormals` is false for a product that takes subnormal elements and scales for zeros.
    pub(super) fn new(operands: Operands, subnormals: bool) -> Self {
        let codes = |format: &'static Format| {
            let keep = move |exponent: i32| {
                let scale = *format == E8M0;
                // A format without an exponent field (INT8) has nothing but subnormals.
                let normal = format.exponent_bits == 0 || exponent >= format.min_exponent();
                (subnormals || normal) && (!scale || exponent.abs() <= LARGEST_SCALE)
            };
            Codes::new(format, keep)
        };
        let elements = codes(operands.element());
        Self { operands, elements, scales: operands.scales().map(|(format, _)| codes(format)) }
    }

    pub(super) const fn elements(&self) -> &Codes {
        &self.elements
    }

    pub(super) const fn scales(&self) -> Option<&Codes> {
        self.scales.as_ref()
    }

    /// Elements that share a scale; without scales a whole row does.
    pub(super) const fn block(&self) -> Option<usize> {
        match self.operands.scales() {
            Some((_, block)) => Some(block),
            None => None,
        }
    }

    /// The largest exponent of a product that stands alone in its block. Under scales its elements are 1.
    pub(super) const fn top(&self) -> i32 {
        let high = match &self.scales {
            Some(scales) => 2 * scales.high,
            None => 2 * self.elements.high,
        };
        if high < WINDOW.1 { high } else { WINDOW.1 }
    }

    /// The smallest exponent of a product that stands alone in its block.
    pub(super) const fn bottom(&self) -> i32 {
        let low = match &self.scales {
            Some(scales) => 2 * scales.low + 2 * self.elements.low,
            None => 2 * self.elements.low,
        };
        if low > WINDOW.0 { low } else { WINDOW.0 }
    }

    /// True if products under one scale span more than an f32 accumulator.
    pub(super) const fn wide(&self) -> bool {
        2 * (self.elements.high - self.elements.low) > 26
    }
}
