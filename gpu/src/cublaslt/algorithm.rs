//! What the library chose for a product.

use super::library::{Calls, Heuristic};
use cudarc::cublaslt::sys::{cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as Config};
use std::fmt;

/// How the parts of a split K are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// There is one part.
    None,
    /// In the output, in the output's type, one after another.
    InPlace,
    /// In f32, in the workspace.
    ComputeType,
    /// In the output's type, in the workspace.
    OutputType,
    /// Something that this version of the bindings does not know.
    Other(u32),
}

impl Reduction {
    const fn of(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::InPlace,
            2 => Self::ComputeType,
            4 => Self::OutputType,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::InPlace => f.write_str("in place"),
            Self::ComputeType => f.write_str("compute type"),
            Self::OutputType => f.write_str("output type"),
            Self::Other(number) => write!(f, "scheme {number}"),
        }
    }
}

/// An algorithm with its settings, as the heuristic gave it. Numbers are the library's own.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    pub(super) opaque: cublasLtMatmulAlgo_t,
    /// Which algorithm.
    pub id: u32,
    /// Its tile.
    pub tile: u32,
    /// Its pipeline stages.
    pub stages: u32,
    /// Parts of K.
    pub split: u32,
    /// How they are added.
    pub reduction: Reduction,
    /// The order of thread blocks.
    pub swizzling: u32,
    /// A setting of the algorithm's own.
    pub custom: u32,
    /// The instruction's shape.
    pub inner_shape: u32,
    /// The cluster's shape.
    pub cluster_shape: u32,
    /// Bytes of workspace that it needs.
    pub workspace: usize,
}

impl Algorithm {
    pub(super) fn of(calls: &Calls, heuristic: &Heuristic) -> Self {
        let opaque = heuristic.algorithm;
        // A setting that this library does not have reads as zero.
        let read = |attribute: Config, size: usize| {
            let (mut value, mut written) = (0u32, 0);
            #[expect(unsafe_code, reason = "a foreign function")]
            // SAFETY: `value` has room for the two or four bytes of every setting; the library refuses a size that is not its own.
            let status = unsafe {
                (calls.algorithm_get)(
                    &raw const opaque,
                    attribute as u32,
                    (&raw mut value).cast(),
                    size,
                    &raw mut written,
                )
            };
            if status == 0 { value } else { 0 }
        };
        Self {
            opaque,
            id: read(Config::CUBLASLT_ALGO_CONFIG_ID, 4),
            tile: read(Config::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
            stages: read(Config::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
            split: read(Config::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4).max(1),
            reduction: Reduction::of(read(Config::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4)),
            swizzling: read(Config::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
            custom: read(Config::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
            inner_shape: read(Config::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
            cluster_shape: read(Config::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
            workspace: heuristic.workspace,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, tile, stages, split, reduction, custom, .. } = self;
        write!(f, "algorithm {id}, tile {tile}, stages {stages}, custom option {custom}")?;
        write!(f, ", inner shape {}, cluster {}", self.inner_shape, self.cluster_shape)?;
        write!(f, ", swizzling {}, workspace {}", self.swizzling, self.workspace)?;
        write!(f, ", split-K {split}, reduction {reduction}")
    }
}
