//! Scale bytes: every amax, element, mode and convention.

use std::ops::Range;

use half::{bf16, f16};
use mx_native::ScaleRule;
use mx_oracle::{Float, Profile, Steps};
use mx_reference::convention::{Convention, PROPAGATE, TORCHAO_0_18};
use mx_reference::format::F32;
use mx_reference::{Element, Input, ScaleMode};
use rstest::rstest;

use crate::sweep::sweep;
use crate::tally::Tally;
use crate::with_element;

/// f32 patterns next to each place where a byte changes.
const NEAR: u32 = 64;
/// f32 patterns without sign.
const MAGNITUDES: u64 = 1 << 31;

fn oracle(
    element: Element,
    mode: ScaleMode,
    convention: &Convention,
    input: Float,
) -> &'static Steps {
    let convention = Convention::ALL.iter().position(|known| *known == convention);
    let profile = Profile {
        element: mx_oracle::Format::ELEMENTS[element as usize],
        mode: mx_oracle::Mode::ALL[mode as usize],
        convention: mx_oracle::Convention::ALL[convention.expect("a built-in convention")],
        input,
    };
    profile.scale_steps()
}

/// Fills in the native bytes of the amaxes from a pattern on.
fn by_rule(
    (element, mode, convention): (Element, ScaleMode, &Convention),
    to_f32: impl Fn(u32) -> u32,
) -> impl FnMut(u32, &mut [u8]) {
    let rule = ScaleRule::new(element, mode, convention);
    move |first, bytes| {
        for (i, byte) in (0..).zip(bytes) {
            *byte = rule.byte(to_f32(first + i));
        }
    }
}

#[rstest]
fn every_sixteen_bit_amax(
    #[values(ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even, ScaleMode::Rceil)] mode: ScaleMode,
) {
    for element in Element::ALL {
        for convention in Convention::ALL {
            let profile = (element, mode, convention);
            let name = format!("{} {} {}", element.name(), mode.name(), convention.name);
            let mut tally = Tally::short(name, 2 << 15);
            sweep(
                &mut tally,
                "bf16",
                oracle(element, mode, convention, Float::Bf16),
                |bits| mode.byte(element, bf16::FORMAT.decode(bits), convention),
                by_rule(profile, |bits| bf16::from_bits(bits as u16).to_f32().to_bits()),
            );
            sweep(
                &mut tally,
                "f16",
                oracle(element, mode, convention, Float::F16),
                |bits| mode.byte(element, f16::FORMAT.decode(bits), convention),
                by_rule(profile, |bits| f16::from_bits(bits as u16).to_f32().to_bits()),
            );
            tally.finish();
        }
    }
}

#[rstest]
fn every_f32_amax_near_a_step(
    #[values(ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even, ScaleMode::Rceil)] mode: ScaleMode,
) {
    for element in Element::ALL {
        for convention in Convention::ALL {
            let steps = oracle(element, mode, convention, Float::F32);
            let near: Vec<Range<u32>> = steps
                .runs()
                .map(|(first, ..)| first.saturating_sub(NEAR)..(first + NEAR).min(1 << 31))
                .collect();
            let points = near.iter().map(|range| range.len() as u64).sum();
            let name = format!("{} {} {}", element.name(), mode.name(), convention.name);
            let mut tally = Tally::short(name, points);
            let mut native = by_rule((element, mode, convention), |bits| bits);
            for range in near {
                let by_oracle: Vec<u8> = range.clone().map(|bits| steps.code(bits)).collect();
                let by_reference: Vec<u8> = range
                    .clone()
                    .map(|bits| mode.byte(element, F32.decode(bits), convention))
                    .collect();
                let mut by_native = vec![0; range.len()];
                native(range.start, &mut by_native);
                tally.compare(
                    |i| format!("amax {:#010x}", range.start + i as u32),
                    &[("oracle", &by_oracle), ("reference", &by_reference), ("native", &by_native)],
                );
            }
            tally.finish();
        }
    }
}

/// The other conventions answer differently only to infinity, to MXINT8's largest amaxes and where [`by_logarithm`]
/// looks.
#[rstest]
#[ignore = "whole domain, minutes: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn every_f32_amax(
    #[values(
        Element::E4m3,
        Element::E5m2,
        Element::E3m2,
        Element::E2m3,
        Element::E2m1,
        Element::Int8
    )]
    element: Element,
    #[values(ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even, ScaleMode::Rceil)] mode: ScaleMode,
) {
    whole(element, mode, &PROPAGATE);
}

/// torchao-0.18 takes RCEIL through a rounded logarithm.
#[rstest]
#[ignore = "whole domain, minutes: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn by_logarithm(
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
    whole(element, ScaleMode::Rceil, &TORCHAO_0_18);
}

fn whole(element: Element, mode: ScaleMode, convention: &'static Convention) {
    let name = format!("amax {} {} {}", element.name(), mode.name(), convention.name);
    let mut tally = Tally::long(name, MAGNITUDES);
    let steps = oracle(element, mode, convention, Float::F32);
    let native = by_rule((element, mode, convention), |bits| bits);
    with_element!(element, ELEMENT => sweep(
        &mut tally,
        F32.name,
        steps,
        |bits| mode.byte(ELEMENT, F32.decode(bits), convention),
        native,
    ));
    tally.finish();
}
