//! Products on the warpgroup MMAs of `sm_90a`: both operands are laid out in panels first, which `gemm_wgmma.cu` then copies piece by piece.
//! Tiles whose scales are too far apart for that are left to the kernel of every architecture.

use crate::arch::Arch;
use crate::device::Gpu;
use crate::error::GpuError;
use crate::gemm::{Job, Product};
use crate::launch::pointer;
use crate::program::{GEMM_PANEL, GEMM_WGMMA, element_define};
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::{DeviceRepr, LaunchConfig};
use mx_reference::Element;
use mx_reference::gemm::GemmShape;

/// Rows of a panel.
const ROWS: usize = 128;
/// Elements of a step along K.
const STEP: usize = 64;
/// Bytes of a step of a panel: `AStep`, `BStep` and `BPowers` of `gemm_panel.cuh`.
const A_STEP: usize = 9216;
const B_STEP: usize = 16384;
const POWERS: usize = 16;
/// Bytes of a `Panel`.
const PANEL: usize = 16;
/// Dynamic shared memory of a thread block; the kernel asserts it.
const SHARED: u32 = 214_144;
/// Threads of a thread block: two warpgroups that multiply, one that copies.
const THREADS: u32 = 384;
/// Products of fewer multiplications are faster without.
const LEAST: usize = 1 << 28;
/// Panels in one launch.
const MOST_PANELS: usize = 65_535;

/// Where everything lies in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    /// Panels of A and of B.
    panels: [usize; 2],
    steps: usize,
    /// What scales span, for A and then for B; steps of A and of B; common powers.
    spans: usize,
    a: usize,
    b: usize,
    powers: usize,
    end: usize,
}

impl Places {
    /// `None` beyond what one launch takes.
    fn new(GemmShape { m, n, k }: GemmShape) -> Option<Self> {
        let panels = [m.div_ceil(ROWS), n.div_ceil(ROWS)];
        let steps = k.div_ceil(STEP);
        let too_many = panels.iter().any(|&count| count > MOST_PANELS);
        if too_many || steps == 0 || i32::try_from(steps).is_err() {
            return None;
        }
        let of = |panels: usize, size: usize| panels.checked_mul(steps)?.checked_mul(size);
        let spans = 0;
        let a = ((panels[0] + panels[1]) * PANEL).next_multiple_of(256);
        let b = a.checked_add(of(panels[0], A_STEP)?)?;
        let powers = b.checked_add(of(panels[1], B_STEP)?)?;
        let end = powers.checked_add(of(panels[1], POWERS)?)?;
        Some(Self { panels, steps, spans, a, b, powers, end })
    }
}

/// `struct Operand` of `gemm_panel.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct LayOut {
    codes: u64,
    scales: u64,
    rows: i64,
    k: i64,
    layout: i32,
    reserved: i32,
    steps: u64,
    powers: u64,
    panels: u64,
}

#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct Operand` of `gemm_panel.cu`.
unsafe impl DeviceRepr for LayOut {}

/// `struct Job` of `gemm_wgmma.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Multiply {
    gemm: Job,
    a: u64,
    b: u64,
    powers: u64,
}

#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct Job` of `gemm_wgmma.cu`.
unsafe impl DeviceRepr for Multiply {}

/// Whether a device has a kernel for these formats. B has its scales multiplied into f16 elements, for which those of E5M2 leave no room.
pub(crate) fn multiplies(arch: Arch, b: Element) -> bool {
    arch == Arch::Sm90a && b != Element::E5m2
}

/// Whether a product is large enough to gain by it.
pub(crate) fn gains(GemmShape { m, n, k }: GemmShape) -> bool {
    m.saturating_mul(n).saturating_mul(k) >= LEAST
}

impl Gpu {
    /// Makes the tiles of a product that fold, in a grid of so many tiles, and lets `job` know where it says which those are. False if the
    /// product is beyond what a launch takes; nothing is done then.
    ///
    /// `job` has what [`Gpu::multiply`] has checked: buffers of the sizes that the shape calls for, without groups.
    ///
    /// # Errors
    /// [`GpuError::Compile`]; [`GpuError::Driver`], out of memory for one.
    #[expect(unsafe_code, reason = "kernel launches")]
    pub(crate) fn multiply_by_warpgroups(
        &self,
        product: &Product<'_>,
        job: &mut Job,
        tiles: u32,
        finish: impl FnOnce(&Job) -> Result<(), GpuError>,
    ) -> Result<bool, GpuError> {
        let Some(places) = Places::new(product.shape) else { return Ok(false) };
        let GemmShape { m, n, k } = product.shape;
        let defines = [("A_ELEMENT", product.a.element), ("B_ELEMENT", product.b.element)]
            .map(|(name, element)| element_define(name, element));
        self.with_scratch(places.end, |scratch| {
            self.clear(&mut scratch.slice_mut(places.spans..places.a))?;
            let base = pointer(self, &scratch.as_view());
            let at = |offset: usize| base + offset as u64;
            let spans = [at(places.spans), at(places.spans + places.panels[0] * PANEL)];
            (job.a_panels, job.b_panels) = (spans[0], spans[1]);
            let a = LayOut {
                codes: job.a,
                scales: job.a_scales,
                rows: m as i64,
                k: k as i64,
                layout: job.a_layout,
                reserved: 0,
                steps: at(places.a),
                powers: 0,
                panels: spans[0],
            };
            let b = LayOut {
                codes: job.b,
                scales: job.b_scales,
                rows: n as i64,
                layout: job.b_layout,
                steps: at(places.b),
                powers: at(places.powers),
                panels: spans[1],
                ..a
            };
            for (operand, panels, of_a) in [(a, places.panels[0], "1"), (b, places.panels[1], "0")]
            {
                let mut defines = defines.to_vec();
                defines.push(format!("OF_A={of_a}"));
                let function = self.kernel(GEMM_PANEL, &defines, "lay_out")?;
                let config = LaunchConfig {
                    grid_dim: (places.steps as u32, panels as u32, 1),
                    block_dim: (2 * ROWS as u32, 1, 1),
                    shared_mem_bytes: 0,
                };
                // SAFETY: `LayOut` is `struct Operand`; the caller has checked codes and scales, and `Places` has room for every step.
                unsafe { self.launch(&function, config, &operand) }?;
            }
            let function = self.kernel(GEMM_WGMMA, &defines, "mx_gemm_wgmma")?;
            function
                .set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED as i32)
                .map_err(GpuError::driver("reserving shared memory"))?;
            let config = LaunchConfig {
                grid_dim: (tiles, 1, 1),
                block_dim: (THREADS, 1, 1),
                shared_mem_bytes: SHARED,
            };
            let multiply = Multiply { gemm: *job, a: a.steps, b: b.steps, powers: b.powers };
            // SAFETY: `Multiply` is `struct Job`; the kernel reads the steps that the launches before it wrote, and writes D.
            unsafe { self.launch(&function, config, &multiply) }?;
            finish(job)
        })?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_one_after_the_other() {
        let places = Places::new(GemmShape { m: 129, n: 256, k: 96 }).unwrap();
        let (a, b) = (256, 256 + 2 * 2 * A_STEP);
        let powers = b + 2 * 2 * B_STEP;
        let end = powers + 2 * 2 * POWERS;
        assert_eq!(places, Places { panels: [2, 2], steps: 2, spans: 0, a, b, powers, end });
        assert!(b.is_multiple_of(16) && powers.is_multiple_of(16));
    }

    #[test]
    fn beyond_a_launch_there_is_none() {
        assert_eq!(Places::new(GemmShape { m: 1 << 24, n: 1, k: 32 }), None);
        assert_eq!(Places::new(GemmShape { m: 1, n: 1, k: usize::MAX }), None);
        assert_eq!(Places::new(GemmShape { m: 1, n: 1, k: 0 }), None);
    }

    #[test]
    fn formats_and_sizes() {
        assert!(multiplies(Arch::Sm90a, Element::Int8) && !multiplies(Arch::Sm90a, Element::E5m2));
        assert!(!multiplies(Arch::Sm100a, Element::E4m3));
        assert!(gains(GemmShape { m: 1024, n: 1024, k: 1024 }));
        assert!(!gains(GemmShape { m: 128, n: 128, k: 128 }));
    }
}
