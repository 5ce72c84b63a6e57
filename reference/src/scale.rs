//! Scale modes: from a block's amax to its E8M0 byte.
//!
//! Every rule has the shape `byte = e − p + bump`: e is `floor(log2 amax) + 127`, p is `floor(log2 max)` of the element
//! format, and a mode is a threshold on the amax's fraction above which bump is 1. RCEIL is defined by the f32 product
//! that hardware forms, and meets the same shape with the fraction of max as its threshold.

use crate::convention::{Convention, Edges, InfinityScale, RceilRule};
use crate::element::Element;
use crate::format::{E8M0, F32};
use crate::number::{Magnitude, Number};
use crate::round::Rounding;
use crate::{Overflow, log2};

/// The scale byte that means NaN.
pub const NAN_BYTE: u8 = 0xff;
/// The largest scale, 2^127.
pub const LARGEST_BYTE: u8 = 0xfe;

/// A scale-calculation mode, in torchao's words (`ScaleCalculationMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScaleMode {
    /// `2^(floor(log2 amax) − p)`: OCP MX v1.0 §6.3.
    Floor,
    /// `2^(ceil(log2 amax) − p)`.
    Ceil,
    /// FLOOR of the amax rounded to the element's fraction bits, half up, so that the amax itself does not saturate
    /// through rounding (torchao EVEN, Quark's default).
    Even,
    /// The least power of two not below amax / max (cuBLAS, `TransformerEngine`, torchao's training default).
    Rceil,
}

impl ScaleMode {
    /// Every mode, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Floor, Self::Ceil, Self::Even, Self::Rceil];

    /// The name in ids and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ceil => "ceil",
            Self::Even => "even",
            Self::Rceil => "rceil",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The rule as a formula, for lists.
    pub const fn formula(self) -> &'static str {
        match self {
            Self::Floor => "floor(log2 amax) - p",
            Self::Ceil => "ceil(log2 amax) - p",
            Self::Even => "floor(log2 (amax rounded half up to the element's fraction bits)) - p",
            Self::Rceil => "ceil(log2 (amax x f32(1/max)))",
        }
    }

    /// The choices a convention makes for this mode.
    #[inline]
    pub const fn edges(self, convention: &Convention) -> &Edges {
        match self {
            Self::Rceil => &convention.rceil,
            _ => &convention.exponent_modes,
        }
    }

    /// The scale byte for an amax, which must be a number of f32, bf16 or f16 precision; its sign is not looked at.
    ///
    /// ```
    /// use mx_reference::{Element, ScaleMode, convention::PROPAGATE, format::F32};
    /// // 500 lies between max (448) and the next power of two.
    /// let amax = F32.decode(500f32.to_bits());
    /// let byte = |mode: ScaleMode| mode.byte(Element::E4m3, amax, &PROPAGATE);
    /// assert_eq!(ScaleMode::ALL.map(byte), [0x7f, 0x80, 0x80, 0x80]);
    /// ```
    #[inline(always)]
    pub const fn byte(self, element: Element, amax: Number, convention: &Convention) -> u8 {
        match amax.magnitude {
            Magnitude::Zero => 0,
            Magnitude::Nan => NAN_BYTE,
            Magnitude::Infinite => match self.edges(convention).infinity_scale {
                InfinityScale::Nan => NAN_BYTE,
                InfinityScale::Largest => LARGEST_BYTE,
                InfinityScale::ExponentField => clamp(128 - element.format().max_exponent()),
            },
            Magnitude::Finite { significand, exponent } => match self {
                Self::Rceil => match convention.rceil_rule {
                    RceilRule::Product => {
                        let overflow = match self.edges(convention).infinity_scale {
                            InfinityScale::Nan => Overflow::Propagate,
                            _ => Overflow::Saturate,
                        };
                        // Up to a power of two: PTX `cvt.rp{.satfinite}.ue8m0x2.f32`. Only MXINT8, whose max is below
                        // 2, has finite amaxes above max × 2^127.
                        let q = F32.decode(rceil_quotient(amax, element.reciprocal_of_max()));
                        E8M0.encode(q, Rounding::Up, overflow) as u8
                    }
                    RceilRule::CeilLog2 => log2::rceil_ceil_log2(significand, exponent, element),
                },
                _ => self.by_exponent(significand, exponent, element),
            },
        }
    }

    /// FLOOR, CEIL and EVEN. A subnormal amax counts by its value, like any other.
    #[inline]
    const fn by_exponent(self, significand: u64, exponent: i32, element: Element) -> u8 {
        let width = significand.ilog2();
        let fraction = (significand << (23 - width)) as u32 & 0x7f_ffff;
        let bump = match self {
            Self::Ceil => fraction > 0,
            Self::Even => fraction >= even_threshold(element),
            _ => false,
        };
        clamp(exponent + width as i32 - element.format().max_exponent() + bump as i32)
    }
}

/// The 23-bit fraction from which EVEN's rounding carries into the exponent: half a unit of the element's last place below 2.
#[inline]
pub const fn even_threshold(element: Element) -> u32 {
    (1 << 23) - (1 << (22 - element.format().fraction_bits()))
}

/// An exponent as a scale byte; a finite amax gives neither less than 2^-127 nor NaN.
#[inline]
const fn clamp(exponent: i32) -> u8 {
    let byte = exponent + 127;
    if byte < 0 {
        0
    } else if byte > LARGEST_BYTE as i32 {
        LARGEST_BYTE
    } else {
        byte as u8
    }
}

/// RCEIL's quotient: the f32 product of a finite amax and f32(1/max), as bits (PTX `mul.rn.f32`).
#[inline]
pub const fn rceil_quotient(amax: Number, reciprocal: u32) -> u32 {
    match (amax.magnitude, F32.decode(reciprocal).magnitude) {
        (
            Magnitude::Finite { significand: a, exponent: ae },
            Magnitude::Finite { significand: r, exponent: re },
        ) => {
            let exact = Number::finite(false, a * r, ae + re);
            F32.encode(exact, Rounding::NearestEven, Overflow::Propagate)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convention::{PROPAGATE, TE, TORCHAO_0_18};
    use rstest::rstest;

    fn byte(mode: ScaleMode, element: Element, amax: u32, convention: &Convention) -> u8 {
        mode.byte(element, F32.decode(amax), convention)
    }

    #[rstest]
    #[case(ScaleMode::Floor, 0x43f7_ffff, 0x7f)]
    #[case(ScaleMode::Even, 0x43f7_ffff, 0x7f)]
    #[case(ScaleMode::Even, 0x43f8_0000, 0x80)]
    #[case(ScaleMode::Rceil, 0x43e0_0000, 0x7f)]
    #[case(ScaleMode::Rceil, 0x43e0_0001, 0x80)]
    #[case(ScaleMode::Ceil, 0x4380_0000, 0x7f)]
    #[case(ScaleMode::Ceil, 0x4380_0001, 0x80)]
    fn e4m3_thresholds(#[case] mode: ScaleMode, #[case] amax: u32, #[case] expected: u8) {
        assert_eq!(byte(mode, Element::E4m3, amax, &PROPAGATE), expected);
    }

    #[test]
    fn floor_ceil_and_even_never_give_nan_for_a_finite_amax() {
        for element in Element::ALL {
            for mode in [ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even] {
                for convention in Convention::ALL {
                    assert!(byte(mode, element, 0x7f7f_ffff, convention) <= LARGEST_BYTE);
                }
            }
        }
        // MXINT8 would carry to 0xFF and is clamped.
        assert_eq!(byte(ScaleMode::Ceil, Element::Int8, 0x7f7f_ffff, &PROPAGATE), 0xfe);
        assert_eq!(byte(ScaleMode::Even, Element::Int8, 0x7f7f_ffff, &PROPAGATE), 0xfe);
        // EVEN carries where torchao's main branch loses the block (0x7F780000 and up).
        assert_eq!(byte(ScaleMode::Even, Element::E4m3, 0x7f78_0000, &PROPAGATE), 247);
    }

    #[rstest]
    #[case(Element::E4m3, ScaleMode::Floor, 246)]
    #[case(Element::E4m3, ScaleMode::Rceil, 247)]
    #[case(Element::E5m2, ScaleMode::Even, 0xf0)]
    #[case(Element::E2m1, ScaleMode::Rceil, 0xfd)]
    #[case(Element::Int8, ScaleMode::Floor, 0xfe)]
    fn top_of_range(#[case] element: Element, #[case] mode: ScaleMode, #[case] expected: u8) {
        assert_eq!(byte(mode, element, 0x7f7f_ffff, &PROPAGATE), expected);
    }

    #[rstest]
    #[case(ScaleMode::Floor, 0x0040_0001, 0)]
    #[case(ScaleMode::Ceil, 0x0040_0000, 0)]
    #[case(ScaleMode::Ceil, 0x0040_0001, 1)]
    #[case(ScaleMode::Ceil, 0x0000_0001, 0)]
    #[case(ScaleMode::Even, 0x007e_ffff, 0)]
    #[case(ScaleMode::Even, 0x007f_8000, 1)]
    fn a_subnormal_amax_counts_by_its_value_under_int8(
        #[case] mode: ScaleMode,
        #[case] amax: u32,
        #[case] expected: u8,
    ) {
        assert_eq!(byte(mode, Element::Int8, amax, &PROPAGATE), expected);
    }

    #[test]
    fn rceil_up_to_two_to_the_minus_127_gives_byte_zero() {
        // The one f32 per format where the product rounds down to 2^-127 and the exact quotient does not.
        for (element, amax) in [
            (Element::E4m3, 0x0460_0001),
            (Element::E5m2, 0x07e0_0001),
            (Element::E3m2, 0x0260_0001),
            (Element::E2m3, 0x0170_0001),
            (Element::E2m1, 0x0140_0001),
        ] {
            assert_eq!(byte(ScaleMode::Rceil, element, amax, &PROPAGATE), 0, "{}", element.name());
            assert_eq!(byte(ScaleMode::Rceil, element, amax + 1, &PROPAGATE), 1);
        }
    }

    #[test]
    fn int8_rceil_above_the_largest_scale_follows_the_conversion() {
        // 127/64 × 2^127 is the largest amax that 2^127 can scale.
        let largest = 0x7f7e_0000;
        for (convention, beyond) in [(&PROPAGATE, 0xff), (&TE, 0xfe), (&TORCHAO_0_18, 0xfe)] {
            assert_eq!(byte(ScaleMode::Rceil, Element::Int8, largest, convention), 0xfe);
            assert_eq!(byte(ScaleMode::Rceil, Element::Int8, 0x7f7f_ffff, convention), beyond);
        }
    }

    #[test]
    fn infinity_by_convention() {
        let inf = 0x7f80_0000;
        for (element, byte_0_18) in
            [(Element::E4m3, 247), (Element::E5m2, 240), (Element::E2m3, 253), (Element::E3m2, 251)]
        {
            assert_eq!(byte(ScaleMode::Floor, element, inf, &PROPAGATE), 0xff);
            assert_eq!(byte(ScaleMode::Floor, element, inf, &TE), 0xfe);
            assert_eq!(byte(ScaleMode::Floor, element, inf, &TORCHAO_0_18), byte_0_18);
            assert_eq!(byte(ScaleMode::Rceil, element, inf, &TORCHAO_0_18), 0xfe);
        }
    }
}
