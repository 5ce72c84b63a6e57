//! From cells and classes to calls: which cases, and how block cases share a tensor.

use crate::bits::quieter;
use crate::class::{Block, Call, Class, LANES, Level, Source};
use crate::op::{Float, Op, Quantize};
use crate::tensor::{Data, Tensor, Tensors};
use mx_reference::{Axis, BlockShape};
use std::ops::Range;

/// Cases `first..first + count` of a class.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The class.
    pub class: &'static Class,
    /// The first case.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// Block cases that share one call.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The op.
    pub op: Quantize,
    /// The cases, in order.
    pub runs: Vec<Run>,
    /// What the tensor's rows and columns must be multiples of.
    pub multiple: (usize, usize),
}

/// Where a byte of an output belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Ordinal of the block within the batch.
    pub case: u64,
    /// The lane, for element codes.
    pub lane: Option<usize>,
}

/// Elements along the axis of a widened batch, at least.
const WIDE: usize = 128;

/// Block cases thin out to this many tiles a class, since a tile has 32 times the elements.
const TILES: u64 = 24;
/// Classes of single amaxes, in which no case can stand in for another: tiles take them whole.
const WHOLE: [&str; 1] = ["extreme-scales"];

/// The step through the block cases of a class that a run of `op` takes.
fn stride(op: &Quantize, class: &Class, count: u64) -> u64 {
    if op.block == BlockShape::TILE && !WHOLE.contains(&class.name) {
        count.div_ceil(TILES).max(1)
    } else {
        1
    }
}

impl Batch {
    /// Number of cases.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// True without cases.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The class and number of the case at an ordinal.
    pub fn case(&self, mut ordinal: u64) -> Option<(&'static Class, u64)> {
        for run in &self.runs {
            if ordinal < run.count {
                return Some((run.class, run.first + ordinal));
            }
            ordinal -= run.count;
        }
        None
    }

    /// The row of a tile that holds the block of a case; the others hold quieter copies of it, so that amax, NaN and infinity
    /// sit in one row alone. It follows from the case's number, so a case alone has the same tile.
    fn loud_row(&self, ordinal: u64) -> usize {
        let n = self.case(ordinal).map_or(0, |(_, n)| n as usize);
        // Tiles thin out by steps that share factors with 32; mixing spreads them over all rows.
        (n ^ (n / 32) ^ (n / 1024)) % self.op.block.rows()
    }

    /// Blocks down and across in the code space (that of `elements`): enough for every case, and a multiple of what
    /// the backend needs.
    fn grid(&self) -> (usize, usize) {
        let (down, across) = match self.op.axis {
            Axis::Row => self.multiple,
            Axis::Col => (self.multiple.1, self.multiple.0),
        };
        let width = lcm(LANES, across.max(1)) / LANES;
        let unit = self.op.block.rows();
        let height = lcm(unit, down.max(1)) / unit;
        let rows = (self.len() as usize).div_ceil(width).next_multiple_of(height);
        (rows, width)
    }

    /// The shape of `elements`.
    fn code_shape(&self) -> (usize, usize) {
        let (down, across) = self.grid();
        (down * self.op.block.rows(), across * LANES)
    }

    /// The call.
    pub fn call(&self) -> Call {
        self.lay(&self.blocks())
    }

    /// The call whose cases have these blocks. Places left over by `multiple` repeat the cases from the first on.
    pub fn lay(&self, blocks: &[Block]) -> Call {
        let (rows, cols) = self.code_shape();
        let (down, across) = self.grid();
        let mut codes = vec![0u32; rows * cols];
        let tile = self.op.block.rows();
        for br in 0..down {
            for bc in 0..across {
                let Some(block) = blocks.get(self.ordinal(br, bc) as usize) else { continue };
                let loud = self.loud_row(self.ordinal(br, bc));
                for i in 0..tile {
                    let start = (br * tile + i) * cols + bc * LANES;
                    for (bits, &lane) in codes[start..start + LANES].iter_mut().zip(block) {
                        *bits = if i == loud { lane } else { quieter(self.op.input, lane) };
                    }
                }
            }
        }
        let (shape, bits) = match self.op.axis {
            Axis::Row => ([rows, cols], codes),
            Axis::Col => {
                let at = |i: usize| codes[i % rows * cols + i / rows];
                ([cols, rows], (0..rows * cols).map(at).collect())
            }
        };
        let data = match self.op.input {
            Float::F32 => Data::U32(bits),
            Float::Bf16 | Float::F16 => Data::U16(bits.into_iter().map(|b| b as u16).collect()),
        };
        let input = Tensor { shape: shape.to_vec(), data };
        Call { op: Op::Quantize(self.op), inputs: Tensors::from([("input".to_owned(), input)]) }
    }

    /// The blocks of the cases, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let of = |run: &Run, n| match run.class.source {
            Source::Blocks { block, .. } => block(&self.op, n),
            Source::Tensors { .. } => [0; LANES],
        };
        self.runs
            .iter()
            .flat_map(|run| (run.first..run.first + run.count).map(move |n| of(run, n)))
            .collect()
    }

    /// Which case an element of `elements` belongs to.
    pub fn place_of_code(&self, index: usize) -> Place {
        let cols = self.code_shape().1;
        let (r, c) = (index / cols, index % cols);
        let case = self.ordinal(r / self.op.block.rows(), c / LANES);
        Place { case, lane: Some(c % LANES) }
    }

    /// Which case an element of plain `scales` belongs to.
    pub fn place_of_scale(&self, index: usize) -> Place {
        let (_, across) = self.grid();
        Place { case: self.ordinal(index / across, index % across), lane: None }
    }

    /// Where the codes of a case lie in `elements`: one range per row of its block. Its plain scale is at `ordinal`.
    pub fn code_ranges(&self, ordinal: u64) -> impl Iterator<Item = Range<usize>> {
        let ((_, across), (_, cols)) = (self.grid(), self.code_shape());
        let tile = self.op.block.rows();
        let (br, bc) = (ordinal as usize / across, ordinal as usize % across);
        (0..tile).map(move |i| {
            let start = (br * tile + i) * cols + bc * LANES;
            start..start + LANES
        })
    }

    fn ordinal(&self, block_row: usize, block_col: usize) -> u64 {
        let (_, across) = self.grid();
        (block_row * across + block_col) as u64 % self.len().max(1)
    }

    /// The same cases with several blocks side by side along the axis, for a second call: a kernel may have other paths for
    /// wide tensors. `None` for tiles.
    #[must_use]
    pub fn widened(&self) -> Option<Self> {
        if self.op.block == BlockShape::TILE {
            return None;
        }
        let wider =
            |length: usize| if length < WIDE { lcm(length.max(1), WIDE) } else { 2 * length };
        let (rows, cols) = self.multiple;
        let multiple = match self.op.axis {
            Axis::Row => (rows, wider(cols)),
            Axis::Col => (wider(rows), cols),
        };
        Some(Self { multiple, ..self.clone() })
    }

    /// The batch of one of its cases alone.
    #[must_use]
    pub fn only(&self, ordinal: u64) -> Option<Self> {
        let (class, first) = self.case(ordinal)?;
        Some(Self { runs: vec![Run { class, first, count: 1 }], ..self.clone() })
    }

    /// The batch cut in two, for bisection; `None` for a single case.
    #[must_use]
    pub fn halves(&self) -> Option<[Self; 2]> {
        let total = self.len();
        if total < 2 {
            return None;
        }
        let mut left = total / 2;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for &run in &self.runs {
            let taken = run.count.min(left);
            left -= taken;
            if taken > 0 {
                a.push(Run { count: taken, ..run });
            }
            if taken < run.count {
                b.push(Run { first: run.first + taken, count: run.count - taken, ..run });
            }
        }
        Some([Self { runs: a, ..self.clone() }, Self { runs: b, ..self.clone() }])
    }
}

/// Cases of a class for a cell, as runs: all of them, or every so many for tiles.
pub fn runs(op: &Op, class: &'static Class, level: Level) -> Vec<Run> {
    let count = class.count(op, level);
    let step = match (op, class.source) {
        (Op::Quantize(q), Source::Blocks { .. }) => stride(q, class, count),
        _ => 1,
    };
    if step == 1 {
        return (count > 0).then_some(Run { class, first: 0, count }).into_iter().collect();
    }
    (0..count).step_by(step as usize).map(|first| Run { class, first, count: 1 }).collect()
}

const fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{answer, input_bits};
    use mx_reference::convention::PROPAGATE;
    use mx_reference::{Element, ScaleLayout, ScaleMode};
    use rstest::rstest;

    static NUMBERED: Class = Class {
        name: "numbered",
        aim: "each lane tells its case and lane",
        faults: &[],
        source: Source::Blocks {
            count: |_, _| 11,
            block: |_, n| std::array::from_fn(|lane| (n as u32) << 8 | lane as u32),
        },
    };

    #[rstest]
    fn every_code_is_found_again(
        #[values(Axis::Row, Axis::Col)] axis: Axis,
        #[values(BlockShape::MX, BlockShape::TILE)] block: BlockShape,
        #[values((1, 1), (1, 32), (64, 128), (3, 48))] multiple: (usize, usize),
    ) {
        let op = Quantize {
            element: Element::E4m3,
            mode: ScaleMode::Floor,
            input: Float::F32,
            axis,
            block,
            layout: ScaleLayout::Plain,
            view: None,
        };
        let runs = vec![
            Run { class: &NUMBERED, first: 2, count: 3 },
            Run { class: &NUMBERED, first: 7, count: 4 },
        ];
        let batch = Batch { op, runs, multiple };
        let call = batch.call();
        let shape = &call.inputs["input"].shape;
        assert!(shape[0].is_multiple_of(multiple.0) && shape[1].is_multiple_of(multiple.1));
        let expected = answer(&call.op, &PROPAGATE, &call.inputs).unwrap();
        let cols = expected["elements"].shape[1];
        for index in 0..expected["elements"].data.len() {
            let place = batch.place_of_code(index);
            let (_, n) = batch.case(place.case).unwrap();
            let bits = input_bits(&op, &call.inputs["input"], index / cols, index % cols);
            let own = (n as u32) << 8 | place.lane.unwrap() as u32;
            let loud = index / cols % block.rows() == batch.loud_row(place.case);
            assert_eq!(bits, if loud { own } else { quieter(Float::F32, own) });
        }
        let scales = expected["scales"].data.len();
        assert_eq!(batch.place_of_scale(scales - 1).case, (scales as u64 - 1) % 7);
        for case in 0..7 {
            for index in batch.code_ranges(case).flatten() {
                assert_eq!(batch.place_of_code(index).case, case);
            }
        }
        let wide = batch.widened();
        assert_eq!(wide.is_some(), block != BlockShape::TILE);
        if let Some(wide) = wide {
            let call = wide.call();
            let expected = answer(&call.op, &PROPAGATE, &call.inputs).unwrap();
            assert!(expected["elements"].shape[1] >= 128);
            assert_eq!(wide.place_of_scale(6), batch.place_of_scale(6));
        }
        let [a, b] = batch.halves().unwrap();
        assert_eq!((a.len(), b.len()), (3, 4));
        assert_eq!(b.only(1).unwrap().case(0).unwrap().1, 8);
    }
}
