//! What one kernel costs.

use super::{Gpu, Shape};
use serde::Serialize;

/// Bytes of a bf16 number.
const BF16_BYTES: u128 = 2;

/// What the operands of a GEMM are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operands {
    /// bf16, without scales.
    Bf16,
    /// FP8 with a scale for 32 elements.
    Mxfp8,
    /// FP4 with a scale for 32 elements.
    Mxfp4,
    /// FP4 with a scale for 16 elements.
    Nvfp4,
}

impl Operands {
    const fn bits(self) -> u128 {
        match self {
            Self::Bf16 => 16,
            Self::Mxfp8 => 8,
            Self::Mxfp4 | Self::Nvfp4 => 4,
        }
    }

    /// Bytes of this many elements, without scales.
    const fn element_bytes(self, elements: u128) -> u128 {
        (elements * self.bits()).div_ceil(8)
    }

    /// Bytes of the scales of this many elements. As in torchao, a partial block counts for nothing.
    const fn scale_bytes(self, elements: u128) -> u128 {
        match self {
            Self::Bf16 => 0,
            Self::Mxfp8 | Self::Mxfp4 => elements / 32,
            Self::Nvfp4 => elements / 16,
        }
    }

    fn peak(self, gpu: &Gpu) -> Result<f64, NoFp4> {
        match self {
            Self::Bf16 => Ok(gpu.bf16_peak.value),
            Self::Mxfp8 => Ok(gpu.fp8_peak.value),
            Self::Mxfp4 | Self::Nvfp4 => {
                gpu.fp4_peak.map(|peak| peak.value).ok_or(NoFp4 { gpu: gpu.name })
            }
        }
    }
}

/// A GPU was asked for FP4 GEMMs and has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{gpu} has no FP4 GEMM, which this recipe needs; take a GPU that has ({}), or a recipe without FP4 GEMMs, such as mxfp8 or mxfp4_emulated",
    Gpu::with_fp4().join(", ")
)]
pub struct NoFp4 {
    /// The GPU.
    pub gpu: &'static str,
}

/// What keeps a kernel from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory traffic.
    Memory,
    /// The floor that every kernel has.
    Floor,
}

/// A kernel's work and time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Kernel {
    /// Floating point operations; those of casts are not counted.
    pub flops: u128,
    /// Bytes read and written.
    pub bytes: u128,
    /// The least time.
    pub seconds: f64,
    /// Why it is not less.
    pub bound: Bound,
}

impl Kernel {
    /// `compute`: seconds of arithmetic.
    fn new(gpu: &Gpu, flops: u128, compute: f64, bytes: u128) -> Self {
        let memory = bytes as f64 / (gpu.bandwidth.value * gpu.memory_fraction.value);
        let floor = gpu.kernel_floor.value;
        let (seconds, bound) = if floor >= compute.max(memory) {
            (floor, Bound::Floor)
        } else if compute >= memory {
            (compute, Bound::Compute)
        } else {
            (memory, Bound::Memory)
        };
        Self { flops, bytes, seconds, bound }
    }
}

/// (M, K) × (K, N) with bf16 output.
///
/// # Errors
/// [`NoFp4`] for FP4 operands on a GPU that has no FP4 GEMM.
pub fn gemm(gpu: &Gpu, operands: Operands, shape: Shape) -> Result<Kernel, NoFp4> {
    let [m, k, n] = [shape.m, shape.k, shape.n].map(u128::from);
    let read = m * k + k * n;
    let bytes = operands.element_bytes(read) + operands.scale_bytes(read) + BF16_BYTES * m * n;
    let flops = 2 * m * k * n;
    let compute = flops as f64 / (operands.peak(gpu)? * gpu.gemm_fraction.value);
    Ok(Kernel::new(gpu, flops, compute, bytes))
}

/// A cast of `elements` from bf16 in one direction. One that is fused into the kernel before it only writes.
pub fn cast(gpu: &Gpu, to: Operands, elements: u64, fused: bool) -> Kernel {
    let elements = u128::from(elements);
    let read = if fused { 0 } else { BF16_BYTES * elements };
    Kernel::new(gpu, 0, 0.0, read + to.element_bytes(elements))
}
