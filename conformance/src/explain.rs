//! One block, stage by stage, in text, and one output of a product, term by term.

mod product;

pub use product::explain_output;

use mx_reference::block::{Multiplier, Trace};
use mx_reference::convention::RceilRule;
use mx_reference::scale::rceil_quotient;
use mx_reference::{Magnitude, Number, Overflow, Profile, Rounding, Rule, ScaleMode, format};
use mx_vectors::Float;
use std::fmt::Write;

/// A number as people read it: the nearest f64 in decimal, exact for every input of this project up to 2^53.
pub fn decimal(x: Number) -> String {
    let sign = if x.negative { "-" } else { "" };
    match x.magnitude {
        Magnitude::Zero => format!("{sign}0"),
        Magnitude::Infinite => format!("{sign}inf"),
        Magnitude::Nan => "nan".to_owned(),
        Magnitude::Finite { significand, exponent } => {
            // Two steps keep subnormal results of the power exact.
            let half = exponent / 2;
            let value = significand as f64 * power_of_two(half) * power_of_two(exponent - half);
            if (1e-4..1e6).contains(&value) {
                format!("{sign}{value}")
            } else {
                format!("{sign}{value:e}")
            }
        }
    }
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// The stages of quantising a block: amax, exponent, bump, scale byte, multiplier, and each lane's ratio and code.
pub fn explain(profile: Profile, input: Float, bits: &[u32]) -> String {
    let numbers: Vec<Number> = bits.iter().map(|&b| input.format().decode(b)).collect();
    let trace = profile.trace(&numbers);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = stages(&mut text, profile, &trace)
        .and_then(|()| lanes(&mut text, profile, input, bits, &trace));
    text
}

fn stages(text: &mut String, profile: Profile, trace: &Trace) -> std::fmt::Result {
    let format = profile.element.format();
    let p = format.max_exponent();
    let max = decimal(format.decode(format.max_code()));
    writeln!(
        text,
        "{}/{} under {}: max {max}, p = {p}, {}",
        profile.element.name(),
        profile.mode.name(),
        profile.convention.name,
        profile.mode.formula(),
    )?;
    let lane = trace.amax_lane.map_or_else(|| "no lane".to_owned(), |lane| format!("lane {lane}"));
    let amax = format::F32.encode(trace.amax, Rounding::NearestEven, Overflow::Propagate);
    writeln!(text, "  amax    {} (f32 0x{amax:08x}), {lane}", decimal(trace.amax))?;
    match (trace.amax.exponent(), trace.floor) {
        (Some(exponent), Some(floor)) => {
            let bump = i32::from(trace.scale) - 127 - floor;
            let clamped = if trace.scale == 0 && bump > 0 && floor < -127 {
                " (clamped: no scale is below 2^-127)".to_owned()
            } else {
                format!(", bump {bump}")
            };
            writeln!(text, "  scale   floor(log2 amax) = {exponent}, minus p = {floor}{clamped}")?;
        }
        _ => writeln!(text, "  scale   set by the convention: the amax is not finite, or zero")?,
    }
    if let (ScaleMode::Rceil, RceilRule::Product, Some(_)) =
        (profile.mode, profile.convention.rceil_rule, trace.amax.exponent())
    {
        let reciprocal = profile.element.reciprocal_of_max();
        let bits = rceil_quotient(trace.amax, reciprocal);
        writeln!(
            text,
            "  rceil   q = amax x 0x{reciprocal:08x} = 0x{bits:08x} = {}, up to the next power of two",
            decimal(format::F32.decode(bits)),
        )?;
    }
    let value = match trace.scale {
        0xff => "nan".to_owned(),
        byte => format!("2^{}", i32::from(byte) - 127),
    };
    writeln!(text, "  byte    0x{:02x} = {value}", trace.scale)?;
    match trace.multiplier {
        Multiplier::Power(power) => writeln!(text, "  times   2^{power}"),
        Multiplier::OneOverInfinity => {
            writeln!(text, "  times   1/inf: finite elements become signed zeros")
        }
        Multiplier::Nan => writeln!(text, "  times   nan: the whole block is NaN"),
    }
}

fn lanes(
    text: &mut String,
    profile: Profile,
    input: Float,
    bits: &[u32],
    trace: &Trace,
) -> std::fmt::Result {
    let digits = input.format().bits as usize / 4;
    writeln!(text, "  lane  input                  ratio            code")?;
    let mut repeated = 0;
    for (i, lane) in trace.lanes.iter().enumerate() {
        if i > 0 && bits[i] == bits[i - 1] {
            repeated += 1;
            continue;
        }
        if repeated > 0 {
            writeln!(text, "        ({repeated} more like it)")?;
            repeated = 0;
        }
        let value = decimal(profile.element.format().decode(lane.code.into()));
        let note = match lane.rule {
            Rule::Exact | Rule::AnyZero | Rule::Between { .. } => "",
            Rule::AnyNan => "  any NaN code",
            Rule::Free => "  free: the format has no NaN",
        };
        writeln!(
            text,
            "  {i:>4}  0x{:0digits$x} {:<12}  {:<15}  0x{:02x} = {value}{note}",
            bits[i],
            decimal(lane.input),
            decimal(lane.ratio),
            lane.code,
        )?;
    }
    if repeated > 0 {
        writeln!(text, "        ({repeated} more like it)")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::convention::PROPAGATE;
    use mx_reference::{Element, ScaleMode};

    #[test]
    fn the_stages_of_a_block_just_above_max() {
        let profile =
            Profile { element: Element::E4m3, mode: ScaleMode::Rceil, convention: &PROPAGATE };
        let mut bits = [0; 32];
        bits[0] = 0x40600001;
        let text = explain(profile, Float::F32, &bits);
        for part in [
            "byte    0x79 = 2^-6",
            "q = amax x 0x3b124925 = 0x3c000001",
            "bump 1",
            "0x76 = 224",
            "(30 more like it)",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(Number::finite(true, 3, -1)), "-1.5");
        assert_eq!(decimal(format::F32.decode(1)), "1.401298464324817e-45");
        assert_eq!(decimal(Number::NAN), "nan");
    }
}
