//! The six element formats of MX, by name.

use crate::format::{E2M1, E2M3, E3M2, E4M3, E5M2, Format, INT8};

/// An MX element format (OCP MX v1.0 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// MXFP8 E4M3.
    E4m3,
    /// MXFP8 E5M2.
    E5m2,
    /// MXFP6 E3M2.
    E3m2,
    /// MXFP6 E2M3.
    E2m3,
    /// MXFP4 E2M1.
    E2m1,
    /// MXINT8.
    Int8,
}

impl Element {
    /// Every element format, in the order of reports.
    pub const ALL: [Self; 6] =
        [Self::E4m3, Self::E5m2, Self::E3m2, Self::E2m3, Self::E2m1, Self::Int8];

    /// The descriptor.
    #[inline]
    pub const fn format(self) -> &'static Format {
        match self {
            Self::E4m3 => &E4M3,
            Self::E5m2 => &E5M2,
            Self::E3m2 => &E3M2,
            Self::E2m3 => &E2M3,
            Self::E2m1 => &E2M1,
            Self::Int8 => &INT8,
        }
    }

    /// The short name: `e4m3`, `int8`.
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// The element format of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// The f32 nearest to 1/max, as bits: what implementations of RCEIL multiply an amax by
    /// (torchao PR 4725, TransformerEngine, cuBLAS; max is 448, 57344, 28, 7.5, 6 and 127/64).
    pub const fn reciprocal_of_max(self) -> u32 {
        match self {
            Self::E4m3 => 0x3b12_4925,
            Self::E5m2 => 0x3792_4925,
            Self::E3m2 => 0x3d12_4925,
            Self::E2m3 => 0x3e08_8889,
            Self::E2m1 => 0x3e2a_aaab,
            Self::Int8 => 0x3f01_0204,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::F32;
    use crate::{Magnitude, Number, Overflow, Rounding};
    use rstest::rstest;

    #[rstest]
    #[case(Element::E4m3, 8)]
    #[case(Element::E5m2, 15)]
    #[case(Element::E3m2, 4)]
    #[case(Element::E2m3, 2)]
    #[case(Element::E2m1, 2)]
    #[case(Element::Int8, 0)]
    fn exponents_of_the_largest_values(#[case] element: Element, #[case] p: i32) {
        assert_eq!(element.format().max_exponent(), p);
    }

    #[test]
    fn reciprocals_are_the_nearest_f32() {
        for element in Element::ALL {
            let format = element.format();
            let Magnitude::Finite { significand, exponent } =
                format.decode(format.max_code()).magnitude
            else {
                panic!("the largest code is a number")
            };
            // 2^60/significand rounded down, with a sticky bit, is enough for a correct 24-bit rounding.
            let quotient = (1u64 << 60) / significand;
            let sticky = u64::from(!(1u64 << 60).is_multiple_of(significand));
            let x = Number::finite(false, quotient << 1 | sticky, -61 - exponent);
            let bits = F32.encode(x, Rounding::NearestEven, Overflow::Propagate);
            assert_eq!(bits, element.reciprocal_of_max(), "{}", element.name());
        }
    }
}
