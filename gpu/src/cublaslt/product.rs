//! One product: its shape, the formats of its matrices, and what the library calls them.

use super::mode::Mode;
use crate::error::GpuError;
use cudarc::cublaslt::sys::cudaDataType_t as DataType;
use mx_reference::{Format, ShapeError, format};

/// A product of one shape and kind: D `[m, n]` = A `[m, k]` · B `[n, k]`ᵀ, all row major.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Rows of A.
    pub m: usize,
    /// Rows of B.
    pub n: usize,
    /// Columns of both.
    pub k: usize,
    /// Elements of A.
    pub a: &'static Format,
    /// Elements of B.
    pub b: &'static Format,
    /// Elements of D.
    pub d: &'static Format,
    /// Scales, and how sums are kept.
    pub mode: Mode,
}

/// What the library calls the formats that it multiplies.
static DATA_TYPES: [(&Format, DataType); 6] = [
    (&format::E4M3, DataType::CUDA_R_8F_E4M3),
    (&format::E5M2, DataType::CUDA_R_8F_E5M2),
    (&format::E2M1, DataType::CUDA_R_4F_E2M1),
    (&format::BF16, DataType::CUDA_R_16BF),
    (&format::F16, DataType::CUDA_R_16F),
    (&format::F32, DataType::CUDA_R_32F),
];

/// The library's number for a format.
///
/// # Errors
/// [`GpuError::Unsupported`] for one that it does not multiply.
pub(super) fn data_type(format: &Format) -> Result<u32, GpuError> {
    let known = DATA_TYPES.iter().find(|(known, _)| known.name == format.name);
    known.map(|&(_, data_type)| data_type as u32).ok_or_else(|| {
        GpuError::Unsupported(format!("cuBLASLt has no products of {}", format.name))
    })
}

impl Product {
    /// Bytes of A, B and D.
    ///
    /// # Errors
    /// [`GpuError::Shape`] beyond what can be addressed.
    pub fn bytes(&self) -> Result<[usize; 3], GpuError> {
        let of = |format: &Format, rows: usize, cols: usize| {
            let bits = rows.checked_mul(cols).and_then(|n| n.checked_mul(format.bits as usize));
            let (what, expected, got) = ("elements", usize::MAX, rows);
            bits.map(|bits| bits / 8)
                .ok_or_else(|| GpuError::from(ShapeError::Length { what, expected, got }))
        };
        Ok([of(self.a, self.m, self.k)?, of(self.b, self.n, self.k)?, of(self.d, self.m, self.n)?])
    }

    /// The arguments in words, without the shape.
    pub fn kind(&self) -> String {
        let Self { a, b, d, mode, .. } = self;
        let fast = if mode.fast_accumulation { ", fast accumulation" } else { "" };
        format!(
            "{} ({}) × {} ({}) → {}{fast}",
            a.name,
            mode.a.name(),
            b.name,
            mode.b.name(),
            d.name
        )
    }
}
