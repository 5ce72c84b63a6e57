//! Tensors of raw bits, by name.

use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// The elements of a [`Tensor`]: raw bits, never floats, so that NaN payloads and the sign of zero survive everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Codes, scale bytes, packed bytes.
    U8(Vec<u8>),
    /// bf16 or f16 bits.
    U16(Vec<u16>),
    /// f32 bits.
    U32(Vec<u32>),
    /// Group offsets and split sizes: the only tensors that are numbers.
    I32(Vec<i32>),
}

impl Data {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(data) => data.len(),
            Self::U16(data) => data.len(),
            Self::U32(data) => data.len(),
            Self::I32(data) => data.len(),
        }
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as little-endian bytes (every supported machine is little-endian).
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::U8(data) => data,
            Self::U16(data) => data.as_bytes(),
            Self::U32(data) => data.as_bytes(),
            Self::I32(data) => data.as_bytes(),
        }
    }

    /// The width of an element in bytes.
    pub const fn width(&self) -> usize {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) | Self::I32(_) => 4,
        }
    }

    /// Element `i`, widened.
    ///
    /// # Panics
    /// If `i` is out of range.
    pub fn get(&self, i: usize) -> u32 {
        match self {
            Self::U8(data) => data[i].into(),
            Self::U16(data) => data[i].into(),
            Self::U32(data) => data[i],
            Self::I32(data) => data[i].cast_unsigned(),
        }
    }
}

/// A row-major tensor of raw bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Lengths of the dimensions, outermost first.
    pub shape: Vec<usize>,
    /// `shape` product elements.
    pub data: Data,
}

impl Tensor {
    /// A tensor of bytes.
    pub fn u8(shape: impl Into<Vec<usize>>, data: Vec<u8>) -> Self {
        Self { shape: shape.into(), data: Data::U8(data) }
    }
}

/// Tensors by name, in name order.
pub type Tensors = BTreeMap<String, Tensor>;

#[cfg(target_endian = "big")]
compile_error!("raw-bit tensors are read and written as little-endian memory");
