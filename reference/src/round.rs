//! Rounding: what was cut off, and what to do about it.

/// How a value between two codes becomes one of them.
///
/// The names follow `mxcert golden cast --rounding`; sources: OCP MX v1.0 §5.3 (formats leave rounding open, nearest even
/// recommended), PTX ISA `cvt` (`.rn`, `.rz`, `.rp`, `.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To nearest, ties to the code whose lowest bit is 0 (IEEE 754 roundTiesToEven, PTX `.rn`).
    NearestEven,
    /// To nearest, ties away from zero (microxcaling's default, MLIR's `f4E2M1` truncation).
    NearestAway,
    /// To nearest, ties toward zero (`DeepGEMM`, `ModelOpt` FP4 tables).
    NearestTowardZero,
    /// Toward zero (PTX `.rz`).
    TowardZero,
    /// Toward positive infinity (PTX `.rp`): the E8M0 rule of RCEIL.
    Up,
    /// Stochastic with explicit random bits: with `f` in [0, 1) the exact cut-off part in units of the last place, the
    /// magnitude goes up if and only if `f + random / 2^32 >= 1`. Fewer random bits belong in the top bits of the word.
    Stochastic {
        /// The random word.
        random: u32,
    },
}

/// What shifting out the low bits of a significand leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing was cut off: the value is exact.
    Zero,
    /// Less than half a unit in the last place.
    BelowHalf,
    /// Exactly half: a tie.
    Half,
    /// More than half.
    AboveHalf,
}

/// A significand cut at some weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The integer part.
    pub kept: u64,
    /// The part cut off, as far as nearest and directed rounding need to know it.
    pub rest: Rest,
    /// The part cut off in units of 2^-32, rounded down: all that stochastic rounding looks at.
    fraction: u32,
}

impl Cut {
    /// `significand × 2^shift` split into its integer part and the rest.
    ///
    /// A left shift must fit 64 bits; every caller aligns to a format of at most 24 significant bits.
    #[inline]
    pub const fn new(significand: u64, shift: i32) -> Self {
        if shift >= 0 {
            return Self { kept: significand << shift, rest: Rest::Zero, fraction: 0 };
        }
        let drop = shift.unsigned_abs();
        if drop > 64 {
            // All of it lies below half a unit.
            let rest = if significand == 0 { Rest::Zero } else { Rest::BelowHalf };
            let fraction = if drop < 96 { (significand >> (drop - 32)) as u32 } else { 0 };
            return Self { kept: 0, rest, fraction };
        }
        let (kept, low) = if drop == 64 {
            (0, significand)
        } else {
            (significand >> drop, significand & ((1 << drop) - 1))
        };
        let half = 1 << (drop - 1);
        let rest = if low == 0 {
            Rest::Zero
        } else if low < half {
            Rest::BelowHalf
        } else if low == half {
            Rest::Half
        } else {
            Rest::AboveHalf
        };
        let fraction = if drop <= 32 { low << (32 - drop) } else { low >> (drop - 32) } as u32;
        Self { kept, rest, fraction }
    }

    /// Whether the magnitude takes the next code. `odd` is the lowest bit of the code the kept part stands for.
    #[inline]
    pub const fn rounds_up(self, rounding: Rounding, odd: bool, negative: bool) -> bool {
        match rounding {
            Rounding::NearestEven => match self.rest {
                Rest::AboveHalf => true,
                Rest::Half => odd,
                _ => false,
            },
            Rounding::NearestAway => matches!(self.rest, Rest::Half | Rest::AboveHalf),
            Rounding::NearestTowardZero => matches!(self.rest, Rest::AboveHalf),
            Rounding::TowardZero => false,
            Rounding::Up => !negative && !matches!(self.rest, Rest::Zero),
            Rounding::Stochastic { random } => {
                // In units of 2^-32 the sum reaches 2^32 by its integer parts or not at all.
                self.fraction as u64 + random as u64 >= 1 << 32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0b1000, -3, 1, Rest::Zero)]
    #[case(0b1011, -3, 1, Rest::BelowHalf)]
    #[case(0b1100, -3, 1, Rest::Half)]
    #[case(0b1101, -3, 1, Rest::AboveHalf)]
    #[case(1, -64, 0, Rest::BelowHalf)]
    #[case(1 << 63, -64, 0, Rest::Half)]
    #[case(u64::MAX, -65, 0, Rest::BelowHalf)]
    #[case(3, 2, 12, Rest::Zero)]
    fn cuts(#[case] significand: u64, #[case] shift: i32, #[case] kept: u64, #[case] rest: Rest) {
        let cut = Cut::new(significand, shift);
        assert_eq!((cut.kept, cut.rest), (kept, rest));
    }

    #[test]
    fn stochastic_goes_up_for_exactly_the_share_of_words_that_the_fraction_names() {
        // 5/8 cut off: up for the 5/8 of all words from 3/8·2^32 on.
        let cut = Cut::new(0b1101, -3);
        let first = 3 << 29;
        for (random, up) in [(0, false), (first - 1, false), (first, true), (u32::MAX, true)] {
            assert_eq!(cut.rounds_up(Rounding::Stochastic { random }, true, false), up);
        }
        // A fraction below 2^-32 never reaches one.
        let tiny = Cut::new(1, -40);
        assert!(!tiny.rounds_up(Rounding::Stochastic { random: u32::MAX }, false, false));
        // An exact value stays.
        let exact = Cut::new(8, -3);
        assert!(!exact.rounds_up(Rounding::Stochastic { random: u32::MAX }, true, false));
    }
}
