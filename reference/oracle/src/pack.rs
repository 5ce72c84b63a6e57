//! Wire packing, bit by bit.

use crate::Format;

/// The order of codes narrower than a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackOrder {
    /// One stream of bits from each byte's lowest up.
    LittleEndian,
    /// FP4 with the first of two codes in the upper nibble (torchao 0.14.1).
    HighNibbleFirst,
    /// torchao's `pack_uint6` before PR 3382.
    TorchaoFp6,
}

/// (byte, bit within it) where bit `bit` of code `index` lies.
fn place(order: PackOrder, width: usize, index: usize, bit: usize) -> (usize, usize) {
    match order {
        PackOrder::LittleEndian => {
            let position = index * width + bit;
            (position / 8, position % 8)
        }
        PackOrder::HighNibbleFirst => (index / 2, [4, 0][index % 2] + bit),
        PackOrder::TorchaoFp6 => {
            // Two bytes of upper nibbles v0 v1, v3 v2; then the lower pairs v0 v1 v3 v2.
            let (group, lane) = (index / 4 * 3, index % 4);
            match bit {
                0 | 1 => (group + 2, [6, 4, 0, 2][lane] + bit),
                _ => (group + [0, 0, 1, 1][lane], [4, 0, 0, 4][lane] + bit - 2),
            }
        }
    }
}

fn width(format: Format, order: PackOrder) -> usize {
    let width = format.codes().ilog2() as usize;
    match order {
        PackOrder::LittleEndian => width,
        PackOrder::HighNibbleFirst => 4,
        PackOrder::TorchaoFp6 => 6,
    }
}

/// Packs codes, of which only the format's bits count, into wire bytes.
///
/// # Panics
/// If the codes do not fill whole bytes: 2 codes of FP4, 4 of FP6.
pub fn pack(format: Format, order: PackOrder, codes: &[u8]) -> Vec<u8> {
    let width = width(format, order);
    assert!((codes.len() * width).is_multiple_of(8), "a partial byte");
    let mut bytes = vec![0; codes.len() * width / 8];
    for (index, code) in codes.iter().enumerate() {
        for bit in 0..width {
            let (byte, at) = place(order, width, index, bit);
            bytes[byte] |= (code >> bit & 1) << at;
        }
    }
    bytes
}

/// Unpacks `count` codes.
///
/// # Panics
/// If there are fewer bytes than they take.
pub fn unpack(format: Format, order: PackOrder, count: usize, bytes: &[u8]) -> Vec<u8> {
    let width = width(format, order);
    let bit_of = |index, bit| {
        let (byte, at) = place(order, width, index, bit);
        (bytes[byte] >> at & 1) << bit
    };
    (0..count).map(|index| (0..width).map(|bit| bit_of(index, bit)).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use PackOrder::{HighNibbleFirst, LittleEndian, TorchaoFp6};

    #[test]
    fn fp4() {
        let codes = [0x7, 0xa, 0x4, 0x5];
        assert_eq!(pack(Format::E2m1, LittleEndian, &codes), [0xa7, 0x54]);
        assert_eq!(pack(Format::E2m1, HighNibbleFirst, &codes), [0x7a, 0x45]);
    }

    #[test]
    fn fp6() {
        let v = [0b10_1101_u8, 0b01_1010, 0b11_0011, 0b00_1110];
        let stream =
            u32::from(v[0]) | u32::from(v[1]) << 6 | u32::from(v[2]) << 12 | u32::from(v[3]) << 18;
        assert_eq!(pack(Format::E3m2, LittleEndian, &v), stream.to_le_bytes()[..3]);
        let old = [
            (v[0] >> 2) << 4 | v[1] >> 2,
            (v[3] >> 2) << 4 | v[2] >> 2,
            (v[0] & 3) << 6 | (v[1] & 3) << 4 | (v[3] & 3) << 2 | v[2] & 3,
        ];
        assert_eq!(pack(Format::E2m3, TorchaoFp6, &v), old);
    }

    #[test]
    fn unpack_undoes_pack() {
        for (format, order) in [
            (Format::E2m1, LittleEndian),
            (Format::E2m1, HighNibbleFirst),
            (Format::E2m3, LittleEndian),
            (Format::E2m3, TorchaoFp6),
            (Format::E4m3, LittleEndian),
        ] {
            let codes: Vec<u8> = (0..64u32).map(|i| (i * 37 % format.codes()) as u8).collect();
            assert_eq!(unpack(format, order, 64, &pack(format, order, &codes)), codes);
        }
    }

    #[test]
    fn bits_above_the_code_are_dropped() {
        assert_eq!(pack(Format::E2m1, LittleEndian, &[0xf1, 0xf2]), [0x21]);
        assert_eq!(pack(Format::Int8, LittleEndian, &[0xf1, 0x02]), [0xf1, 0x02]);
    }
}
