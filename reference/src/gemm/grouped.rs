//! Grouped GEMM: the experts of a mixture, one group of tokens each.

use super::operand::{BlockScales, Codes, Operand};
use super::{Gemm, GemmShape};
use crate::error::ShapeError;
use core::ops::Range;

/// Which axis the groups cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupAxis {
    /// Rows of A (tokens): each group meets its own B. Forward and input gradient.
    M,
    /// The contraction: each group has its own D. Weight gradient.
    K,
}

impl GroupAxis {
    /// Both, in the order of reports.
    pub const ALL: [Self; 2] = [Self::M, Self::K];

    /// The name in ids and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::M => "m",
            Self::K => "k",
        }
    }

    /// The axis of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|axis| axis.name() == name)
    }
}

/// The groups that cumulative ends make of an axis of `length`; equal ends are empty groups. What lies beyond the last end belongs
/// to no group.
///
/// # Errors
/// [`ShapeError::Offsets`] if an end decreases or reaches beyond `length`; [`ShapeError::GroupStart`] if one is no multiple of
/// `multiple`.
///
/// ```
/// use mx_reference::gemm::group_ranges;
/// assert_eq!(group_ranges(&[32, 32, 96], 96, 32)?, [0..32, 32..32, 32..96]);
/// assert!(group_ranges(&[64, 32], 96, 1).is_err());
/// assert!(group_ranges(&[128], 96, 1).is_err());
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
pub fn group_ranges(
    ends: &[i32],
    length: usize,
    multiple: usize,
) -> Result<Vec<Range<usize>>, ShapeError> {
    let mut start = 0usize;
    let mut ranges = Vec::with_capacity(ends.len());
    for (index, &end) in ends.iter().enumerate() {
        let got = i64::from(end);
        let next = usize::try_from(end).ok().filter(|end| (start..=length).contains(end));
        let Some(next) = next else {
            return Err(ShapeError::Offsets { index, previous: start as i64, got, end: length });
        };
        if !next.is_multiple_of(multiple.max(1)) {
            return Err(ShapeError::GroupStart { index, got, multiple });
        }
        ranges.push(start..next);
        start = next;
    }
    Ok(ranges)
}

/// A grouped product whose tensors fit each other. All groups share the operand formats.
///
/// Along M: A [m, k], B [groups × n, k] (one B a group, one after the other), D [m, n]. Along K: A [m, k], B [n, k], and D
/// [groups × m, n], zero for empty groups.
#[derive(Clone, Debug)]
pub struct GroupedGemm<'a> {
    shape: GemmShape,
    axis: GroupAxis,
    groups: Vec<Range<usize>>,
    a: Operand<'a>,
    b: Operand<'a>,
}

impl<'a> GroupedGemm<'a> {
    /// Checks that tensors and offsets fit.
    ///
    /// # Errors
    /// [`ShapeError`]: lengths that do not fit the shape, offsets that decrease or overrun, groups along K that do not end at a
    /// block.
    pub fn new(
        shape: GemmShape,
        axis: GroupAxis,
        ends: &[i32],
        a: Operand<'a>,
        b: Operand<'a>,
    ) -> Result<Self, ShapeError> {
        let GemmShape { m, n, k } = shape;
        let rows = match axis {
            GroupAxis::M => n.saturating_mul(ends.len()),
            GroupAxis::K => n,
        };
        a.check((m, k), ["a_elements", "a_scales"])?;
        b.check((rows, k), ["b_elements", "b_scales"])?;
        let block = |operand: &Operand<'_>| operand.scales.map_or(1, |scales| scales.block);
        let groups = match axis {
            GroupAxis::M => group_ranges(ends, m, 1)?,
            GroupAxis::K => {
                let (a, b) = (block(&a), block(&b));
                group_ranges(ends, k, a.max(b))?;
                group_ranges(ends, k, a.min(b))?
            }
        };
        Ok(Self { shape, axis, groups, a, b })
    }

    /// The groups, as ranges of the grouped axis.
    pub fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    /// Calls `each` with every group's number and product, in order.
    ///
    /// # Errors
    /// Whatever `each` returns.
    pub fn try_each<E>(
        &self,
        mut each: impl FnMut(usize, Gemm<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        (0..self.groups.len()).try_for_each(|number| self.group(number, |gemm| each(number, gemm)))
    }

    /// Calls `with` with one group's product.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn group<R>(&self, number: usize, with: impl FnOnce(Gemm<'_>) -> R) -> R {
        let GemmShape { m, n, k } = self.shape;
        let group = self.groups[number].clone();
        let (shape, a, b) = match self.axis {
            GroupAxis::M => {
                let b = number * n..(number + 1) * n;
                let shape = GemmShape { m: group.len(), n, k };
                (shape, Part::of(&self.a, k, group, 0..k), Part::of(&self.b, k, b, 0..k))
            }
            GroupAxis::K => {
                let shape = GemmShape { m, n, k: group.len() };
                let a = Part::of(&self.a, k, 0..m, group.clone());
                (shape, a, Part::of(&self.b, k, 0..n, group))
            }
        };
        let (a, b) = (a.operand(&self.a), b.operand(&self.b));
        with(Gemm { shape, a, b, c: None, tensor_scales: None })
    }
}

/// Rows and columns cut out of an operand.
struct Part {
    bytes: Vec<u8>,
    halves: Vec<u16>,
    scales: Vec<u8>,
}

impl Part {
    fn of(whole: &Operand<'_>, length: usize, rows: Range<usize>, cols: Range<usize>) -> Self {
        fn cut<T: Copy>(
            data: &[T],
            length: usize,
            rows: &Range<usize>,
            cols: Range<usize>,
        ) -> Vec<T> {
            rows.clone().flat_map(|r| &data[r * length..][cols.clone()]).copied().collect()
        }
        let (mut bytes, mut halves) = (Vec::new(), Vec::new());
        match whole.codes {
            Codes::Bytes(codes) => bytes = cut(codes, length, &rows, cols.clone()),
            Codes::Halves(codes) => halves = cut(codes, length, &rows, cols.clone()),
        }
        let scales = whole.scales.map_or_else(Vec::new, |s| {
            cut(s.bytes, length / s.block, &rows, cols.start / s.block..cols.end / s.block)
        });
        Self { bytes, halves, scales }
    }

    fn operand<'b>(&'b self, whole: &Operand<'_>) -> Operand<'b> {
        let codes = match whole.codes {
            Codes::Bytes(_) => Codes::Bytes(&self.bytes),
            Codes::Halves(_) => Codes::Halves(&self.halves),
        };
        let scales = whole.scales.map(|s| BlockScales { bytes: &self.scales, ..s });
        Operand { format: whole.format, codes, scales }
    }
}
