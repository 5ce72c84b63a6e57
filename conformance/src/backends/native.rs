//! The fast twin as an answering function.

use mx_reference::gemm::{Accumulation, Gemm, ModelError};
use mx_reference::{BlockShape, Convention, Format, Matrix, MatrixView};
use mx_vectors::answer::{
    AnswerError, Multiply, answer as reference, bytes, check_dequantize, gemm_answer,
    grouped_answer, linear_answer, matrix, narrow, one, quantized, tensor,
};
use mx_vectors::op::{Cast, View};
use mx_vectors::{Data, Op, Tensor, Tensors};

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
        Op::Quantize(q) => quantized(q, convention, inputs, |x, profile, blocking| {
            mx_native::quantize(x, profile, blocking)
        }),
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
            Ok(one("elements", input.shape.clone(), Data::U8(cast(c, input)?)))
        }
        Op::Gemm(g) => gemm_answer(g, inputs, &NativeProducts),
        Op::GroupedGemm(g) => grouped_answer(g, inputs, &NativeProducts),
        Op::Linear(l) => linear_answer(l, inputs, &NativeProducts),
        Op::Pack(_) | Op::Swizzle | Op::AllToAll(_) | Op::GroupSwizzle(_) => {
            reference(op, convention, inputs)
        }
    }
}

/// Products by native's exact integers, or by the reference's models spread over threads.
struct NativeProducts;

impl Multiply for NativeProducts {
    fn exact(&self, product: &Gemm<'_>, output: &Format) -> Vec<u32> {
        mx_native::gemm(product, output)
    }

    fn accumulate(
        &self,
        product: &Gemm<'_>,
        accumulation: &Accumulation,
        output: &Format,
    ) -> Result<Vec<u32>, ModelError> {
        mx_native::accumulate(product, accumulation, output)
    }
}

/// Casts raw bits.
///
/// # Errors
/// [`AnswerError::Width`] unless the data is of the input type's width.
pub fn cast(c: &Cast, input: &Tensor) -> Result<Vec<u8>, AnswerError> {
    let (format, rounding, overflow) =
        (c.target.format(), c.rounding.rounding(), c.overflow.overflow());
    let mut codes = vec![0; input.data.len()];
    let out = &mut codes[..];
    match matrix(input, c.input, View::contiguous((1, out.len())))? {
        Matrix::F32(x) => mx_native::encode_slice(format, rounding, overflow, row(x), out),
        Matrix::Bf16(x) => mx_native::encode_slice(format, rounding, overflow, row(x), out),
        Matrix::F16(x) => mx_native::encode_slice(format, rounding, overflow, row(x), out),
    }?;
    Ok(codes)
}

/// The one row of a contiguous view.
fn row<T: Copy>(x: MatrixView<'_, T>) -> &[T] {
    x.row(0).unwrap_or_default()
}
