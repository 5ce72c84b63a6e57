//! Exact signed rationals of any size whose denominator is a power of two.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Mul, Neg, Sub};

use crate::{Exact, Float};

/// A sign, and the magnitude that is the sum of `limbs[i] × 2^(64 (low + i))` over all i. Zero may carry either sign.
#[derive(Clone, Debug, Default)]
pub struct Big {
    negative: bool,
    low: i32,
    limbs: Vec<u64>,
}

/// `numerator × 2^exponent` in limbs, and the place of the first.
const fn in_limbs(numerator: u128, exponent: i32) -> (i32, [u64; 3]) {
    let (low, shift) = (exponent.div_euclid(64), exponent.rem_euclid(64) as u32);
    let lower = numerator << shift;
    let upper = if shift == 0 { 0 } else { numerator >> (u128::BITS - shift) };
    (low, [lower as u64, (lower >> 64) as u64, upper as u64])
}

/// The limb at a place, of limbs that start at place `low`.
fn limb_at(low: i32, limbs: &[u64], place: i32) -> u64 {
    usize::try_from(place - low).ok().and_then(|i| limbs.get(i)).copied().unwrap_or(0)
}

impl Big {
    /// `numerator × 2^exponent`.
    pub fn new(numerator: i128, exponent: i32) -> Self {
        let (low, limbs) = in_limbs(numerator.unsigned_abs(), exponent);
        Self { negative: numerator < 0, low, limbs: limbs.to_vec() }
    }

    /// A magnitude with a sign.
    pub fn signed(negative: bool, magnitude: Exact) -> Self {
        let (low, limbs) = in_limbs(magnitude.numerator(), magnitude.exponent());
        Self { negative, low, limbs: limbs.to_vec() }
    }

    /// Whether this is zero.
    pub fn is_zero(&self) -> bool {
        self.limbs.iter().all(|&limb| limb == 0)
    }

    /// Whether this is below zero.
    pub fn is_negative(&self) -> bool {
        self.negative && !self.is_zero()
    }

    /// The absolute value.
    #[must_use]
    pub fn abs(self) -> Self {
        Self { negative: false, ..self }
    }

    /// Adds `numerator × 2^exponent`.
    pub fn accumulate(&mut self, numerator: i128, exponent: i32) {
        let (low, limbs) = in_limbs(numerator.unsigned_abs(), exponent);
        self.add_limbs(numerator < 0, low, &limbs);
    }

    /// The pattern of the nearest value of a float format, ties to even: infinity from halfway beyond the largest, +0 for
    /// zero, and −0 for what is below zero and rounds to it.
    pub fn nearest(&self, float: Float) -> u32 {
        let pattern = float.nearest(|value| {
            let (low, limbs) = in_limbs(value.numerator(), value.exponent());
            self.compare_magnitude(low, &limbs).reverse()
        });
        if self.is_negative() { float.sign_bit() + pattern } else { pattern }
    }

    /// Makes room for `count` limbs from place `low` on.
    fn cover(&mut self, low: i32, count: usize) {
        if self.limbs.is_empty() {
            self.low = low;
        }
        if low < self.low {
            let missing = (self.low - low) as usize;
            self.limbs.splice(..0, std::iter::repeat_n(0, missing));
            self.low = low;
        }
        let end = (low - self.low) as usize + count;
        self.limbs.resize(self.limbs.len().max(end), 0);
    }

    fn add_limbs(&mut self, negative: bool, low: i32, limbs: &[u64]) {
        self.cover(low, limbs.len());
        let subtract = negative != self.negative;
        let start = (low - self.low) as usize;
        let mut carry = false;
        for (i, limb) in self.limbs[start..].iter_mut().enumerate() {
            if i >= limbs.len() && !carry {
                break;
            }
            let term = limbs.get(i).copied().unwrap_or(0);
            (*limb, carry) = if subtract {
                limb.borrowing_sub(term, carry)
            } else {
                limb.carrying_add(term, carry)
            };
        }
        match (carry, subtract) {
            (false, _) => {}
            (true, false) => self.limbs.push(1),
            // The term was the larger: what is left is the difference in two's complement.
            (true, true) => {
                self.negative = negative;
                let mut carry = true;
                for limb in &mut self.limbs {
                    (*limb, carry) = (!*limb).carrying_add(0, carry);
                }
            }
        }
    }

    fn compare_magnitude(&self, low: i32, limbs: &[u64]) -> Ordering {
        let end = |low: i32, limbs: &[u64]| low + limbs.len() as i32;
        let places = self.low.min(low)..end(self.low, &self.limbs).max(end(low, limbs));
        places
            .rev()
            .map(|place| limb_at(self.low, &self.limbs, place).cmp(&limb_at(low, limbs, place)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// How this compares with zero.
    fn sign(&self) -> Ordering {
        match (self.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (false, true) => Ordering::Less,
            (false, false) => Ordering::Greater,
        }
    }
}

impl From<Exact> for Big {
    fn from(magnitude: Exact) -> Self {
        Self::signed(false, magnitude)
    }
}

impl AddAssign<&Big> for Big {
    fn add_assign(&mut self, other: &Self) {
        self.add_limbs(other.negative, other.low, &other.limbs);
    }
}

impl Add<&Big> for Big {
    type Output = Self;

    fn add(mut self, other: &Self) -> Self {
        self += other;
        self
    }
}

impl Sub<&Big> for Big {
    type Output = Self;

    fn sub(mut self, other: &Self) -> Self {
        self.add_limbs(!other.negative, other.low, &other.limbs);
        self
    }
}

impl Neg for Big {
    type Output = Self;

    fn neg(self) -> Self {
        Self { negative: !self.negative, ..self }
    }
}

impl Mul for &Big {
    type Output = Big;

    fn mul(self, other: Self) -> Big {
        let mut limbs = vec![0; self.limbs.len() + other.limbs.len()];
        for (i, &x) in self.limbs.iter().enumerate() {
            let mut carry = 0;
            for (j, &y) in other.limbs.iter().enumerate() {
                (limbs[i + j], carry) = x.carrying_mul_add(y, limbs[i + j], carry);
            }
            limbs[i + other.limbs.len()] = carry;
        }
        Big { negative: self.negative != other.negative, low: self.low + other.low, limbs }
    }
}

impl Ord for Big {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let order = self.compare_magnitude(other.low, &other.limbs);
            if self.negative { order.reverse() } else { order }
        })
    }
}

impl PartialOrd for Big {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Big {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Big {}

#[cfg(test)]
mod tests {
    use super::*;

    fn power(exponent: i32) -> Big {
        Big::new(1, exponent)
    }

    #[test]
    fn order() {
        let ascending = [
            Big::new(-3, 400),
            Big::new(i128::MIN, 0),
            Big::new(-1, 1),
            Big::new(-1, -300),
            Big::default(),
            power(-300),
            Big::new(3, -1),
            power(64),
            power(64) + &power(-64),
            Big::new(3, 63),
            Big::new(i128::MAX, 0),
            power(127),
            power(1000),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
        assert_eq!(Big::new(12, -66), Big::new(3, -64));
        assert_eq!(Big::new(1 << 64, 0), power(64));
        assert_eq!(Big::from(Exact::new(5, 70)), Big::new(5 << 10, 60));
        assert_eq!(Big::signed(true, Exact::new(5, 70)), Big::new(-5, 70));
        assert_eq!(-Big::new(0, 7), Big::default());
        assert!(!(-Big::default()).is_negative() && Big::new(-1, -500).is_negative());
        assert_eq!(Big::new(-7, 3).abs(), Big::new(7, 3));
    }

    #[test]
    fn sums_and_differences() {
        // Sign changes, carries out of the highest limb and borrows across empty ones.
        assert_eq!(Big::new(7, 0) - &Big::new(9, 0), Big::new(-2, 0));
        assert_eq!(Big::new(-7, 0) + &Big::new(9, 0), Big::new(2, 0));
        assert_eq!(Big::new(-7, 0) - &Big::new(9, 0), Big::new(-16, 0));
        assert_eq!(Big::new(i128::MAX, 65) + &Big::new(1, 65), power(192));
        let ones = Big { negative: false, low: 0, limbs: vec![u64::MAX; 4] };
        assert_eq!(ones.clone() + &power(0), power(256));
        assert_eq!(power(256) - &power(0), ones);
        assert_eq!(power(0) - &power(256), -ones);
        assert!((power(254) - &power(254)).is_zero());
        let far = power(254) + &power(-254);
        assert_eq!(far.clone() - &power(254), power(-254));
        assert_eq!(power(254) - &far, Big::new(-1, -254));
    }

    #[test]
    fn accumulating_is_adding() {
        let terms = [(5, 300), (-1, -290), (i128::MIN, 1), (0, -900), (-5, 300), (1, 128)];
        let mut sum = Big::default();
        for (numerator, exponent) in terms {
            sum.accumulate(numerator, exponent);
        }
        assert_eq!(sum, Big::new(-1, -290));
    }

    #[test]
    fn products() {
        assert_eq!(&Big::new(-3, 100) * &Big::new(5, -300), Big::new(-15, -200));
        assert_eq!(&Big::new(-3, 100) * &Big::new(-5, 1), Big::new(15, 101));
        assert!((&Big::new(-3, 100) * &Big::default()).is_zero());
        // (2^127 - 1)² = 2^254 - 2^128 + 1.
        let square = &Big::new(i128::MAX, 0) * &Big::new(i128::MAX, 0);
        assert_eq!(square, power(254) - &power(128) + &power(0));
    }

    /// The least value of each format is 2^-149, 2^-133 and 2^-24; one beyond the largest is 2^128, 2^128 and 2^16.
    #[test]
    fn nearest() {
        let rows = [
            (Float::F32, -149, 128, 24, 0x3f800000),
            (Float::Bf16, -133, 128, 8, 0x3f80),
            (Float::F16, -24, 16, 11, 0x3c00),
        ];
        for (float, least, beyond, precision, one) in rows {
            let (minus, dust) = (float.sign_bit(), power(-900));
            let round = |big: Big| (big.nearest(float), (-big).nearest(float));
            let both = |pattern| (pattern, minus + pattern);
            assert_eq!(round(Big::default()), (0, 0));
            assert_eq!(round(dust.clone()), both(0));
            // Half, one and a half, and two and a half of the least.
            assert_eq!(round(power(least - 1)), both(0));
            assert_eq!(round(power(least - 1) + &dust), both(1));
            assert_eq!(round(power(least - 1) - &dust), both(0));
            assert_eq!(round(Big::new(3, least - 1)), both(2));
            assert_eq!(round(Big::new(3, least - 1) - &dust), both(1));
            assert_eq!(round(Big::new(5, least - 1)), both(2));
            assert_eq!(round(Big::new(5, least - 1) + &dust), both(3));
            // Half a step beyond the largest.
            let limit = power(beyond) - &power(beyond - precision - 1);
            assert_eq!(round(limit.clone() - &dust), both(float.infinity() - 1));
            assert_eq!(round(limit.clone()), both(float.infinity()));
            assert_eq!(round(limit + &dust), both(float.infinity()));
            assert_eq!(round(power(2000)), both(float.infinity()));
            // Half a step above one, and above its successor.
            let half = power(-precision);
            assert_eq!(round(power(0)), both(one));
            assert_eq!(round(power(0) + &half), both(one));
            assert_eq!(round(power(0) + &half + &dust), both(one + 1));
            assert_eq!(round(power(0) + &Big::new(3, -precision)), both(one + 2));
            assert_eq!(round(power(0) + &Big::new(3, -precision) - &dust), both(one + 1));
        }
    }
}
