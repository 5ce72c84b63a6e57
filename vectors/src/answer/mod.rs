//! The right answer to a call, by the reference, and how each byte of it is compared.

mod gemm;
mod training;

pub use gemm::{
    Multiply, ReferenceProducts, gemm_answer, grouped_answer, grouped_product, product,
};
pub use training::{LINEAR_OUTPUTS, all_to_all_answer, group_swizzle_answer, linear_answer};

use crate::op::{Float, Linear, Op, Quantize, View};
use crate::tensor::{Data, Tensor, Tensors};
use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};
use mx_reference::gemm::ModelError;
use mx_reference::pack::{pack, packed_len};
use mx_reference::training::TrainingError;
use mx_reference::{
    Axis, BlockShape, Blocking, Convention, Matrix, MatrixView, Profile, Quantized, Rule,
    ScaleLayout, ShapeError, check_quantized, dequantize, quantize,
};
use zerocopy::{FromBytes, IntoBytes};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// A tensor that the op needs is not there.
    #[error("tensor `{name}` is missing; this op reads {reads}")]
    Missing {
        /// Its name.
        name: &'static str,
        /// What the op reads.
        reads: &'static str,
    },
    /// A tensor of the wrong type.
    #[error("tensor `{name}`: expected elements of {expected} bytes, got {got}")]
    Width {
        /// Its name.
        name: &'static str,
        /// Bytes an element.
        expected: usize,
        /// Bytes an element of what came.
        got: usize,
    },
    /// A tensor of the wrong rank.
    #[error(
        "tensor `{name}`: expected two dimensions (three for stacked operands), got shape {shape:?}"
    )]
    Rank {
        /// Its name.
        name: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Scales of a shape that does not fit their elements.
    #[error("tensor `{name}`: expected shape {expected:?}, one scale a block, got {got:?}")]
    Scales {
        /// Its name.
        name: &'static str,
        /// Rows and blocks.
        expected: [usize; 2],
        /// Its shape.
        got: Vec<usize>,
    },
    /// Operands that an accumulation is not of.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A training step that was refused.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// A convention that an implementation does not know.
    #[error("the convention `{0}` is not implemented here")]
    Convention(&'static str),
    /// Shapes that do not fit.
    #[error(transparent)]
    Shape(#[from] ShapeError),
}

/// The right outputs of a call, computed by the reference.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit the op.
pub fn answer(
    op: &Op,
    convention: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    match op {
        Op::Quantize(q) => quantized(q, convention, inputs, |x, profile, blocking| match x {
            Matrix::F32(x) => quantize(x, profile, blocking),
            Matrix::Bf16(x) => quantize(x, profile, blocking),
            Matrix::F16(x) => quantize(x, profile, blocking),
        }),
        Op::Dequantize(d) => {
            let reads = "elements, scales";
            let elements = tensor(inputs, "elements", reads)?;
            let shape = matrix_shape("elements", elements)?;
            let codes = bytes("elements", elements)?;
            let scales = bytes("scales", tensor(inputs, "scales", reads)?)?;
            let output = d.output.format();
            let bits = dequantize(d.element, shape, BlockShape::MX, codes, scales, output)?;
            Ok(one("output", elements.shape.clone(), narrow(d.output, bits)))
        }
        Op::Cast(c) => {
            let input = tensor(inputs, "input", "input")?;
            check_width("input", input, c.input)?;
            let (target, from) = (c.target.format(), c.input.format());
            let (rounding, overflow) = (c.rounding.rounding(), c.overflow.overflow());
            let cast = |bits| target.encode(from.decode(bits), rounding, overflow) as u8;
            let codes = (0..input.data.len()).map(|i| cast(input.data.get(i))).collect();
            Ok(one("elements", input.shape.clone(), Data::U8(codes)))
        }
        Op::Pack(p) => {
            let elements = tensor(inputs, "elements", "elements")?;
            let (rows, cols) = matrix_shape("elements", elements)?;
            let width = packed_len(p.element, cols)?;
            let packed = pack(p.element, p.order, bytes("elements", elements)?)?;
            Ok(one("packed", [rows, width], Data::U8(packed)))
        }
        Op::Swizzle => {
            let scales = tensor(inputs, "scales", "scales")?;
            let shape = matrix_shape("scales", scales)?;
            let blocked = ScaleLayout::Blocked.arrange(shape, bytes("scales", scales)?)?;
            Ok(one("scales", [blocked.len()], Data::U8(blocked)))
        }
        Op::Gemm(g) => gemm_answer(g, inputs, &ReferenceProducts),
        Op::GroupedGemm(g) => grouped_answer(g, inputs, &ReferenceProducts),
        Op::Linear(l) => linear_answer(l, inputs, &ReferenceProducts),
        Op::AllToAll(a) => all_to_all_answer(a, inputs),
        Op::GroupSwizzle(g) => group_swizzle_answer(*g, inputs),
    }
}

/// The outputs of a quantize call by any quantiser; scales arranged as the op asks.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit the op.
pub fn quantized(
    q: &Quantize,
    convention: &'static Convention,
    inputs: &Tensors,
    quantize: impl FnOnce(Matrix<'_>, Profile, Blocking) -> Result<Quantized, ShapeError>,
) -> Result<Tensors, AnswerError> {
    let input = tensor(inputs, "input", "input")?;
    let view = match q.view {
        Some(view) => view,
        None => View::contiguous(matrix_shape("input", input)?),
    };
    let profile = Profile { element: q.element, mode: q.mode, convention };
    let done = quantize(matrix(input, q.input, view)?, profile, q.blocking())?;
    let (scales, shape) = arrange_scales(&done, q.block, q.layout)?;
    let mut outputs = one("elements", [done.rows, done.cols], Data::U8(done.elements));
    outputs.insert("scales".to_owned(), Tensor { shape, data: Data::U8(scales) });
    Ok(outputs)
}

/// A view of raw bits as values of an input type.
///
/// # Errors
/// [`AnswerError::Width`] for bits of another width, [`AnswerError::Shape`] for a view beyond the buffer.
pub fn matrix(input: &Tensor, float: Float, view: View) -> Result<Matrix<'_>, AnswerError> {
    fn of<T: Copy>(data: &[T], v: View) -> Result<MatrixView<'_, T>, ShapeError> {
        MatrixView::new(data, v.offset, v.rows, v.cols, v.row_stride, v.col_stride)
    }
    match (&input.data, float) {
        (Data::U32(bits), Float::F32) => {
            let Ok(data) = <[f32]>::ref_from_bytes(bits.as_bytes()) else {
                unreachable!("u32 and f32 have one size and alignment")
            };
            Ok(of(data, view)?.into())
        }
        (Data::U16(bits), Float::Bf16) => Ok(of(bits.reinterpret_cast::<bf16>(), view)?.into()),
        (Data::U16(bits), Float::F16) => Ok(of(bits.reinterpret_cast::<f16>(), view)?.into()),
        (data, float) => Err(AnswerError::Width {
            name: "input",
            expected: float.format().bits as usize / 8,
            got: data.width(),
        }),
    }
}

/// Scales in a layout, with their shape there. In the blocked layout the scale of a tile stands once for each of its rows,
/// since that is what a GEMM reads.
///
/// # Errors
/// [`ShapeError::Length`] if `done` is not consistent.
pub fn arrange_scales(
    done: &Quantized,
    block: BlockShape,
    layout: ScaleLayout,
) -> Result<(Vec<u8>, Vec<usize>), ShapeError> {
    match layout {
        ScaleLayout::Plain => Ok((done.scales.clone(), vec![done.scale_rows, done.scale_cols])),
        ScaleLayout::Transposed => {
            let shape = (done.scale_rows, done.scale_cols);
            Ok((layout.arrange(shape, &done.scales)?, vec![shape.1, shape.0]))
        }
        ScaleLayout::Blocked if done.scales.is_empty() => Ok((Vec::new(), vec![0])),
        ScaleLayout::Blocked => {
            let rows = (0..done.rows).map(|r| r / block.rows() * done.scale_cols);
            let plain: Vec<u8> = rows
                .flat_map(|start| &done.scales[start..start + done.scale_cols])
                .copied()
                .collect();
            let blocked = layout.arrange((done.rows, done.scale_cols), &plain)?;
            let length = blocked.len();
            Ok((blocked, vec![length]))
        }
    }
}

/// How element `index` of output `name` is compared, given the right outputs.
///
/// # Panics
/// If `expected` are not the right outputs of this call.
pub fn rule(
    op: &Op,
    convention: &'static Convention,
    inputs: &Tensors,
    expected: &Tensors,
    name: &str,
    index: usize,
) -> Rule {
    rules(op, convention, inputs, expected, name)(index)
}

/// How each element of output `name` is compared, given the right outputs: what all elements share is computed once.
///
/// # Panics
/// If `expected` are not the right outputs of this call; so does the answer.
pub fn rules<'a>(
    op: &'a Op,
    convention: &'static Convention,
    inputs: &'a Tensors,
    expected: &'a Tensors,
    name: &str,
) -> Box<dyn Fn(usize) -> Rule + 'a> {
    let nan_or_exact = |is_nan| if is_nan { Rule::AnyNan } else { Rule::Exact };
    let output = &expected[name];
    let got = move |index| output.data.get(index);
    match op {
        Op::Quantize(q) if name == "elements" => Box::new(move |index| {
            let profile = Profile { element: q.element, mode: q.mode, convention };
            let cols = output.shape[1];
            let (r, c) = (index / cols, index % cols);
            let scale_shape = (output.shape[0] / q.block.rows(), cols / q.block.cols());
            let at = match q.layout {
                ScaleLayout::Blocked => {
                    let shape = (output.shape[0], scale_shape.1);
                    q.layout.offset(shape, r, c / q.block.cols())
                }
                layout => layout.offset(scale_shape, r / q.block.rows(), c / q.block.cols()),
            };
            let scale = expected["scales"].data.get(at) as u8;
            let is_nan = q.input.format().is_nan(input_bits(q, &inputs["input"], r, c));
            profile.rule(scale, got(index) as u8, is_nan)
        }),
        Op::Dequantize(d) => {
            Box::new(move |index| nan_or_exact(d.output.format().is_nan(got(index))))
        }
        Op::Cast(c) => Box::new(move |index| {
            let target = c.target.format();
            if target.has_nan() {
                nan_or_exact(target.is_nan(got(index)))
            } else if c.input.format().is_nan(inputs["input"].data.get(index)) {
                Rule::Free
            } else {
                Rule::Exact
            }
        }),
        Op::Gemm(g) => gemm::gemm_rules(g, inputs, output),
        Op::GroupedGemm(g) => gemm::grouped_rules(g, inputs, output),
        Op::Linear(l) => training::linear_rules(l, inputs, output, name),
        Op::AllToAll(a) if name != "scales" => Box::new(move |index| {
            let format = match output.data {
                Data::U8(_) => a.element().format(),
                _ => Linear::OUTPUT.format(),
            };
            nan_or_exact(format.is_nan(got(index)))
        }),
        Op::Quantize(_) | Op::Pack(_) | Op::Swizzle | Op::AllToAll(_) | Op::GroupSwizzle(_) => {
            Box::new(|_| Rule::Exact)
        }
    }
}

/// The input bits behind code (r, c) of a quantize call.
pub fn input_bits(q: &Quantize, input: &Tensor, r: usize, c: usize) -> u32 {
    let (r, c) = match q.axis {
        Axis::Row => (r, c),
        Axis::Col => (c, r),
    };
    match q.view {
        Some(v) => input.data.get(v.offset + r * v.row_stride + c * v.col_stride),
        None => input.data.get(r * input.shape[1] + c),
    }
}

/// The tensor of that name.
///
/// # Errors
/// [`AnswerError::Missing`].
pub fn tensor<'a>(
    inputs: &'a Tensors,
    name: &'static str,
    reads: &'static str,
) -> Result<&'a Tensor, AnswerError> {
    inputs.get(name).ok_or(AnswerError::Missing { name, reads })
}

/// Rows and columns of a matrix.
///
/// # Errors
/// [`AnswerError::Rank`] for any other number of dimensions.
pub fn matrix_shape(name: &'static str, tensor: &Tensor) -> Result<(usize, usize), AnswerError> {
    match tensor.shape[..] {
        [rows, cols] => Ok((rows, cols)),
        _ => Err(AnswerError::Rank { name, shape: tensor.shape.clone() }),
    }
}

/// The bytes of a U8 tensor.
///
/// # Errors
/// [`AnswerError::Width`] for wider elements.
pub fn bytes<'a>(name: &'static str, tensor: &'a Tensor) -> Result<&'a [u8], AnswerError> {
    match &tensor.data {
        Data::U8(data) => Ok(data),
        other => Err(AnswerError::Width { name, expected: 1, got: other.width() }),
    }
}

const fn width(float: Float) -> usize {
    float.format().bits as usize / 8
}

/// Checks that a tensor holds elements of a type's width.
///
/// # Errors
/// [`AnswerError::Width`].
pub fn check_width(name: &'static str, tensor: &Tensor, float: Float) -> Result<(), AnswerError> {
    let (expected, got) = (width(float), tensor.data.width());
    if expected == got { Ok(()) } else { Err(AnswerError::Width { name, expected, got }) }
}

/// Output bits in the width of their type.
pub fn narrow(float: Float, bits: Vec<u32>) -> Data {
    match float {
        Float::F32 => Data::U32(bits),
        Float::Bf16 | Float::F16 => Data::U16(bits.into_iter().map(|b| b as u16).collect()),
    }
}

/// A set of one tensor.
pub fn one(name: &str, shape: impl Into<Vec<usize>>, data: Data) -> Tensors {
    Tensors::from([(name.to_owned(), Tensor { shape: shape.into(), data })])
}

/// Checks the shapes of a dequantize call.
///
/// # Errors
/// [`AnswerError`] if they do not fit.
pub fn check_dequantize(inputs: &Tensors) -> Result<(usize, usize), AnswerError> {
    let reads = "elements, scales";
    let elements = tensor(inputs, "elements", reads)?;
    let shape = matrix_shape("elements", elements)?;
    let scales = bytes("scales", tensor(inputs, "scales", reads)?)?;
    check_quantized(shape, BlockShape::MX, bytes("elements", elements)?.len(), scales.len())?;
    Ok(shape)
}
