//! Counter-based random bits: a pure function of (seed, index), the same on every machine and in every order.
//!
//! ```
//! use mx_vectors::rng::{Stream, word};
//! // The published SplitMix64 sequence for seed 1234567.
//! assert_eq!(word(1234567, 0), 6457827717110365317);
//! assert_eq!(word(1234567, 1), 3203168211198807973);
//! // A stream is `word` under a seed hashed from names.
//! let (mut a, mut b) = (Stream::new(&["random", "f32"], 7), Stream::new(&["random", "f32"], 7));
//! assert_eq!(a.word(), b.word());
//! ```

/// Word `index` of the SplitMix64 sequence of `seed`. All arithmetic is modulo 2^64; in any language:
///
/// ```text
/// z = seed + (index + 1) * 0x9e3779b97f4a7c15
/// z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
/// z = (z ^ (z >> 27)) * 0x94d049bb133111eb
/// return z ^ (z >> 31)
/// ```
pub const fn word(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The seed of a stream: FNV-1a (64 bits) over each name and a zero byte, then over `case` as eight bytes, lowest first.
pub fn seed(names: &[&str], case: u64) -> u64 {
    let names = names.iter().flat_map(|name| name.bytes().chain([0]));
    names.chain(case.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Consecutive words of one seed.
#[derive(Clone, Debug)]
pub struct Stream {
    seed: u64,
    next: u64,
}

impl Stream {
    /// The stream of these names and this case.
    pub fn new(names: &[&str], case: u64) -> Self {
        Self { seed: seed(names, case), next: 0 }
    }

    /// The next 64 bits.
    pub const fn word(&mut self) -> u64 {
        let word = word(self.seed, self.next);
        self.next += 1;
        word
    }

    /// A number below `n`: the upper half of the 128-bit product of the next word and `n`.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.word() as u128 * n as u128) >> 64) as u64
    }

    /// The lowest bit of the next word.
    pub const fn flag(&mut self) -> bool {
        self.word() & 1 == 1
    }

    /// A nearly normal number in units of 2^-16 standard deviations: twelve 16-bit fields of the next three words, added
    /// and centred. Its variance is 1 and it stays within 6 standard deviations; no logarithm is involved, so no libm is.
    pub const fn normal(&mut self) -> i64 {
        let mut sum = 0;
        let mut left = 3;
        while left > 0 {
            let word = self.word();
            sum += (word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48);
            left -= 1;
        }
        sum as i64 - 6 * 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_fnv_1a() {
        // The published hash of "a" is 0xaf63dc4c8601ec8c; a zero byte and eight more follow here.
        let zeros = (0..9)
            .fold(0xaf63_dc4c_8601_ec8c_u64, |hash, _| hash.wrapping_mul(0x0000_0100_0000_01b3));
        assert_eq!(seed(&["a"], 0), zeros);
        assert_ne!(seed(&["ab", "c"], 0), seed(&["a", "bc"], 0));
    }

    #[test]
    fn normal_numbers_have_variance_one() {
        let mut stream = Stream::new(&["test"], 0);
        let n = 1 << 16;
        let (mut sum, mut squares) = (0i64, 0i64);
        for _ in 0..n {
            let x = stream.normal();
            sum += x;
            squares += (x * x) >> 16;
        }
        // Five standard errors: 2^16 / sqrt(n) for the mean, 2^16 × sqrt(2 / n) for the variance.
        assert!((sum / n).abs() < 5 << 8, "{sum}");
        assert!((squares / n - (1 << 16)).abs() < 5 * 362, "{squares}");
    }

    #[test]
    fn numbers_below_n_reach_both_ends() {
        let mut stream = Stream::new(&["test"], 1);
        let seen: std::collections::BTreeSet<u64> = (0..500).map(|_| stream.below(7)).collect();
        assert_eq!(seen, (0..7).collect());
    }
}
