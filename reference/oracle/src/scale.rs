//! From a block's amax to its scale byte, by search among the powers of two.

use std::sync::OnceLock;

use crate::log2::log2_rounds_to_floor;
use crate::{Exact, Float, Format, Value};

/// How a scale is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The largest power of two not above amax, over that of max (OCP MX v1.0 §6.3).
    Floor,
    /// The least power of two not below amax, over the largest not above max.
    Ceil,
    /// As FLOOR, after amax was rounded half up to as many fraction bits as elements have.
    Even,
    /// The least power of two not below amax / max.
    Rceil,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Floor, Self::Ceil, Self::Even, Self::Rceil];
}

/// Whose answers are given where OCP MX leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Convention {
    /// torchao after PR 4725; E8M0 conversion without saturation.
    Propagate,
    /// `TransformerEngine`: amax passes over NaN, E8M0 conversion saturates.
    Te,
    /// torchao up to 0.18, CPU eager.
    Torchao018,
}

impl Convention {
    /// Every convention.
    pub const ALL: [Self; 3] = [Self::Propagate, Self::Te, Self::Torchao018];
}

const LEAST: i32 = -149;
const GREATEST: i32 = 128;

/// The largest k with `2^k <= x`, for x from the least f32 up.
fn power_not_above(x: Exact) -> i32 {
    let found = (LEAST..=GREATEST).rev().find(|&k| Exact::power_of_two(k) <= x);
    found.expect("no power of two is that small")
}

/// The least k with `2^k >= x`, for x up to 2^128.
fn power_not_below(x: Exact) -> i32 {
    let found = (LEAST..=GREATEST).find(|&k| Exact::power_of_two(k) >= x);
    found.expect("no power of two is that large")
}

/// `x` rounded half up to `bits` fraction bits of its normalised form.
fn rounded_half_up(x: Exact, bits: i32) -> Exact {
    let unit = Exact::power_of_two(power_not_above(x) - bits);
    let reach = x + unit.scaled(-1);
    let mut multiples = (0..=2u128 << bits).rev().map(|t| Exact::new(t, 0) * unit);
    multiples.find(|&multiple| multiple <= reach).unwrap_or(Exact::ZERO)
}

/// The f32 nearest to 1/max of an element format, which RCEIL multiplies by; as bits.
pub fn reciprocal_of_max(element: Format) -> u32 {
    static FOUND: [OnceLock<u32>; Format::ALL.len()] =
        [const { OnceLock::new() }; Format::ALL.len()];
    *FOUND[element as usize].get_or_init(|| {
        let max = element.max();
        Float::F32.nearest(|v| (v * max).cmp(&Exact::ONE))
    })
}

/// The f32 product of amax and f32(1/max), as the E8M0 conversion of PTX (`cvt.rp.ue8m0x2.f32`) rounds it up.
fn rceil_by_product(element: Format, amax: Exact, beyond: u8) -> u8 {
    let product = amax * Float::F32.magnitude(reciprocal_of_max(element));
    let q = Float::F32.magnitude(Float::F32.nearest(|v| v.cmp(&product)));
    let candidates = (-127..=127).find(|&k| Exact::power_of_two(k) >= q);
    candidates.map_or(beyond, |k| (k + 127) as u8)
}

/// `clamp(ceil(log2(amax / max)), -127, 127) + 127`, quotient and logarithm each rounded to f32.
fn rceil_by_log2(element: Format, amax: Exact) -> u8 {
    let max = element.max();
    let q = Float::F32.magnitude(Float::F32.nearest(|v| (v * max).cmp(&amax)));
    if q.is_zero() {
        return 0;
    }
    let k = power_not_above(q);
    let fraction = q - Exact::power_of_two(k);
    let above = fraction_units(fraction.scaled(23 - k));
    let ceiling = if log2_rounds_to_floor(k, above) { k } else { k + 1 };
    (ceiling.clamp(-127, 127) + 127) as u8
}

/// A whole number below 2^23.
fn fraction_units(x: Exact) -> u32 {
    let mut units = 0;
    for bit in (0..23).rev() {
        if Exact::new(u128::from(units + (1u32 << bit)), 0) <= x {
            units += 1 << bit;
        }
    }
    assert_eq!(Exact::new(units.into(), 0), x, "f32 has 23 fraction bits");
    units
}

/// The scale byte for an amax, whose sign is not looked at.
///
/// # Panics
/// If `amax` is finite and not among the values of f32.
pub fn scale_byte(element: Format, mode: Mode, convention: Convention, amax: Value) -> u8 {
    let p = power_not_above(element.max());
    let amax = match amax {
        Value::Nan => return 0xff,
        Value::Infinite { .. } => {
            return match (convention, mode) {
                (Convention::Propagate, _) => 0xff,
                (Convention::Te, _) | (Convention::Torchao018, Mode::Rceil) => 0xfe,
                (Convention::Torchao018, _) => (255 - p).min(0xfe) as u8,
            };
        }
        Value::Finite { magnitude, .. } => magnitude,
    };
    if amax.is_zero() {
        return 0;
    }
    let clamped = |k: i32| (k - p + 127).clamp(0, 0xfe) as u8;
    match (mode, convention) {
        (Mode::Floor, _) => clamped(power_not_above(amax)),
        (Mode::Ceil, _) => clamped(power_not_below(amax)),
        (Mode::Even, _) => clamped(power_not_above(rounded_half_up(amax, element.fraction_bits()))),
        (Mode::Rceil, Convention::Propagate) => rceil_by_product(element, amax, 0xff),
        (Mode::Rceil, Convention::Te) => rceil_by_product(element, amax, 0xfe),
        (Mode::Rceil, Convention::Torchao018) => rceil_by_log2(element, amax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Steps;
    use Convention::{Propagate, Te, Torchao018};
    use Format::{E2m1, E2m3, E3m2, E4m3, E5m2, Int8};
    use Mode::{Ceil, Even, Floor, Rceil};

    fn byte(element: Format, mode: Mode, convention: Convention, bits: u32) -> u8 {
        scale_byte(element, mode, convention, Float::F32.value(bits))
    }

    #[test]
    fn reciprocals() {
        let found = Format::ELEMENTS.map(reciprocal_of_max);
        assert_eq!(found, [0x3b124925, 0x37924925, 0x3d124925, 0x3e088889, 0x3e2aaaab, 0x3f010204]);
    }

    #[test]
    fn special_amax() {
        for mode in Mode::ALL {
            for convention in Convention::ALL {
                assert_eq!(byte(E4m3, mode, convention, 0), 0);
                assert_eq!(byte(E4m3, mode, convention, 1), 0);
                assert_eq!(byte(E4m3, mode, convention, 0x7fc00000), 0xff);
            }
            assert_eq!(byte(E4m3, mode, Propagate, 0x7f800000), 0xff);
            assert_eq!(byte(E4m3, mode, Te, 0x7f800000), 0xfe);
        }
        let infinite =
            |mode| Format::ELEMENTS.map(|element| byte(element, mode, Torchao018, 0x7f800000));
        assert_eq!(infinite(Even), [247, 240, 251, 253, 253, 254]);
        assert_eq!(infinite(Rceil), [254; 6]);
    }

    /// E4M3 at 300, 448, 480, 500 and the largest f32, in the order of `Mode::ALL`.
    #[test]
    fn modes() {
        let rows = [
            (300f32.to_bits(), [127, 128, 127, 127]),
            (448f32.to_bits(), [127, 128, 127, 127]),
            (480f32.to_bits(), [127, 128, 127, 128]),
            (500f32.to_bits(), [127, 128, 128, 128]),
            (0x7f7fffff, [246, 247, 247, 247]),
            (0x43ffffff, [127, 128, 128, 128]),
            (0x00800000, [0, 0, 0, 0]),
            (0x047fffff, [0, 1, 1, 1]),
        ];
        for (bits, bytes) in rows {
            assert_eq!(Mode::ALL.map(|mode| byte(E4m3, mode, Propagate, bits)), bytes, "{bits:#x}");
        }
    }

    /// The fraction from which EVEN carries: 1.9375, 1.875, 1.875, 1.9375, 1.75 and 127.5/64.
    #[test]
    fn even_thresholds() {
        let thresholds = [0x780000, 0x700000, 0x700000, 0x780000, 0x600000, 0x7f0000];
        for (element, threshold) in Format::ELEMENTS.into_iter().zip(thresholds) {
            for exponent in [100, 127, 200] {
                let at = (exponent << 23) + threshold;
                assert_eq!(
                    byte(element, Even, Propagate, at),
                    byte(element, Even, Propagate, at - 1) + 1
                );
                assert_eq!(
                    byte(element, Even, Propagate, at - 1),
                    byte(element, Floor, Propagate, at)
                );
            }
        }
        assert_eq!(byte(E2m1, Even, Propagate, 7f32.to_bits()), 0x80);
        assert_eq!(byte(E2m3, Even, Propagate, 7f32.to_bits()), 0x7f);
    }

    /// One pattern per format whose f32 product rounds down to 2^-127, where the exact quotient gives byte 1.
    #[test]
    fn rceil_product_rounds_once() {
        let rows = [
            (E4m3, 0x04600001),
            (E5m2, 0x07e00001),
            (E3m2, 0x02600001),
            (E2m3, 0x01700001),
            (E2m1, 0x01400001),
        ];
        for (element, bits) in rows {
            for convention in [Propagate, Te] {
                assert_eq!(byte(element, Rceil, convention, bits), 0);
                assert_eq!(byte(element, Rceil, convention, bits + 1), 1);
            }
        }
    }

    #[test]
    fn rceil_by_log2_is_one_low_just_above_a_power() {
        assert_eq!(byte(E4m3, Rceil, Propagate, 0x40600001), 121);
        assert_eq!(byte(E4m3, Rceil, Torchao018, 0x40600001), 120);
        assert_eq!(byte(E4m3, Rceil, Propagate, 0x7f600027), 247);
        assert_eq!(byte(E4m3, Rceil, Torchao018, 0x7f600027), 246);
        assert_eq!(byte(E4m3, Rceil, Torchao018, 0x7f600028), 247);
        for element in [E5m2, E3m2] {
            for bits in [0x43e00001, 0x71e00001] {
                let exact = byte(element, Rceil, Propagate, bits);
                assert_eq!(byte(element, Rceil, Torchao018, bits), exact - 1);
            }
        }
    }

    #[test]
    fn bf16_amax_never_shows_the_logarithm() {
        for element in [E4m3, E5m2, E3m2, E2m3, E2m1] {
            let [by_product, by_log2] = [Propagate, Torchao018].map(|convention| {
                Steps::tabulate(&[(0, 0x7f7f)], |bits| {
                    scale_byte(element, Rceil, convention, Float::Bf16.value(bits))
                })
            });
            assert_eq!(by_product, by_log2, "{element:?}");
        }
    }

    /// INT8 has p = 0: a subnormal amax counts by its value, and the top end reaches beyond E8M0.
    #[test]
    fn int8_ends() {
        let f32_max = 0x7f7fffff;
        assert_eq!(
            Mode::ALL.map(|mode| byte(Int8, mode, Propagate, f32_max)),
            [254, 254, 254, 255]
        );
        assert_eq!(byte(Int8, Rceil, Te, f32_max), 254);
        assert_eq!(byte(Int8, Rceil, Torchao018, f32_max), 254);
        assert_eq!(byte(Int8, Floor, Propagate, 0x007fffff), 0);
        assert_eq!(byte(Int8, Ceil, Propagate, 0x00400000), 0);
        assert_eq!(byte(Int8, Ceil, Propagate, 0x00400001), 1);
        assert_eq!(byte(Int8, Even, Propagate, 0x007f7fff), 0);
        assert_eq!(byte(Int8, Even, Propagate, 0x007f8000), 1);
    }
}
