//! What the patterns of f32, bf16 and f16 mean, and the pattern nearest to a real number.

use std::cmp::Ordering;

use crate::format::textbook;
use crate::{Exact, Value};

/// An IEEE 754 interchange format, or bf16, which is laid out like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Float {
    /// binary32.
    F32,
    /// The upper half of binary32.
    Bf16,
    /// binary16.
    F16,
}

impl Float {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// Exponent bits, mantissa bits and exponent bias.
    const fn fields(self) -> (u32, u32, i32) {
        match self {
            Self::F32 => (8, 23, 127),
            Self::Bf16 => (8, 7, 127),
            Self::F16 => (5, 10, 15),
        }
    }

    /// The pattern with the sign bit alone, negative zero.
    pub const fn sign_bit(self) -> u32 {
        let (e, m, _) = self.fields();
        1 << (e + m)
    }

    /// The pattern of positive infinity: 0x7F800000, 0x7F80, 0x7C00.
    pub const fn infinity(self) -> u32 {
        let (e, m, _) = self.fields();
        ((1 << e) - 1) << m
    }

    /// The quiet NaN that conversions give: 0x7FC00000, 0x7FC0, 0x7E00.
    pub const fn quiet_nan(self) -> u32 {
        let (_, m, _) = self.fields();
        self.infinity() + (1 << (m - 1))
    }

    /// The highest pattern.
    pub const fn last(self) -> u32 {
        self.sign_bit() + (self.sign_bit() - 1)
    }

    /// The four stretches of patterns, in ascending order, over which magnitudes ascend or every pattern is NaN.
    pub const fn stretches(self) -> [(u32, u32); 4] {
        let (sign, infinity) = (self.sign_bit(), self.infinity());
        [
            (0, infinity),
            (infinity + 1, sign - 1),
            (sign, sign + infinity),
            (sign + infinity + 1, self.last()),
        ]
    }

    /// What a pattern means.
    ///
    /// # Panics
    /// If `bits` has bits above the format's.
    pub fn value(self, bits: u32) -> Value {
        assert!(bits <= self.last(), "{bits:#x} is no {self:?}");
        let negative = bits >= self.sign_bit();
        let pattern = bits % self.sign_bit();
        match pattern.cmp(&self.infinity()) {
            Ordering::Less => Value::Finite { negative, magnitude: self.magnitude(pattern) },
            Ordering::Equal => Value::Infinite { negative },
            Ordering::Greater => Value::Nan,
        }
    }

    /// The magnitude of a finite pattern without sign; infinity's gives the power of two that would come next.
    pub(crate) fn magnitude(self, pattern: u32) -> Exact {
        let (_, m, bias) = self.fields();
        textbook(pattern / (1 << m), pattern % (1 << m), m, bias)
    }

    /// The pattern nearest to a non-negative real number, ties to even, infinity from halfway beyond the largest: the number
    /// is known only by how a rational compares with it.
    pub fn nearest(self, compare: impl Fn(Exact) -> Ordering) -> u32 {
        // Invariant: magnitude(low) <= number, and the number is below magnitude(high) or high is infinity.
        let (mut low, mut high) = (0, self.infinity());
        while high - low > 1 {
            let middle = low.midpoint(high);
            if compare(self.magnitude(middle)).is_le() {
                low = middle;
            } else {
                high = middle;
            }
        }
        let halfway = (self.magnitude(low) + self.magnitude(high)).scaled(-1);
        match compare(halfway) {
            Ordering::Greater => low,
            Ordering::Less => high,
            Ordering::Equal => low + low % 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_patterns_mean_what_the_machine_says() {
        for bits in
            (0..=0x7f7f_ffff_u32).step_by(4099).chain([1, 0x00400000, 0x007fffff, 0x00800000])
        {
            let machine = f64::from(f32::from_bits(bits));
            let pattern = machine.to_bits();
            let exact = if machine == 0.0 {
                Exact::ZERO
            } else {
                // Every f32 is a normal f64.
                let significand = (pattern & ((1 << 52) - 1)) | (1 << 52);
                Exact::new(significand.into(), (pattern >> 52) as i32 - 1075)
            };
            assert_eq!(Float::F32.value(bits), Value::Finite { negative: false, magnitude: exact });
        }
    }

    #[test]
    fn constants() {
        assert_eq!(Float::ALL.map(Float::infinity), [0x7f800000, 0x7f80, 0x7c00]);
        assert_eq!(Float::ALL.map(Float::quiet_nan), [0x7fc00000, 0x7fc0, 0x7e00]);
        assert_eq!(Float::ALL.map(Float::last), [u32::MAX, 0xffff, 0xffff]);
        assert_eq!(Float::F16.value(0xfc00), Value::Infinite { negative: true });
        assert_eq!(Float::F16.value(0x7c01), Value::Nan);
    }

    #[test]
    fn magnitudes_ascend_with_patterns() {
        for float in [Float::Bf16, Float::F16] {
            for pattern in 0..float.infinity() {
                assert!(float.magnitude(pattern) < float.magnitude(pattern + 1));
            }
        }
    }

    #[test]
    fn nearest_finds_every_value_and_breaks_ties_to_even() {
        for float in [Float::Bf16, Float::F16] {
            for pattern in 0..float.infinity() {
                let (here, next) = (float.magnitude(pattern), float.magnitude(pattern + 1));
                assert_eq!(float.nearest(|v| v.cmp(&here)), pattern);
                let tie = (here + next).scaled(-1);
                assert_eq!(float.nearest(|v| v.cmp(&tie)) % 2, 0);
            }
        }
        assert_eq!(Float::F16.nearest(|v| v.cmp(&Exact::new(65519, 0))), 0x7bff);
        assert_eq!(Float::F16.nearest(|v| v.cmp(&Exact::new(65520, 0))), 0x7c00);
    }
}
