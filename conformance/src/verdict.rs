//! Verdicts and exit codes.

use serde::{Deserialize, Serialize};

/// The three words a judgement may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every case that was asked gave the right bits.
    Conformant,
    /// At least one did not, or something that was claimed was refused.
    NonConformant,
    /// Nothing can be said: unsupported, crashed, timed out, not present, or nothing ran.
    NotEstablished,
}

impl Verdict {
    /// The word in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Conformant => "conformant",
            Self::NonConformant => "non-conformant",
            Self::NotEstablished => "not established",
        }
    }
}

/// What the process exits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u8")]
#[serde(try_from = "u8")]
pub enum Exit {
    /// Everything that was established is conformant.
    Conformant = 0,
    /// A backend is non-conformant.
    NonConformant = 1,
    /// The command line or a file on it was wrong.
    Usage = 2,
    /// A backend crashed, timed out, answered an error or broke the protocol.
    Fault = 3,
    /// No backend established anything.
    NothingEstablished = 4,
    /// A certificate, or a waiver, is out of date.
    Stale = 5,
    /// A defect of mxcert itself.
    Internal = 70,
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        exit as Self
    }
}

impl TryFrom<u8> for Exit {
    type Error = String;

    fn try_from(code: u8) -> Result<Self, String> {
        Self::BY_PRECEDENCE
            .into_iter()
            .find(|&exit| exit as u8 == code)
            .ok_or_else(|| format!("{code} is not an exit code of mxcert"))
    }
}

impl Exit {
    /// Where several hold, the first of these counts.
    pub const BY_PRECEDENCE: [Self; 7] = [
        Self::Internal,
        Self::Usage,
        Self::NonConformant,
        Self::Fault,
        Self::Stale,
        Self::NothingEstablished,
        Self::Conformant,
    ];

    /// The exit of a run in which all of `held` hold.
    pub fn of(held: impl IntoIterator<Item = Self>) -> Self {
        let held: Vec<_> = held.into_iter().collect();
        let first = Self::BY_PRECEDENCE.into_iter().find(|exit| held.contains(exit));
        first.unwrap_or(Self::NothingEstablished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precedence() {
        use Exit::{Conformant, Fault, Internal, NonConformant, NothingEstablished};
        assert_eq!(Exit::of([]), NothingEstablished);
        assert_eq!(Exit::of([Conformant, NonConformant]), NonConformant);
        assert_eq!(Exit::of([Fault, NonConformant]), NonConformant);
        assert_eq!(Exit::of([Fault, Conformant]), Fault);
        assert_eq!(Exit::of([NonConformant, Internal]), Internal);
    }

    #[test]
    fn words_are_three() {
        assert_eq!(Verdict::NotEstablished.word(), "not established");
        assert!(Exit::try_from(6).is_err());
    }
}
