//! What is cast to what, and which GEMM runs in what.

use super::{Operands, Shape};
use crate::suggest::nearest;
use serde::Serialize;

/// A way of training a linear layer in MX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recipe {
    /// Its name here.
    pub name: &'static str,
    /// Other names that torchao has for recipes with the same kernels: how a scale is rounded costs no time here.
    pub torchao: &'static [&'static str],
    /// What tensors are cast to.
    pub element: Operands,
    /// Whether GEMMs run in bf16 on dequantised operands. Dequantising is counted as free.
    pub emulated: bool,
    /// Whether the GEMM of the weight's gradient runs in bf16 on operands that were never cast.
    pub wgrad_with_hp: bool,
}

/// A tensor of the layer that GEMMs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// (M, K).
    Input,
    /// (K, N).
    Weight,
    /// (M, N).
    GradOutput,
}

/// Which way blocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Along the dimension that the tensor's first GEMM contracts.
    Row,
    /// Along the other, for its second GEMM.
    Col,
}

/// A recipe that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown recipe `{given}`{}; known: {}",
    nearest(given, &Recipe::names()),
    Recipe::names().join(", ")
)]
pub struct UnknownRecipe {
    /// What was asked for.
    pub given: String,
}

const MXFP8: Recipe = Recipe {
    name: "mxfp8",
    torchao: &["mxfp8_rceil", "mxfp8_cublas", "mxfp8_cublas_rceil"],
    element: Operands::Mxfp8,
    emulated: false,
    wgrad_with_hp: false,
};

const MXFP4: Recipe =
    Recipe { name: "mxfp4", torchao: &["mxfp4_cutlass"], element: Operands::Mxfp4, ..MXFP8 };

impl Recipe {
    /// All of them.
    pub const ALL: [&'static Self; 5] = [
        &MXFP8,
        &Self {
            name: "mxfp8_wgrad_with_hp",
            torchao: &["mxfp8_rceil_wgrad_with_hp"],
            wgrad_with_hp: true,
            ..MXFP8
        },
        &Self {
            name: "mxfp8_emulated",
            torchao: &["mxfp8_emulated_rceil"],
            emulated: true,
            ..MXFP8
        },
        &MXFP4,
        &Self { name: "mxfp4_emulated", torchao: &[], emulated: true, ..MXFP4 },
    ];

    /// The recipe of a name, ours or torchao's.
    ///
    /// # Errors
    /// [`UnknownRecipe`], which suggests a name.
    pub fn from_name(given: &str) -> Result<&'static Self, UnknownRecipe> {
        let is = |recipe: &&Self| recipe.name == given || recipe.torchao.contains(&given);
        let found = Self::ALL.into_iter().find(is);
        found.ok_or_else(|| UnknownRecipe { given: given.to_owned() })
    }

    fn names() -> Vec<&'static str> {
        let names = |recipe: &&'static Self| [&[recipe.name], recipe.torchao].concat();
        Self::ALL.iter().flat_map(names).collect()
    }

    /// What the output and the gradient of the input are computed from.
    pub const fn operands(&self) -> Operands {
        if self.emulated { Operands::Bf16 } else { self.element }
    }

    /// What the gradient of the weight is computed from.
    pub const fn wgrad_operands(&self) -> Operands {
        if self.wgrad_with_hp { Operands::Bf16 } else { self.operands() }
    }

    /// Whether a step casts this tensor this way.
    pub const fn casts(&self, role: Role, direction: Direction) -> bool {
        // Input and output gradient are contracted over M for the gradient of the weight alone.
        !(self.wgrad_with_hp && role.follows_an_op() && matches!(direction, Direction::Col))
    }
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Input, Self::Weight, Self::GradOutput];

    /// How many elements it has.
    pub fn elements(self, shape: Shape) -> u64 {
        let [m, k, n] = [shape.m, shape.k, shape.n].map(u64::from);
        match self {
            Self::Input => m * k,
            Self::Weight => k * n,
            Self::GradOutput => m * n,
        }
    }

    /// Whether a kernel of the same step computes it, into which a cast can be fused. A weight is there from the start.
    pub const fn follows_an_op(self) -> bool {
        !matches!(self, Self::Weight)
    }
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Row, Self::Col];
}
