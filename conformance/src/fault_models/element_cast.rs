//! From ratio to element code.

use super::blocks::code;
use super::{Area, Block, FaultModel, quantizes};
use mx_reference::format::{BF16, F16, F32, INT8};
use mx_reference::{Element, Format, Magnitude, Number, Overflow, Rounding};
use mx_vectors::{Float, Op};

const AREA: Area = Area::ElementCast;

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn floats(op: &Op) -> bool {
    quantizes(op, |q| q.element != Element::Int8)
}

fn int8(op: &Op) -> bool {
    quantizes(op, |q| q.element == Element::Int8)
}

fn with_nan(op: &Op) -> bool {
    quantizes(op, |q| q.element.format().has_nan())
}

/// The code under another rounding.
fn rounded(block: &Block<'_>, x: Number, rounding: Rounding) -> u8 {
    block.encode(block.ratio(x), rounding, Overflow::Saturate)
}

/// The code of the ratio after it was rounded to another format.
fn via(block: &Block<'_>, x: Number, format: &Format) -> u8 {
    let once = format.encode(block.ratio(x), Rounding::NearestEven, Overflow::Propagate);
    block.encode(format.decode(once), Rounding::NearestEven, Overflow::Saturate)
}

/// INT8 with an eighth bit of magnitude, for what saturation hides.
const INT9: Format = Format { name: "int9", bits: 9, mantissa_bits: 8, bias: -1, ..INT8 };

fn f32(x: Number) -> f32 {
    f32::from_bits(F32.encode(x, Rounding::NearestEven, Overflow::Propagate))
}

pub(super) const MODELS: &[FaultModel] = &[
    code(
        AREA,
        [
            "element-ties-away",
            "ties are rounded away from zero",
            "triton 5925, PR 6102; aiter 974, PR 3992; microxcaling's nearest",
        ],
        every,
        |block, x| rounded(block, x, Rounding::NearestAway),
    ),
    code(
        AREA,
        [
            "element-ties-toward-zero",
            "ties are rounded toward zero",
            "DeepGEMM and Model-Optimizer FP4 tables; aiter PR 4030",
        ],
        every,
        |block, x| rounded(block, x, Rounding::NearestTowardZero),
    ),
    code(
        AREA,
        ["element-truncated", "codes are truncated instead of rounded", "bitstring 342"],
        every,
        |block, x| rounded(block, x, Rounding::TowardZero),
    ),
    code(
        AREA,
        [
            "element-rounded-up",
            "codes are rounded toward positive infinity, the mode of the scale",
            "TransformerEngine util/ptx.cuh: cvt.rp beside cvt.rn",
        ],
        every,
        |block, x| rounded(block, x, Rounding::Up),
    ),
    code(
        AREA,
        [
            "element-via-bf16",
            "the ratio is rounded to bf16 before it is cast",
            "flashinfer PR 4167, Megatron-LM PR 6588",
        ],
        |op| quantizes(op, |q| q.input != Float::Bf16),
        |block, x| via(block, x, &BF16),
    ),
    code(
        AREA,
        [
            "element-via-f16",
            "the ratio is rounded to f16 before it is cast",
            "triton PR 11753: conversions through f16",
        ],
        |op| quantizes(op, |q| q.input == Float::F32),
        |block, x| via(block, x, &F16),
    ),
    code(
        AREA,
        [
            "element-nan-on-overflow",
            "values beyond max become NaN or infinity instead of max",
            "pytorch 150756, 154028; torchao 1912; ml_dtypes 260, 400",
        ],
        with_nan,
        |block, x| block.encode(block.ratio(x), Rounding::NearestEven, Overflow::Propagate),
    ),
    code(
        AREA,
        [
            "element-subnormals-flushed",
            "subnormal codes are flushed to zero",
            "tt-metal PR 42106, PR 50082",
        ],
        floats,
        |block, x| {
            let right = block.right(x);
            let magnitude = u32::from(right) & !block.format().sign_bit();
            let least = 1 << block.format().mantissa_bits;
            if magnitude < least { right & block.format().sign_bit() as u8 } else { right }
        },
    ),
    code(
        AREA,
        [
            "element-subnormals-uncompensated",
            "below the smallest normal the mantissa is taken without shifting it",
            "ROCm triton 330",
        ],
        floats,
        |block, x| {
            let format = block.format();
            let ratio = block.ratio(x);
            match (ratio.exponent(), ratio.magnitude) {
                (Some(e), Magnitude::Finite { significand, .. })
                    if (format.min_exponent() - format.mantissa_bits as i32
                        ..format.min_exponent())
                        .contains(&e) =>
                {
                    let fraction = significand << (significand.leading_zeros() + 1);
                    let mantissa = fraction >> (64 - format.mantissa_bits);
                    let sign = if ratio.negative { format.sign_bit() } else { 0 };
                    mantissa as u8 | sign as u8
                }
                _ => block.right(x),
            }
        },
    ),
    code(
        AREA,
        [
            "element-sticky-lost",
            "what is shifted out below a subnormal's guard bit is lost, so values just above a tie count as ties",
            "triton 0616e64",
        ],
        floats,
        |block, x| {
            let format = block.format();
            let ratio = block.ratio(x);
            let guard = format.min_exponent() - format.mantissa_bits as i32 - 1;
            match (ratio.exponent(), ratio.magnitude) {
                (Some(e), Magnitude::Finite { significand, exponent })
                    if e < format.min_exponent() && exponent < guard =>
                {
                    let kept = significand.checked_shr((guard - exponent) as u32).unwrap_or(0);
                    let cut = Number::finite(ratio.negative, kept, guard);
                    block.encode(cut, Rounding::NearestEven, Overflow::Saturate)
                }
                _ => block.right(x),
            }
        },
    ),
    code(
        AREA,
        [
            "int8-minus-128",
            "negative values saturate to code 0x80, which is -2",
            "microxcaling 3, tt-metal 49907: the range of MXINT8",
        ],
        int8,
        |block, x| {
            let wide = INT9.encode(block.ratio(x).abs(), Rounding::NearestEven, Overflow::Saturate);
            if x.negative && !x.is_nan() && wide >= 128 { 0x80 } else { block.right(x) }
        },
    ),
    code(
        AREA,
        [
            "int8-sign-magnitude",
            "MXINT8 codes are sign and magnitude",
            "microxcaling 3, tt-metal 56526",
        ],
        int8,
        |block, x| {
            let right = block.right(x);
            if right > 0x80 { right.wrapping_neg() | 0x80 } else { right }
        },
    ),
    code(
        AREA,
        [
            "element-times-scale",
            "elements are multiplied by the scale instead of its inverse",
            "flashinfer PR 3932",
        ],
        every,
        |block, x| match block.scale {
            0xff => block.right(x),
            byte => {
                let ratio = x.scaled(i32::from(byte) - 127);
                block.encode(ratio, Rounding::NearestEven, Overflow::Saturate)
            }
        },
    ),
    code(
        AREA,
        [
            "element-by-unrounded-scale",
            "elements are divided by amax / max, while the byte is its power of two",
            "aiter PR 3451",
        ],
        every,
        |block, x| {
            let max = block.format().decode(block.format().max_code());
            match (block.amax.exponent(), x.exponent()) {
                (Some(_), Some(_)) => {
                    let ratio = f32(x) * (f32(max) / f32(block.amax));
                    let ratio = F32.decode(ratio.to_bits());
                    block.encode(ratio, Rounding::NearestEven, Overflow::Saturate)
                }
                _ => block.right(x),
            }
        },
    ),
    code(
        AREA,
        [
            "element-reciprocal-overflows",
            "max / amax is infinite for a tiny amax, so numbers saturate and zeros become NaN",
            "flashinfer PR 5024",
        ],
        // No amax of f16 is so small.
        |op| quantizes(op, |q| q.input != Float::F16),
        |block, x| {
            let max = block.format().decode(block.format().max_code());
            let reciprocal = f32(max) / f32(block.amax);
            if block.amax.exponent().is_none() || reciprocal.is_finite() {
                return block.right(x);
            }
            let ratio = F32.decode((f32(x) * reciprocal).to_bits());
            block.encode(ratio, Rounding::NearestEven, Overflow::Saturate)
        },
    ),
    code(
        AREA,
        [
            "element-max-of-fnuz",
            "codes saturate at 240, the max of E4M3 FNUZ",
            "aiter PR 3212; onnx 6220",
        ],
        |op| quantizes(op, |q| q.element == Element::E4m3),
        |block, x| {
            let right = block.right(x);
            if right & 0x7f == 0x7f { right } else { right & 0x80 | (right & 0x7f).min(0x77) }
        },
    ),
    code(
        AREA,
        [
            "element-neighbour",
            "a carry out of the mantissa is lost, which gives the least code of the same binade",
            "onnxruntime 16938: bit tricks that pick the wrong neighbour",
        ],
        floats,
        |block, x| {
            let (right, down) = (block.right(x), rounded(block, x, Rounding::TowardZero));
            let mask = (1u8 << block.format().mantissa_bits) - 1;
            if right != down && right & mask == 0 && !block.ratio(x).is_nan() {
                down & !mask
            } else {
                right
            }
        },
    ),
];
