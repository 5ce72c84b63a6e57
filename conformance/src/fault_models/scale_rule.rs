//! From amax to scale byte.

use super::blocks::{clamped, parts, scale};
use super::{Area, Block, FaultModel, quantizes};
use mx_reference::convention::TORCHAO_0_18;
use mx_reference::format::{BF16, E2M1, E8M0, F32};
use mx_reference::scale::{LARGEST_BYTE, NAN_BYTE, even_threshold, rceil_quotient};
use mx_reference::{Element, Format, Magnitude, Number, Overflow, Profile, Rounding, ScaleMode};
use mx_vectors::{Float, Op};

const AREA: Area = Area::ScaleRule;

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn floor(op: &Op) -> bool {
    quantizes(op, |q| q.mode == ScaleMode::Floor)
}

fn ceil(op: &Op) -> bool {
    quantizes(op, |q| q.mode == ScaleMode::Ceil)
}

fn even(op: &Op) -> bool {
    quantizes(op, |q| q.mode == ScaleMode::Even)
}

fn rceil(op: &Op) -> bool {
    quantizes(op, |q| q.mode == ScaleMode::Rceil)
}

/// Everything that narrowing to bf16 changes.
fn wider_than_bf16(op: &Op) -> bool {
    quantizes(op, |q| q.input != Float::Bf16)
}

/// The byte under another mode.
fn as_mode(block: &Block<'_>, mode: ScaleMode) -> u8 {
    Profile { mode, ..block.profile }.scale(block.amax)
}

/// The byte for an amax that is a number, by `floor(log2 amax) - p` plus a bump; other amaxes are right.
fn bumped(block: &Block<'_>, bump: impl Fn(i32, u32) -> bool) -> u8 {
    match parts(block.amax) {
        Some((exponent, fraction)) => {
            let p = block.format().max_exponent();
            clamped(exponent - p + i32::from(bump(exponent, fraction)))
        }
        None => block.byte(block.amax),
    }
}

/// RCEIL's f32 quotient, for an amax that is a number.
fn quotient(block: &Block<'_>) -> Option<Number> {
    parts(block.amax)?;
    Some(F32.decode(rceil_quotient(block.amax, block.profile.element.reciprocal_of_max())))
}

/// The byte from RCEIL's quotient; other amaxes are right.
fn from_quotient(block: &Block<'_>, byte: impl Fn(Number) -> u8) -> u8 {
    quotient(block).map_or_else(|| block.byte(block.amax), byte)
}

/// The number as another type has it; a zero where it has none so small.
fn narrowed(x: Number, format: &Format, rounding: Rounding) -> Number {
    format.decode(format.encode(x, rounding, Overflow::Propagate))
}

/// Units in the last place of an f32 below 2^k whose correctly rounded f32 logarithm is k.
const fn lost_below(k: i32) -> u32 {
    match k.unsigned_abs() {
        64.. => 44,
        32..64 => 22,
        16..32 => 11,
        8..16 => 5,
        4..8 => 2,
        2..4 => 1,
        _ => 0,
    }
}

/// The 23-bit fractions from which a logarithm between 2^i and 2^(i+1), rounded to bf16's 8 bits, is the next integer: its last place
/// is 2^(i-7), so the fraction of the amax is 2^(1 - 2^(i-8)) and above.
const BF16_LOG2: [u32; 7] =
    [0x7f_4ecb, 0x7e_9e11, 0x7d_3e0c, 0x7a_83b3, 0x75_257d, 0x6a_c0c7, 0x57_44fd];

pub(super) const MODELS: &[FaultModel] = &[
    scale(
        AREA,
        [
            "mode-dropped-floor",
            "the mode is not forwarded to the kernel, which does FLOOR",
            "torchao PR 3686, 3522; aiter PR 3212: FLOOR by default",
        ],
        |op| quantizes(op, |q| q.mode != ScaleMode::Floor),
        |block| as_mode(block, ScaleMode::Floor),
    ),
    scale(
        AREA,
        [
            "mode-dropped-ceil",
            "the mode is not forwarded to the kernel, which does CEIL",
            "torchao PR 3686, 3522",
        ],
        |op| quantizes(op, |q| q.mode != ScaleMode::Ceil),
        |block| as_mode(block, ScaleMode::Ceil),
    ),
    scale(
        AREA,
        [
            "mode-dropped-even",
            "the mode is not forwarded to the kernel, which does EVEN",
            "torchao PR 3686, 3522; Quark's default",
        ],
        |op| quantizes(op, |q| q.mode != ScaleMode::Even),
        |block| as_mode(block, ScaleMode::Even),
    ),
    scale(
        AREA,
        [
            "mode-dropped-rceil",
            "the mode is not forwarded to the kernel, which does RCEIL",
            "torchao PR 3686, 3522",
        ],
        |op| quantizes(op, |q| q.mode != ScaleMode::Rceil),
        |block| as_mode(block, ScaleMode::Rceil),
    ),
    scale(
        AREA,
        [
            "rceil-nearest-log2",
            "the exponent of amax / max is rounded to nearest, so the largest elements clip",
            "mlx PR 4353, rMLX 463",
        ],
        rceil,
        |block| {
            from_quotient(block, |q| match parts(q) {
                Some((e, fraction)) => clamped(e + i32::from(fraction > 0x35_04f3)),
                None => 0,
            })
        },
    ),
    scale(
        AREA,
        [
            "rceil-half-up",
            "amax / max is cast to E8M0 half up, as torch, ml_dtypes and JAX cast, instead of up",
            "tilelang 2042, Fuser 4665; FlyDSL PR 590",
        ],
        rceil,
        |block| {
            from_quotient(block, |q| {
                E8M0.encode(q, Rounding::NearestAway, Overflow::Propagate) as u8
            })
        },
    ),
    scale(
        AREA,
        [
            "rceil-ceil-log2f",
            "the ceiling of an f32 logarithm, which rounds to an integer just above a power of two",
            "torchao <= 0.18 RCEIL, rocm-libraries PR 4368",
        ],
        rceil,
        |block| match block.amax.magnitude {
            Magnitude::Finite { .. } => {
                ScaleMode::Rceil.byte(block.profile.element, block.amax, &TORCHAO_0_18)
            }
            _ => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        [
            "floor-log2f",
            "the floor of an f32 logarithm, which rounds to an integer just below a power of two",
            "float4 crate 0.2, rocm-libraries PR 4368: log2 of a float for an exponent",
        ],
        floor,
        |block| bumped(block, |e, fraction| fraction > 0x7f_ffff - lost_below(e + 1)),
    ),
    scale(
        AREA,
        [
            "floor-log2-bf16",
            "the floor of a logarithm taken in bf16",
            "amd-quark 0.13: wrong for 6804 of 32512 bf16 amaxes",
        ],
        floor,
        |block| {
            bumped(block, |e, fraction| {
                let size = if e < 0 { -1 - e } else { e }.unsigned_abs();
                let binade = size.checked_ilog2().unwrap_or(0).min(6);
                fraction >= BF16_LOG2[binade as usize]
            })
        },
    ),
    scale(
        AREA,
        [
            "floor-truncated-toward-zero",
            "a negative exponent is converted to an integer toward zero",
            "compressed-tensors PR 630",
        ],
        floor,
        |block| {
            let p = block.format().max_exponent();
            bumped(block, |e, fraction| e - p < 0 && fraction > 0)
        },
    ),
    scale(
        AREA,
        ["scale-bias-125", "the scale byte is stored two too low", "compressed-tensors PR 538"],
        every,
        |block| match block.amax.magnitude {
            Magnitude::Finite { .. } => block.byte(block.amax).saturating_sub(2),
            _ => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        [
            "ceil-mantissa-mask",
            "the test for a fraction masks with 0x4FFFFF and so loses two bits",
            "onnx PR 7784",
        ],
        ceil,
        |block| bumped(block, |_, fraction| fraction & 0x4f_ffff > 0),
    ),
    scale(
        AREA,
        [
            "rceil-mantissa-mask",
            "the test for a fraction of amax / max masks with 0x4FFFFF and so loses two bits",
            "onnx PR 7784",
        ],
        rceil,
        |block| {
            from_quotient(block, |q| match parts(q) {
                Some((e, fraction)) if e >= -126 => {
                    clamped(e + i32::from(fraction & 0x4f_ffff > 0))
                }
                _ => block.byte(block.amax),
            })
        },
    ),
    scale(
        AREA,
        [
            "rceil-subnormal-up",
            "a quotient of at most 2^-127 is rounded up to byte 1",
            "tilelang-metax PR 101",
        ],
        rceil,
        |block| {
            from_quotient(block, |q| {
                let byte = block.byte(block.amax);
                if q.is_zero() { byte } else { byte.max(1) }
            })
        },
    ),
    scale(
        AREA,
        [
            "rceil-subnormal-flushed",
            "a subnormal quotient is flushed to zero, which gives byte 0 for byte 1",
            "flashinfer 2440: approximate arithmetic that flushes",
        ],
        rceil,
        |block| {
            from_quotient(block, |q| match parts(q) {
                Some((e, _)) if e < -126 => 0,
                _ => block.byte(block.amax),
            })
        },
    ),
    scale(
        AREA,
        [
            "rceil-true-division",
            "amax is divided by max instead of multiplied by the rounded reciprocal",
            "aiter PR 3451; torchao PR 4725 on the rule of the hardware",
        ],
        rceil,
        |block| match parts(block.amax) {
            Some(_) => {
                let max = block.format().decode(block.format().max_code());
                let to_f32 = |x: Number| {
                    f32::from_bits(F32.encode(x, Rounding::NearestEven, Overflow::Propagate))
                };
                let q = F32.decode((to_f32(block.amax) / to_f32(max)).to_bits());
                E8M0.encode(q, Rounding::Up, Overflow::Propagate) as u8
            }
            None => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        [
            "even-top-nan",
            "rounding a finite amax carries into the exponent of infinity, and the block is lost",
            "torchao EVEN up to 0.18 and on its main branch: amaxes from 0x7F780000",
        ],
        even,
        |block| match parts(block.amax) {
            Some((127, fraction)) if fraction >= even_threshold(block.profile.element) => NAN_BYTE,
            _ => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        ["top-steps-to-nan", "a carry takes byte 0xFE to 0xFF", "tilelang-metax PR 101"],
        |op| {
            quantizes(op, |q| {
                q.element == Element::Int8
                    && matches!(q.mode, ScaleMode::Ceil | ScaleMode::Even)
                    && q.input != Float::F16
            })
        },
        |block| {
            let byte = block.byte(block.amax);
            let right = as_mode(block, ScaleMode::Floor);
            let carries = match (parts(block.amax), block.profile.mode) {
                (Some((_, fraction)), ScaleMode::Ceil) => fraction > 0,
                (Some((_, fraction)), _) => fraction >= even_threshold(block.profile.element),
                _ => false,
            };
            if right == LARGEST_BYTE && carries { NAN_BYTE } else { byte }
        },
    ),
    scale(
        AREA,
        [
            "even-threshold-of-e2m1",
            "EVEN steps at 1.75, the threshold of E2M1, in every format",
            "compressed-tensors PR 551",
        ],
        |op| even(op) && quantizes(op, |q| q.element != Element::E2m1),
        |block| bumped(block, |_, fraction| fraction >= even_threshold(Element::E2m1)),
    ),
    scale(
        AREA,
        [
            "even-half-down",
            "EVEN steps just above its threshold instead of at it",
            "compressed-tensors PR 551; vLLM PR 43557: the threshold itself",
        ],
        even,
        |block| bumped(block, |_, fraction| fraction > even_threshold(block.profile.element)),
    ),
    scale(
        AREA,
        ["rceil-max-of-fnuz", "the scale is sized for 240, the max of E4M3 FNUZ", "aiter PR 3212"],
        |op| rceil(op) && quantizes(op, |q| q.element == Element::E4m3),
        |block| match parts(block.amax) {
            // 240 = 1.875 × 2^7.
            Some((e, fraction)) => clamped(e - 7 + i32::from(fraction > 0x70_0000)),
            None => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        [
            "scale-ignores-max",
            "the scale is the amax rounded up to a power of two, whatever the format's max",
            "float4 crate 0.2; vLLM _mxfp8_e4m3_quantize_torch",
        ],
        |op| quantizes(op, |q| q.element != Element::Int8),
        |block| match parts(block.amax) {
            Some((e, fraction)) => clamped(e + i32::from(fraction > 0)),
            None => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        [
            "scale-of-nvfp4-rule",
            "the byte is E8M0 rounded to nearest of amax / max, as NVFP4 rounds its scale",
            "vLLM PR 43557",
        ],
        |op| quantizes(op, |q| q.element == Element::E2m1),
        |block| {
            from_quotient(block, |q| {
                E8M0.encode(q, Rounding::NearestEven, Overflow::Saturate) as u8
            })
        },
    ),
    scale(
        AREA,
        [
            "amax-epsilon",
            "an amax below 1e-4 counts as 1e-4",
            "DeepGEMM, ROCm TransformerEngine PR 737, aiter PR 4195",
        ],
        every,
        |block| {
            let epsilon = F32.decode(0x38d1_b717);
            block.byte(block.largest([block.amax, epsilon]))
        },
    ),
    scale(
        AREA,
        [
            "zero-block-scale-one",
            "a block of zeros gets scale 1 instead of byte 0",
            "Model-Optimizer PR 1397, aiter PR 4195: zero amax as a case of its own",
        ],
        every,
        |block| if block.amax.is_zero() { 127 } else { block.byte(block.amax) },
    ),
    scale(
        AREA,
        [
            "amax-rounded-to-bf16",
            "the amax is rounded to bf16 before its exponent is read",
            "torchao PR 4725: the Triton FLOOR kernel before it",
        ],
        wider_than_bf16,
        |block| block.byte(narrowed(block.amax, &BF16, Rounding::NearestEven)),
    ),
    scale(
        AREA,
        [
            "amax-truncated-to-bf16",
            "the amax is cut to bf16 before its exponent is read",
            "TransformerEngine PR 2355, flashinfer PR 3497: amax of another precision",
        ],
        wider_than_bf16,
        |block| block.byte(narrowed(block.amax, &BF16, Rounding::TowardZero)),
    ),
    scale(
        AREA,
        [
            "ceil-always-steps",
            "CEIL steps up from exact powers of two, too",
            "float4 crate 0.2, arch-com 848: exponent plus one for a ceiling",
        ],
        ceil,
        |block| bumped(block, |_, _| true),
    ),
    scale(
        AREA,
        [
            "scale-at-least-byte-1",
            "the scale is clamped to the smallest normal f32, so byte 0 never comes",
            "torchao <= 0.18 FLOOR",
        ],
        every,
        |block| match block.amax.magnitude {
            Magnitude::Finite { .. } => block.byte(block.amax).max(1),
            _ => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        ["scale-wraps", "an exponent below -127 wraps around the byte", "llama.cpp MXFP4"],
        |op| quantizes(op, |q| q.mode != ScaleMode::Rceil),
        |block| {
            let floor = as_mode(block, ScaleMode::Floor);
            match parts(block.amax) {
                Some((e, _)) if floor == 0 => {
                    let byte = block.byte(block.amax);
                    let field = e - block.format().max_exponent() + 127;
                    if field < 0 { field as u8 } else { byte }
                }
                _ => block.byte(block.amax),
            }
        },
    ),
    scale(
        AREA,
        [
            "threshold-of-another-format",
            "the mode's threshold is that of E2M1, whose max is 6",
            "FlyDSL PR 590: exponent one low for formats whose max is another fraction of a power of two",
        ],
        |op| rceil(op) && quantizes(op, |q| matches!(q.element, Element::E2m3 | Element::E4m3)),
        |block| {
            let max = E2M1.decode(E2M1.max_code());
            let threshold = parts(max).map_or(0, |(_, fraction)| fraction);
            bumped(block, |_, fraction| fraction > threshold)
        },
    ),
    scale(
        AREA,
        [
            "subnormal-amax-exponent-field",
            "the exponent of a subnormal amax is read from its field, which is 0",
            "tilelang-metax PR 101, LLVM 214919: subnormals by the exponent field",
        ],
        |op| quantizes(op, |q| q.mode != ScaleMode::Rceil),
        |block| {
            let least = if block.input == Float::F16 { -14 } else { -126 };
            match parts(block.amax) {
                Some((e, _)) if e < least => clamped(least - 1 - block.format().max_exponent()),
                _ => block.byte(block.amax),
            }
        },
    ),
];
