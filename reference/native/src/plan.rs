//! What quantising needs to know before it sees a block.

use mx_reference::block::Multiplier;
use mx_reference::scale::NAN_BYTE;
use mx_reference::{Number, Profile};

use crate::lane::{Lane, to_f32};
use crate::scale::ScaleRule;

/// A profile prepared for one input type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    profile: Profile,
    rule: ScaleRule,
    /// What to add to a byte for `least` of [`crate::lane::encode`], for byte 0 all of it.
    base: i32,
    zero: i32,
}

impl Plan {
    pub(crate) fn new<T: Lane>(profile: Profile) -> Self {
        let least = profile.element.format().min_exponent() + T::BIAS;
        let zero = match profile.multiplier(0) {
            Multiplier::Power(power) => least - power,
            Multiplier::OneOverInfinity | Multiplier::Nan => least,
        };
        let rule = ScaleRule::new(profile.element, profile.mode, profile.convention);
        Self { profile, rule, base: least - 127, zero }
    }

    /// The scale byte for an amax as input bits.
    #[inline(always)]
    pub(crate) fn byte<T: Lane>(&self, amax: u32) -> u8 {
        self.rule.byte(to_f32::<T>(amax))
    }

    /// Where the grid of a scale byte begins.
    #[inline(always)]
    pub(crate) fn least(&self, byte: u8) -> i32 {
        if byte == 0 { self.zero } else { self.base + i32::from(byte) }
    }

    /// Whether a block of this largest magnitude, taken as an integer, and scale byte has to be done by the reference: what
    /// NaN and infinity do, to their own lanes and to others, is for conventions to say.
    #[inline(always)]
    pub(crate) fn is_special<T: Lane>(amax: u32, byte: u8) -> bool {
        amax >= T::INFINITY || byte == NAN_BYTE
    }

    /// Quantises a special block and returns its scale byte.
    #[cold]
    #[inline(never)]
    pub(crate) fn special<'a>(
        &self,
        input: impl Iterator<Item = Number> + Clone,
        codes: impl Iterator<Item = &'a mut u8>,
    ) -> u8 {
        let byte = self.profile.scale(self.profile.amax(input.clone()));
        let multiplier = self.profile.multiplier(byte);
        for (code, x) in codes.zip(input) {
            *code = self.profile.code(x, multiplier);
        }
        byte
    }
}
