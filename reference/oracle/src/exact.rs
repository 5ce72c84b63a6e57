//! Exact non-negative rationals whose denominator is a power of two.

use std::cmp::Ordering;
use std::ops::{Add, Mul, Sub};

/// `numerator × 2^exponent`. Every operation is exact, or panics where 128 bits do not hold the result.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    numerator: u128,
    exponent: i32,
}

impl Exact {
    /// Zero.
    pub const ZERO: Self = Self { numerator: 0, exponent: 0 };
    /// One.
    pub const ONE: Self = Self { numerator: 1, exponent: 0 };

    /// `numerator × 2^exponent`.
    pub const fn new(numerator: u128, exponent: i32) -> Self {
        Self { numerator, exponent }
    }

    /// `2^exponent`.
    pub const fn power_of_two(exponent: i32) -> Self {
        Self::new(1, exponent)
    }

    /// This value times `2^power`.
    #[must_use]
    pub const fn scaled(self, power: i32) -> Self {
        Self::new(self.numerator, self.exponent + power)
    }

    /// The numerator.
    pub(crate) const fn numerator(self) -> u128 {
        self.numerator
    }

    /// The power of two that the numerator is times.
    pub(crate) const fn exponent(self) -> i32 {
        self.exponent
    }

    /// Whether this is zero.
    pub const fn is_zero(self) -> bool {
        self.numerator == 0
    }

    /// The numerator over the denominator `2^-exponent`; a zero fits any denominator.
    pub(crate) fn over(self, exponent: i32) -> u128 {
        let shift = if self.is_zero() { 0 } else { (self.exponent - exponent) as u32 };
        assert!(shift <= self.numerator.leading_zeros(), "exact arithmetic out of 128 bits");
        self.numerator.checked_shl(shift).unwrap_or(0)
    }

    fn common_exponent(self, other: Self) -> i32 {
        match (self.is_zero(), other.is_zero()) {
            (true, _) => other.exponent,
            (_, true) => self.exponent,
            _ => self.exponent.min(other.exponent),
        }
    }

    /// The exponent just above the leading bit: values of a higher one are larger.
    const fn magnitude(self) -> i32 {
        self.exponent + (u128::BITS - self.numerator.leading_zeros()) as i32
    }
}

impl Add for Exact {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let e = self.common_exponent(other);
        let sum = self.over(e).checked_add(other.over(e));
        Self::new(sum.expect("exact arithmetic out of 128 bits"), e)
    }
}

impl Sub for Exact {
    type Output = Self;

    /// Panics if `other` is larger.
    fn sub(self, other: Self) -> Self {
        let e = self.common_exponent(other);
        let difference = self.over(e).checked_sub(other.over(e));
        Self::new(difference.expect("exact values are not negative"), e)
    }
}

impl Mul for Exact {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let product = self.numerator.checked_mul(other.numerator);
        Self::new(product.expect("exact arithmetic out of 128 bits"), self.exponent)
            .scaled(other.exponent)
    }
}

impl Ord for Exact {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Two values of one magnitude have a common denominator within 128 bits.
            (false, false) => self.magnitude().cmp(&other.magnitude()).then_with(|| {
                let e = self.common_exponent(*other);
                self.over(e).cmp(&other.over(e))
            }),
        }
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Exact {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Exact {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_of_different_denominators() {
        assert_eq!(Exact::new(12, -2), Exact::new(3, 0));
        assert_eq!(Exact::new(0, 90), Exact::ZERO);
        assert_eq!(Exact::ZERO + Exact::new(3, -500), Exact::new(3, -500));
        assert_eq!(Exact::new(3, 500) - Exact::ZERO, Exact::new(3, 500));
    }

    #[test]
    fn order() {
        let ascending = [
            Exact::ZERO,
            Exact::power_of_two(-149),
            Exact::new(3, -1),
            Exact::new((1 << 24) + 1, -23),
            Exact::new(u128::MAX, -126),
            Exact::power_of_two(2),
            Exact::power_of_two(127),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn arithmetic() {
        let (a, b) = (Exact::new(7, -2), Exact::new(5, 1));
        assert_eq!(a + b, Exact::new(47, -2));
        assert_eq!(b - a, Exact::new(33, -2));
        assert_eq!(a * b, Exact::new(35, -1));
        assert_eq!(a.scaled(3), Exact::new(14, 0));
    }

    #[test]
    #[should_panic(expected = "out of 128 bits")]
    fn never_rounds() {
        let _ = Exact::power_of_two(127) + Exact::power_of_two(-1);
    }
}
