//! The architectures that kernels are compiled for.

use std::fmt;

/// A compilation target of NVRTC. The suffix `a` unlocks the instructions of that architecture alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Ampere: no FP8 conversion, half-precision tensor cores.
    Sm80,
    /// Ada: FP8 conversions and tensor cores.
    Sm89,
    /// Hopper.
    Sm90a,
    /// Blackwell, data centre: conversions to E8M0, FP6 and FP4.
    Sm100a,
    /// Blackwell, workstation: block-scaled `mma.sync`.
    Sm120a,
}

impl Arch {
    /// Every target, oldest first.
    pub const ALL: [Self; 5] = [Self::Sm80, Self::Sm89, Self::Sm90a, Self::Sm100a, Self::Sm120a];

    /// The name that `--gpu-architecture` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm89 => "sm_89",
            Self::Sm90a => "sm_90a",
            Self::Sm100a => "sm_100a",
            Self::Sm120a => "sm_120a",
        }
    }

    /// The compute capability as cuBLASLt's documentation spells it: `sm_90`.
    pub fn family(self) -> &'static str {
        self.name().trim_end_matches('a')
    }

    /// The newest target whose code a device of that compute capability runs: architecture-specific targets run on exactly theirs,
    /// the others on every later minor version.
    pub const fn of_device(major: i32, minor: i32) -> Option<Self> {
        match (major, minor) {
            (8, 9) => Some(Self::Sm89),
            (8, 0..9) => Some(Self::Sm80),
            (9, 0) => Some(Self::Sm90a),
            (10, 0) => Some(Self::Sm100a),
            (12, 0) => Some(Self::Sm120a),
            _ => None,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
