//! Tensors laid out of block cases: every kind of block beside every other, in any shape.
//!
//! Faults of special values that strike only some blocks of a row, only wide or only small tensors, or only one layout hide
//! from tensors of ordinary data and from blocks that stand alone.

use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::{Op, Quantize};
use crate::rng::Stream;
use mx_reference::{Axis, BlockShape, ScaleLayout};

/// A class that blocks are taken from, and how many it has.
type Kind = (fn(&Quantize, u64) -> Block, u64);

/// The blocks of one tensor, at plain scale positions.
pub(super) struct Mosaic {
    cols: usize,
    tiles: bool,
    blocks: Vec<(Block, usize)>,
}

impl Mosaic {
    /// `rows` × `cols` blocks or tiles for an op.
    pub(super) fn new(q: &Quantize, rows: usize, cols: usize, stream: &mut Stream) -> Self {
        let plain = Quantize {
            axis: Axis::Row,
            block: BlockShape::MX,
            layout: ScaleLayout::Plain,
            view: None,
            ..*q
        };
        let kind = |class: &Class| match class.source {
            Source::Blocks { block, .. } => {
                Some((block, class.count(&Op::Quantize(plain), Level::Standard)))
            }
            Source::Tensors { .. } => None,
        };
        let kinds: Vec<Kind> =
            super::ALL.iter().filter_map(kind).filter(|&(_, count)| count > 0).collect();
        let mut pick = || {
            let (block, count) = kinds[stream.below(kinds.len() as u64) as usize];
            (block(&plain, stream.below(count)), stream.below(LANES as u64) as usize)
        };
        let blocks = (0..rows * cols).map(|_| pick()).collect();
        Self { cols, tiles: q.block == BlockShape::TILE, blocks }
    }

    /// The bits of a lane of the block at (r, c). One row of a tile holds the block, the others quieter copies of it, so
    /// that amax, NaN and infinity sit in one row alone.
    pub(super) fn at(&self, q: &Quantize, r: usize, c: usize, lane: usize) -> u32 {
        let (block, loud) = &self.blocks[r * self.cols + c];
        let bits = block[lane % LANES];
        if self.tiles && lane / LANES != *loud { bits::quieter(q.input, bits) } else { bits }
    }
}
