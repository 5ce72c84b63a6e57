//! One side of a matrix product.

use crate::error::ShapeError;
use crate::format::{E8M0, Format};
use crate::number::Number;
use crate::quantize::Axis;

/// Element codes, row major, K contiguous.
#[derive(Clone, Copy, Debug)]
pub enum Codes<'a> {
    /// One code a byte: the MX element formats.
    Bytes(&'a [u8]),
    /// bf16 or f16 bits.
    Halves(&'a [u16]),
}

impl Codes<'_> {
    fn len(self) -> usize {
        match self {
            Self::Bytes(codes) => codes.len(),
            Self::Halves(codes) => codes.len(),
        }
    }

    fn get(self, index: usize) -> u32 {
        match self {
            Self::Bytes(codes) => codes[index].into(),
            Self::Halves(codes) => codes[index].into(),
        }
    }
}

/// One scale for every `block` elements along K.
#[derive(Clone, Copy, Debug)]
pub struct BlockScales<'a> {
    /// [`E8M0`], or [`crate::format::UE4M3`] for NVFP4 (bit 7 of a byte is not looked at).
    pub format: &'static Format,
    /// One byte a scale, row major: `[rows, k / block]`.
    pub bytes: &'a [u8],
    /// Elements a scale.
    pub block: usize,
}

/// One side of a matrix product: `rows` × K elements and their scales.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Element format: one of the six MX formats, bf16 or f16.
    pub format: &'static Format,
    /// The elements.
    pub codes: Codes<'a>,
    /// The scales; without them every element counts by its own value.
    pub scales: Option<BlockScales<'a>>,
}

impl Operand<'_> {
    pub(super) fn check(
        &self,
        (rows, k): (usize, usize),
        names: [&'static str; 2],
    ) -> Result<(), ShapeError> {
        let length = |what, expected: Option<usize>, got| match expected {
            Some(expected) if expected == got => Ok(()),
            expected => {
                Err(ShapeError::Length { what, expected: expected.unwrap_or(usize::MAX), got })
            }
        };
        length(names[0], rows.checked_mul(k), self.codes.len())?;
        let Some(scales) = self.scales else { return Ok(()) };
        if scales.block == 0 {
            return Err(ShapeError::BlockSize(0));
        }
        if !k.is_multiple_of(scales.block) {
            let axis = Axis::Row.name();
            return Err(ShapeError::PartialBlock { axis, length: k, block: scales.block });
        }
        length(names[1], rows.checked_mul(k / scales.block), scales.bytes.len())
    }

    /// The code at (r, k).
    pub(crate) fn code(&self, length: usize, r: usize, k: usize) -> u32 {
        self.codes.get(r * length + k)
    }

    /// The element at (r, k) without its scale, where rows have `length` elements.
    pub(crate) fn element(&self, length: usize, r: usize, k: usize) -> Number {
        self.format.decode(self.code(length, r, k))
    }

    /// The scale of the element at (r, k); 1 without scales.
    pub(crate) fn scale(&self, length: usize, r: usize, k: usize) -> Number {
        match self.scales {
            Some(scales) => {
                let at = r * (length / scales.block) + k / scales.block;
                scales.format.decode(scales.bytes[at].into())
            }
            None => Number::finite(false, 1, 0),
        }
    }

    /// The element at (r, k) times its scale.
    pub(crate) fn value(&self, length: usize, r: usize, k: usize) -> Number {
        self.element(length, r, k).times(self.scale(length, r, k))
    }

    /// The values of row r.
    pub(super) fn row(&self, length: usize, r: usize) -> Vec<Number> {
        (0..length).map(|k| self.value(length, r, k)).collect()
    }

    /// True if every scale is 1.
    pub(super) fn is_unscaled(&self) -> bool {
        const ONE: u8 = 127;
        self.scales.is_none_or(|s| *s.format == E8M0 && s.bytes.iter().all(|&byte| byte == ONE))
    }
}
