//! Casts without a scale.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel};
use mx_reference::format::{BF16, E8M0};
use mx_reference::{Element, Number, Overflow, Rounding};
use mx_vectors::answer::one;
use mx_vectors::op::{Cast, CastOverflow, CastRounding, Target};
use mx_vectors::{Data, Float, Op, Tensors};

/// The outputs of a cast by another function.
pub(super) fn answer(cast: &Cast, code: fn(&Cast, u32) -> u8, inputs: &Tensors) -> Tensors {
    let Some(input) = inputs.get("input") else { return Tensors::new() };
    let codes = (0..input.data.len()).map(|i| code(cast, input.data.get(i))).collect();
    one("elements", input.shape.clone(), Data::U8(codes))
}

fn casts(op: &Op, of: impl Fn(&Cast) -> bool) -> bool {
    matches!(op, Op::Cast(cast) if of(cast))
}

const fn cast(about: About, applies: fn(&Op) -> bool, code: fn(&Cast, u32) -> u8) -> FaultModel {
    model(Area::ElementCast, about, applies, Delta::Cast(code))
}

/// The code of a number under some rounding and overflow.
fn encoded(cast: &Cast, x: Number, rounding: Rounding, overflow: Overflow) -> u8 {
    cast.target.format().encode(x, rounding, overflow) as u8
}

fn right(cast: &Cast, x: Number) -> u8 {
    encoded(cast, x, cast.rounding.rounding(), cast.overflow.overflow())
}

fn decoded(cast: &Cast, bits: u32) -> Number {
    cast.input.format().decode(bits)
}

fn to_e8m0(op: &Op) -> bool {
    casts(op, |c| c.target == Target::E8m0)
}

pub(super) const MODELS: &[FaultModel] = &[
    cast(
        [
            "cast-rounding-ignored",
            "the rounding is not forwarded, so every cast rounds to nearest even",
            "pytorch 175409: no rounding argument in a cast",
        ],
        |op| casts(op, |c| c.rounding != CastRounding::Even),
        |c, bits| encoded(c, decoded(c, bits), Rounding::NearestEven, c.overflow.overflow()),
    ),
    cast(
        [
            "cast-always-saturates",
            "overflow gives max where infinity or NaN is asked for",
            "pytorch PR 178817, PR 177870",
        ],
        |op| casts(op, |c| c.overflow == CastOverflow::Propagate && c.target.format().has_nan()),
        |c, bits| encoded(c, decoded(c, bits), c.rounding.rounding(), Overflow::Saturate),
    ),
    cast(
        [
            "cast-never-saturates",
            "overflow gives infinity or NaN where max is asked for",
            "pytorch 150756, 154028; Model-Optimizer 1633",
        ],
        |op| casts(op, |c| c.overflow == CastOverflow::Saturate && c.target.format().has_nan()),
        |c, bits| encoded(c, decoded(c, bits), c.rounding.rounding(), Overflow::Propagate),
    ),
    cast(
        [
            "cast-infinity-saturates",
            "finite overflow gives NaN, but infinity gives max",
            "torch 2.15 CPU: infinity to 0x7E",
        ],
        |op| casts(op, |c| c.overflow == CastOverflow::Propagate && c.target.format().has_nan()),
        |c, bits| {
            let x = decoded(c, bits);
            let overflow = if x.exponent().is_none() && !x.is_nan() && !x.is_zero() {
                Overflow::Saturate
            } else {
                Overflow::Propagate
            };
            encoded(c, x, c.rounding.rounding(), overflow)
        },
    ),
    cast(
        [
            "cast-ties-away",
            "ties go away from zero",
            "triton 5925, PR 11753; aiter 974; microxcaling's nearest",
        ],
        |op| casts(op, |c| c.rounding == CastRounding::Even),
        |c, bits| encoded(c, decoded(c, bits), Rounding::NearestAway, c.overflow.overflow()),
    ),
    cast(
        ["cast-truncates", "values are truncated", "bitstring 342"],
        |op| casts(op, |c| c.rounding != CastRounding::Truncate),
        |c, bits| encoded(c, decoded(c, bits), Rounding::TowardZero, c.overflow.overflow()),
    ),
    cast(
        ["cast-via-bf16", "f32 and f16 are rounded to bf16 first", "flashinfer PR 4167"],
        |op| {
            casts(op, |c| {
                c.input != Float::Bf16
                    && matches!(c.target, Target::Element(_) | Target::Ue4m3)
                    && c.rounding == CastRounding::Even
            })
        },
        |c, bits| {
            let x = decoded(c, bits);
            let once = BF16.encode(x, Rounding::NearestEven, Overflow::Propagate);
            right(c, BF16.decode(once))
        },
    ),
    cast(
        [
            "cast-signalling-nan-is-infinity",
            "a NaN whose payload lies below the narrower type's mantissa is taken for infinity",
            "onnxruntime 16938",
        ],
        |op| {
            // Where infinity becomes NaN anyway there is nothing to confuse.
            let told_apart = |c: &Cast| {
                c.overflow == CastOverflow::Saturate || c.target == Target::Element(Element::E5m2)
            };
            casts(op, |c| c.input == Float::F32 && c.target.format().has_nan() && told_apart(c))
        },
        |c, bits| match decoded(c, bits) {
            x if x.is_nan() => right(c, BF16.decode(bits >> 16)),
            x => right(c, x),
        },
    ),
    cast(
        ["cast-negative-zero-lost", "-0 becomes +0", "llm-scaler PR 569, rocm-libraries PR 7439"],
        |op| casts(op, |c| c.target.format().sign_bit() != 0),
        |c, bits| {
            let x = decoded(c, bits);
            right(c, if x.is_zero() { Number::ZERO } else { x })
        },
    ),
    cast(
        [
            "cast-negative-zero-nan",
            "-0 becomes 0x80 read as the NaN of a FNUZ format",
            "torch-xpu-ops 2951, triton PR 3997",
        ],
        |op| casts(op, |c| c.target == Target::Element(Element::E4m3)),
        |c, bits| match right(c, decoded(c, bits)) {
            0x80 => 0x7f,
            code => code,
        },
    ),
    cast(
        ["cast-subnormals-flushed", "subnormal codes are flushed to zero", "tt-metal PR 42106"],
        |op| casts(op, |c| c.target.format().subnormals && c.target.format().exponent_bits > 0),
        |c, bits| {
            let format = c.target.format();
            let code = right(c, decoded(c, bits));
            let magnitude = u32::from(code) & !format.sign_bit();
            if magnitude >> format.mantissa_bits == 0 {
                code & format.sign_bit() as u8
            } else {
                code
            }
        },
    ),
    cast(
        [
            "e8m0-half-up",
            "E8M0 is rounded half up instead of up",
            "tilelang 2042, Fuser 4665, torch, ml_dtypes, JAX",
        ],
        |op| to_e8m0(op) && casts(op, |c| c.rounding == CastRounding::Up),
        |c, bits| encoded(c, decoded(c, bits), Rounding::NearestAway, c.overflow.overflow()),
    ),
    cast(
        ["e8m0-zero-is-nan", "zero becomes 0xFF", "ml_dtypes, XLA, LLVM 214919"],
        to_e8m0,
        |c, bits| {
            let x = decoded(c, bits);
            if x.is_zero() { 0xff } else { right(c, x) }
        },
    ),
    cast(
        [
            "e8m0-negative-is-nan",
            "a negative number becomes 0xFF instead of losing its sign",
            "ml_dtypes, XLA, LLVM PR 214919",
        ],
        to_e8m0,
        |c, bits| {
            let x = decoded(c, bits);
            if x.negative && x.exponent().is_some() { 0xff } else { right(c, x) }
        },
    ),
    cast(
        [
            "e8m0-subnormal-up",
            "a subnormal at or below 2^-127 is rounded up to byte 1",
            "tilelang-metax PR 101",
        ],
        |op| {
            // f16 ends far above 2^-127.
            to_e8m0(op) && casts(op, |c| c.rounding == CastRounding::Up && c.input != Float::F16)
        },
        |c, bits| {
            let x = decoded(c, bits);
            let byte = right(c, x);
            if byte == 0 && x.exponent().is_some() { 1 } else { byte }
        },
    ),
    cast(
        ["e8m0-mantissa-mask", "the test for a fraction masks with 0x4FFFFF", "onnx PR 7784"],
        |op| to_e8m0(op) && casts(op, |c| c.rounding == CastRounding::Up),
        |c, bits| {
            let x = decoded(c, bits);
            let fraction = super::blocks::parts(x).map_or(0, |(_, fraction)| fraction);
            let lost = fraction & 0x4f_ffff == 0;
            let rounding = if lost { Rounding::TowardZero } else { Rounding::Up };
            E8M0.encode(x.abs(), rounding, c.overflow.overflow()) as u8
        },
    ),
    cast(
        [
            "e8m0-infinity-saturates",
            "infinity becomes 0xFE without saturation",
            "CUTLASS float_ue8m0_t: host and device differ at infinity",
        ],
        |op| to_e8m0(op) && casts(op, |c| c.overflow == CastOverflow::Propagate),
        |c, bits| {
            let x = decoded(c, bits);
            let infinite = x.exponent().is_none() && !x.is_nan() && !x.is_zero();
            if infinite { 0xfe } else { right(c, x) }
        },
    ),
    cast(
        ["ue4m3-half-up", "the mantissa of UE4M3 is rounded half up", "ggml UE4M3"],
        |op| casts(op, |c| c.target == Target::Ue4m3 && c.rounding == CastRounding::Even),
        |c, bits| encoded(c, decoded(c, bits).abs(), Rounding::NearestAway, c.overflow.overflow()),
    ),
    cast(
        [
            "int8-cast-minus-128",
            "negative overflow gives code 0x80",
            "microxcaling 3, tt-metal 49907",
        ],
        |op| casts(op, |c| c.target == Target::Element(Element::Int8)),
        |c, bits| {
            let x = decoded(c, bits);
            let overflows = x.exponent().map_or(!x.is_nan() && !x.is_zero(), |e| e >= 1);
            if x.negative && overflows { 0x80 } else { right(c, x) }
        },
    ),
];
