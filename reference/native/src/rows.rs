//! Lines: blocks of elements side by side.

use mx_reference::{MatrixView, Overflow};

use crate::dispatch::{Kernel, Spec};
use crate::lane::{Lane, encode};
use crate::plan::Plan;

/// The longest line.
const LONGEST: usize = 128;
/// Blocks in hand at a time.
const GROUP: usize = 16;

/// Consecutive blocks of a tensor, row after row.
#[derive(Debug)]
pub(crate) struct Lines<'a, T> {
    pub(crate) plan: &'a Plan,
    pub(crate) block: usize,
    /// A last block in a row that it does not fill is filled with zeros.
    pub(crate) x: MatrixView<'a, T>,
    /// The number of the first block.
    pub(crate) first: usize,
    pub(crate) codes: &'a mut [u8],
    pub(crate) scales: &'a mut [u8],
}

impl<T: Lane> Kernel for Lines<'_, T> {
    #[inline(always)]
    fn run<S: Spec>(self) {
        match self.block {
            8 => self.rows::<S, 8>(),
            16 => self.rows::<S, 16>(),
            _ => self.rows::<S, 32>(),
        }
    }
}

impl<T: Lane> Lines<'_, T> {
    /// Takes `N` elements at a time.
    #[inline(always)]
    fn rows<S: Spec, const N: usize>(self) {
        let Self { plan, block, x, mut first, mut codes, mut scales } = self;
        let blocks_of_row = x.cols().div_ceil(block);
        let mut gathered = Vec::new();
        while !scales.is_empty() {
            let (r, sc) = (first / blocks_of_row, first % blocks_of_row);
            let blocks = scales.len().min(blocks_of_row - sc);
            let part = sc * block..x.cols().min((sc + blocks) * block);
            let input = if let Some(row) = x.row(r) {
                &row[part]
            } else {
                gathered.clear();
                gathered.extend(part.map(|c| x.at(r, c)));
                &gathered
            };
            let (row_codes, more_codes) = codes.split_at_mut(blocks * block);
            let (row_scales, more_scales) = scales.split_at_mut(blocks);
            row::<S, T, N>(plan, block, input, row_codes, row_scales);
            (first, codes, scales) = (first + blocks, more_codes, more_scales);
        }
    }
}

#[inline(always)]
fn row<S: Spec, T: Lane, const N: usize>(
    plan: &Plan,
    block: usize,
    input: &[T],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let (full, rest) = input.split_at(input.len() - input.len() % block);
    let (full_codes, rest_codes) = codes.split_at_mut(full.len());
    let (full_scales, rest_scales) = scales.split_at_mut(full.len() / block);
    let groups = full.chunks(GROUP * block).zip(full_codes.chunks_mut(GROUP * block));
    for ((x, codes), scales) in groups.zip(full_scales.chunks_mut(GROUP)) {
        group::<S, T, T, N>(plan, block, x, T::bits, codes, scales);
    }
    if !rest.is_empty() {
        let mut padded = [0; LONGEST];
        for (bits, x) in padded.iter_mut().zip(rest) {
            *bits = x.bits();
        }
        group::<S, T, u32, N>(plan, block, &padded[..block], |x| x, rest_codes, rest_scales);
    }
}

/// Up to [`GROUP`] blocks of elements that `bits` turns into bits of `T`. Every amax is found before the first element is
/// rounded: one after the other, a block would wait for its own amax all the time.
#[inline(always)]
fn group<S: Spec, T: Lane, X: Copy, const N: usize>(
    plan: &Plan,
    block: usize,
    input: &[X],
    bits: impl Fn(X) -> u32 + Copy,
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let mut amaxes = [0; GROUP];
    for (amax, x) in amaxes.iter_mut().zip(input.chunks_exact(block)) {
        let mut lanes = [0; N];
        for x in x.as_chunks::<N>().0 {
            for (lane, &x) in lanes.iter_mut().zip(x) {
                *lane = (bits(x) & T::MAGNITUDE).max(*lane);
            }
        }
        *amax = lanes.into_iter().fold(0, u32::max);
    }
    let bytes = amaxes.map(|amax| plan.byte::<T>(amax));
    let blocks = input.chunks_exact(block).zip(codes.chunks_exact_mut(block));
    for (((x, codes), scale), (amax, byte)) in blocks.zip(scales).zip(amaxes.into_iter().zip(bytes))
    {
        if Plan::is_special::<T>(amax, byte) {
            *scale = plan.special(x.iter().map(|&x| T::FORMAT.decode(bits(x))), codes.iter_mut());
            continue;
        }
        *scale = byte;
        let least = plan.least(byte);
        for (x, codes) in x.as_chunks::<N>().0.iter().zip(codes.as_chunks_mut::<N>().0) {
            for (&x, code) in x.iter().zip(codes) {
                *code = encode::<S, T>(bits(x), least, Overflow::Saturate);
            }
        }
    }
}
