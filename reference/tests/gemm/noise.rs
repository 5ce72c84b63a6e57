//! Reproducible tensors from a seed.

use mx_reference::{Format, Magnitude};

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd1342543de82ef95))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let z = self.0;
        let z = (z ^ z >> 30).wrapping_mul(0xbf58476d1ce4e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d049bb133111eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Finite codes of a format of up to 8 bits.
    pub(crate) fn finite(&mut self, format: &Format, count: usize) -> Vec<u8> {
        let mut code = || loop {
            let code = self.below(format.codes()) as u8;
            let magnitude = format.decode(code.into()).magnitude;
            if !matches!(magnitude, Magnitude::Nan | Magnitude::Infinite) {
                return code;
            }
        };
        (0..count).map(|_| code()).collect()
    }
}
