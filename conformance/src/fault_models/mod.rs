//! Fault models: deliberately wrong implementations, each a small change to the right one and each standing for a public report.
//!
//! They measure the vectors: whatever changes an answer must fail at level `standard` (`mxcert mutants`). As backends they are named
//! `fault:NAME`; a model that remembers or that leaves buffers unwritten does so the same way in every run.

mod amax;
mod blocks;
mod casts;
mod cheats;
mod decode;
mod device;
mod element_cast;
pub mod equivalence;
mod gemm;
mod grouped;
mod indexing;
mod layout;
mod nondeterminism;
mod packing;
mod padding;
mod quantizer;
mod scale_rule;
mod special_values;
mod stale;
mod state;
mod strides;
mod tails;
mod training;

pub use device::{Device, Memory};
pub use quantizer::{Block, Stages, quantize};

use crate::backend::{Fault, Refusal};
use crate::backends::native;
use crate::capabilities::Accumulate;
use mx_reference::gemm::{Accumulation, Model};
use mx_reference::{Convention, Format};
use mx_vectors::answer::{AnswerError, gemm_answer, grouped_answer};
use mx_vectors::op::Cast;
use mx_vectors::{Call, Data, Op, Quantize, Tensor, Tensors};

/// Where in an implementation a fault sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// From amax to scale byte.
    ScaleRule,
    /// The block's largest magnitude.
    Amax,
    /// From ratio to element code, and casts without scale.
    ElementCast,
    /// NaN, infinity, zeros and the ends of the range.
    SpecialValues,
    /// Codes and scale bytes read back.
    Decode,
    /// Codes side by side in bytes.
    Packing,
    /// Where scales and codes lie.
    Layout,
    /// What lies between them.
    Padding,
    /// What does not fill a tile.
    Tails,
    /// Views of larger buffers.
    Strides,
    /// Which element is read or written.
    Indexing,
    /// What one tile leaves to the next.
    State,
    /// What a call leaves in its buffers.
    Stale,
    /// Another answer to the same question.
    Nondeterminism,
    /// Matrix products.
    Gemm,
    /// Products of groups.
    Grouped,
    /// Training steps and exchanges.
    Training,
    /// Implementations that answer the test and not the question.
    Cheat,
}

impl Area {
    /// Every area, in the order of reports.
    pub const ALL: [Self; 18] = [
        Self::ScaleRule,
        Self::Amax,
        Self::ElementCast,
        Self::SpecialValues,
        Self::Decode,
        Self::Packing,
        Self::Layout,
        Self::Padding,
        Self::Tails,
        Self::Strides,
        Self::Indexing,
        Self::State,
        Self::Stale,
        Self::Nondeterminism,
        Self::Gemm,
        Self::Grouped,
        Self::Training,
        Self::Cheat,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScaleRule => "scale rule",
            Self::Amax => "amax",
            Self::ElementCast => "element cast",
            Self::SpecialValues => "special values",
            Self::Decode => "decode",
            Self::Packing => "packing",
            Self::Layout => "layout",
            Self::Padding => "padding",
            Self::Tails => "tails",
            Self::Strides => "strides",
            Self::Indexing => "indexing",
            Self::State => "state between tiles",
            Self::Stale => "stale output",
            Self::Nondeterminism => "nondeterminism",
            Self::Gemm => "gemm",
            Self::Grouped => "grouped",
            Self::Training => "training",
            Self::Cheat => "cheat",
        }
    }
}

/// A deliberately wrong implementation.
#[derive(Clone, Copy, Debug)]
pub struct FaultModel {
    /// The name in `fault:NAME`.
    pub name: &'static str,
    /// Where it sits.
    pub area: Area,
    /// What it does wrong, in a sentence.
    pub summary: &'static str,
    /// The public report that it stands for: project and number, or what it is a model of.
    pub source: &'static str,
    /// Which ops and profiles it is a fault of; it computes everything else right.
    pub applies: fn(&Op) -> bool,
    /// What differs from the right implementation.
    pub delta: Delta,
    /// The accumulation that it declares for its products.
    pub accumulate: Option<Model>,
}

/// What differs from the right implementation.
#[derive(Clone, Copy, Debug)]
pub enum Delta {
    /// Block quantisation in which stages are replaced.
    Stages(Stages),
    /// Another function from input bits to a code.
    Cast(fn(&Cast, u32) -> u8),
    /// Codes and scales read as other formats, where they are read.
    Formats {
        /// What an element format is taken for.
        element: fn(&'static Format) -> &'static Format,
        /// What a scale format is taken for.
        scale: fn(&'static Format) -> &'static Format,
    },
    /// Partial sums formed in another way than the one declared.
    Accumulation(Accumulation),
    /// The right answer to other inputs.
    Inputs(fn(&Call) -> Call),
    /// The right outputs, changed.
    Outputs(fn(&Call, &mut Tensors)),
    /// Buffers written by the model itself, which may remember earlier calls and change its copy of the inputs.
    Device(fn(&mut Device<'_>) -> Result<(), Refusal>),
}

impl Delta {
    /// Whether an answer depends on the call alone.
    pub const fn is_pure(&self) -> bool {
        !matches!(self, Self::Device(_))
    }

    /// Whether an answer depends on one block alone, wherever it lies.
    pub const fn is_of_blocks(&self) -> bool {
        matches!(self, Self::Stages(_))
    }

    /// Whether an answer depends on the shape of the tensors beside what is in each block.
    pub const fn sees_shapes(&self) -> bool {
        matches!(self, Self::Inputs(_) | Self::Outputs(_) | Self::Device(_))
    }
}

/// Every model, by area.
const TABLES: [&[FaultModel]; 20] = [
    scale_rule::MODELS,
    amax::MODELS,
    element_cast::MODELS,
    casts::MODELS,
    special_values::MODELS,
    decode::MODELS,
    packing::MODELS,
    layout::MODELS,
    padding::MODELS,
    tails::MODELS,
    strides::MODELS,
    indexing::MODELS,
    state::MODELS,
    stale::MODELS,
    nondeterminism::MODELS,
    gemm::MODELS,
    gemm::ACCUMULATIONS,
    grouped::MODELS,
    training::MODELS,
    cheats::MODELS,
];

/// Every model, in the order of reports.
pub fn all() -> impl Iterator<Item = &'static FaultModel> {
    TABLES.into_iter().flatten()
}

impl FaultModel {
    /// The model of that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        all().find(|model| model.name == name)
    }

    /// The accumulation that it declares.
    pub const fn accumulation(&self) -> Accumulate {
        Accumulate(self.accumulate)
    }

    /// Its outputs, unless it writes buffers itself; `known` are the right ones, where somebody computed them before.
    ///
    /// # Errors
    /// [`AnswerError`] for inputs that do not fit the op.
    pub(crate) fn outputs(
        &self,
        call: &Call,
        convention: &'static Convention,
        known: Option<&Tensors>,
    ) -> Result<Tensors, AnswerError> {
        let answer = |call: &Call| native::answer(&call.op, convention, &call.inputs);
        let right = || known.map_or_else(|| answer(call), |known| Ok(known.clone()));
        if !(self.applies)(&call.op) {
            return right();
        }
        match (&self.delta, &call.op) {
            (Delta::Stages(stages), Op::Quantize(q)) => {
                quantize(stages, q, convention, &call.inputs)
            }
            (Delta::Cast(code), Op::Cast(cast)) => Ok(casts::answer(cast, *code, &call.inputs)),
            (Delta::Formats { element, scale }, Op::Dequantize(d)) => {
                decode::answer(d, (*element, *scale), &call.inputs)
            }
            (Delta::Formats { element, scale }, Op::Gemm(g)) => {
                gemm_answer(g, &call.inputs, &gemm::Misread { element: *element, scale: *scale })
            }
            (Delta::Formats { element, scale }, Op::GroupedGemm(g)) => {
                grouped_answer(g, &call.inputs, &gemm::Misread { element: *element, scale: *scale })
            }
            (Delta::Accumulation(accumulation), Op::Gemm(g)) => {
                gemm_answer(g, &call.inputs, &gemm::Accumulating(*accumulation))
            }
            (Delta::Inputs(change), _) => answer(&change(call)),
            (Delta::Outputs(change), _) => {
                let mut outputs = right()?;
                change(call, &mut outputs);
                Ok(outputs)
            }
            _ => right(),
        }
    }
}

/// An answer that could not be computed, as a backend says it.
pub(crate) fn raised(error: &impl ToString) -> Refusal {
    Fault::Raised { reason: error.to_string() }.into()
}

/// Whether an op is a quantize op of some kind.
fn quantizes(op: &Op, of: impl Fn(&Quantize) -> bool) -> bool {
    matches!(op, Op::Quantize(q) if of(q))
}

/// The bytes of an output or input, empty if it has other elements.
fn u8s(tensor: &mut Tensor) -> &mut [u8] {
    match &mut tensor.data {
        Data::U8(data) => data,
        _ => &mut [],
    }
}

/// Rows and columns of a matrix, the last two dimensions.
fn sides(tensor: &Tensor) -> (usize, usize) {
    match tensor.shape[..] {
        [.., rows, cols] => (rows, cols),
        [length] => (1, length),
        [] => (0, 0),
    }
}

/// Sets element `index` of a tensor.
fn set(tensor: &mut Tensor, index: usize, bits: u32) {
    match &mut tensor.data {
        Data::U8(data) => data[index] = bits as u8,
        Data::U16(data) => data[index] = bits as u16,
        Data::U32(data) => data[index] = bits,
        Data::I32(data) => data[index] = bits.cast_signed(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_vectors::cells::cells;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_one_each_and_every_area_has_a_model() {
        let names: BTreeSet<_> = all().map(|model| model.name).collect();
        assert_eq!(names.len(), all().count());
        assert!(names.len() >= 80, "{}", names.len());
        for area in Area::ALL {
            assert!(all().any(|model| model.area == area), "{}", area.name());
        }
        assert!(names.iter().all(|name| {
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        }));
    }

    #[test]
    fn every_model_applies_somewhere_and_says_what_it_stands_for() {
        for model in all() {
            assert!(cells().iter().any(model.applies), "{}", model.name);
            assert!(!model.summary.is_empty() && !model.source.is_empty(), "{}", model.name);
        }
    }
}
