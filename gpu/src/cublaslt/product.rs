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
    /// Elements from row to row of A and of B, where those are parts of wider matrices; only without scales.
    pub strides: Option<[usize; 2]>,
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
    /// Bytes of A, B and D; of strided operands from the first element to the last.
    ///
    /// # Errors
    /// [`GpuError::Shape`] beyond what can be addressed, and for rows that overlap.
    pub fn bytes(&self) -> Result<[usize; 3], GpuError> {
        let of = |format: &Format, rows: usize, cols: usize, stride: usize| {
            if stride < cols {
                let what = "elements from row to row";
                return Err(GpuError::from(ShapeError::Length {
                    what,
                    expected: cols,
                    got: stride,
                }));
            }
            let before = rows.saturating_sub(1).checked_mul(stride);
            let last = if rows == 0 { 0 } else { cols };
            let count = before.and_then(|before| before.checked_add(last));
            let bits = count.and_then(|count| count.checked_mul(format.bits as usize));
            let (what, expected, got) = ("elements", usize::MAX, rows);
            bits.map(|bits| bits / 8)
                .ok_or_else(|| GpuError::from(ShapeError::Length { what, expected, got }))
        };
        let &Self { m, n, k, .. } = self;
        let [a, b] = self.row_strides();
        Ok([of(self.a, m, k, a)?, of(self.b, n, k, b)?, of(self.d, m, n, n)?])
    }

    /// Elements from row to row of A and of B.
    pub(super) fn row_strides(&self) -> [usize; 2] {
        self.strides.unwrap_or([self.k; 2])
    }

    /// What buffers must start at a multiple of: the library's own default, on which its choice of algorithm depends; of parts of wider
    /// matrices, what it loads at a time.
    pub(super) const fn alignment(&self) -> u32 {
        if self.strides.is_some() { 16 } else { 256 }
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
