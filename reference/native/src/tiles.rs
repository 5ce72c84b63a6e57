//! 32 × 32 tiles of a tensor.

use mx_reference::{BlockShape, MatrixView, Overflow};

use crate::dispatch::{Kernel, Spec};
use crate::lane::{Lane, encode};
use crate::plan::Plan;

const SIDE: usize = BlockShape::TILE.rows();

/// A strip of tiles side by side.
#[derive(Debug)]
pub(crate) struct Tiles<'a, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) x: MatrixView<'a, T>,
    /// The first row.
    pub(crate) top: usize,
    /// 32 rows, which may reach beyond the tensor to the right and below: zeros are there.
    pub(crate) codes: &'a mut [u8],
    pub(crate) scales: &'a mut [u8],
}

impl<T: Lane> Kernel for Tiles<'_, T> {
    #[inline(always)]
    fn run<S: Spec>(self) {
        let cols = self.codes.len() / SIDE;
        for (i, scale) in self.scales.iter_mut().enumerate() {
            let left = i * SIDE;
            let mut tile = [[0; SIDE]; SIDE];
            let mut lanes = [0; SIDE];
            for (r, line) in (self.top..self.x.rows()).zip(&mut tile) {
                load(&self.x, r, left, line);
                for (lane, bits) in lanes.iter_mut().zip(line) {
                    *lane = (*bits & T::MAGNITUDE).max(*lane);
                }
            }
            let amax = lanes.into_iter().fold(0, u32::max);
            let byte = self.plan.byte::<T>(amax);
            let lines = self.codes.chunks_exact_mut(cols).map(|line| &mut line[left..left + SIDE]);
            if Plan::is_special::<T>(amax, byte) {
                let input = tile.as_flattened().iter().map(|&bits| T::FORMAT.decode(bits));
                *scale = self.plan.special(input, lines.flatten());
                continue;
            }
            *scale = byte;
            let least = self.plan.least(byte);
            for (line, codes) in tile.iter().zip(lines) {
                for (&bits, code) in line.iter().zip(codes) {
                    *code = encode::<S, T>(bits, least, Overflow::Saturate);
                }
            }
        }
    }
}

/// Loads the elements of row `r` from column `left` on into `bits`, as far as the row goes.
#[inline(always)]
pub(crate) fn load<T: Lane>(x: &MatrixView<'_, T>, r: usize, left: usize, bits: &mut [u32]) {
    if let Some(row) = x.row(r) {
        for (bits, x) in bits.iter_mut().zip(row.get(left..).unwrap_or_default()) {
            *bits = x.bits();
        }
    } else {
        for (bits, c) in bits.iter_mut().zip(left..x.cols()) {
            *bits = x.at(r, c).bits();
        }
    }
}
