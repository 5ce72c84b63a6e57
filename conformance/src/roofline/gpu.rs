//! The GPUs, and where each figure comes from.

use crate::suggest::nearest;
use serde::Serialize;

/// What the model knows of a GPU. Peaks are dense.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// The short name.
    pub name: &'static str,
    /// With its maker, as torchao names it.
    pub device: &'static str,
    /// bf16 GEMMs.
    pub bf16_peak: Figure,
    /// FP8 GEMMs.
    pub fp8_peak: Figure,
    /// FP4 GEMMs, if it has them.
    pub fp4_peak: Option<Figure>,
    /// Memory bandwidth.
    pub bandwidth: Figure,
    /// What part of a peak large GEMMs reach.
    pub gemm_fraction: Figure,
    /// What part of the bandwidth kernels reach.
    pub memory_fraction: Figure,
    /// What the smallest kernel takes.
    pub kernel_floor: Figure,
    /// Whether its GEMMs apply MX block scales themselves. Where not, the FP8 peak is a bound that MX need not come near.
    pub block_scaled: bool,
}

/// A number, its unit and its source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Its unit; empty for a fraction.
    pub unit: &'static str,
    /// Who says so.
    pub source: &'static str,
}

const fn flops(value: f64, source: &'static str) -> Figure {
    Figure { value, unit: "FLOP/s", source }
}

const fn bandwidth(value: f64, source: &'static str) -> Figure {
    Figure { value, unit: "B/s", source }
}

const fn fraction(value: f64, source: &'static str) -> Figure {
    Figure { value, unit: "", source }
}

const FLOOR: Figure = Figure {
    value: 2e-6,
    unit: "s",
    source: "torchao roofline_utils: a kernel of one element, measured on an H100",
};
const NVIDIA_H100: &str =
    "NVIDIA H100 data sheet, SXM, half of the figure with sparsity; also torchao roofline_utils";
const NVIDIA_H200: &str = "NVIDIA H200 data sheet, SXM, half of the figure with sparsity";
const NVIDIA_BLACKWELL: &str =
    "NVIDIA Blackwell architecture brief, half of the figure with sparsity; also torchao";
const AMD_MI300X: &str = "AMD Instinct MI300X data sheet, without sparsity";
const GEMMS_MEASURED: &str = "torchao roofline_utils: measured on an H100 with large inputs";
const MEMORY_MEASURED: &str =
    "torchao roofline_utils: pointwise kernels on an H100 with large inputs";
const GEMMS_ASSUMED: &str = "assumed as on the H100 (torchao does so for other GPUs)";
const MEMORY_ASSUMED: &str = GEMMS_ASSUMED;

const H100: Gpu = Gpu {
    name: "H100",
    device: "NVIDIA H100",
    bf16_peak: flops(989e12, NVIDIA_H100),
    fp8_peak: flops(1979e12, NVIDIA_H100),
    fp4_peak: None,
    bandwidth: bandwidth(
        2.4e12,
        "torchao roofline_utils: Meta's variant of the H100; the data sheet of the SXM has 3.35e12",
    ),
    gemm_fraction: fraction(0.78, GEMMS_MEASURED),
    memory_fraction: fraction(0.92, MEMORY_MEASURED),
    kernel_floor: FLOOR,
    block_scaled: false,
};

const H200: Gpu = Gpu {
    name: "H200",
    device: "NVIDIA H200",
    bf16_peak: flops(989e12, NVIDIA_H200),
    fp8_peak: flops(1979e12, NVIDIA_H200),
    fp4_peak: None,
    bandwidth: bandwidth(4.8e12, "NVIDIA H200 data sheet"),
    gemm_fraction: fraction(0.78, GEMMS_ASSUMED),
    memory_fraction: fraction(0.92, MEMORY_ASSUMED),
    kernel_floor: FLOOR,
    block_scaled: false,
};

const B200: Gpu = Gpu {
    name: "B200",
    device: "NVIDIA B200",
    bf16_peak: flops(2.25e15, NVIDIA_BLACKWELL),
    fp8_peak: flops(4.5e15, NVIDIA_BLACKWELL),
    fp4_peak: Some(flops(9e15, NVIDIA_BLACKWELL)),
    bandwidth: bandwidth(
        7680.0 / 8.0 * 3.996e9 * 2.0,
        "torchao roofline_utils: 7680 bits at 3.996 GHz, two a clock; NVIDIA rounds it up to 8e12",
    ),
    gemm_fraction: fraction(0.78, GEMMS_ASSUMED),
    memory_fraction: fraction(0.92, MEMORY_ASSUMED),
    kernel_floor: FLOOR,
    block_scaled: true,
};

const MI300X: Gpu = Gpu {
    name: "MI300X",
    device: "AMD Instinct MI300X",
    bf16_peak: flops(1307.4e12, AMD_MI300X),
    fp8_peak: flops(2614.9e12, AMD_MI300X),
    fp4_peak: None,
    bandwidth: bandwidth(5.3e12, "AMD Instinct MI300X data sheet; also torchao roofline_utils"),
    gemm_fraction: fraction(0.78, GEMMS_ASSUMED),
    memory_fraction: fraction(0.92, MEMORY_ASSUMED),
    kernel_floor: FLOOR,
    block_scaled: false,
};

/// A GPU that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown GPU `{given}`{}; known: {}", nearest(&given.to_uppercase(), &Gpu::names()), Gpu::names().join(", "))]
pub struct UnknownGpu {
    /// What was asked for.
    pub given: String,
}

impl Gpu {
    /// All of them.
    pub const ALL: [&'static Self; 4] = [&H100, &H200, &B200, &MI300X];

    /// The GPU of a name, short or with its maker, in letters of either case.
    ///
    /// # Errors
    /// [`UnknownGpu`], which suggests a name.
    pub fn from_name(given: &str) -> Result<&'static Self, UnknownGpu> {
        let is = |name: &str| name.eq_ignore_ascii_case(given);
        let found = Self::ALL.into_iter().find(|gpu| is(gpu.name) || is(gpu.device));
        found.ok_or_else(|| UnknownGpu { given: given.to_owned() })
    }

    fn names() -> [&'static str; 4] {
        Self::ALL.map(|gpu| gpu.name)
    }

    pub(super) fn with_fp4() -> Vec<&'static str> {
        Self::ALL.iter().filter(|gpu| gpu.fp4_peak.is_some()).map(|gpu| gpu.name).collect()
    }
}
