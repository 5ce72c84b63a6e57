//! Every code under every scale byte, in every output format.

use mx_native::{dequantize, dequantize_f32, dequantize_u16};
use mx_reference::format::{BF16, E4M3, E8M0, F16, F32};
use mx_reference::{BlockShape, Element, Overflow, Rounding, ShapeError, dequantize_code};

const ROWS: usize = 256;
const COLS: usize = 256;

/// One row per scale byte, with all codes in it.
fn everything() -> (Vec<u8>, Vec<u8>) {
    let codes = (0..ROWS).flat_map(|_| 0..=u8::MAX).collect();
    let scales = (0..=u8::MAX).flat_map(|byte| [byte; COLS / 32]).collect();
    (codes, scales)
}

#[test]
fn every_scale_and_code() {
    let (codes, scales) = everything();
    for element in Element::ALL {
        // E4M3 is no output format that tables are kept for.
        for output in [F32, BF16, F16, E4M3] {
            let shape = BlockShape::MX;
            let fast = dequantize(element, (ROWS, COLS), shape, &codes, &scales, &output).unwrap();
            for (i, value) in fast.iter().enumerate() {
                let (byte, code) = ((i / COLS) as u8, (i % COLS) as u8);
                let x = dequantize_code(element.format(), code, &E8M0, byte);
                let expected = output.encode(x, Rounding::NearestEven, Overflow::Propagate);
                assert_eq!(*value, expected, "{element:?} {} {byte:02x} {code:02x}", output.name);
            }
            if output == F32 {
                let typed = dequantize_f32(element, (ROWS, COLS), shape, &codes, &scales).unwrap();
                assert_eq!(typed, fast);
            } else {
                let typed = dequantize_u16(element, (ROWS, COLS), shape, &codes, &scales, &output);
                assert!(typed.unwrap().into_iter().map(u32::from).eq(fast));
            }
        }
    }
}

#[test]
fn every_shape() {
    let codes: Vec<u8> = (0..384 * 512usize).map(|i| (i * 37 % 251) as u8).collect();
    let lines = [8, 16, 32, 64, 128].map(|size| BlockShape::line(size).unwrap());
    for shape in lines.into_iter().chain([BlockShape::TILE]) {
        for (rows, cols) in [(384, 512), (32, 128), (0, 128), (384, 0)] {
            let codes = &codes[..rows * cols];
            let scales = (0..rows / shape.rows() * (cols / shape.cols()))
                .map(|i| (i * 41 % 253) as u8)
                .collect::<Vec<_>>();
            assert_eq!(
                dequantize(Element::E2m3, (rows, cols), shape, codes, &scales, &F32),
                mx_reference::dequantize(Element::E2m3, (rows, cols), shape, codes, &scales, &F32)
            );
        }
    }
}

#[test]
fn misfits_are_refused() {
    let shape = BlockShape::MX;
    assert!(matches!(
        dequantize_f32(Element::E4m3, (1, 31), shape, &[0; 31], &[]),
        Err(ShapeError::PartialBlock { .. })
    ));
    assert!(matches!(
        dequantize_f32(Element::E4m3, (1, 32), shape, &[0; 32], &[0; 2]),
        Err(ShapeError::Length { what: "scales", .. })
    ));
}
