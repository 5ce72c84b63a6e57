//! NaN, infinity, zeros of both signs, and byte 0.

use super::blocks::{code, load, multiplier, scale};
use super::{Area, Block, FaultModel, quantizes};
use mx_reference::block::Multiplier;
use mx_reference::scale::{LARGEST_BYTE, NAN_BYTE};
use mx_reference::{Element, Magnitude, Number, Overflow, Rounding};
use mx_vectors::Op;

const AREA: Area = Area::SpecialValues;

fn every(op: &Op) -> bool {
    quantizes(op, |_| true)
}

fn with_nan(op: &Op) -> bool {
    quantizes(op, |q| q.element.format().has_nan())
}

fn with_sign(op: &Op) -> bool {
    quantizes(op, |q| q.element != Element::Int8)
}

const INFINITY: Number = Number { negative: false, magnitude: Magnitude::Infinite };

/// So small that every number under it becomes a zero of its sign.
const FLUSHED: Multiplier = Multiplier::Power(-400);

/// The right code, with a zero element's sign as given.
fn zero_signed(block: &Block<'_>, x: Number, negative: bool) -> u8 {
    block.right(if x.is_zero() { Number { negative, ..x } } else { x })
}

pub(super) const MODELS: &[FaultModel] = &[
    multiplier(
        AREA,
        [
            "nan-scale-read-as-infinity",
            "byte 0xFF is shifted into an f32 infinity, so finite elements of a NaN block become zeros",
            "torchao 0.18 FLOOR",
        ],
        with_nan,
        |block| match block.scale {
            NAN_BYTE => Multiplier::OneOverInfinity,
            _ => block.multiplier,
        },
    ),
    multiplier(
        AREA,
        [
            "nan-block-keeps-numbers",
            "under byte 0xFF numbers are cast as under any other scale, and only NaN becomes NaN",
            "TransformerEngine 2407, 2408",
        ],
        with_nan,
        |block| match block.scale {
            NAN_BYTE => Multiplier::Power(-128),
            _ => block.multiplier,
        },
    ),
    code(
        AREA,
        [
            "nan-element-as-max",
            "a NaN element becomes the largest number",
            "intel-xpu-triton PR 7029; torch 2.15: saturation that takes NaN with it",
        ],
        with_nan,
        |block, x| {
            let right = block.right(x);
            if block.format().is_nan(right.into()) {
                block.format().max_code() as u8
            } else {
                right
            }
        },
    ),
    scale(
        AREA,
        [
            "infinity-scale-saturates",
            "an infinite amax gives byte 0xFE",
            "TransformerEngine d0067d0: cvt.rp.satfinite",
        ],
        every,
        |block| match block.amax.magnitude {
            Magnitude::Infinite => LARGEST_BYTE,
            _ => block.byte(block.amax),
        },
    ),
    scale(
        AREA,
        [
            "infinity-scale-by-exponent-field",
            "an infinite amax counts as 2^128",
            "torchao <= 0.18 FLOOR",
        ],
        every,
        |block| match block.amax.magnitude {
            Magnitude::Infinite => (255 - block.format().max_exponent()).min(254) as u8,
            _ => block.byte(block.amax),
        },
    ),
    load(
        AREA,
        [
            "nan-replaced-by-zero",
            "NaN inputs are replaced by zero before quantisation",
            "microxcaling's comparator; torch.nan_to_num ahead of a cast",
        ],
        every,
        |input, bits| {
            let x = input.format().decode(bits);
            if x.is_nan() { Number::ZERO } else { x }
        },
    ),
    load(
        AREA,
        [
            "infinity-clamped-on-load",
            "infinities are clamped to the largest number of the input type",
            "Model-Optimizer PR 1397: clamped inputs",
        ],
        every,
        |input, bits| {
            let format = input.format();
            let x = format.decode(bits);
            match x.magnitude {
                Magnitude::Infinite => {
                    Number { negative: x.negative, ..format.decode(format.max_code()) }
                }
                _ => x,
            }
        },
    ),
    load(
        AREA,
        [
            "negative-infinity-lost",
            "only positive infinity is recognised; the negative one counts as its largest number",
            "torchao PR 4117, flashinfer PR 4023: infinities by sign",
        ],
        every,
        |input, bits| {
            let format = input.format();
            let x = format.decode(bits);
            match x.magnitude {
                Magnitude::Infinite if x.negative => {
                    Number { negative: true, ..format.decode(format.max_code()) }
                }
                _ => x,
            }
        },
    ),
    load(
        AREA,
        [
            "signalling-nan-is-a-number",
            "only quiet NaNs are recognised; others count as the largest number",
            "onnxruntime 16938: signalling NaN misread",
        ],
        every,
        |input, bits| {
            let format = input.format();
            let x = format.decode(bits);
            let quiet = 1 << (format.mantissa_bits - 1);
            if x.is_nan() && bits & quiet == 0 {
                Number { negative: x.negative, ..format.decode(format.max_code()) }
            } else {
                x
            }
        },
    ),
    code(
        AREA,
        ["negative-zero-lost", "-0 becomes +0", "llm-scaler PR 569"],
        with_sign,
        |block, x| zero_signed(block, x, false),
    ),
    code(
        AREA,
        [
            "zeros-negative",
            "zeros of both signs become -0",
            "Model-Optimizer MXFP4: both zeros give code 8",
        ],
        with_sign,
        |block, x| zero_signed(block, x, true),
    ),
    code(
        AREA,
        [
            "negative-zero-nan",
            "code 0x80 is replaced by NaN, as FNUZ formats read it",
            "torch-xpu-ops 2951, triton PR 3997",
        ],
        with_nan,
        |block, x| match block.right(x) {
            0x80 => block.format().nan_code as u8,
            code => code,
        },
    ),
    code(
        AREA,
        [
            "negative-underflow-positive",
            "a negative number that underflows becomes +0",
            "DeepGEMM, ggml FP4",
        ],
        with_sign,
        |block, x| {
            let right = block.right(x);
            let zero = u32::from(right) == block.format().sign_bit();
            if zero && !x.is_zero() { 0 } else { right }
        },
    ),
    code(
        AREA,
        [
            "zero-block-nan",
            "a block of zeros is divided by its zero amax and becomes NaN",
            "Model-Optimizer PR 1397, aiter PR 4195",
        ],
        with_nan,
        |block, x| {
            if block.amax.is_zero() { block.format().nan_code as u8 } else { block.right(x) }
        },
    ),
    multiplier(
        AREA,
        [
            "byte-0-taken-for-no-scale",
            "under byte 0 elements are cast unscaled",
            "torchao <= 0.18 RCEIL, TransformerEngine exp2f_rcp",
        ],
        every,
        |block| if block.scale == 0 { Multiplier::Power(0) } else { block.multiplier },
    ),
    multiplier(
        AREA,
        [
            "byte-0-clamped-to-normal",
            "under byte 0 elements are divided by 2^-126",
            "torchao <= 0.18 FLOOR",
        ],
        every,
        |block| if block.scale == 0 { Multiplier::Power(126) } else { block.multiplier },
    ),
    multiplier(
        AREA,
        [
            "byte-0-flushed",
            "the reciprocal of byte 0 is replaced by 0, so its block is flushed",
            "flashinfer PR 2441",
        ],
        every,
        |block| if block.scale == 0 { FLUSHED } else { block.multiplier },
    ),
    code(
        AREA,
        [
            "byte-0-reciprocal-infinite",
            "the reciprocal of byte 0 is infinite: zeros become NaN and numbers max",
            "flashinfer 2440",
        ],
        every,
        |block, x| {
            if block.scale == 0 {
                block.encode(x.times(INFINITY), Rounding::NearestEven, Overflow::Saturate)
            } else {
                block.right(x)
            }
        },
    ),
    multiplier(
        AREA,
        [
            "byte-254-reciprocal-zero",
            "the reciprocal of byte 254 is built by a shift and is 0 instead of 2^-127",
            "torchao PR 4117, TransformerEngine 2407, flashinfer PR 4023",
        ],
        |op| quantizes(op, |q| q.element == Element::Int8),
        |block| if block.scale == LARGEST_BYTE { FLUSHED } else { block.multiplier },
    ),
];
