//! The accumulations that have a name: where each comes from and how well it is known.

use super::accumulation::{Accepts, Accumulation, E8M13, FusedDot, Scheme};
use crate::format::{BF16, F16, F32, Format};

/// How well a model is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A rule by itself; no hardware is claimed.
    Definition,
    /// Recorded outputs of hardware match bit for bit.
    Replayed,
    /// Published by others, who say that they checked it against hardware; not replayed here.
    Published,
    /// Put together from facts that nobody has checked against hardware in this combination.
    Unverified,
}

impl Standing {
    /// The word in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Replayed => "replayed",
            Self::Published => "published",
            Self::Unverified => "unverified",
        }
    }
}

/// The accumulations that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// The exact sum, rounded once.
    Exact,
    /// One f32 accumulator, in order.
    F32Sequential,
    /// An f32 tree of neighbours.
    F32Pairwise,
    /// `mma.sync` FP8 on `sm_89`.
    AdaFp8,
    /// `wgmma` FP8 on `sm_90a`: one chain over K (`cuBLASLt` with fast accumulation).
    HopperFp8,
    /// `wgmma` FP8 with a fresh chain every 128 k (`cuBLASLt` without fast accumulation).
    HopperFp8Promote128,
    /// `mma.sync` FP8 on `sm_90` and `sm_100`.
    Sm90MmaFp8,
    /// Our own CUDA kernel for pairs of MX formats on `sm_90`, `sm_100` and `sm_120`.
    MxBlockF16Pair,
    /// `mma.sync` bf16 on `sm_80` and `sm_89`.
    AdaBf16,
    /// bf16 tensor cores of `sm_90`, `sm_100` and `sm_120`.
    HopperBf16,
    /// f16 tensor cores of `sm_90`, `sm_100` and `sm_120`.
    HopperF16,
    /// `kind::mxf8f6f4` with block scales on `sm_100` and `sm_120`.
    BlackwellMxf8f6f4,
    /// `kind::mxf4` with block scales on `sm_100` and `sm_120`.
    BlackwellMxf4,
    /// `kind::mxf4nvf4` with block scales on `sm_100` and `sm_120`.
    BlackwellMxf4nvf4,
}

const fn chain(length: usize, fraction: u32, accumulator: &'static Format) -> Scheme {
    Scheme::Chain { step: FusedDot { length, fraction, accumulator }, promote: None }
}

impl Model {
    /// Every model, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::Exact,
        Self::F32Sequential,
        Self::F32Pairwise,
        Self::AdaFp8,
        Self::HopperFp8,
        Self::HopperFp8Promote128,
        Self::Sm90MmaFp8,
        Self::MxBlockF16Pair,
        Self::AdaBf16,
        Self::HopperBf16,
        Self::HopperF16,
        Self::BlackwellMxf8f6f4,
        Self::BlackwellMxf4,
        Self::BlackwellMxf4nvf4,
    ];

    /// The name on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::F32Sequential => "f32-sequential",
            Self::F32Pairwise => "f32-pairwise",
            Self::AdaFp8 => "ada-fp8",
            Self::HopperFp8 => "hopper-fp8",
            Self::HopperFp8Promote128 => "hopper-fp8-promote128",
            Self::Sm90MmaFp8 => "sm90-mma-fp8",
            Self::MxBlockF16Pair => "mx-block-f16-pair",
            Self::AdaBf16 => "ada-bf16",
            Self::HopperBf16 => "hopper-bf16",
            Self::HopperF16 => "hopper-f16",
            Self::BlackwellMxf8f6f4 => "blackwell-mxf8f6f4",
            Self::BlackwellMxf4 => "blackwell-mxf4",
            Self::BlackwellMxf4nvf4 => "blackwell-mxf4nvf4",
        }
    }

    /// The model of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// What it computes.
    pub const fn accumulation(self) -> Accumulation {
        let (accepts, registers, scheme) = match self {
            Self::Exact => (Accepts::Any, None, Scheme::Exact),
            Self::F32Sequential => (Accepts::Any, None, Scheme::Sequential),
            Self::F32Pairwise => (Accepts::Any, None, Scheme::Pairwise),
            Self::AdaFp8 => (Accepts::Fp8, None, chain(16, 13, &E8M13)),
            Self::HopperFp8 => (Accepts::Fp8, None, chain(32, 13, &E8M13)),
            Self::HopperFp8Promote128 => {
                let step = FusedDot { length: 32, fraction: 13, accumulator: &E8M13 };
                (Accepts::Fp8, None, Scheme::Chain { step, promote: Some(128) })
            }
            Self::Sm90MmaFp8 | Self::MxBlockF16Pair => {
                let step = FusedDot { length: 16, fraction: 25, accumulator: &F32 };
                let accepts = match self {
                    Self::Sm90MmaFp8 => Accepts::Fp8,
                    _ => Accepts::Mx,
                };
                (accepts, Some(&F16), Scheme::Halves { step })
            }
            Self::AdaBf16 => (Accepts::Dequantized, Some(&BF16), chain(8, 24, &F32)),
            Self::HopperBf16 => (Accepts::Dequantized, Some(&BF16), chain(16, 25, &F32)),
            Self::HopperF16 => (Accepts::Dequantized, Some(&F16), chain(16, 25, &F32)),
            Self::BlackwellMxf8f6f4 => (Accepts::MxFloat, None, chain(32, 25, &F32)),
            Self::BlackwellMxf4 | Self::BlackwellMxf4nvf4 => {
                let step = FusedDot { length: 64, fraction: 35, accumulator: &F32 };
                let accepts = match self {
                    Self::BlackwellMxf4 => Accepts::Mxf4,
                    _ => Accepts::Nvfp4,
                };
                (accepts, None, Scheme::Groups { step })
            }
        };
        Accumulation { accepts, registers, scheme, split: 1, tile: 128 }
    }

    /// How well it is known.
    pub const fn standing(self) -> Standing {
        match self {
            Self::Exact | Self::F32Sequential | Self::F32Pairwise => Standing::Definition,
            Self::AdaFp8
            | Self::HopperFp8
            | Self::HopperFp8Promote128
            | Self::Sm90MmaFp8
            | Self::AdaBf16
            | Self::HopperBf16
            | Self::HopperF16
            | Self::MxBlockF16Pair => Standing::Replayed,
            Self::BlackwellMxf8f6f4 | Self::BlackwellMxf4 | Self::BlackwellMxf4nvf4 => {
                Standing::Published
            }
        }
    }

    /// Where it comes from.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Exact => "the definition of this project",
            Self::F32Sequential => "IEEE 754 additions, in order of k",
            Self::F32Pairwise => "IEEE 754 additions, pairwise",
            Self::AdaFp8 => {
                "Khattak and Mikaitis, arXiv 2512.07004; replayed on their recordings of mma.sync m16n8k32 on Ada"
            }
            Self::HopperFp8 => {
                "arXiv 2512.07004 and MMA-Sim, arXiv 2511.10909; replayed on recordings of wgmma m64nNk32 on H100 and H200 and of cuBLASLt on an H200"
            }
            Self::HopperFp8Promote128 => {
                "CUTLASS sm90 FP8 mainloop (mma_promotion_interval 4 × 32); replayed on recordings of cuBLASLt on an H200"
            }
            Self::Sm90MmaFp8 => {
                "SASS of mma.sync FP8 for sm_90 and sm_100 (two HMMA.16816 and one FADD); replayed on recordings of mma.sync m16n8k32 on B200"
            }
            Self::AdaBf16 => {
                "arXiv 2512.07004; replayed on its recordings of mma.sync m16n8k8 on Ada"
            }
            Self::MxBlockF16Pair => {
                "gpu/kernels/gemm.cu and gemm_wgmma.cu of this project; replayed on recordings of them on an H200"
            }
            Self::HopperBf16 | Self::HopperF16 => {
                "arXiv 2512.07004; replayed on its recordings of mma.sync m16n8k16 on H100, H200 and B200; wgmma and tcgen05 by MMA-Sim"
            }
            Self::BlackwellMxf8f6f4 => {
                "MMA-Sim, arXiv 2511.10909, algorithm 8 (FP6 not validated there)"
            }
            Self::BlackwellMxf4 | Self::BlackwellMxf4nvf4 => {
                "MMA-Sim, arXiv 2511.10909, algorithm 9"
            }
        }
    }
}
