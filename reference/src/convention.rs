//! Conventions: every choice that the OCP text leaves open, as one named value.
//!
//! OCP MX v1.0 §6.3 gives the FLOOR rule for finite blocks and leaves the rest to implementations. What they chose is data
//! here, so that a certificate names its convention instead of saying "MX".

/// What a NaN among the inputs does to the block's amax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmaxNan {
    /// One NaN makes the amax NaN (torch.amax, `max.NaN.f32`).
    Propagate,
    /// NaNs are passed over (`fmaxf`, `max.f32`, `tl.max`); a block of NaNs alone has amax 0.
    Drop,
}

/// The scale byte of a block whose amax is infinite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfinityScale {
    /// 0xFF: the block is NaN (CUDA headers, E8M0 conversion without saturation).
    Nan,
    /// 0xFE, the largest scale (conversion with `.satfinite`).
    Largest,
    /// Exponent field 255 goes through the same arithmetic as any other: 255 − p, at most 0xFE.
    ExponentField,
}

/// What elements are multiplied by where the scale byte is 0, which means 2^-127.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteZero {
    /// 2^127: the inverse of what the byte means.
    Exact,
    /// 2^126: the scale was clamped to the smallest normal f32 first.
    SmallestNormal,
    /// 1: byte 0 was taken for "no scale".
    One,
}

/// The elements of a block whose scale byte is 0xFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanScale {
    /// Every element is NaN, in formats that have one.
    AllNan,
    /// The byte was shifted into an f32, which makes it infinity: finite elements become signed zeros, NaN and infinite
    /// ones NaN.
    DivideByInfinity,
}

/// How RCEIL finds the exponent of amax / max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RceilRule {
    /// The f32 product amax × f32(1/max), rounded up to a power of two as PTX `cvt.rp.ue8m0x2.f32` does.
    Product,
    /// The ceiling of the correctly rounded f32 log2 of the f32 quotient amax / max, clamped to ±127.
    CeilLog2,
}

/// The open choices that may differ between RCEIL and the exponent-field modes of one implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The byte for an infinite amax.
    pub infinity_scale: InfinityScale,
    /// The multiplier under byte 0.
    pub byte_zero: ByteZero,
    /// The elements under byte 0xFF.
    pub nan_scale: NanScale,
}

/// One implementation's answers to everything the OCP text leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convention {
    /// The name that `--convention` takes.
    pub name: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Whose behaviour it is, and where that was read.
    pub source: &'static str,
    /// NaN and the amax.
    pub amax_nan: AmaxNan,
    /// How RCEIL is computed.
    pub rceil_rule: RceilRule,
    /// The edges of FLOOR, CEIL and EVEN.
    pub exponent_modes: Edges,
    /// The edges of RCEIL.
    pub rceil: Edges,
}

const PROPAGATE_EDGES: Edges = Edges {
    infinity_scale: InfinityScale::Nan,
    byte_zero: ByteZero::Exact,
    nan_scale: NanScale::AllNan,
};
const TE_EDGES: Edges = Edges { infinity_scale: InfinityScale::Largest, ..PROPAGATE_EDGES };

/// The default: NaN and infinity poison their block, byte 0 is exactly 2^-127.
pub const PROPAGATE: Convention = Convention {
    name: "propagate",
    summary: "NaN or Inf anywhere gives scale 0xFF and NaN elements; byte 0 is exactly 2^-127",
    source: "torchao after PR 4725 (2026-08-12); CUDA 13 headers, E8M0 conversion without saturation",
    amax_nan: AmaxNan::Propagate,
    rceil_rule: RceilRule::Product,
    exponent_modes: PROPAGATE_EDGES,
    rceil: PROPAGATE_EDGES,
};

/// `TransformerEngine`'s MXFP8: the amax passes over NaN, infinity saturates.
pub const TE: Convention = Convention {
    name: "te",
    summary: "amax drops NaN, an infinite amax gives 0xFE, NaN elements stay NaN alone",
    source: "TransformerEngine d0067d0, common/cast/mxfp8/quantize_mxfp8.cuh and util/ptx.cuh (float_to_e8m0, exp2f_rcp)",
    amax_nan: AmaxNan::Drop,
    exponent_modes: TE_EDGES,
    rceil: TE_EDGES,
    ..PROPAGATE
};

/// torchao up to and including release 0.18.0, CPU eager.
pub const TORCHAO_0_18: Convention = Convention {
    name: "torchao-0.18",
    summary: "byte-0 blocks divided by 2^-126 (by 1 under RCEIL); RCEIL through a rounded f32 log2; Inf is a large number",
    source: "torchao v0.18.0 prototype/mx_formats/mx_tensor.py::to_mx (before PR 4725)",
    amax_nan: AmaxNan::Propagate,
    rceil_rule: RceilRule::CeilLog2,
    exponent_modes: Edges {
        infinity_scale: InfinityScale::ExponentField,
        byte_zero: ByteZero::SmallestNormal,
        nan_scale: NanScale::DivideByInfinity,
    },
    rceil: Edges {
        infinity_scale: InfinityScale::Largest,
        byte_zero: ByteZero::One,
        nan_scale: NanScale::AllNan,
    },
};

impl Convention {
    /// Every built-in convention, the default first.
    pub const ALL: [&'static Self; 3] = [&PROPAGATE, &TE, &TORCHAO_0_18];

    /// The convention of that name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|convention| convention.name == name)
    }
}
