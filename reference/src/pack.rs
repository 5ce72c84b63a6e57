//! Wire packing: codes of 4 and 6 bits side by side, and back.

use crate::element::Element;
use crate::error::ShapeError;

/// The order of sub-byte codes in a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PackOrder {
    /// Dense little-endian bit stream: code i takes bits `i × width` and up. FP4 has element 0 in the low nibble, FP6 four
    /// codes in three bytes (CUTLASS subbyte arrays, cuBLASLt, AMD, torchao from 0.15 for FP4).
    LittleEndian,
    /// FP4 with element 0 in the high nibble (torchao 0.14.1).
    HighNibbleFirst,
    /// torchao's FP6 before PR 3382: two bytes of upper nibbles, one byte of lower bit pairs, for four codes.
    TorchaoFp6,
}

impl PackOrder {
    /// Every order.
    pub const ALL: [Self; 3] = [Self::LittleEndian, Self::HighNibbleFirst, Self::TorchaoFp6];

    /// The name in ops and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LittleEndian => "little-endian",
            Self::HighNibbleFirst => "high-nibble-first",
            Self::TorchaoFp6 => "torchao-fp6",
        }
    }

    /// The order of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }

    /// Whether codes of this width have such an order.
    pub const fn applies_to(self, element: Element) -> bool {
        match self {
            Self::LittleEndian => true,
            Self::HighNibbleFirst => element.format().bits == 4,
            Self::TorchaoFp6 => element.format().bits == 6,
        }
    }
}

/// How many codes make a whole number of bytes, and how many bytes.
const fn group(element: Element) -> (usize, usize) {
    match element.format().bits {
        4 => (2, 1),
        6 => (4, 3),
        _ => (1, 1),
    }
}

/// Bytes that `codes` codes of a row take on the wire.
///
/// # Errors
/// [`ShapeError::PartialBlock`] unless they fill whole groups (2 for FP4, 4 for FP6).
pub const fn packed_len(element: Element, codes: usize) -> Result<usize, ShapeError> {
    let (per, bytes) = group(element);
    if codes.is_multiple_of(per) {
        Ok(codes / per * bytes)
    } else {
        Err(ShapeError::PartialBlock { axis: "row", length: codes, block: per })
    }
}

/// Packs one-code-a-byte `codes`; bits above the code's width are ignored.
///
/// # Errors
/// [`ShapeError::PartialBlock`] unless the codes fill whole groups.
///
/// ```
/// use mx_reference::{Element, pack::{PackOrder, pack}};
/// assert_eq!(pack(Element::E2m1, PackOrder::LittleEndian, &[0x7, 0xa, 0x4, 0x5])?, [0xa7, 0x54]);
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
pub fn pack(element: Element, order: PackOrder, codes: &[u8]) -> Result<Vec<u8>, ShapeError> {
    let mut out = Vec::with_capacity(packed_len(element, codes.len())?);
    match (element.format().bits, order) {
        (4, PackOrder::HighNibbleFirst) => {
            out.extend(codes.chunks_exact(2).map(|c| c[0] << 4 | c[1] & 0xf));
        }
        (4, _) => out.extend(codes.chunks_exact(2).map(|c| c[1] << 4 | c[0] & 0xf)),
        (6, PackOrder::TorchaoFp6) => {
            for c in codes.chunks_exact(4) {
                let [a, b, d, e] = [c[0], c[1], c[2], c[3]].map(|code| code & 0x3f);
                out.push(a >> 2 << 4 | b >> 2);
                out.push(e >> 2 << 4 | d >> 2);
                out.push((a & 3) << 6 | (b & 3) << 4 | (e & 3) << 2 | d & 3);
            }
        }
        (6, _) => {
            for c in codes.chunks_exact(4) {
                let word = (0..4).fold(0u32, |word, i| word | u32::from(c[i] & 0x3f) << (6 * i));
                out.extend_from_slice(&word.to_le_bytes()[..3]);
            }
        }
        _ => out.extend_from_slice(codes),
    }
    Ok(out)
}

/// Unpacks to one code a byte.
///
/// # Errors
/// [`ShapeError::PartialBlock`] unless the bytes are whole groups (3 for FP6).
pub fn unpack(element: Element, order: PackOrder, bytes: &[u8]) -> Result<Vec<u8>, ShapeError> {
    let (codes, per) = group(element);
    if !bytes.len().is_multiple_of(per) {
        return Err(ShapeError::PartialBlock { axis: "row", length: bytes.len(), block: per });
    }
    let mut out = Vec::with_capacity(bytes.len() / per * codes);
    match (element.format().bits, order) {
        (4, PackOrder::HighNibbleFirst) => out.extend(bytes.iter().flat_map(|b| [b >> 4, b & 0xf])),
        (4, _) => out.extend(bytes.iter().flat_map(|b| [b & 0xf, b >> 4])),
        (6, PackOrder::TorchaoFp6) => {
            for b in bytes.chunks_exact(3) {
                out.push(b[0] >> 4 << 2 | b[2] >> 6);
                out.push((b[0] & 0xf) << 2 | b[2] >> 4 & 3);
                out.push((b[1] & 0xf) << 2 | b[2] & 3);
                out.push(b[1] >> 4 << 2 | b[2] >> 2 & 3);
            }
        }
        (6, _) => {
            for b in bytes.chunks_exact(3) {
                let word = u32::from_le_bytes([b[0], b[1], b[2], 0]);
                out.extend((0..4).map(|i| (word >> (6 * i) & 0x3f) as u8));
            }
        }
        _ => out.extend_from_slice(bytes),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fp6_is_dense_little_endian() {
        // v0 in the low six bits of byte 0: v0 | v1 << 6 | v2 << 12 | v3 << 18.
        let packed = pack(Element::E3m2, PackOrder::LittleEndian, &[0x01, 0x02, 0x03, 0x3f]);
        assert_eq!(packed, Ok(vec![0x81, 0x30, 0xfc]));
    }

    #[test]
    fn torchao_fp6_upper_nibbles_then_bit_pairs() {
        // Codes are hi(4):lo(2): 0b0001_10, 0b0010_11, 0b0100_01, 0b1000_10.
        let codes = [0b000110, 0b001011, 0b010001, 0b100010];
        let packed = pack(Element::E2m3, PackOrder::TorchaoFp6, &codes);
        assert_eq!(packed, Ok(vec![0x12, 0x84, 0b10_11_10_01]));
    }

    #[test]
    fn partial_groups_are_refused() {
        assert!(pack(Element::E2m1, PackOrder::LittleEndian, &[1]).is_err());
        assert!(pack(Element::E2m3, PackOrder::LittleEndian, &[1, 2]).is_err());
        assert!(unpack(Element::E2m3, PackOrder::LittleEndian, &[1, 2]).is_err());
    }

    proptest! {
        #[test]
        fn unpacking_undoes_packing(codes in proptest::collection::vec(0u8..16, 4..65)) {
            let codes = &codes[..codes.len() / 4 * 4];
            for element in Element::ALL {
                for order in PackOrder::ALL.into_iter().filter(|o| o.applies_to(element)) {
                    let packed = pack(element, order, codes)?;
                    prop_assert_eq!(unpack(element, order, &packed)?, codes);
                }
            }
        }
    }
}
