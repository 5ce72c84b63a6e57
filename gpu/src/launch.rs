//! What every launch needs: grids, pointers, checked sizes.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::{View, ViewMut};
use cudarc::driver::{DevicePtr, DevicePtrMut, LaunchConfig};

/// A one-dimensional grid of at least `threads` threads.
///
/// # Errors
/// [`GpuError::Unsupported`] beyond 2^31 - 1 blocks.
pub(crate) fn grid(threads: usize, block: u32) -> Result<LaunchConfig, GpuError> {
    let blocks = threads.div_ceil(block as usize);
    match u32::try_from(blocks) {
        Ok(blocks) if blocks < 1 << 31 => Ok(LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (block, 1, 1),
            shared_mem_bytes: 0,
        }),
        _ => Err(GpuError::Unsupported(format!("{blocks} thread blocks in one launch"))),
    }
}

/// The device address of a view, for use in the device's own stream.
pub(crate) fn pointer(gpu: &Gpu, view: &View<'_>) -> u64 {
    view.device_ptr(gpu.stream()).0
}

/// The device address of a writable view, for use in the device's own stream.
pub(crate) fn pointer_mut(gpu: &Gpu, view: &mut ViewMut<'_>) -> u64 {
    view.device_ptr_mut(gpu.stream()).0
}

/// Checks a buffer's size.
///
/// # Errors
/// [`GpuError::Size`].
pub(crate) const fn sized(what: &'static str, expected: usize, got: usize) -> Result<(), GpuError> {
    if expected == got { Ok(()) } else { Err(GpuError::Size { what, expected, got }) }
}
