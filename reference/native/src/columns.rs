//! Blocks that run across contiguous rows: several columns side by side, a lane each.

use std::ops::Range;

use mx_reference::{BlockShape, MatrixView, Number, Overflow};

use crate::dispatch::{Kernel, Spec};
use crate::lane::{Lane, encode};
use crate::plan::Plan;
use crate::tiles::load;
use crate::transpose::transpose;

/// Columns done together, a multiple of a tile's side.
pub(crate) const SPAN: usize = 64;
/// Rows of codes gathered before they are transposed: whole cache lines of output, and the longest block.
const HEIGHT: usize = 128;

/// The blocks of up to [`SPAN`] columns, from the first row to the last.
#[derive(Debug)]
pub(crate) struct Columns<'a, T> {
    pub(crate) plan: &'a Plan,
    /// The block, as the transposed tensor sees it.
    pub(crate) shape: BlockShape,
    /// Contiguous rows. Beyond the tensor, to the right and below, are zeros.
    pub(crate) x: MatrixView<'a, T>,
    /// The first column.
    pub(crate) left: usize,
    /// A line of codes per column, `length` each.
    pub(crate) codes: &'a mut [u8],
    pub(crate) length: usize,
    /// A line of scales per column, or per 32 of them.
    pub(crate) scales: &'a mut [u8],
}

impl<T: Lane> Kernel for Columns<'_, T> {
    #[inline(always)]
    fn run<S: Spec>(self) {
        let block = self.shape.cols();
        let blocks = self.length / block;
        let width = self.codes.len() / self.length;
        let mut tile = [[0; SPAN]; HEIGHT];
        for top in (0..self.length).step_by(HEIGHT) {
            let height = HEIGHT.min(self.length - top);
            for (i, lines) in tile[..height].chunks_exact_mut(block).enumerate() {
                let bytes = self.block::<S>(top + i * block, lines);
                let bytes = bytes[..width].iter().step_by(self.shape.rows());
                let column = self.scales.iter_mut().skip(top / block + i).step_by(blocks);
                for (scale, &byte) in column.zip(bytes) {
                    *scale = byte;
                }
            }
            let out = &mut self.codes[top..];
            transpose(tile.as_flattened(), SPAN, out, self.length, (height, width));
        }
    }
}

impl<T: Lane> Columns<'_, T> {
    /// One block of each column: writes the codes of its rows and returns the scales.
    #[inline(always)]
    fn block<S: Spec>(&self, top: usize, codes: &mut [[u8; SPAN]]) -> [u8; SPAN] {
        let end = self.x.rows().min(top + codes.len());
        let mut amax = [0; SPAN];
        for r in top..end {
            let mut bits = [0; SPAN];
            load(&self.x, r, self.left, &mut bits);
            for (amax, bits) in amax.iter_mut().zip(bits) {
                *amax = (bits & T::MAGNITUDE).max(*amax);
            }
        }
        if self.shape.rows() > 1 {
            for tile in amax.chunks_exact_mut(self.shape.rows()) {
                let largest = tile.iter().copied().fold(0, u32::max);
                tile.fill(largest);
            }
        }
        let mut bytes = amax.map(|amax| self.plan.byte::<T>(amax));
        let least = bytes.map(|byte| self.plan.least(byte));
        for (r, codes) in (top..).zip(codes.iter_mut()) {
            let mut bits = [0; SPAN];
            if r < end {
                load(&self.x, r, self.left, &mut bits);
            }
            for ((code, bits), least) in codes.iter_mut().zip(bits).zip(least) {
                *code = encode::<S, T>(bits, least, Overflow::Saturate);
            }
        }
        for first in (0..SPAN).step_by(self.shape.rows()) {
            if Plan::is_special::<T>(amax[first], bytes[first]) {
                bytes[first] = self.special(top, first..first + self.shape.rows(), codes);
            }
        }
        bytes
    }

    /// One special block of these lanes.
    #[cold]
    #[inline(never)]
    fn special(&self, top: usize, lanes: Range<usize>, codes: &mut [[u8; SPAN]]) -> u8 {
        let places =
            (top..top + codes.len()).flat_map(|r| lanes.clone().map(move |lane| (r, lane)));
        let input = places.map(|(r, lane)| {
            let c = self.left + lane;
            if r < self.x.rows() && c < self.x.cols() {
                self.x.at(r, c).number()
            } else {
                Number::ZERO
            }
        });
        self.plan.special(input, codes.iter_mut().flat_map(|line| &mut line[lanes.clone()]))
    }
}
