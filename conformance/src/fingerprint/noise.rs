//! Pseudo-random products with heavy tails: what no probe thinks of.

use super::lab::{Lab, Side};
use super::replay::TILES;
use super::{Operands, PlainGemm};
use mx_reference::format::{E8M0, Format};
use mx_reference::{Magnitude, Number};

/// Rows of A and of B, and the length of the contraction, for each product.
const SHAPES: [(usize, usize); 2] = [(32, 4), (12, 4)];

/// Asks for the products.
pub(super) fn ask<G: PlainGemm>(lab: &mut Lab<'_, G>) -> Result<(), G::Error> {
    let operands = lab.palette.operands;
    let lengths = [lab.short(), lab.length(512).min(lab.longest()), lab.longest()];
    let shapes = SHAPES.into_iter().chain([(4, 2)]);
    let uneven: Vec<usize> = TILES.iter().filter_map(|&tile| lab.uneven(tile)).collect();
    let uneven = uneven.into_iter().map(|k| (k, SHAPES[0]));
    for (seed, (k, (rows, columns))) in lengths.into_iter().zip(shapes).chain(uneven).enumerate() {
        let shape = lab.shape(rows, columns, k);
        let mut source = Source(seed as u64);
        let a = source.side(operands, shape.m, k);
        let b = source.side(operands, shape.n, k);
        let pairs = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).collect();
        lab.multiply(shape, a, b, pairs)?;
    }
    Ok(())
}

/// `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
struct Source(u64);

impl Source {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    const fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * end as u64) >> 32) as u32
    }

    fn side(&mut self, operands: Operands, rows: usize, k: usize) -> Side {
        let mut side = Side::default();
        for _ in 0..rows * k {
            let code = self.element(operands.element());
            side.push(operands, code);
        }
        if let Some((format, block)) = operands.scales() {
            for _ in 0..rows * k / block {
                let code = self.scale(format);
                side.push_scale(code);
            }
        }
        side
    }

    /// Mostly close to 1, one in eight anywhere in the window of exponents, hardly a zero.
    fn element(&mut self, format: &Format) -> u32 {
        let reach = if self.below(8) == 0 { 20 } else { 2 };
        loop {
            let code = self.below(format.codes() as u32);
            let x = format.decode(code);
            let near = x.exponent().is_some_and(|exponent| exponent.abs() <= reach);
            if near || (x.is_zero() && self.below(8) == 0) {
                return code;
            }
        }
    }

    /// Mostly close to 1, one in eight further away.
    fn scale(&mut self, format: &Format) -> u32 {
        let reach = if self.below(8) == 0 { 12 } else { 3 };
        loop {
            let code = if *format == E8M0 { 127 - 12 + self.below(25) } else { self.below(0x7f) };
            let x: Number = format.decode(code);
            let near = x.exponent().is_some_and(|exponent| exponent.abs() <= reach);
            if near && matches!(x.magnitude, Magnitude::Finite { .. }) {
                return code;
            }
        }
    }
}
