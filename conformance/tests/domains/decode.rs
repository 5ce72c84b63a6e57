//! Decoding: every code under every scale byte, to every output.

use mx_oracle::Float;
use mx_reference::format::{BF16, E2M1, E8M0, F16, F32, Format, UE4M3};
use mx_reference::{BlockShape, Element, Overflow, Rounding, dequantize_code};
use rstest::rstest;

use crate::tally::Tally;

const OUTPUTS: [(Format, Float); 3] = [(F32, Float::F32), (BF16, Float::Bf16), (F16, Float::F16)];

/// Every pair of a code and a scale byte, bytes the slower.
fn pairs() -> impl Iterator<Item = (u8, u8)> {
    (0..=u8::MAX).flat_map(|byte| (0..=u8::MAX).map(move |code| (code, byte)))
}

fn reference(element: &Format, scale: &Format, output: &Format) -> Vec<u32> {
    let value = |(code, byte)| {
        let x = dequantize_code(element, code, scale, byte);
        output.encode(x, Rounding::NearestEven, Overflow::Propagate)
    };
    pairs().map(value).collect()
}

fn oracle(element: mx_oracle::Format, scale: mx_oracle::Format, output: Float) -> Vec<u32> {
    pairs()
        .map(|(code, byte)| mx_oracle::dequantize_code(element, code, scale, byte, output))
        .collect()
}

fn describe(i: usize) -> String {
    format!("byte {:#04x} code {:#04x}", i >> 8, i & 0xff)
}

#[rstest]
fn every_byte_and_code(
    #[values(
        Element::E4m3,
        Element::E5m2,
        Element::E3m2,
        Element::E2m3,
        Element::E2m1,
        Element::Int8
    )]
    element: Element,
) {
    let (bytes, codes): (Vec<u8>, Vec<u8>) = pairs().map(|(code, byte)| (byte, code)).unzip();
    let scales: Vec<u8> = bytes.into_iter().step_by(BlockShape::MX.cols()).collect();
    for (output, float) in OUTPUTS {
        let name = format!("decode {} to {}", element.name(), output.name);
        let mut tally = Tally::short(name, 1 << 16);
        let (shape, size) = (BlockShape::MX, (256, 256));
        let native = mx_native::dequantize(element, size, shape, &codes, &scales, &output);
        let format = mx_oracle::Format::ELEMENTS[element as usize];
        tally.compare(
            describe,
            &[
                ("oracle", &oracle(format, mx_oracle::Format::E8m0, float)),
                ("reference", &reference(element.format(), &E8M0, &output)),
                ("native", &native.unwrap()),
            ],
        );
        tally.finish();
    }
}

/// NVFP4, for which there is no native code.
#[test]
fn every_nvfp4_byte_and_code() {
    use mx_oracle::Format::{E2m1, Ue4m3};
    for (output, float) in OUTPUTS {
        let mut tally = Tally::short(format!("decode NVFP4 to {}", output.name), 1 << 16);
        let by_oracle = oracle(E2m1, Ue4m3, float);
        let by_reference = reference(&E2M1, &UE4M3, &output);
        tally.compare(describe, &[("oracle", &by_oracle), ("reference", &by_reference)]);
        tally.finish();
    }
}
