//! What can be asked of the library: ways to scale, and the modes that combine them.

use crate::error::GpuError;
use cudarc::cublaslt::sys::cublasLtMatmulMatrixScale_t as Scale;
use mx_reference::format::{BF16, E2M1, E4M3, E5M2, F16};
use mx_reference::{Format, ScaleLayout, ShapeError};
use std::fmt;

/// How an operand is scaled: what one scale is of, and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scales {
    /// Not at all: bf16 and f16.
    None,
    /// One f32 for the whole operand.
    Scalar,
    /// One f32 a row.
    OuterVec,
    /// One f32 for 128 elements along K; rows are contiguous: `[ceil(K/128), rows]`.
    Vec128,
    /// One f32 for 128 elements along K of 128 rows; `[ceil(rows/128), ceil(K/128) rounded up to 4]`.
    Blk128x128,
    /// E8M0 for 32 elements along K, in the blocked 128×4 layout: MXFP8.
    Vec32,
    /// UE4M3 for 16 elements along K, in the blocked 128×4 layout: NVFP4.
    Vec16,
}

impl Scales {
    /// The library's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "no scales",
            Self::Scalar => "SCALAR_32F",
            Self::OuterVec => "OUTER_VEC_32F",
            Self::Vec128 => "VEC128_32F",
            Self::Blk128x128 => "BLK128x128_32F",
            Self::Vec32 => "VEC32_UE8M0",
            Self::Vec16 => "VEC16_UE4M3",
        }
    }

    /// The library's number for it.
    pub(super) const fn mode(self) -> i32 {
        let scale = match self {
            Self::None | Self::Scalar => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
            Self::OuterVec => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
            Self::Vec128 => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
            Self::Blk128x128 => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
            Self::Vec32 => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
            Self::Vec16 => Scale::CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3,
        };
        scale as i32
    }

    /// Bytes of the scales of an operand of that many rows and columns.
    ///
    /// # Errors
    /// [`GpuError::Shape`] beyond what can be addressed.
    pub fn bytes(self, rows: usize, k: usize) -> Result<usize, GpuError> {
        let blocked = |block| ScaleLayout::Blocked.len(rows, k.div_ceil(block));
        let words = |count: Option<usize>| count.and_then(|count| count.checked_mul(4));
        let bytes = match self {
            Self::None => Some(0),
            Self::Scalar => Some(4),
            Self::OuterVec => words(Some(rows)),
            Self::Vec128 => words(rows.checked_mul(k.div_ceil(128))),
            Self::Blk128x128 => {
                words(rows.div_ceil(128).checked_mul(k.div_ceil(128).next_multiple_of(4)))
            }
            Self::Vec32 => blocked(32),
            Self::Vec16 => blocked(16),
        };
        let (what, expected, got) = ("scales", usize::MAX, rows);
        bytes.ok_or_else(|| ShapeError::Length { what, expected, got }.into())
    }
}

/// What the elements of a mode's operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Elements {
    /// E4M3 and E5M2, in any pair but two of E5M2, which the library multiplies in no mode.
    Fp8,
    /// E2M1, two a byte.
    Fp4,
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
}

impl Elements {
    /// The formats of A and B, in every pair that there is.
    pub const fn pairs(self) -> &'static [(&'static Format, &'static Format)] {
        match self {
            Self::Fp8 => &[(&E4M3, &E4M3), (&E4M3, &E5M2), (&E5M2, &E4M3)],
            Self::Fp4 => &[(&E2M1, &E2M1)],
            Self::Bf16 => &[(&BF16, &BF16)],
            Self::F16 => &[(&F16, &F16)],
        }
    }
}

/// A way of multiplying by its name: how both operands are scaled, and whether sums of FP8 products may stay in the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode {
    /// The name, as in `cublaslt:NAME`.
    pub name: &'static str,
    /// What it multiplies.
    pub elements: Elements,
    /// Scales of A.
    pub a: Scales,
    /// Scales of B.
    pub b: Scales,
    /// Fast accumulation: no promotion of FP8 sums to f32 before the end.
    pub fast_accumulation: bool,
}

const fn mode(name: &'static str, elements: Elements, a: Scales, b: Scales) -> Mode {
    Mode { name, elements, a, b, fast_accumulation: false }
}

const fn fp8(name: &'static str, a: Scales, b: Scales) -> Mode {
    mode(name, Elements::Fp8, a, b)
}

impl Mode {
    /// FP8 with one scale an operand, fast accumulation.
    pub const FP8_FAST: Self =
        Self { fast_accumulation: true, ..fp8("fp8-fast", Scales::Scalar, Scales::Scalar) };
    /// The same, sums promoted to f32.
    pub const FP8: Self = fp8("fp8", Scales::Scalar, Scales::Scalar);
    /// FP8 with a scale for each row.
    pub const FP8_OUTER: Self = fp8("fp8-outer", Scales::OuterVec, Scales::OuterVec);
    /// The same, fast accumulation.
    pub const FP8_OUTER_FAST: Self = Self {
        fast_accumulation: true,
        ..fp8("fp8-outer-fast", Scales::OuterVec, Scales::OuterVec)
    };
    /// FP8 with scales for 128 elements of both.
    pub const FP8_VEC128: Self = fp8("fp8-vec128", Scales::Vec128, Scales::Vec128);
    /// FP8 with scales for 128 elements of A and tiles of B.
    pub const FP8_VEC128_BLK128: Self =
        fp8("fp8-vec128-blk128", Scales::Vec128, Scales::Blk128x128);
    /// FP8 with scales for tiles of A and 128 elements of B.
    pub const FP8_BLK128_VEC128: Self =
        fp8("fp8-blk128-vec128", Scales::Blk128x128, Scales::Vec128);
    /// FP8 with scales for tiles of both.
    pub const FP8_BLK128: Self = fp8("fp8-blk128", Scales::Blk128x128, Scales::Blk128x128);
    /// MXFP8.
    pub const MX: Self = fp8("mx", Scales::Vec32, Scales::Vec32);
    /// NVFP4.
    pub const NVFP4: Self = mode("nvfp4", Elements::Fp4, Scales::Vec16, Scales::Vec16);
    /// bfloat16.
    pub const BF16: Self = mode("bf16", Elements::Bf16, Scales::None, Scales::None);
    /// IEEE binary16.
    pub const F16: Self = mode("f16", Elements::F16, Scales::None, Scales::None);

    /// Every mode, in the order of reports.
    pub const ALL: [Self; 12] = [
        Self::FP8_FAST,
        Self::FP8,
        Self::FP8_OUTER,
        Self::FP8_OUTER_FAST,
        Self::FP8_VEC128,
        Self::FP8_VEC128_BLK128,
        Self::FP8_BLK128_VEC128,
        Self::FP8_BLK128,
        Self::MX,
        Self::NVFP4,
        Self::BF16,
        Self::F16,
    ];

    /// Split-K: the k of the tiles that parts consist of. Seen in the outputs of an H200 with 13.1.0 (`tests/cublaslt.rs`), for the
    /// kernels that it calls algorithm 66: 128 bytes of K, and four times as much where an operand has scales for 128x128 tiles.
    pub fn split_tile(&self) -> u32 {
        match (self.elements, self.a, self.b) {
            (Elements::Bf16 | Elements::F16, ..) => 64,
            (_, Scales::Blk128x128, _) | (_, _, Scales::Blk128x128) => 512,
            (Elements::Fp8 | Elements::Fp4, ..) => 128,
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
