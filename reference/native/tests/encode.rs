//! Casts over whole input domains of 16 bits, and every rounding and format on a sample.

use half::{bf16, f16};
use mx_native::{encode, encode_slice};
use mx_reference::format::{E8M0, F32, Format, UE4M3};
use mx_reference::{Element, Input, Overflow, Rounding};
use rstest::rstest;

const OVERFLOWS: [Overflow; 2] = [Overflow::Saturate, Overflow::Propagate];

/// Compares slice and scalar encoding with the reference.
fn check<T: Input + Sync>(inputs: &[T]) {
    for (element, overflow) in Element::ALL.into_iter().flat_map(|e| OVERFLOWS.map(|o| (e, o))) {
        let mut codes = vec![0xee; inputs.len()];
        let format = element.format();
        encode_slice(format, Rounding::NearestEven, overflow, inputs, &mut codes)
            .expect("a code each");
        for (&x, code) in inputs.iter().zip(codes) {
            let expected = format.encode(x.number(), Rounding::NearestEven, overflow) as u8;
            let case = (element, overflow, x.bits());
            assert_eq!(code, expected, "slice, {case:08x?}");
            assert_eq!(encode(element, overflow, x), expected, "scalar, {case:08x?}");
        }
    }
}

#[test]
fn every_bf16() {
    let inputs: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    check(&inputs);
}

#[test]
fn every_f16() {
    let inputs: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    check(&inputs);
}

/// Every upper half with lower halves on, next to and away from ties.
#[test]
fn f32_around_ties() {
    let inputs: Vec<f32> = (0..=u16::MAX)
        .flat_map(|high| {
            [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff]
                .map(|low| f32::from_bits(u32::from(high) << 16 | low))
        })
        .collect();
    check(&inputs);
}

#[rstest]
#[case(Rounding::NearestAway)]
#[case(Rounding::NearestTowardZero)]
#[case(Rounding::TowardZero)]
#[case(Rounding::Up)]
#[case(Rounding::NearestEven)]
#[case(Rounding::Stochastic { random: 0x9e37_79b9 })]
fn other_roundings_and_formats(#[case] rounding: Rounding) {
    let inputs: Vec<f32> =
        (0..200_000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).collect();
    let elements = Element::ALL.map(Element::format);
    let formats: [&'static Format; 2] = [&E8M0, &UE4M3];
    for format in elements.into_iter().chain(formats) {
        for overflow in OVERFLOWS {
            let mut codes = vec![0xee; inputs.len()];
            encode_slice(format, rounding, overflow, &inputs, &mut codes).unwrap();
            for (x, code) in inputs.iter().zip(codes) {
                let expected = format.encode(F32.decode(x.to_bits()), rounding, overflow);
                assert_eq!(u32::from(code), expected, "{} {x:e}", format.name);
            }
        }
    }
}

#[test]
fn lengths_must_match() {
    let format = Element::E4m3.format();
    let mut codes = [0; 3];
    assert!(
        encode_slice(format, Rounding::Up, Overflow::Saturate, &[0f32; 4], &mut codes).is_err()
    );
}
