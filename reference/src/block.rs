//! One block: the shared scale and the element codes, with every stage on record if asked for.

use crate::convention::{AmaxNan, ByteZero, Convention, NanScale};
use crate::element::Element;
use crate::number::{Magnitude, Number};
use crate::scale::{NAN_BYTE, ScaleMode};
use crate::{Overflow, Rounding};

/// Element format × scale mode under a convention: all that quantising a block depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The element format.
    pub element: Element,
    /// The scale mode.
    pub mode: ScaleMode,
    /// The convention.
    pub convention: &'static Convention,
}

/// What a block's elements are multiplied by before they are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplier {
    /// `2^power`, exactly.
    Power(i32),
    /// The reciprocal of an infinite divisor: finite elements become signed zeros, NaN and infinity NaN.
    OneOverInfinity,
    /// NaN: every element becomes NaN.
    Nan,
}

/// How an output byte is compared with the expected one. NaN is never a wildcard: what may vary is named here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Equal bits.
    Exact,
    /// Any NaN code of the format: sign and payload are free.
    AnyNan,
    /// Don't care: the convention leaves the code open.
    Free,
    /// A zero of either sign.
    AnyZero,
    /// Any number from `low` to `high`, both included, as bits of the output's format: the interval that a derived bound allows.
    /// Zeros count by value.
    Between {
        /// The least.
        low: u32,
        /// The greatest.
        high: u32,
    },
}

impl Profile {
    /// The largest magnitude of the inputs, NaN as the convention has it; zero for an empty block.
    #[inline]
    pub fn amax(self, input: impl IntoIterator<Item = Number>) -> Number {
        let mut amax = Number::ZERO;
        for x in input {
            if x.is_nan() {
                if self.convention.amax_nan == AmaxNan::Propagate {
                    return Number::NAN;
                }
            } else if exceeds(x, amax) {
                amax = x.abs();
            }
        }
        amax
    }

    /// The scale byte for an amax.
    #[inline]
    pub const fn scale(self, amax: Number) -> u8 {
        self.mode.byte(self.element, amax, self.convention)
    }

    /// What elements under this scale byte are multiplied by.
    #[inline]
    pub const fn multiplier(self, scale: u8) -> Multiplier {
        let edges = self.mode.edges(self.convention);
        match scale {
            0 => Multiplier::Power(match edges.byte_zero {
                ByteZero::Exact => 127,
                ByteZero::SmallestNormal => 126,
                ByteZero::One => 0,
            }),
            NAN_BYTE => match edges.nan_scale {
                NanScale::AllNan => Multiplier::Nan,
                NanScale::DivideByInfinity => Multiplier::OneOverInfinity,
            },
            byte => Multiplier::Power(127 - byte as i32),
        }
    }

    /// The code of one element: multiplied, rounded once to nearest even, saturated.
    #[inline]
    pub const fn code(self, x: Number, multiplier: Multiplier) -> u8 {
        let ratio = multiplier.apply(x);
        self.element.format().encode(ratio, Rounding::NearestEven, Overflow::Saturate) as u8
    }

    /// How the code of an element is compared, given the block's scale byte, the expected code and whether the input
    /// element was NaN.
    ///
    /// Formats without NaN cannot say what the block says, so their codes are free under scale 0xFF, and where a
    /// convention keeps a NaN element in a finite block.
    #[inline]
    pub const fn rule(self, scale: u8, code: u8, input_is_nan: bool) -> Rule {
        let format = self.element.format();
        if format.has_nan() {
            if format.is_nan(code as u32) { Rule::AnyNan } else { Rule::Exact }
        } else if scale == NAN_BYTE || input_is_nan {
            Rule::Free
        } else {
            Rule::Exact
        }
    }

    /// Quantises one block: writes a code per input element and returns the scale byte.
    ///
    /// # Panics
    /// If `codes` is shorter than `input`.
    ///
    /// ```
    /// use mx_reference::{Element, Profile, ScaleMode, convention::PROPAGATE, format::F32};
    /// let profile = Profile { element: Element::E2m1, mode: ScaleMode::Even, convention: &PROPAGATE };
    /// let input = [7.0f32, -1.0, 0.25].map(|x| F32.decode(x.to_bits()));
    /// let mut codes = [0; 3];
    /// assert_eq!(profile.quantize_block(&input, &mut codes), 0x80); // 7 rounds to 8
    /// assert_eq!(codes, [0x6, 0x9, 0x0]); // 3.5 -> 4, -0.5, 0.125 -> 0
    /// ```
    #[inline]
    pub fn quantize_block(self, input: &[Number], codes: &mut [u8]) -> u8 {
        let scale = self.scale(self.amax(input.iter().copied()));
        let multiplier = self.multiplier(scale);
        let codes = &mut codes[..input.len()];
        for (code, &x) in codes.iter_mut().zip(input) {
            *code = self.code(x, multiplier);
        }
        scale
    }

    /// Quantises one block and keeps every stage, for explanations.
    pub fn trace(self, input: &[Number]) -> Trace {
        let amax = self.amax(input.iter().copied());
        let scale = self.scale(amax);
        let multiplier = self.multiplier(scale);
        let lanes = input
            .iter()
            .map(|&x| {
                let code = self.code(x, multiplier);
                let rule = self.rule(scale, code, x.is_nan());
                Lane { input: x, ratio: multiplier.apply(x), code, rule }
            })
            .collect();
        let amax_lane = input.iter().position(|x| {
            if amax.is_nan() { x.is_nan() } else { x.abs().magnitude == amax.magnitude }
        });
        let floor = amax.exponent().map(|e| e - self.element.format().max_exponent());
        Trace { amax, amax_lane, floor, scale, multiplier, lanes }
    }
}

impl Multiplier {
    /// The element times the multiplier.
    #[inline]
    pub const fn apply(self, x: Number) -> Number {
        match self {
            Self::Power(power) => x.scaled(power),
            Self::Nan => Number::NAN,
            Self::OneOverInfinity => match x.magnitude {
                Magnitude::Nan | Magnitude::Infinite => Number::NAN,
                _ => Number { magnitude: Magnitude::Zero, ..x },
            },
        }
    }
}

/// The stages of one quantised block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The largest magnitude.
    pub amax: Number,
    /// The first lane that holds it; `None` for an empty block, or one of NaNs that were all passed over.
    pub amax_lane: Option<usize>,
    /// The exponent that FLOOR would give, `floor(log2 amax) − p`, before clamping; `None` unless the amax is finite and
    /// not zero. The mode's bump is the difference to `scale - 127`.
    pub floor: Option<i32>,
    /// The scale byte.
    pub scale: u8,
    /// What elements were multiplied by.
    pub multiplier: Multiplier,
    /// One entry per input element.
    pub lanes: Vec<Lane>,
}

/// One element on its way through a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The input.
    pub input: Number,
    /// The input times the multiplier, exactly.
    pub ratio: Number,
    /// The code.
    pub code: u8,
    /// How the code is compared.
    pub rule: Rule,
}

/// Whether |x| > |amax|, for numbers that are not NaN.
#[inline]
fn exceeds(x: Number, amax: Number) -> bool {
    match (x.magnitude, amax.magnitude) {
        (Magnitude::Zero, _) | (_, Magnitude::Infinite) => false,
        (_, Magnitude::Zero) | (Magnitude::Infinite, _) => true,
        (
            Magnitude::Finite { significand: a, exponent: ae },
            Magnitude::Finite { significand: b, exponent: be },
        ) => {
            // Left-aligned significands compare like fractions once the top bits weigh the same.
            let top =
                |significand: u64, exponent: i32| exponent - significand.leading_zeros() as i32;
            let key = |s: u64, e: i32| (top(s, e), s << s.leading_zeros());
            key(a, ae) > key(b, be)
        }
        _ => false,
    }
}
