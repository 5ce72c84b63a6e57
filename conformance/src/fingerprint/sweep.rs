//! Reading a sweep: terms that get smaller until they are lost.

/// 2^exponent.
pub(super) const fn power(exponent: i32) -> f64 {
    // Probes stay within 2^±150, far inside the normal doubles.
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Where a sweep over 1, 2, 3, … bits ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// This one is the last that survives.
    Last(u32),
    /// All up to this one survive; the operands make no more.
    All(u32),
    /// None does, or one survives beyond one that does not.
    Unclear,
}

impl Sweep {
    /// Reads answers from 1 on, up to the first that is missing.
    pub(super) fn read(answers: &[Option<f64>], survives: impl Fn(i32, f64) -> bool) -> Self {
        let seen: Vec<bool> = answers
            .iter()
            .map_while(|answer| *answer)
            .zip(1..)
            .map(|(answer, bits)| survives(bits, answer))
            .collect();
        let first_lost = seen.iter().position(|&survived| !survived);
        match first_lost {
            None if seen.is_empty() => Self::Unclear,
            None => Self::All(seen.len() as u32),
            Some(0) => Self::Unclear,
            Some(lost) if seen[lost..].iter().any(|&survived| survived) => Self::Unclear,
            Some(lost) => Self::Last(lost as u32),
        }
    }
}
