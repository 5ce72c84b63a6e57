//! The long accumulator: sums of products without any rounding.

use crate::number::{Magnitude, Number};
use core::cmp::Ordering;

/// Limbs of an [`ExactSum`].
const LIMBS: usize = 12;

/// An exact sum: a two's complement integer of 768 bits in units of 2^-320 (Kulisch's long accumulator).
///
/// 640 bits from 2^-286 on would do for every pair of MX formats under every pair of E8M0 scales and any number of terms that
/// memory can hold: products of E5M2 reach from 2^-32 × 2^-254 to 2^31.9 × 2^254. The two f32 tensor scales of NVFP4
/// stretch that to 2^-318 below, so the accumulator is a little longer.
///
/// ```
/// use mx_reference::{ExactSum, Number, Rounding, Overflow, format::F32};
/// let mut sum = ExactSum::ZERO;
/// sum.add(Number::finite(false, 1, 254));
/// sum.add(Number::finite(false, 1, -254));
/// sum.add(Number::finite(true, 1, 254));
/// assert_eq!(sum.number(), Number::finite(false, 1 << 62, -254 - 62));
/// assert_eq!(F32.encode(sum.number(), Rounding::NearestEven, Overflow::Propagate), 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExactSum {
    /// Least significant first.
    limbs: [u64; LIMBS],
}

impl ExactSum {
    /// Nothing added yet.
    pub const ZERO: Self = Self { limbs: [0; LIMBS] };

    /// The weight of the lowest bit, as a power of two.
    pub const UNIT: i32 = -320;

    /// Adds a zero or finite number exactly.
    ///
    /// # Panics
    /// If the number is not finite, or has bits below 2^-320 or above 2^430: no product of the formats here does.
    pub fn add(&mut self, x: Number) {
        match x.magnitude {
            Magnitude::Zero => {}
            Magnitude::Finite { significand, exponent } => {
                self.add_wide(x.negative, significand.into(), exponent);
            }
            Magnitude::Infinite | Magnitude::Nan => panic!("a sum of finite numbers, not {x:?}"),
        }
    }

    /// Adds `±significand × 2^exponent` exactly.
    ///
    /// # Panics
    /// As [`Self::add`].
    pub fn add_wide(&mut self, negative: bool, significand: u128, exponent: i32) {
        let zeros = significand.trailing_zeros();
        if zeros == u128::BITS {
            return;
        }
        let (significand, exponent) = (significand >> zeros, exponent + zeros as i32);
        assert!((Self::UNIT..320).contains(&exponent), "2^{exponent} is outside the accumulator");
        let shift = (exponent - Self::UNIT) as usize;
        let (first, bits) = (shift / 64, shift % 64);
        let (low, high) =
            (significand << bits, if bits == 0 { 0 } else { significand >> (128 - bits) });
        self.combine(&[low as u64, (low >> 64) as u64, high as u64], negative, first);
    }

    /// Adds another sum.
    pub fn add_sum(&mut self, other: &Self) {
        self.combine(&other.limbs, false, 0);
    }

    /// Adds or subtracts limbs from `first` on, until nothing is left to carry.
    fn combine(&mut self, term: &[u64], subtract: bool, first: usize) {
        let mut carry = false;
        for (i, limb) in self.limbs[first..].iter_mut().enumerate() {
            let term = match term.get(i) {
                Some(&term) => term,
                None if carry => 0,
                None => return,
            };
            let (next, over) =
                if subtract { limb.overflowing_sub(term) } else { limb.overflowing_add(term) };
            let (next, again) = if subtract {
                next.overflowing_sub(carry.into())
            } else {
                next.overflowing_add(carry.into())
            };
            (*limb, carry) = (next, over || again);
        }
    }

    /// The sum with the other sign.
    #[must_use]
    pub fn negated(&self) -> Self {
        let mut negated = Self::ZERO;
        negated.combine(&self.limbs, true, 0);
        negated
    }

    /// The sum without its sign.
    #[must_use]
    pub fn abs(&self) -> Self {
        if self.is_negative() { self.negated() } else { *self }
    }

    /// The sum times `±significand × 2^exponent`, exactly.
    ///
    /// # Panics
    /// If the product leaves the accumulator.
    #[must_use]
    pub fn times(&self, negative: bool, significand: u64, exponent: i32) -> Self {
        let mut product = Self::ZERO;
        let magnitude = self.abs();
        for (i, &limb) in magnitude.limbs.iter().enumerate() {
            let part = u128::from(limb) * u128::from(significand);
            let weight = Self::UNIT + 64 * i as i32 + exponent;
            product.add_wide(negative != self.is_negative(), part, weight);
        }
        product
    }

    /// True for exactly zero.
    pub fn is_zero(&self) -> bool {
        self.limbs == [0; LIMBS]
    }

    /// True below zero.
    pub const fn is_negative(&self) -> bool {
        self.limbs[LIMBS - 1] >> 63 != 0
    }

    /// The exact sum as an integer, least significant limb first in two's complement, of the unit 2^[`Self::UNIT`].
    pub const fn limbs(&self) -> &[u64] {
        &self.limbs
    }

    /// `floor(log2 |sum|)`, `None` for zero.
    pub fn exponent(&self) -> Option<i32> {
        let limbs = self.abs().limbs;
        let top = limbs.iter().rposition(|&limb| limb != 0)?;
        Some(Self::UNIT + 64 * top as i32 + 63 - limbs[top].leading_zeros() as i32)
    }

    /// The sum cut to 63 significant bits, the lowest of them sticky: it rounds to any format of up to 61 bits as the sum itself
    /// does, in every rounding.
    pub fn number(&self) -> Number {
        let (negative, limbs) = (self.is_negative(), self.abs().limbs);
        let Some(exponent) = self.exponent() else { return Number::ZERO };
        let lowest = exponent - 62;
        let shift = lowest - Self::UNIT;
        let mut significand = 0;
        let mut sticky = false;
        for (i, &limb) in limbs.iter().enumerate() {
            let at = 64 * i as i32 - shift;
            if at >= 0 {
                // Beyond 62 there is nothing: the top bit is at 62.
                significand |= if at < 64 { limb << at } else { 0 };
            } else if at > -64 {
                significand |= limb >> -at;
                sticky |= limb << (64 + at) != 0;
            } else {
                sticky |= limb != 0;
            }
        }
        Number::finite(negative, significand | u64::from(sticky), lowest)
    }
}

impl Ord for ExactSum {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = other.is_negative().cmp(&self.is_negative());
        // Two's complement of one sign compares like its bits.
        signs.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }
}

impl PartialOrd for ExactSum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl core::fmt::Debug for ExactSum {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ExactSum({:?})", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn of(terms: &[(bool, u64, i32)]) -> ExactSum {
        let mut sum = ExactSum::ZERO;
        for &(negative, significand, exponent) in terms {
            sum.add(Number::finite(negative, significand, exponent));
        }
        sum
    }

    #[rstest]
    #[case(&[], None)]
    #[case(&[(false, 1, 0)], Some(0))]
    #[case(&[(true, 3, -286)], Some(-285))]
    #[case(&[(false, 1, 286), (true, 1, -320)], Some(285))]
    #[case(&[(false, 1, 64), (true, 1, 64), (true, 1, -1)], Some(-1))]
    fn exponents(#[case] terms: &[(bool, u64, i32)], #[case] exponent: Option<i32>) {
        assert_eq!(of(terms).exponent(), exponent);
    }

    #[test]
    fn what_is_cut_off_stays_visible() {
        let sum = of(&[(true, 1, 200), (true, 1, -300)]);
        assert_eq!(sum.number(), Number::finite(true, (1 << 62) | 1, 200 - 62));
        assert_eq!(of(&[(false, 5, -320)]).number(), Number::finite(false, 5 << 60, -380));
    }

    #[test]
    fn order() {
        let ascending = [
            of(&[(true, 1, 250)]),
            of(&[(true, 1, 0), (true, 1, -300)]),
            of(&[(true, 1, 0)]),
            ExactSum::ZERO,
            of(&[(false, 1, -320)]),
            of(&[(false, 1, 64)]),
            of(&[(false, 1, 64), (false, 1, -320)]),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j));
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_i128(terms in proptest::collection::vec((any::<bool>(), 0u64..1 << 50, -320..-270i32), 0..40)) {
            let sum = of(&terms);
            let exact: i128 = terms.iter().map(|&(negative, s, e)| {
                let value = i128::from(s) << (e + 320);
                if negative { -value } else { value }
            }).sum();
            let low = i128::from(sum.limbs[1]) << 64 | i128::from(sum.limbs[0]);
            prop_assert_eq!(low, exact);
            let extension = if exact < 0 { u64::MAX } else { 0 };
            prop_assert!(sum.limbs[2..].iter().all(|&limb| limb == extension));
            let times = sum.times(true, 12345, 10);
            let mut again = ExactSum::ZERO;
            again.add_wide(exact > 0, exact.unsigned_abs(), -310);
            prop_assert_eq!(times, again.times(false, 12345, 0));
            let mut zero = times;
            zero.add_sum(&times.negated());
            prop_assert!(zero.is_zero());
        }
    }
}
