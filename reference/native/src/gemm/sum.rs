//! What block sums are added up in: the narrowest integer that holds them all.

use mx_reference::{ExactSum, Number};

/// An exact sum of `block × 2^(unit + shift)` over blocks, where the unit is that of the output.
pub(super) trait Sum: Copy {
    /// Nothing added yet.
    const ZERO: Self;

    /// Adds a block's sum. What an integer's intermediate results lose at its top, later ones bring back: only the whole
    /// sum has to fit.
    fn add(&mut self, block: i64, shift: u32, unit: i32);

    /// The sum as a number that rounds to any format of up to 61 bits as the sum itself does.
    fn number(self, unit: i32) -> Number;

    /// The sum itself.
    fn exact(self, unit: i32) -> ExactSum;
}

impl Sum for i64 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn add(&mut self, block: i64, shift: u32, _: i32) {
        *self = self.wrapping_add(block.wrapping_shl(shift));
    }

    #[inline(always)]
    fn number(self, unit: i32) -> Number {
        Number::finite(self < 0, self.unsigned_abs(), unit)
    }

    fn exact(self, unit: i32) -> ExactSum {
        i128::from(self).exact(unit)
    }
}

impl Sum for i128 {
    const ZERO: Self = 0;

    #[inline(always)]
    fn add(&mut self, block: i64, shift: u32, _: i32) {
        *self = self.wrapping_add(Self::from(block).wrapping_shl(shift));
    }

    #[inline(always)]
    fn number(self, unit: i32) -> Number {
        let magnitude = self.unsigned_abs();
        let excess = (u128::BITS - magnitude.leading_zeros()).saturating_sub(63);
        let kept = (magnitude >> excess) as u64;
        let sticky = u64::from(u128::from(kept) << excess != magnitude);
        Number::finite(self < 0, kept | sticky, unit + excess as i32)
    }

    fn exact(self, unit: i32) -> ExactSum {
        let mut sum = ExactSum::ZERO;
        sum.add_wide(self < 0, self.unsigned_abs(), unit);
        sum
    }
}

impl Sum for ExactSum {
    const ZERO: Self = Self::ZERO;

    fn add(&mut self, block: i64, shift: u32, unit: i32) {
        self.add_wide(block < 0, block.unsigned_abs().into(), unit + shift as i32);
    }

    fn number(self, _: i32) -> Number {
        Self::number(&self)
    }

    fn exact(self, _: i32) -> ExactSum {
        self
    }
}

/// An integer of at most 2^51 in magnitude as an i64: added to 1.5·2^52 it is the low bits of the double.
#[inline(always)]
pub(super) fn integer(x: f64) -> i64 {
    const SHIFTER: f64 = 6_755_399_441_055_744.0;
    (x + SHIFTER).to_bits().wrapping_sub(SHIFTER.to_bits()) as i64
}

/// 2^exponent, where a normal double is.
#[inline(always)]
pub(super) fn power(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}
