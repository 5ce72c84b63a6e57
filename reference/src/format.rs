//! Formats as data: one descriptor struct, and every format of the field as a constant of it.

/// Where the sign of a code is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The top bit.
    Magnitude,
    /// Two's complement over the whole code (MXINT8, OCP MX v1.0 §5.3.4).
    TwosComplement,
    /// No sign: encoding drops the sign of its input, as the CUDA headers' E8M0 conversion does.
    None,
}

/// Which codes are not numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// Every code is a number.
    None,
    /// The magnitude of all ones is NaN; there is no infinity (E4M3, E8M0, UE4M3).
    NanOnly,
    /// The top exponent holds infinity and NaNs (E5M2 and the IEEE formats).
    Ieee,
}

/// A number format: every fact the generic codec needs, and nothing derived.
///
/// A code is `sign | exponent field | mantissa field`, most significant first. With an exponent field E and a mantissa
/// field M of m bits a code means `(2^m + M) × 2^(E - bias - m)`, and `M × 2^(1 - bias - m)` where E is 0 and the format
/// has subnormals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The field's short name, as in case ids.
    pub name: &'static str,
    /// Width of a code in bits.
    pub bits: u32,
    /// Width of the exponent field.
    pub exponent_bits: u32,
    /// Width of the mantissa field.
    pub mantissa_bits: u32,
    /// The exponent bias.
    pub bias: i32,
    /// Where the sign is.
    pub sign: Sign,
    /// Which codes are not numbers.
    pub specials: Specials,
    /// Whether exponent field 0 means subnormals (and zero). E8M0 has neither: its code 0 is 2^-127.
    pub subnormals: bool,
    /// The code that encoding gives for NaN, which has no sign. Formats without NaN give the largest magnitude, as
    /// NVIDIA's `cvt` does; conventions call those codes free.
    pub nan_code: u32,
}

/// FP8 E4M3 (OCP OFP8; no infinity).
pub const E4M3: Format = Format {
    name: "e4m3",
    bits: 8,
    exponent_bits: 4,
    mantissa_bits: 3,
    bias: 7,
    sign: Sign::Magnitude,
    specials: Specials::NanOnly,
    subnormals: true,
    nan_code: 0x7f,
};
/// FP8 E5M2 (OCP OFP8; IEEE-like specials).
pub const E5M2: Format = Format {
    name: "e5m2",
    exponent_bits: 5,
    mantissa_bits: 2,
    bias: 15,
    specials: Specials::Ieee,
    ..E4M3
};
/// FP6 E3M2 (OCP MX v1.0 §5.3.2; every code is a number).
pub const E3M2: Format = Format {
    name: "e3m2",
    bits: 6,
    exponent_bits: 3,
    mantissa_bits: 2,
    bias: 3,
    specials: Specials::None,
    nan_code: 0x1f,
    ..E4M3
};
/// FP6 E2M3 (OCP MX v1.0 §5.3.2).
pub const E2M3: Format =
    Format { name: "e2m3", exponent_bits: 2, mantissa_bits: 3, bias: 1, ..E3M2 };
/// FP4 E2M1 (OCP MX v1.0 §5.3.3).
pub const E2M1: Format = Format { name: "e2m1", bits: 4, mantissa_bits: 1, nan_code: 0x7, ..E2M3 };
/// MXINT8 (OCP MX v1.0 §5.3.4): two's complement with six fraction bits. As a descriptor it is a format whose codes are
/// all subnormal: `M × 2^-6`.
pub const INT8: Format = Format {
    name: "int8",
    bits: 8,
    exponent_bits: 0,
    mantissa_bits: 7,
    bias: 0,
    sign: Sign::TwosComplement,
    nan_code: 0x7f,
    ..E2M1
};
/// E8M0, the scale of every MX format (OCP MX v1.0 §5.4.1): a power of two, no sign, no zero, 0xFF is NaN.
pub const E8M0: Format = Format {
    name: "e8m0",
    bits: 8,
    exponent_bits: 8,
    mantissa_bits: 0,
    bias: 127,
    sign: Sign::None,
    specials: Specials::NanOnly,
    subnormals: false,
    nan_code: 0xff,
};
/// UE4M3, the block scale of NVFP4: E4M3 without its sign, so bit 7 of a byte is not looked at.
pub const UE4M3: Format = Format { name: "ue4m3", bits: 7, sign: Sign::None, ..E4M3 };
/// IEEE binary32.
pub const F32: Format = Format {
    name: "f32",
    bits: 32,
    exponent_bits: 8,
    mantissa_bits: 23,
    bias: 127,
    sign: Sign::Magnitude,
    specials: Specials::Ieee,
    subnormals: true,
    nan_code: 0x7fc0_0000,
};
/// bfloat16: the upper half of binary32.
pub const BF16: Format =
    Format { name: "bf16", bits: 16, mantissa_bits: 7, nan_code: 0x7fc0, ..F32 };
/// IEEE binary16.
pub const F16: Format =
    Format { name: "f16", exponent_bits: 5, mantissa_bits: 10, bias: 15, nan_code: 0x7e00, ..BF16 };

impl Format {
    /// The exponent of the smallest normal number, and of every subnormal's grid.
    #[inline]
    pub const fn min_exponent(&self) -> i32 {
        if self.subnormals { 1 - self.bias } else { -self.bias }
    }

    /// The code of the largest finite magnitude, without sign.
    #[inline]
    pub const fn max_code(&self) -> u32 {
        let all = ((1u64 << (self.exponent_bits + self.mantissa_bits)) - 1) as u32;
        match self.specials {
            Specials::None => all,
            Specials::NanOnly => all - 1,
            Specials::Ieee => self.infinity_code() - 1,
        }
    }

    /// The code of infinity for IEEE-like formats: the top exponent field with an empty mantissa.
    #[inline]
    pub(crate) const fn infinity_code(&self) -> u32 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// The bit that holds the sign, 0 where there is none to set.
    #[inline]
    pub const fn sign_bit(&self) -> u32 {
        match self.sign {
            Sign::Magnitude => 1 << (self.bits - 1),
            Sign::TwosComplement | Sign::None => 0,
        }
    }

    /// Number of codes.
    #[inline]
    pub const fn codes(&self) -> u64 {
        1 << self.bits
    }

    /// True where a code of this format can say NaN.
    #[inline]
    pub const fn has_nan(&self) -> bool {
        !matches!(self.specials, Specials::None)
    }

    /// True if `code` is a NaN of this format, with any sign and payload.
    ///
    /// ```
    /// use mx_reference::format::{E2M1, E4M3, E5M2};
    /// assert!(E4M3.is_nan(0x7f) && E4M3.is_nan(0xff) && !E4M3.is_nan(0x7e));
    /// assert!(E5M2.is_nan(0x7d) && E5M2.is_nan(0xfe) && !E5M2.is_nan(0x7c));
    /// assert!((0..16).all(|code| !E2M1.is_nan(code)));
    /// ```
    #[inline]
    pub const fn is_nan(&self, code: u32) -> bool {
        self.decode(code).is_nan()
    }

    /// `floor(log2 max)`: the p of every scale rule.
    #[inline]
    pub const fn max_exponent(&self) -> i32 {
        match self.decode(self.max_code()).exponent() {
            Some(exponent) => exponent,
            None => 0,
        }
    }

    /// The mantissa bits that EVEN rounds an amax to: the mantissa field, or for fixed point the fraction of a value in [1, 2).
    #[inline]
    pub const fn fraction_bits(&self) -> u32 {
        if self.exponent_bits == 0 { self.mantissa_bits - 1 } else { self.mantissa_bits }
    }
}
