//! Casts: every input pattern, format, rounding and overflow rule.

use half::{bf16, f16};
use mx_native::{encode, encode_slice};
use mx_oracle::{Float, cast_steps};
use mx_reference::format::{E8M0, F32, UE4M3};
use mx_reference::{Element, Format, Input, Overflow, Rounding};
use rstest::rstest;

use crate::sweep::sweep;
use crate::tally::Tally;
use crate::with_element;

/// The oracle's names.
fn oracle(rounding: Rounding, overflow: Overflow) -> (mx_oracle::Rounding, mx_oracle::Overflow) {
    use mx_oracle::Rounding as O;
    let rounding = match rounding {
        Rounding::NearestEven => O::NearestEven,
        Rounding::NearestAway => O::TiesAway,
        Rounding::NearestTowardZero => O::TiesTowardZero,
        Rounding::TowardZero => O::TowardZero,
        Rounding::Up => O::Up,
        Rounding::Stochastic { random } => O::Stochastic { random },
    };
    let overflow = match overflow {
        Overflow::Saturate => mx_oracle::Overflow::Saturate,
        Overflow::Propagate => mx_oracle::Overflow::Propagate,
    };
    (rounding, overflow)
}

const OVERFLOWS: [Overflow; 2] = [Overflow::Saturate, Overflow::Propagate];

/// Under these words magnitudes go up from the fractions 1 (never), 1/2, just above 1/2, about 0.38 and 2^-32 on.
const ROUNDINGS: [Rounding; 10] = [
    Rounding::NearestEven,
    Rounding::NearestAway,
    Rounding::NearestTowardZero,
    Rounding::TowardZero,
    Rounding::Up,
    Rounding::Stochastic { random: 0 },
    Rounding::Stochastic { random: 1 << 31 },
    Rounding::Stochastic { random: (1 << 31) - 1 },
    Rounding::Stochastic { random: 0x9e37_79b9 },
    Rounding::Stochastic { random: u32::MAX },
];

/// Fills in the native codes of the inputs from a pattern on.
fn by_slice<T: Input + Sync>(
    (format, rounding, overflow): (&'static Format, Rounding, Overflow),
    input: impl Fn(u32) -> T,
) -> impl FnMut(u32, &mut [u8]) {
    let mut inputs = Vec::new();
    move |first, codes| {
        inputs.clear();
        inputs.extend((0..codes.len() as u32).map(|i| input(first + i)));
        encode_slice(format, rounding, overflow, &inputs, codes).expect("one code per input");
    }
}

fn sixteen_bit<T: Input + Sync>(
    format: &'static Format,
    to: mx_oracle::Format,
    from: Float,
    input: impl Fn(u32) -> T + Copy,
) {
    let cases = || ROUNDINGS.into_iter().flat_map(|r| OVERFLOWS.map(|o| (r, o)));
    let name = format!("{} to {}", T::FORMAT.name, format.name);
    let mut tally = Tally::short(name, cases().count() as u64 * (1 << 16));
    for (rounding, overflow) in cases() {
        let (r, o) = oracle(rounding, overflow);
        sweep(
            &mut tally,
            &format!("{rounding:?} {overflow:?}"),
            &cast_steps(to, r, o, from),
            |bits| format.encode(T::FORMAT.decode(bits), rounding, overflow) as u8,
            by_slice((format, rounding, overflow), input),
        );
    }
    tally.finish();
}

#[rstest]
#[case::e4m3(Element::E4m3.format(), mx_oracle::Format::E4m3)]
#[case::e5m2(Element::E5m2.format(), mx_oracle::Format::E5m2)]
#[case::e3m2(Element::E3m2.format(), mx_oracle::Format::E3m2)]
#[case::e2m3(Element::E2m3.format(), mx_oracle::Format::E2m3)]
#[case::e2m1(Element::E2m1.format(), mx_oracle::Format::E2m1)]
#[case::int8(Element::Int8.format(), mx_oracle::Format::Int8)]
#[case::e8m0(&E8M0, mx_oracle::Format::E8m0)]
#[case::ue4m3(&UE4M3, mx_oracle::Format::Ue4m3)]
fn every_sixteen_bit_pattern(#[case] format: &'static Format, #[case] to: mx_oracle::Format) {
    sixteen_bit(format, to, Float::Bf16, |bits| bf16::from_bits(bits as u16));
    sixteen_bit(format, to, Float::F16, |bits| f16::from_bits(bits as u16));
}

#[rstest]
#[ignore = "whole domain, minutes: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn every_f32(
    #[values(
        Element::E4m3,
        Element::E5m2,
        Element::E3m2,
        Element::E2m3,
        Element::E2m1,
        Element::Int8
    )]
    element: Element,
    #[values(Overflow::Saturate, Overflow::Propagate)] overflow: Overflow,
) {
    let rounding = Rounding::NearestEven;
    let name = format!("f32 to {} {overflow:?}", element.name());
    let mut tally = Tally::long(name, 1 << 32);
    let (r, o) = oracle(rounding, overflow);
    let steps = cast_steps(mx_oracle::Format::ELEMENTS[element as usize], r, o, Float::F32);
    let native = by_slice((element.format(), rounding, overflow), f32::from_bits);
    with_element!(element, ELEMENT => sweep(
        &mut tally,
        F32.name,
        &steps,
        |bits| ELEMENT.format().encode(F32.decode(bits), rounding, overflow) as u8,
        native,
    ));
    tally.finish();
}

/// The native function for single elements is compiled on its own, for this machine's least instruction set.
#[rstest]
fn every_sixteen_bit_pattern_alone(
    #[values(Overflow::Saturate, Overflow::Propagate)] overflow: Overflow,
) {
    for element in Element::ALL {
        alone(element, overflow, Float::Bf16, |bits| bf16::from_bits(bits as u16));
        alone(element, overflow, Float::F16, |bits| f16::from_bits(bits as u16));
    }
}

fn alone<T: Input>(
    element: Element,
    overflow: Overflow,
    from: Float,
    input: impl Fn(u32) -> T + Copy,
) {
    let rounding = Rounding::NearestEven;
    let name = format!("single {} to {} {overflow:?}", T::FORMAT.name, element.name());
    let mut tally = Tally::short(name, 1 << 16);
    let (r, o) = oracle(rounding, overflow);
    sweep(
        &mut tally,
        T::FORMAT.name,
        &cast_steps(mx_oracle::Format::ELEMENTS[element as usize], r, o, from),
        |bits| element.format().encode(T::FORMAT.decode(bits), rounding, overflow) as u8,
        |first, codes| {
            for (i, code) in (0..).zip(codes) {
                *code = encode(element, overflow, input(first + i));
            }
        },
    );
    tally.finish();
}
