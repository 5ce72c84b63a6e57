//! Vector classes: named sets of cases, each with an aim.

use crate::op::{Op, Quantize};
use crate::tensor::Tensors;

/// Lanes of an MX block.
pub const LANES: usize = 32;

/// The raw input bits of one block, in the input type's width.
pub type Block = [u32; LANES];

/// How much to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// At most 16 blocks a profile: a quick look that does not certify.
    Smoke,
    /// The full constructed set: certifies.
    Standard,
    /// Everything in `Standard`, and whole domains where a machine can walk them.
    Exhaustive,
}

impl Level {
    /// Every level, least first.
    pub const ALL: [Self; 3] = [Self::Smoke, Self::Standard, Self::Exhaustive];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Standard => "standard",
            Self::Exhaustive => "exhaustive",
        }
    }

    /// The level of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A named set of cases. Case n of a class is a pure function of (op, class, n): no state, no order, no thread count.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// The last segment of ids, before `#n`.
    pub name: &'static str,
    /// What it aims at, in a sentence.
    pub aim: &'static str,
    /// Public faults it would have caught: project and number, or a short description with its place.
    pub faults: &'static [&'static str],
    /// Where its cases come from.
    pub source: Source,
}

/// Where the cases of a class come from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// One block of 32 a case. Blocks are independent of one another, so a run lays many of them into one tensor.
    Blocks {
        /// How many cases a quantize op has at a level; 0 where the class does not apply.
        count: fn(&Quantize, Level) -> u64,
        /// The bits of case n.
        block: fn(&Quantize, u64) -> Block,
    },
    /// One call a case, where shape, layout or position is the point.
    Tensors {
        /// How many cases an op has at a level; 0 where the class does not apply.
        count: fn(&Op, Level) -> u64,
        /// Case n: the op (with its view, if strided) and its inputs.
        call: fn(&Op, u64) -> Call,
    },
}

/// One call of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The op.
    pub op: Op,
    /// Its inputs.
    pub inputs: Tensors,
}

impl Class {
    /// How many cases `op` has in this class at `level`.
    pub fn count(&self, op: &Op, level: Level) -> u64 {
        match (self.source, op) {
            (Source::Blocks { count, .. }, Op::Quantize(q)) => count(q, level),
            (Source::Blocks { .. }, _) => 0,
            (Source::Tensors { count, .. }, op) => count(op, level),
        }
    }
}
