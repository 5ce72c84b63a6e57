//! What a fingerprint says.

use serde::Serialize;

/// The name and version of the JSON form of [`Fingerprint`].
pub const SCHEMA: &str = "mxcert-fingerprint/1";

/// How a matrix product accumulates, as far as its outputs tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fingerprint {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The operands asked with, by [name](super::Operands::name).
    pub operands: &'static str,
    /// The longest contraction asked for.
    pub k: usize,
    /// Outputs that were looked at.
    pub probes: usize,
    /// Products that were asked for.
    pub products: usize,
    /// True if sums that no accumulation rounds came out right; otherwise nothing else is told.
    pub adds: bool,
    /// The order of partial sums.
    pub order: Order,
    /// Products summed in one step.
    pub group: Group,
    /// F: bits kept below the largest exponent of a step.
    pub fraction_bits: Bits,
    /// Significant bits of the accumulator that one step hands to the next, the leading one included: 24 for f32.
    pub accumulator_bits: Bits,
    /// How the sum of a step is rounded to the accumulator.
    pub rounding: SumRounding,
    /// Where chains end and are added to another accumulator.
    pub promotion: Promotion,
    /// Parts of a split K.
    pub split: Split,
    /// What becomes of subnormal numbers.
    pub subnormals: Subnormals,
    /// Whether a model made of these parameters alone gives every answer, bit for bit; `None` if they do not make one.
    pub reproduced: Option<bool>,
    /// The named models that give every answer, bit for bit.
    pub matches: Vec<Match>,
}

impl Fingerprint {
    pub(super) const fn unknown(operands: &'static str, k: usize) -> Self {
        let unseen = Subnormal::NotSeen;
        Self {
            schema: SCHEMA,
            operands,
            k,
            probes: 0,
            products: 0,
            adds: false,
            order: Order::Unknown,
            group: Group::Unknown,
            fraction_bits: Bits::Unknown,
            accumulator_bits: Bits::Unknown,
            rounding: SumRounding::Unknown,
            promotion: Promotion::Unknown,
            split: Split::Unknown,
            subnormals: Subnormals { results: unseen, a: unseen, b: unseen },
            reproduced: None,
            matches: Vec::new(),
        }
    }
}

/// The order of partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// None of those below, or the probes do not tell.
    Unknown,
    /// Steps follow k; partial sums of promoted chunks and of split parts are added in order too.
    InOrder,
    /// Neighbours are added level by level.
    Pairwise,
    /// No order: the exact sum, rounded once.
    Exact,
}

/// A number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bits {
    /// The probes do not tell.
    Unknown,
    /// There is no such number: products are added one at a time, without a common alignment.
    None,
    /// The range of the operands ends there, or nothing that was asked shows more.
    AtLeast(u32),
    /// This many.
    Exactly(u32),
}

/// Products summed in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The probes do not tell.
    Unknown,
    /// One: every product is added by itself.
    Single,
    /// Several, fused.
    Fused {
        /// L.
        length: usize,
        /// Which positions of k they are.
        layout: Layout,
        /// How many neighbours are first summed exactly to one term of the step, where they are.
        exact: Option<usize>,
    },
    /// As many as were asked for, or more: all of them meet in one sum.
    AtLeast(usize),
}

/// Which positions of k make a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Neighbours.
    Contiguous,
    /// `run` neighbours out of every `period`; the next step takes the next `run` of them.
    Interleaved {
        /// The distance from one run to the next of the same step.
        period: usize,
        /// Neighbours in a run.
        run: usize,
    },
}

/// How a sum is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SumRounding {
    /// None of those below.
    Unknown,
    /// Alignment leaves no bit for the accumulator to round, in any sum that could be asked for.
    NotSeen,
    /// Truncated.
    TowardZero,
    /// To nearest, ties to even.
    NearestEven,
    /// To nearest, ties away from zero.
    NearestAway,
    /// Toward positive infinity.
    Up,
    /// Toward negative infinity.
    Down,
}

/// Where chains end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promotion {
    /// The probes do not tell.
    Unknown,
    /// Nowhere within the contractions asked for.
    None,
    /// A fresh chain every so many k, whose result is added to an accumulator of its own.
    Every {
        /// k between promotions.
        interval: usize,
        /// Significant bits of that accumulator.
        accumulator_bits: Bits,
        /// How sums are rounded to it.
        rounding: SumRounding,
    },
}

/// Parts of a split K.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// The probes do not tell.
    Unknown,
    /// K is walked as a whole.
    None,
    /// The lengths of contiguous parts that are summed by themselves first, for the longest contraction asked for.
    Parts(Vec<usize>),
}

/// What becomes of a subnormal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subnormal {
    /// The operands cannot make one, or the answer was neither.
    NotSeen,
    /// It keeps its value.
    Kept,
    /// It counts as zero.
    Flushed,
}

/// What becomes of subnormal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Subnormals {
    /// Results that are subnormal in f32.
    pub results: Subnormal,
    /// Elements and scales of A.
    pub a: Subnormal,
    /// Elements and scales of B.
    pub b: Subnormal,
}

/// A model that gives every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Match {
    /// Its [name](mx_reference::gemm::Model::name).
    pub model: &'static str,
    /// How many parts K is split into, the least that explain the answers; 1 is none.
    pub split: usize,
    /// The k of the tiles that parts are whole numbers of; `None` without a split, and where several explain the answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tile: Option<usize>,
}
