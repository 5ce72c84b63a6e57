//! Scale layouts and packing on the device. Results are those of `mx_reference::layout`, `grouped_layout` and `pack`.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::launch::{grid, pointer, pointer_mut, sized};
use crate::program::LAYOUT;
use crate::{View, ViewMut};
use cudarc::driver::DeviceRepr;
use mx_reference::gemm::GroupAxis;
use mx_reference::grouped_layout::GroupedLayout;
use mx_reference::pack::{PackOrder, packed_len};
use mx_reference::{Element, ScaleLayout, ShapeError};

/// The parameter of every kernel in `layout.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Job {
    from: u64,
    to: u64,
    rows: u64,
    cols: u64,
    ends: u64,
    groups: u64,
    words: u64,
}

#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct Layout` of layout.cu: seven 64-bit fields.
unsafe impl DeviceRepr for Job {}

impl Gpu {
    /// Plain E8M0 scales [rows, cols] into the blocked 128×4 layout, padding zero.
    ///
    /// # Errors
    /// [`GpuError::Size`] unless the buffers have the sizes of the two layouts; [`GpuError::Driver`].
    pub fn swizzle(
        &self,
        (rows, cols): (usize, usize),
        plain: &View<'_>,
        blocked: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let len = len(ScaleLayout::Blocked, rows, cols)?;
        sized("plain scales", rows * cols, plain.len())?;
        sized("blocked scales", len, blocked.len())?;
        self.arrange("swizzle", plain, blocked, (rows, cols), None, len / 4)
    }

    /// Blocked scales back into plain order.
    ///
    /// # Errors
    /// As [`Self::swizzle`].
    pub fn unswizzle(
        &self,
        (rows, cols): (usize, usize),
        blocked: &View<'_>,
        plain: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        sized("blocked scales", len(ScaleLayout::Blocked, rows, cols)?, blocked.len())?;
        sized("plain scales", rows * cols, plain.len())?;
        self.arrange("unswizzle", blocked, plain, (rows, cols), None, rows * cols)
    }

    /// Plain scales [rows, cols] of token groups with these cumulative ends into blocked ones, each group on its own.
    ///
    /// # Errors
    /// [`GpuError::Shape`] for ends that decrease or overrun; otherwise as [`Self::swizzle`].
    pub fn swizzle_groups(
        &self,
        axis: GroupAxis,
        (rows, cols): (usize, usize),
        ends: &[i32],
        plain: &View<'_>,
        blocked: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let layout = GroupedLayout::new(axis, (rows, cols), ends)?;
        sized("plain scales", rows * cols, plain.len())?;
        sized("blocked scales of groups", layout.len(), blocked.len())?;
        let kernel = match axis {
            GroupAxis::M => "swizzle_groups_m",
            GroupAxis::K => "swizzle_groups_k",
        };
        let bytes: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        let device_ends = self.upload(&bytes)?;
        let groups = Some((&device_ends.as_view(), ends.len()));
        self.arrange(kernel, plain, blocked, (rows, cols), groups, layout.len() / 4)
    }

    /// Plain scales [experts, rows, cols] into blocked ones, each expert on its own.
    ///
    /// # Errors
    /// As [`Self::swizzle`].
    pub fn swizzle_experts(
        &self,
        (experts, rows, cols): (usize, usize, usize),
        plain: &View<'_>,
        blocked: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let each = len(ScaleLayout::Blocked, rows, cols)?;
        sized("plain scales", experts * rows * cols, plain.len())?;
        sized("blocked scales", experts * each, blocked.len())?;
        self.arrange("swizzle_experts", plain, blocked, (rows, cols), None, experts * each / 4)
    }

    /// Codes, one a byte, side by side as they go over the wire.
    ///
    /// # Errors
    /// [`GpuError::Shape`] unless the codes fill whole groups; [`GpuError::Unsupported`] for an order that codes of this width do not
    /// have; [`GpuError::Size`]; [`GpuError::Driver`].
    pub fn pack(
        &self,
        element: Element,
        order: PackOrder,
        codes: &View<'_>,
        packed: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let len = packed_len(element, codes.len())?;
        sized("packed codes", len, packed.len())?;
        let kernel = match (element.format().bits, order) {
            (4, PackOrder::LittleEndian) => "pack4_little_endian",
            (4, PackOrder::HighNibbleFirst) => "pack4_high_nibble_first",
            (6, PackOrder::LittleEndian) => "pack6_little_endian",
            (6, PackOrder::TorchaoFp6) => "pack6_torchao_fp6",
            (8, PackOrder::LittleEndian) => "pack8_little_endian",
            (bits, order) => {
                return Err(GpuError::Unsupported(format!(
                    "codes of {bits} bits have no order {}",
                    order.name()
                )));
            }
        };
        self.arrange(kernel, codes, packed, (1, codes.len()), None, len / bytes_of(element))
    }

    /// Wire bytes (little endian) back to one code a byte.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn unpack(
        &self,
        element: Element,
        packed: &View<'_>,
        codes: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        sized("packed codes", packed_len(element, codes.len())?, packed.len())?;
        let kernel = match element.format().bits {
            4 => "unpack4_little_endian",
            6 => "unpack6_little_endian",
            _ => "pack8_little_endian",
        };
        let groups = packed.len() / bytes_of(element);
        self.arrange(kernel, packed, codes, (1, groups), None, groups)
    }

    #[expect(unsafe_code, reason = "kernel launch")]
    fn arrange(
        &self,
        kernel: &str,
        from: &View<'_>,
        to: &mut ViewMut<'_>,
        (rows, cols): (usize, usize),
        groups: Option<(&View<'_>, usize)>,
        words: usize,
    ) -> Result<(), GpuError> {
        if words == 0 {
            return Ok(());
        }
        let function = self.kernel(LAYOUT, &[], kernel)?;
        let job = Job {
            from: pointer(self, from),
            to: pointer_mut(self, to),
            rows: rows as u64,
            cols: cols as u64,
            ends: groups.map_or(0, |(ends, _)| pointer(self, ends)),
            groups: groups.map_or(0, |(_, count)| count as u64),
            words: words as u64,
        };
        // SAFETY: `Job` is `struct Layout`. The callers checked that `from` and `to` have the sizes that the layouts call for, and no
        // thread beyond `words` touches memory; a word that does not exist in `from` is not read.
        unsafe { self.launch(&function, grid(words, 256)?, &job) }
    }
}

/// Bytes of a group of codes.
const fn bytes_of(element: Element) -> usize {
    if element.format().bits == 6 { 3 } else { 1 }
}

fn len(layout: ScaleLayout, rows: usize, cols: usize) -> Result<usize, GpuError> {
    layout.len(rows, cols).ok_or_else(|| {
        let what = "scales";
        ShapeError::Length { what, expected: usize::MAX, got: isize::MAX as usize }.into()
    })
}
