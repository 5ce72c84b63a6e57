//! Training steps as ops: compositions of casts and matrix products.

use super::{ANY_ORDER_NAME, Factor, Float, Gemm, Scaling, Split, Test};
use mx_reference::Element;
use mx_reference::gemm::{GroupAxis, Model};
use mx_reference::training::{KernelPreference, Recipe, TrainingConfig};
use std::collections::BTreeMap;

/// A layer's forward and backward pass: six casts and three products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Linear {
    /// The recipe.
    pub recipe: Recipe,
    /// Whether each group of tokens has its own weights.
    pub grouped: bool,
    /// Whether token groups are padded to whole blocks before casts along them.
    pub pad: bool,
    /// The accumulation that the backend declares; without one f32 additions in any order.
    pub accumulate: Option<Model>,
    /// What the answers are held to.
    pub test: Test,
}

impl Linear {
    /// The recipe's settings, with padding as the op has it.
    pub const fn config(&self) -> TrainingConfig {
        TrainingConfig { pad_token_groups: self.pad, ..self.recipe.config() }
    }

    /// The input type: every recipe trains in bf16.
    pub const INPUT: Float = Float::Bf16;
    /// The output type of every recipe.
    pub const OUTPUT: Float = Float::Bf16;

    /// The product that each of its matrix products is judged as.
    pub(crate) fn gemm(&self) -> Gemm {
        let config = self.config();
        let (factor, scaling) = match config.kernel {
            KernelPreference::Auto => (Factor::Element(config.element), Scaling::Mx),
            KernelPreference::Emulated => (Factor::Bf16, Scaling::Plain),
        };
        Gemm {
            a: factor,
            b: factor,
            scaling,
            output: Self::OUTPUT,
            accumulate: self.accumulate,
            split: Split::NONE,
            test: self.test,
        }
    }

    pub(super) fn fields(&self) -> BTreeMap<&'static str, String> {
        let config = self.config();
        let accumulate = self.accumulate.map_or(ANY_ORDER_NAME, Model::name);
        let mut fields = BTreeMap::from([
            ("recipe", self.recipe.name().to_owned()),
            ("element", config.element.name().to_owned()),
            ("mode", config.mode.name().to_owned()),
            ("kernel", config.kernel.name().to_owned()),
            ("wgrad_with_hp", config.wgrad_with_hp.to_string()),
            ("input", Self::INPUT.name().to_owned()),
            ("output", Self::OUTPUT.name().to_owned()),
            ("accumulate", accumulate.to_owned()),
        ]);
        if self.grouped {
            fields.insert("pad_token_groups", self.pad.to_string());
        }
        fields
    }
}

/// The quantised exchange of token rows between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllToAll {
    /// The recipe whose casts are used.
    pub recipe: Recipe,
}

impl AllToAll {
    /// The element format that travels.
    pub const fn element(&self) -> Element {
        self.recipe.config().element
    }
}

/// The blocked layout of scales, each group on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupSwizzle {
    /// Groups along an axis of the scales, whose cumulative ends are given.
    Axis(GroupAxis),
    /// One whole matrix of scales an expert.
    Experts,
}

impl GroupSwizzle {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Axis(GroupAxis::M), Self::Axis(GroupAxis::K), Self::Experts];

    /// The name in ids and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Axis(axis) => axis.name(),
            Self::Experts => "experts",
        }
    }
}
