//! The fast twin as an answering function.

use half::slice::HalfBitsSliceExt;
use mx_reference::{BlockShape, Convention, Input, MatrixView, Profile, Quantized, ShapeError};
use mx_vectors::answer::{
    AnswerError, Quantizer, answer as reference, bytes, check_dequantize, check_width, narrow, one,
    quantized, tensor,
};
use mx_vectors::op::Cast;
use mx_vectors::{Data, Float, Op, Quantize, Tensors};
use zerocopy::{FromBytes, IntoBytes};

struct Native;

impl Quantizer for Native {
    fn quantize<T: Input + Sync>(
        &self,
        x: MatrixView<'_, T>,
        profile: Profile,
        q: &Quantize,
    ) -> Result<Quantized, ShapeError> {
        mx_native::quantize(x, profile, q.blocking())
    }
}

/// The outputs of a call by native; ops that have no fast twin (packing, layouts) are the reference's.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit the op.
pub fn answer(
    op: &Op,
    convention: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    match op {
        Op::Quantize(q) => quantized(&Native, q, convention, inputs),
        Op::Dequantize(d) => {
            let shape = check_dequantize(inputs)?;
            let elements = &inputs["elements"];
            let (codes, scales) =
                (bytes("elements", elements)?, bytes("scales", &inputs["scales"])?);
            let format = d.output.format();
            let bits =
                mx_native::dequantize(d.element, shape, BlockShape::MX, codes, scales, format)?;
            Ok(one("output", elements.shape.clone(), narrow(d.output, bits)))
        }
        Op::Cast(c) => {
            let input = tensor(inputs, "input", "input")?;
            check_width("input", input, c.input)?;
            Ok(one("elements", input.shape.clone(), Data::U8(cast(c, &input.data)?)))
        }
        Op::Pack(_) | Op::Swizzle => reference(op, convention, inputs),
    }
}

/// Casts raw bits.
///
/// # Errors
/// [`AnswerError::Width`] unless the data is of the input type's width.
pub fn cast(c: &Cast, data: &Data) -> Result<Vec<u8>, AnswerError> {
    let (format, rounding, overflow) =
        (c.target.format(), c.rounding.rounding(), c.overflow.overflow());
    let mut codes = vec![0; data.len()];
    match (data, c.input) {
        (Data::U32(bits), Float::F32) => {
            let Ok(input) = <[f32]>::ref_from_bytes(bits.as_bytes()) else {
                unreachable!("u32 and f32 have one size and alignment")
            };
            mx_native::encode_slice(format, rounding, overflow, input, &mut codes)?;
        }
        (Data::U16(bits), Float::Bf16) => {
            let input = bits.reinterpret_cast::<half::bf16>();
            mx_native::encode_slice(format, rounding, overflow, input, &mut codes)?;
        }
        (Data::U16(bits), Float::F16) => {
            let input = bits.reinterpret_cast::<half::f16>();
            mx_native::encode_slice(format, rounding, overflow, input, &mut codes)?;
        }
        (data, _) => {
            let expected = c.input.format().bits as usize / 8;
            return Err(AnswerError::Width { name: "input", expected, got: data.width() });
        }
    }
    Ok(codes)
}
