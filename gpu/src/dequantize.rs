//! Dequantisation on the device. Results are those of `mx_reference::dequantize`.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::launch::{grid, pointer, pointer_mut, sized};
use crate::program::{DEQUANTIZE, define, element_define};
use crate::{View, ViewMut};
use cudarc::driver::DeviceRepr;
use mx_reference::{Axis, Element, Format, ShapeError};

/// The parameter of `dequantize.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Job {
    elements: u64,
    scales: u64,
    output: u64,
    count: u64,
}

#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct Dequantize` of dequantize.cu: four 64-bit fields.
unsafe impl DeviceRepr for Job {}

impl Gpu {
    /// Codes [rows, cols], one a byte, with plain scales [rows, cols/32], into f32, bf16 or f16: the exact product rounded once.
    ///
    /// # Errors
    /// [`GpuError::Shape`] unless rows are whole blocks; [`GpuError::Size`]; [`GpuError::Unsupported`] for views that do not start at
    /// a multiple of 16 bytes; [`GpuError::Driver`].
    #[expect(unsafe_code, reason = "kernel launch")]
    pub fn dequantize(
        &self,
        element: Element,
        (rows, cols): (usize, usize),
        elements: &View<'_>,
        scales: &View<'_>,
        output: &Format,
        to: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        if !cols.is_multiple_of(32) {
            let axis = Axis::Row.name();
            return Err(ShapeError::PartialBlock { axis, length: cols, block: 32 }.into());
        }
        let count = rows * cols;
        sized("elements", count, elements.len())?;
        sized("scales", count / 32, scales.len())?;
        sized("output", count * output.bits as usize / 8, to.len())?;
        if count == 0 {
            return Ok(());
        }
        let job = Job {
            elements: pointer(self, elements),
            scales: pointer(self, scales),
            output: pointer_mut(self, to),
            count: count as u64,
        };
        if !(job.elements.is_multiple_of(8) && job.output.is_multiple_of(16)) {
            return Err(GpuError::Unsupported(
                "dequantize: elements must start at a multiple of 8 bytes, the output at one of 16"
                    .to_owned(),
            ));
        }
        let defines = [element_define("ELEMENT", element), define("OUTPUT", output)];
        let function = self.kernel(DEQUANTIZE, &defines, "dequantize")?;
        // SAFETY: `Job` is `struct Dequantize`; the sizes were checked above, and threads beyond `count` return.
        unsafe { self.launch(&function, grid(count / 8, 256)?, &job) }
    }
}
