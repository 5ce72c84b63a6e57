//! Quantisation on the device. Results are those of `mx_reference::quantize`.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::launch::{grid, pointer, pointer_mut, sized};
use crate::program::{QUANTIZE_BLOCK, QUANTIZE_ROW, define, element_define};
use crate::{Buffer, View, ViewMut};
use cudarc::driver::DeviceRepr;
use mx_reference::convention::{Convention, InfinityScale, PROPAGATE, TE};
use mx_reference::gemm::GroupAxis;
use mx_reference::grouped_layout::GroupedLayout;
use mx_reference::pack::packed_len;
use mx_reference::scale::{LARGEST_BYTE, NAN_BYTE, even_threshold};
use mx_reference::{Axis, Element, Format, ScaleLayout, ScaleMode, ShapeError};

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub struct Cast {
    /// Element format.
    pub element: Element,
    /// Scale mode.
    pub mode: ScaleMode,
    /// `propagate` or `te`.
    pub convention: &'static Convention,
    /// The input's type: f32, bf16 or f16.
    pub input: &'static Format,
    /// Whether codes of four and six bits lie side by side, little endian, instead of one a byte.
    pub packed: bool,
}

/// Token groups on the device, for scales that are blocked group by group. Ends count rows (M) or columns (K) of the scales.
#[derive(Debug)]
pub struct Groups {
    pub(crate) axis: GroupAxis,
    pub(crate) ends: Vec<i32>,
    /// For each group two u64: its end, and where it starts if each before is filled up to 128 rows (M) or 4 columns (K).
    pub(crate) buffer: Buffer,
}

/// How scales lie in memory.
#[derive(Clone, Copy, Debug)]
pub enum Arrangement<'a> {
    /// Row major.
    Plain,
    /// Tiles of 128×4, padding zero.
    Blocked,
    /// Each group blocked on its own, padding zero.
    Groups(&'a Groups),
}

/// Where the outputs of one direction go.
#[derive(Debug)]
pub struct Target<'a, 'b> {
    /// Codes.
    pub elements: &'a mut ViewMut<'b>,
    /// Scale bytes.
    pub scales: &'a mut ViewMut<'b>,
    /// How they lie.
    pub layout: Arrangement<'a>,
}

/// Which blocks, and where their outputs go. Outputs of blocks along columns are those of the transposed tensor.
#[derive(Debug)]
pub enum Blocks<'a, 'b> {
    /// 32 elements along the last dimension.
    Row(Target<'a, 'b>),
    /// 32 elements along the first.
    Col(Target<'a, 'b>),
    /// Both, from one pass over the input.
    Both(Target<'a, 'b>, Target<'a, 'b>),
    /// Tiles of 32×32.
    Tile(Target<'a, 'b>),
}

/// `struct Scales` of scales.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Scales {
    to: u64,
    rows: u64,
    cols: u64,
    groups: u64,
    count: u32,
    layout: u32,
    inverse: u32,
    shift: u32,
}

/// `struct Rule` of formats.cuh: a scale mode as numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Rule {
    factor: u32,
    carry: u32,
    p: u32,
    top: u32,
    rceil: u32,
}

impl Rule {
    fn new(cast: Cast) -> Self {
        let (mode, element) = (cast.mode, cast.element);
        let saturates = mode.edges(cast.convention).infinity_scale != InfinityScale::Nan
            || mode != ScaleMode::Rceil;
        let top = u32::from(if saturates { LARGEST_BYTE } else { NAN_BYTE });
        let one = 0x3f80_0000;
        let p = element.format().max_exponent() as u32;
        let rceil = u32::from(mode == ScaleMode::Rceil);
        let any_fraction = (1 << 23) - 1;
        match mode {
            ScaleMode::Floor => Self { factor: one, carry: 0, p, top, rceil },
            ScaleMode::Ceil => Self { factor: one, carry: any_fraction, p, top, rceil },
            ScaleMode::Even => {
                Self { factor: one, carry: (1 << 23) - even_threshold(element), p, top, rceil }
            }
            ScaleMode::Rceil => {
                Self { factor: element.reciprocal_of_max(), carry: any_fraction, p: 0, top, rceil }
            }
        }
    }
}

/// The parameter of `quantize_row.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RowJob {
    input: u64,
    elements: u64,
    scales: Scales,
    count: u64,
    rule: Rule,
    packed: u32,
}

/// The parameter of `quantize_block.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct BlockJob {
    input: u64,
    rows: u64,
    cols: u64,
    row_elements: u64,
    col_elements: u64,
    row_scales: Scales,
    col_scales: Scales,
    rule: Rule,
    packed: u32,
    aligned: u32,
    reserved: u32,
}

#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct RowJob` of quantize_row.cu.
unsafe impl DeviceRepr for RowJob {}
#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct BlockJob` of quantize_block.cu.
unsafe impl DeviceRepr for BlockJob {}

/// Threads of a thread block of `quantize_row`, each with four steps of eight elements.
const ROW_THREADS: usize = 256;
/// Columns of a thread block of `quantize_block`.
const WIDTH: usize = 128;

/// Rows of a thread block of `quantize_block`, and its threads.
const fn block_rows(input: &Format) -> usize {
    if input.bits == 32 { 128 } else { 256 }
}

impl Gpu {
    /// Brings the ends of token groups to the device.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn groups(&self, axis: GroupAxis, ends: &[i32]) -> Result<Groups, GpuError> {
        let multiple = if axis == GroupAxis::M { 128 } else { 4 };
        let (mut before, mut start) = (0u64, 0u64);
        let mut words = Vec::with_capacity(2 * ends.len());
        for &end in ends {
            let end = u64::try_from(end).unwrap_or(0).max(before);
            words.extend([end, start]);
            start += (end - before).next_multiple_of(multiple);
            before = end;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(Groups { axis, ends: ends.to_vec(), buffer: self.upload(&bytes)? })
    }

    /// Quantises a tensor [rows, cols] of `cast.input`.
    ///
    /// Outputs of rows: codes [rows, cols] and scales [rows, cols/32]; of columns the transpose, codes [cols, rows] and scales
    /// [cols, rows/32]; of tiles codes [rows, cols] and scales [rows/32, cols/32], which stand once for each row when they are blocked.
    ///
    /// # Errors
    /// [`GpuError::Shape`] for partial blocks and for groups that do not fit; [`GpuError::Size`]; [`GpuError::Unsupported`] for other
    /// conventions and for buffers that do not start at multiples of 16 bytes; [`GpuError::Driver`].
    pub fn quantize(
        &self,
        cast: Cast,
        (rows, cols): (usize, usize),
        input: &View<'_>,
        blocks: Blocks<'_, '_>,
    ) -> Result<(), GpuError> {
        sized("input", rows * cols * cast.input.bits as usize / 8, input.len())?;
        let partial = |axis: Axis, length: usize| -> Result<(), GpuError> {
            if length.is_multiple_of(32) {
                return Ok(());
            }
            Err(ShapeError::PartialBlock { axis: axis.name(), length, block: 32 }.into())
        };
        if !matches!(blocks, Blocks::Col(_)) {
            partial(Axis::Row, cols)?;
        }
        if !matches!(blocks, Blocks::Row(_)) {
            partial(Axis::Col, rows)?;
        }
        match blocks {
            Blocks::Row(to) => self.quantize_row(cast, (rows, cols), input, to),
            Blocks::Col(to) => {
                self.quantize_blocks(cast, (rows, cols), input, "COL", None, Some(to))
            }
            Blocks::Both(row, col) => {
                self.quantize_blocks(cast, (rows, cols), input, "BOTH", Some(row), Some(col))
            }
            Blocks::Tile(to) => {
                self.quantize_blocks(cast, (rows, cols), input, "TILE", Some(to), None)
            }
        }
    }

    /// Checks one direction's outputs, clears scales that have padding, and gives the pointers.
    #[expect(clippy::needless_pass_by_value, reason = "it holds the only borrows of the outputs")]
    fn target(
        &self,
        cast: Cast,
        (rows, cols): (usize, usize),
        (scale_rows, scale_cols): (usize, usize),
        to: Target<'_, '_>,
    ) -> Result<(u64, Scales), GpuError> {
        let packed = if cast.packed { packed_len(cast.element, cols)? } else { cols };
        sized("elements", rows * packed, to.elements.len())?;
        let too_large = || ShapeError::Length {
            what: "scales",
            expected: usize::MAX,
            got: isize::MAX as usize,
        };
        let (len, code, padded, groups) = match to.layout {
            Arrangement::Plain => (scale_rows * scale_cols, 0, false, None),
            Arrangement::Blocked => {
                let len = ScaleLayout::Blocked.len(scale_rows, scale_cols).ok_or_else(too_large)?;
                (len, 1, len != scale_rows * scale_cols, None)
            }
            Arrangement::Groups(groups) => {
                let layout =
                    GroupedLayout::new(groups.axis, (scale_rows, scale_cols), &groups.ends)?;
                (layout.len(), if groups.axis == GroupAxis::M { 2 } else { 3 }, true, Some(groups))
            }
        };
        sized("scales", len, to.scales.len())?;
        if padded && len > 0 {
            self.clear(to.scales)?;
        }
        let (inverse, shift) = division(scale_rows * scale_cols, scale_cols);
        let scales = Scales {
            to: pointer_mut(self, to.scales),
            rows: scale_rows as u64,
            cols: scale_cols as u64,
            groups: groups.map_or(0, |groups| pointer(self, &groups.buffer.as_view())),
            count: groups.map_or(0, |groups| groups.ends.len() as u32),
            layout: code,
            inverse,
            shift,
        };
        let elements = pointer_mut(self, to.elements);
        aligned("elements", elements)?;
        aligned("scales", scales.to)?;
        Ok((elements, scales))
    }

    #[expect(unsafe_code, reason = "kernel launch")]
    fn quantize_row(
        &self,
        cast: Cast,
        (rows, cols): (usize, usize),
        input: &View<'_>,
        to: Target<'_, '_>,
    ) -> Result<(), GpuError> {
        let (elements, scales) = self.target(cast, (rows, cols), (rows, cols / 32), to)?;
        let count = rows * cols;
        if count == 0 {
            return Ok(());
        }
        let job = RowJob {
            input: pointer(self, input),
            elements,
            scales,
            count: count as u64,
            rule: Rule::new(cast),
            packed: u32::from(cast.packed),
        };
        aligned("input", job.input)?;
        let function = self.kernel(QUANTIZE_ROW, &defines(cast)?, "quantize_row")?;
        let blocks = count.div_ceil(ROW_THREADS * 32);
        // SAFETY: `RowJob` is that of the kernel; sizes and alignment were checked, and threads beyond `count` touch no memory.
        unsafe { self.launch(&function, grid(blocks * ROW_THREADS, ROW_THREADS as u32)?, &job) }
    }

    #[expect(unsafe_code, reason = "kernel launch")]
    fn quantize_blocks(
        &self,
        cast: Cast,
        (rows, cols): (usize, usize),
        input: &View<'_>,
        kind: &str,
        row: Option<Target<'_, '_>>,
        col: Option<Target<'_, '_>>,
    ) -> Result<(), GpuError> {
        let none = || Ok((0, Scales::default()));
        let row_scales = match row.as_ref().map(|to| to.layout) {
            Some(Arrangement::Plain) if kind == "TILE" => (rows / 32, cols / 32),
            _ => (rows, cols / 32),
        };
        let (row_elements, row_scales) =
            row.map_or_else(none, |to| self.target(cast, (rows, cols), row_scales, to))?;
        let (col_elements, col_scales) =
            col.map_or_else(none, |to| self.target(cast, (cols, rows), (cols, rows / 32), to))?;
        if rows * cols == 0 {
            return Ok(());
        }
        let from = pointer(self, input);
        let bytes = cast.input.bits as usize / 8;
        let whole = (cols * bytes).is_multiple_of(16) && from.is_multiple_of(16);
        if !from.is_multiple_of(bytes as u64) {
            aligned("input", from)?;
        }
        let job = BlockJob {
            input: from,
            rows: rows as u64,
            cols: cols as u64,
            row_elements,
            col_elements,
            row_scales,
            col_scales,
            rule: Rule::new(cast),
            packed: u32::from(cast.packed),
            aligned: u32::from(whole),
            reserved: 0,
        };
        let mut defines = defines(cast)?;
        defines.push(format!("KIND={kind}"));
        let function = self.kernel(QUANTIZE_BLOCK, &defines, "quantize_block")?;
        let tile = block_rows(cast.input);
        let blocks = rows.div_ceil(tile) * cols.div_ceil(WIDTH);
        let config = grid(blocks * tile, tile as u32)?;
        // SAFETY: `BlockJob` is that of the kernel; sizes and alignment were checked, and rows and columns beyond the tensor's are
        // neither read nor written.
        unsafe { self.launch(&function, config, &job) }
    }
}

fn defines(cast: Cast) -> Result<Vec<String>, GpuError> {
    let convention = if *cast.convention == PROPAGATE {
        "PROPAGATE"
    } else if *cast.convention == TE {
        "TE"
    } else {
        let name = cast.convention.name;
        return Err(GpuError::Unsupported(format!("there are no kernels of convention {name}")));
    };
    Ok(vec![
        define("INPUT", cast.input),
        element_define("ELEMENT", cast.element),
        format!("CONVENTION={convention}"),
    ])
}

fn aligned(what: &str, pointer: u64) -> Result<(), GpuError> {
    if pointer.is_multiple_of(16) {
        return Ok(());
    }
    Err(GpuError::Unsupported(format!(
        "{what}: expected a buffer that starts at a multiple of 16 bytes"
    )))
}

/// Division by `divisor` of numbers below `limit` as a product and a shift; (0, 0) where 31 bits are not enough.
///
/// With L = ⌈log2 d⌉ and m = ⌈2^(31+L) / d⌉ < 2^32, m·d − 2^(31+L) < d ≤ 2^L, so that x·m >> (31+L) is ⌊x/d⌋ for every x < 2^31
/// (Granlund and Montgomery, PLDI 1994, theorem 4.2).
const fn division(limit: usize, divisor: usize) -> (u32, u32) {
    if divisor == 0 || limit >= 1 << 31 {
        return (0, 0);
    }
    let shift = 31 + divisor.next_power_of_two().trailing_zeros();
    ((1u64 << shift).div_ceil(divisor as u64) as u32, shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_is_exact_around_every_multiple() {
        for divisor in (1..=300).chain([511, 512, 513, 1 << 20, (1 << 30) + 1, (1 << 31) - 1]) {
            let limit = (1usize << 31) - 1;
            let (inverse, shift) = division(limit, divisor);
            let step = (limit / divisor / 1000).max(1) * divisor;
            for multiple in (0..=limit).step_by(step).chain([limit / divisor * divisor]) {
                for x in [multiple.saturating_sub(1), multiple, multiple + 1] {
                    let x = x.min(limit);
                    let quotient = (x as u64 * u64::from(inverse)) >> shift;
                    assert_eq!(quotient, (x / divisor) as u64, "{x} / {divisor}");
                }
            }
        }
        assert_eq!(division(1 << 31, 3), (0, 0));
    }
}
