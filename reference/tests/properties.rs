//! Properties that need no oracle: error bounds, symmetry, idempotence.

use approx::assert_abs_diff_eq;
use mx_reference::convention::PROPAGATE;
use mx_reference::format::{E8M0, F32};
use mx_reference::{
    Blocking, Element, Magnitude, MatrixView, Number, Profile, ScaleMode, dequantize_code, quantize,
};
use proptest::prelude::*;

/// A finite number as f64, which holds every product of a code and a scale exactly.
fn value(x: Number) -> f64 {
    let sign = if x.negative { -1.0 } else { 1.0 };
    match x.magnitude {
        Magnitude::Finite { significand, exponent } => {
            let power = |e: i32| f64::from_bits(((e + 1023) as u64) << 52);
            sign * significand as f64 * power(exponent / 2) * power(exponent - exponent / 2)
        }
        _ => sign * 0.0,
    }
}

fn elements() -> impl Strategy<Value = Element> {
    prop::sample::select(Element::ALL.to_vec())
}

fn modes() -> impl Strategy<Value = ScaleMode> {
    prop::sample::select(ScaleMode::ALL.to_vec())
}

/// Finite f32 whose exponents lie within some binades of one another.
fn blocks() -> impl Strategy<Value = Vec<f32>> {
    let lane = (any::<bool>(), 0u32..1 << 23, 0u32..12);
    (20u32..230, prop::collection::vec(lane, 32)).prop_map(|(base, lanes)| {
        let bits = |(negative, mantissa, up): (bool, u32, u32)| {
            u32::from(negative) << 31 | (base + up) << 23 | mantissa
        };
        lanes.into_iter().map(|lane| f32::from_bits(bits(lane))).collect()
    })
}

proptest! {
    /// Rounding to nearest is off by at most half a step: with m mantissa bits and e the exponent of the ratio x / scale,
    /// but at least the format's least, half a step is `2^(e - m - 1)` (Higham, Accuracy and Stability, 2nd ed., theorem 2.2,
    /// with the absolute form below the least normal). Values beyond max saturate and are left out.
    #[test]
    fn the_error_of_a_code_is_at_most_half_a_step(
        element in elements(), mode in modes(), x in blocks(),
    ) {
        let profile = Profile { element, mode, convention: &PROPAGATE };
        let q = quantize(MatrixView::contiguous(&x, 1, 32)?, profile, Blocking::MX_ROW)?;
        let format = element.format();
        let scale = value(E8M0.decode(q.scales[0].into()));
        let max = value(format.decode(format.max_code())) * scale;
        for (&x, &code) in x.iter().zip(&q.elements) {
            let exact = f64::from(x);
            let got = value(dequantize_code(format, code, &E8M0, q.scales[0]));
            if exact.abs() > max {
                prop_assert_eq!(got.abs().to_bits(), max.to_bits());
                continue;
            }
            let ratio = F32.decode(x.to_bits()).scaled(127 - i32::from(q.scales[0]));
            let least = format.min_exponent();
            let exponent = ratio.exponent().unwrap_or(least).max(least);
            let half = exponent - format.mantissa_bits as i32 - 1;
            let bound = value(Number::finite(false, 1, half)) * scale;
            assert_abs_diff_eq!(exact, got, epsilon = bound);
        }
    }

    #[test]
    fn quantising_a_dequantised_block_changes_nothing_under_floor(
        element in elements(), x in blocks(),
    ) {
        let profile = Profile { element, mode: ScaleMode::Floor, convention: &PROPAGATE };
        let once = quantize(MatrixView::contiguous(&x, 1, 32)?, profile, Blocking::MX_ROW)?;
        let back: Vec<f32> = once
            .elements
            .iter()
            .map(|&code| value(dequantize_code(element.format(), code, &E8M0, once.scales[0])) as f32)
            .collect();
        let twice = quantize(MatrixView::contiguous(&back, 1, 32)?, profile, Blocking::MX_ROW)?;
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn sign_flips_flip_signs_and_nothing_else(element in elements(), mode in modes(), x in blocks()) {
        let profile = Profile { element, mode, convention: &PROPAGATE };
        let negated: Vec<f32> = x.iter().map(|x| -x).collect();
        let a = quantize(MatrixView::contiguous(&x, 1, 32)?, profile, Blocking::MX_ROW)?;
        let b = quantize(MatrixView::contiguous(&negated, 1, 32)?, profile, Blocking::MX_ROW)?;
        prop_assert_eq!(&a.scales, &b.scales);
        for (&a, &b) in a.elements.iter().zip(&b.elements) {
            let flipped = match element {
                Element::Int8 => a.wrapping_neg(),
                _ => a ^ element.format().sign_bit() as u8,
            };
            prop_assert_eq!(flipped, b);
        }
    }
}
