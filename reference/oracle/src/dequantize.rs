//! From codes and scales back to numbers.

use std::sync::OnceLock;

use crate::{Blocking, Float, Format, Value};

/// The value of a code under a scale: the exact product, rounded once to nearest even; NaN gives the quiet NaN. As bits.
pub fn dequantize_code(element: Format, code: u8, scale: Format, byte: u8, output: Float) -> u32 {
    let with_sign =
        |negative: bool, pattern: u32| if negative { output.sign_bit() + pattern } else { pattern };
    match (element.value(code), scale.value(byte)) {
        (Value::Finite { negative, magnitude }, Value::Finite { magnitude: factor, .. }) => {
            let product = magnitude * factor;
            with_sign(negative, output.nearest(|v| v.cmp(&product)))
        }
        (Value::Infinite { negative }, Value::Finite { magnitude: factor, .. })
            if !factor.is_zero() =>
        {
            with_sign(negative, output.infinity())
        }
        _ => output.quiet_nan(),
    }
}

/// Dequantises codes (one a byte, `rows` × `cols`) with one E8M0 byte a block; `blocking.axis` is not looked at, for codes
/// already lie the way blocks run.
///
/// # Panics
/// If codes or scales are fewer than the shape needs, or `element` is no element format.
pub fn dequantize(
    element: Format,
    output: Float,
    blocking: Blocking,
    rows: usize,
    cols: usize,
    codes: &[u8],
    scales: &[u8],
) -> Vec<u32> {
    type PerElement = [[OnceLock<Vec<u32>>; Float::ALL.len()]; Format::ELEMENTS.len()];
    static FOUND: PerElement =
        [const { [const { OnceLock::new() }; Float::ALL.len()] }; Format::ELEMENTS.len()];
    let values = FOUND[element as usize][output as usize].get_or_init(|| {
        let bytes = |code| (0..=u8::MAX).map(move |byte| (code, byte));
        (0..=u8::MAX)
            .flat_map(bytes)
            .map(|(code, byte)| dequantize_code(element, code, Format::E8m0, byte, output))
            .collect()
    });
    let across = cols.div_ceil(blocking.cols);
    let mut output = Vec::with_capacity(rows * cols);
    for r in 0..rows {
        let scale_row = &scales[r / blocking.rows * across..][..across];
        let line = codes[r * cols..][..cols].iter().enumerate();
        output.extend(line.map(|(c, &code)| {
            values[usize::from(code) * 256 + usize::from(scale_row[c / blocking.cols])]
        }));
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;

    fn e8m0(element: Format, code: u8, byte: u8) -> [u32; 3] {
        Float::ALL.map(|output| dequantize_code(element, code, Format::E8m0, byte, output))
    }

    #[test]
    fn products() {
        assert_eq!(e8m0(Format::E4m3, 0x38, 0x7f), [0x3f800000, 0x3f80, 0x3c00]);
        assert_eq!(e8m0(Format::E4m3, 0x38, 0x00), [0x00400000, 0x0040, 0x0000]);
        assert_eq!(e8m0(Format::E4m3, 0xfe, 0xfe), [0xff800000, 0xff80, 0xfc00]);
        assert_eq!(e8m0(Format::E4m3, 0x80, 0xfe), [0x80000000, 0x8000, 0x8000]);
        assert_eq!(e8m0(Format::E4m3, 0x38, 0xff), [0x7fc00000, 0x7fc0, 0x7e00]);
        assert_eq!(e8m0(Format::E4m3, 0xff, 0x7f), [0x7fc00000, 0x7fc0, 0x7e00]);
        assert_eq!(e8m0(Format::E5m2, 0xfc, 0x00), [0xff800000, 0xff80, 0xfc00]);
        assert_eq!(e8m0(Format::Int8, 0x80, 0x7f), [0xc0000000, 0xc000, 0xc000]);
        // 2^-136: 2^13 of f32's least value, an eighth of bf16's.
        assert_eq!(e8m0(Format::E4m3, 0x01, 0x00), [0x00002000, 0x0000, 0x0000]);
        // 1.125 × 2^-129: 18 of bf16's least value, 2^-133.
        assert_eq!(e8m0(Format::E4m3, 0x29, 0x00), [0x00120000, 0x0012, 0x0000]);
        assert_eq!(
            dequantize_code(Format::E2m1, 0x7, Format::Ue4m3, 0x7e, Float::F32),
            2688f32.to_bits()
        );
    }

    #[test]
    fn ties_round_to_even() {
        // 1.125, 1.5 and 2.5 of f16's least value.
        let f16 = |code| dequantize_code(Format::E2m3, code, Format::E8m0, 127 - 24, Float::F16);
        assert_eq!([0x09, 0x0c, 0x12].map(f16), [1, 2, 2]);
    }

    #[test]
    fn tensors() {
        let blocking = Blocking { axis: Axis::Row, rows: 2, cols: 2 };
        let codes = [0x2, 0x7, 0x2, 0x2, 0xa, 0x0, 0x2, 0x1];
        let x = dequantize(Format::E2m1, Float::F32, blocking, 2, 4, &codes, &[0x7f, 0x80]);
        let numbers: Vec<f32> = x.into_iter().map(f32::from_bits).collect();
        assert_eq!(numbers, [1.0, 6.0, 2.0, 2.0, -1.0, 0.0, 2.0, 1.0]);
    }
}
