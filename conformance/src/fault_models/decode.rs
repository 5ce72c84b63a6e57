//! Codes and scale bytes read back, alone and in products.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, u8s};
use mx_reference::format::Specials;
use mx_reference::format::{E2M1, E4M3, E5M2, E8M0, INT8, UE4M3};
use mx_reference::{Element, Format, Number, Overflow, Rounding, dequantize_code};
use mx_vectors::answer::{AnswerError, bytes, check_dequantize, narrow, one};
use mx_vectors::op::{Dequantize, Factor, Gemm, Scaling};
use mx_vectors::{Call, Float, Op, Tensors};

const AREA: Area = Area::Decode;

type Reading = fn(&'static Format) -> &'static Format;

/// The outputs of a dequantize call whose formats are read as others.
pub(super) fn answer(
    d: &Dequantize,
    (element, scale): (Reading, Reading),
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    check_dequantize(inputs)?;
    let (element, scale) = (element(d.element.format()), scale(&E8M0));
    let codes = bytes("elements", &inputs["elements"])?;
    let scales = bytes("scales", &inputs["scales"])?;
    let output = d.output.format();
    let value = |(i, &code): (usize, &u8)| {
        let x = dequantize_code(element, code, scale, scales[i / 32]);
        output.encode(x, Rounding::NearestEven, Overflow::Propagate)
    };
    let bits = codes.iter().enumerate().map(value).collect();
    Ok(one("output", inputs["elements"].shape.clone(), narrow(d.output, bits)))
}

fn dequantizes(op: &Op, of: impl Fn(&Dequantize) -> bool) -> bool {
    matches!(op, Op::Dequantize(d) if of(d))
}

/// Products in f32: what is read does not depend on what sums are rounded to. Grouped products are asked ordinary sums alone.
fn products(op: &Op, of: impl Fn(&Gemm) -> bool) -> bool {
    matches!(op, Op::Gemm(g) if g.output == Float::F32 && g.scaling != Scaling::Unit && of(g))
}

/// Dequantisation and products with E8M0 scales other than 1.
fn reads_e8m0(op: &Op) -> bool {
    dequantizes(op, |_| true) || products(op, |g| g.scaling == Scaling::Mx)
}

/// Dequantisation and products of a format.
fn reads(op: &Op, element: Element) -> bool {
    let factor = Factor::Element(element);
    dequantizes(op, |d| d.element == element) || products(op, |g| g.a == factor || g.b == factor)
}

const SAME: Reading = |format| format;

const fn formats(
    about: About,
    applies: fn(&Op) -> bool,
    element: Reading,
    scale: Reading,
) -> FaultModel {
    model(AREA, about, applies, Delta::Formats { element, scale })
}

/// Byte 0 is zero, as exponent field 0 of an f32 with no mantissa.
const E8M0_WITH_ZERO: Format = Format { subnormals: true, ..E8M0 };
/// Byte 0xFF is 2^128.
const E8M0_WITHOUT_NAN: Format = Format { specials: Specials::None, ..E8M0 };
/// Byte 0xFF is infinity.
const E8M0_WITH_INFINITY: Format = Format { specials: Specials::Ieee, ..E8M0 };
/// The bias that a weight converter left out once.
const E8M0_BIAS_125: Format = Format { bias: 125, ..E8M0 };
/// 0x7F and 0xFF are ±480.
const E4M3_WITHOUT_NAN: Format = Format { specials: Specials::None, ..E4M3 };
/// The bias of E4M3 FNUZ.
const E4M3_BIAS_8: Format = Format { bias: 8, ..E4M3 };
/// 0x7C is 65536 and so on.
const E5M2_WITHOUT_SPECIALS: Format = Format { specials: Specials::None, ..E5M2 };
/// Six bits of fraction too few.
const INT8_INTEGERS: Format = Format { bias: -6, ..INT8 };
/// E2M1 with the bias of E2M3's neighbour.
const E2M1_BIAS_2: Format = Format { bias: 2, ..E2M1 };

fn same_or(format: &'static Format, own: &Format, other: &'static Format) -> &'static Format {
    if format == own { other } else { format }
}

/// Outputs of a dequantize call, changed where a scale byte and a code say so.
fn each_output(call: &Call, outputs: &mut Tensors, bits: impl Fn(&Dequantize, u8, u8, u32) -> u32) {
    let Op::Dequantize(d) = call.op else { return };
    let (Some(elements), Some(scales)) = (call.inputs.get("elements"), call.inputs.get("scales"))
    else {
        return;
    };
    let Some(output) = outputs.get_mut("output") else { return };
    for i in 0..output.data.len() {
        let (code, byte) = (elements.data.get(i) as u8, scales.data.get(i / 32) as u8);
        let changed = bits(&d, code, byte, output.data.get(i));
        super::set(output, i, changed);
    }
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(AREA, about, applies, Delta::Outputs(change))
}

/// The sign bit of a type and the value without it.
fn split(float: Float, bits: u32) -> (u32, u32) {
    let sign = float.format().sign_bit();
    (bits & sign, bits & !sign)
}

pub(super) const MODELS: &[FaultModel] = &[
    formats(
        [
            "decode-byte-0-zero",
            "scale byte 0 is read as 0.0 instead of 2^-127",
            "triton PR 11624, 11737; TransformerEngine PR 3262",
        ],
        |op| {
            // Under byte 0 every number is zero in f16, and only E5M2 has an infinity to multiply with it.
            let same = |d: &Dequantize| d.output == Float::F16 && d.element != Element::E5m2;
            reads_e8m0(op) && !dequantizes(op, same)
        },
        SAME,
        |format| same_or(format, &E8M0, &E8M0_WITH_ZERO),
    ),
    formats(
        [
            "decode-byte-255-power",
            "scale byte 0xFF is read as 2^128 instead of NaN",
            "transformers 5.24 convert_moe_packed_tensors, gpt-oss weights.py",
        ],
        reads_e8m0,
        SAME,
        |format| same_or(format, &E8M0, &E8M0_WITHOUT_NAN),
    ),
    formats(
        [
            "decode-byte-255-infinity",
            "scale byte 0xFF is read as infinity instead of NaN",
            "LLVM 215445, TransformerEngine PR 3262",
        ],
        reads_e8m0,
        SAME,
        |format| same_or(format, &E8M0, &E8M0_WITH_INFINITY),
    ),
    formats(
        [
            "decode-scale-bias-125",
            "scale bytes are read with bias 125",
            "compressed-tensors PR 538",
        ],
        reads_e8m0,
        SAME,
        |format| same_or(format, &E8M0, &E8M0_BIAS_125),
    ),
    formats(
        ["decode-scale-as-e4m3", "E8M0 scale bytes are read as E4M3", "sglang PR 19948, 28662"],
        reads_e8m0,
        SAME,
        |format| same_or(format, &E8M0, &UE4M3),
    ),
    formats(
        [
            "decode-e4m3-nan-as-480",
            "codes 0x7F and 0xFF are read as 480 and -480",
            "intel-xpu-triton PR 7029",
        ],
        |op| reads(op, Element::E4m3),
        |format| same_or(format, &E4M3, &E4M3_WITHOUT_NAN),
        SAME,
    ),
    formats(
        [
            "decode-e4m3-bias-8",
            "E4M3 codes are read with the bias of FNUZ",
            "aiter PR 3212, vLLM PR 34577",
        ],
        |op| reads(op, Element::E4m3),
        |format| same_or(format, &E4M3, &E4M3_BIAS_8),
        SAME,
    ),
    formats(
        [
            "decode-e5m2-without-specials",
            "codes of infinity and NaN are read as numbers",
            "rocm-libraries PR 7439, float8 crate 0.7: NaN codes missed",
        ],
        |op| reads(op, Element::E5m2),
        |format| same_or(format, &E5M2, &E5M2_WITHOUT_SPECIALS),
        SAME,
    ),
    formats(
        [
            "decode-int8-integers",
            "MXINT8 codes are read as integers, without their 2^-6",
            "microxcaling 3, tt-metal 56526",
        ],
        |op| reads(op, Element::Int8),
        |format| same_or(format, &INT8, &INT8_INTEGERS),
        SAME,
    ),
    formats(
        [
            "decode-e2m1-bias",
            "E2M1 codes are read with an exponent one too low",
            "ROCm triton 330: missing exponent compensation",
        ],
        |op| reads(op, Element::E2m1),
        |format| same_or(format, &E2M1, &E2M1_BIAS_2),
        SAME,
    ),
    formats(
        [
            "decode-nvfp4-scale-as-e8m0",
            "UE4M3 block scales of NVFP4 are read as powers of two",
            "sglang PR 19948, 22300: scale types confused",
        ],
        |op| products(op, |g| g.scaling == Scaling::Nvfp4),
        SAME,
        |format| same_or(format, &UE4M3, &E8M0),
    ),
    outputs(
        [
            "decode-subnormals-as-normal",
            "subnormal codes are read with an implicit one",
            "flashinfer PR 3932, ROCm triton 330",
        ],
        |op| dequantizes(op, |d| d.element != Element::Int8),
        |call, outputs| {
            each_output(call, outputs, |d, code, byte, bits| {
                let format = d.element.format();
                let magnitude = u32::from(code) & (format.sign_bit() - 1);
                if magnitude == 0 || magnitude >> format.mantissa_bits > 0 {
                    return bits;
                }
                let significand = u64::from(1 << format.mantissa_bits | magnitude);
                let lowest = -format.bias - format.mantissa_bits as i32;
                let negative = u32::from(code) & format.sign_bit() != 0;
                let x =
                    Number::finite(negative, significand, lowest).times(E8M0.decode(byte.into()));
                d.output.format().encode(x, Rounding::NearestEven, Overflow::Propagate)
            });
        },
    ),
    outputs(
        [
            "decode-f16-scale-flushed",
            "scales below f16's normal range are flushed to zero",
            "1Cat-vLLM PR 222",
        ],
        |op| dequantizes(op, |d| d.output == Float::F16),
        |call, outputs| {
            each_output(call, outputs, |d, _, byte, bits| {
                if (103..113).contains(&byte) { split(d.output, bits).0 } else { bits }
            });
        },
    ),
    outputs(
        [
            "decode-subnormal-outputs-flushed",
            "subnormal results are flushed to zero",
            "tt-metal PR 42106, pytorch PR 185878",
        ],
        |op| dequantizes(op, |_| true),
        |call, outputs| {
            each_output(call, outputs, |d, _, _, bits| {
                let (sign, magnitude) = split(d.output, bits);
                if magnitude >> d.output.format().mantissa_bits == 0 { sign } else { bits }
            });
        },
    ),
    outputs(
        ["decode-negative-zero-lost", "code -0 is read as +0", "rocm-libraries PR 7439"],
        |op| dequantizes(op, |d| d.element != Element::Int8),
        |call, outputs| {
            each_output(call, outputs, |d, code, _, bits| {
                let zero = u32::from(code) == d.element.format().sign_bit();
                if zero { bits & !d.output.format().sign_bit() } else { bits }
            });
        },
    ),
    outputs(
        [
            "decode-overflow-saturates",
            "results beyond the output type become its largest number",
            "transformers 5.24: results clamped where the type has infinity",
        ],
        |op| dequantizes(op, |_| true),
        |call, outputs| {
            each_output(call, outputs, |d, code, byte, bits| {
                let format = d.output.format();
                let infinite = split(d.output, bits).1 == format.max_code() + 1;
                let x = dequantize_code(d.element.format(), code, &E8M0, byte);
                if infinite && x.exponent().is_some() { bits - 1 } else { bits }
            });
        },
    ),
    outputs(
        [
            "decode-double-rounded",
            "the product of element and scale goes through f32 without subnormals before it is rounded to 16 bits",
            "vLLM PR 46676 review, TransformerEngine PR 3262: bf16 subnormals lost",
        ],
        |op| dequantizes(op, |d| d.output == Float::Bf16),
        |call, outputs| {
            each_output(call, outputs, |d, code, byte, bits| {
                let x = dequantize_code(d.element.format(), code, &E8M0, byte);
                let (sign, _) = split(d.output, bits);
                if x.exponent().is_some_and(|e| e < -126) { sign } else { bits }
            });
        },
    ),
    model(
        AREA,
        [
            "decode-scale-of-block-16",
            "every scale counts for 16 elements, the block of NVFP4",
            "vLLM PR 43557, flashinfer PR 3932: one block size taken for the other",
        ],
        |op| dequantizes(op, |_| true),
        Delta::Inputs(|call| {
            let mut call = call.clone();
            // What a reader of 16-element blocks sees in elements 0 to 31 of a row are its scales 0 and 1: half the row is under the
            // scale that belongs to the next block.
            if let Some(scales) = call.inputs.get_mut("scales") {
                let cols = super::sides(scales).1.max(1);
                let data = u8s(scales);
                let own = data.to_vec();
                for (i, byte) in data.iter_mut().enumerate() {
                    *byte = own[i / cols * cols + (2 * (i % cols)).min(cols - 1)];
                }
            }
            call
        }),
    ),
];
