//! Answers to training steps.

use super::gemm::{Multiply, product_rule};
use super::{AnswerError, bytes, matrix, matrix_shape, narrow, one, tensor};
use crate::op::{AllToAll, GroupSwizzle, Linear, View};
use crate::tensor::{Data, Tensor, Tensors};
use mx_reference::gemm::{Gemm, GemmShape, GroupAxis};
use mx_reference::grouped_layout::{GroupedLayout, arrange_experts};
use mx_reference::training::{self, GroupedProduct, Product, all_to_all};
use mx_reference::{Format, Matrix, Rule};
use std::cell::OnceCell;
use std::convert::Infallible;

const READS: &str = "x, w, grad_output (and offsets for groups)";

/// The outputs of a step, in the order of its products.
pub const LINEAR_OUTPUTS: [&str; 3] = ["y", "grad_input", "grad_weight"];

/// One of the three products of a step.
enum Step {
    Whole(Product),
    Groups(GroupedProduct, GroupAxis),
}

/// Calls `each` with where an output's product starts (in rows of D), its length in rows, and the product.
fn try_each<E>(
    step: &Step,
    mut each: impl FnMut(usize, &Gemm<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match step {
        Step::Whole(product) => each(0, &product.gemm()),
        Step::Groups(product, axis) => {
            let grouped = product.gemm();
            grouped.try_each(|group, one| {
                let start = match axis {
                    GroupAxis::M => grouped.groups()[group].start,
                    GroupAxis::K => group * one.shape().m,
                };
                each(start, &one)
            })
        }
    }
}

/// The product behind output number `which`.
fn step(op: &Linear, inputs: &Tensors, which: usize) -> Result<Step, AnswerError> {
    let [x, w, g] = [float("x", inputs)?, float("w", inputs)?, float("grad_output", inputs)?];
    if op.grouped {
        let grouped = training::Grouped::new(op.config())?;
        let ends = ints("offsets", inputs)?;
        let (product, axis) = match which {
            0 => (grouped.forward(x, w, ends)?, GroupAxis::M),
            1 => (grouped.input_gradient(g, w, ends)?, GroupAxis::M),
            _ => (grouped.weight_gradient(g, x, ends)?, GroupAxis::K),
        };
        return Ok(Step::Groups(product, axis));
    }
    let linear = training::Linear::new(op.config())?;
    Ok(Step::Whole(match which {
        0 => linear.forward(x, w)?,
        1 => linear.input_gradient(g, w)?,
        _ => linear.weight_gradient(g, x)?,
    }))
}

/// Rows and columns of output number `which`.
fn output_shape(op: &Linear, inputs: &Tensors, which: usize) -> Result<[usize; 2], AnswerError> {
    let shape = |name| matrix_shape_of(name, inputs);
    let ((m, k), (rows, _), (_, n)) = (shape("x")?, shape("w")?, shape("grad_output")?);
    // The weights of experts lie one below the other.
    let rows = if op.grouped { rows } else { n };
    Ok([[m, n], [m, k], [rows, k]][which])
}

/// The right outputs of a forward and backward pass.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit.
pub fn linear_answer(
    op: &Linear,
    inputs: &Tensors,
    by: &impl Multiply,
) -> Result<Tensors, AnswerError> {
    let format: &Format = Linear::OUTPUT.format();
    let mut outputs = Tensors::new();
    for (which, name) in LINEAR_OUTPUTS.into_iter().enumerate() {
        let step = step(op, inputs, which)?;
        let shape = output_shape(op, inputs, which)?;
        let mut bits = vec![0; shape[0] * shape[1]];
        try_each(&step, |start, product| {
            let GemmShape { m, n, .. } = product.shape();
            bits[start * n..][..m * n].copy_from_slice(&by.exact(product, format));
            Ok::<(), AnswerError>(())
        })?;
        outputs.extend(one(name, shape, narrow(Linear::OUTPUT, bits)));
    }
    Ok(outputs)
}

/// How elements of one output are compared. Rows of no group are free.
pub(super) fn linear_rules<'a>(
    op: &'a Linear,
    inputs: &Tensors,
    expected: &'a Tensor,
    name: &str,
) -> Box<dyn Fn(usize) -> Rule + 'a> {
    let which = LINEAR_OUTPUTS.iter().position(|output| *output == name).unwrap_or(0);
    let Ok(step) = step(op, inputs, which) else { return Box::new(|_| Rule::Exact) };
    let gemm = op.gemm();
    // Cutting operands into groups takes longer than a rule, so that every rule is found at the first question.
    let all = OnceCell::new();
    Box::new(move |index| {
        let all: &Vec<Rule> = all.get_or_init(|| {
            let mut rules = vec![Rule::Free; expected.data.len()];
            let Ok(()) = try_each(&step, |start, product| {
                let GemmShape { m, n, .. } = product.shape();
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let index = (start + i) * n + j;
                    rules[index] = product_rule(&gemm, product, (i, j), expected.data.get(index));
                }
                Ok::<(), Infallible>(())
            });
            rules
        });
        all[index]
    })
}

/// The right outputs of an exchange: `input` holds the rows of all ranks one after the other, `splits` `[ranks, ranks]` how many
/// rows each sends to each; outputs hold the received rows of all ranks one after the other.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit.
pub fn all_to_all_answer(op: &AllToAll, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let reads = "input, splits";
    let input = tensor(inputs, "input", reads)?;
    let (rows, cols) = matrix_shape("input", input)?;
    let splits = tensor(inputs, "splits", reads)?;
    let (ranks, others) = matrix_shape("splits", splits)?;
    let sizes: Vec<usize> = ints("splits", inputs)?
        .iter()
        .map(|&size| usize::try_from(size).unwrap_or(usize::MAX))
        .collect();
    let sizes: Vec<Vec<usize>> = sizes.chunks(others.max(1)).map(<[usize]>::to_vec).collect();
    let mut views = Vec::with_capacity(ranks);
    let mut start = 0usize;
    for sent in &sizes {
        let length = sent.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
        let view =
            View { offset: start * cols, rows: length, cols, row_stride: cols, col_stride: 1 };
        views.push(matrix(input, Linear::INPUT, view)?);
        start = start.saturating_add(length).min(rows);
    }
    let received = all_to_all(&op.recipe.config(), &views, &sizes)?;
    let (mut scales, mut elements, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for rank in received {
        scales.extend(rank.quantized.scales);
        elements.extend(rank.quantized.elements);
        output.extend(rank.values.bits);
    }
    let mut outputs = one("output", [rows, cols], narrow(Linear::OUTPUT, output));
    outputs.extend(one("scales", [rows, cols / 32], Data::U8(scales)));
    outputs.extend(one("elements", [rows, cols], Data::U8(elements)));
    Ok(outputs)
}

/// Scales in the blocked layout of their groups: `scales` `[rows, cols]` with `offsets`, or `[experts, rows, cols]`.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit.
pub fn group_swizzle_answer(op: GroupSwizzle, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let scales = tensor(inputs, "scales", "scales (and offsets along an axis)")?;
    let plain = bytes("scales", scales)?;
    let arranged = match op {
        GroupSwizzle::Axis(axis) => {
            let shape = matrix_shape("scales", scales)?;
            GroupedLayout::new(axis, shape, ints("offsets", inputs)?)?.arrange(plain)?
        }
        GroupSwizzle::Experts => match scales.shape[..] {
            [experts, rows, cols] => arrange_experts(experts, (rows, cols), plain)?,
            _ => return Err(AnswerError::Rank { name: "scales", shape: scales.shape.clone() }),
        },
    };
    Ok(one("scales", [arranged.len()], Data::U8(arranged)))
}

fn matrix_shape_of(name: &'static str, inputs: &Tensors) -> Result<(usize, usize), AnswerError> {
    matrix_shape(name, tensor(inputs, name, READS)?)
}

fn float<'a>(name: &'static str, inputs: &'a Tensors) -> Result<Matrix<'a>, AnswerError> {
    let view = View::contiguous(matrix_shape_of(name, inputs)?);
    matrix(&inputs[name], Linear::INPUT, view)
}

fn ints<'a>(name: &'static str, inputs: &'a Tensors) -> Result<&'a [i32], AnswerError> {
    match &tensor(inputs, name, READS)?.data {
        Data::I32(data) => Ok(data),
        other => Err(AnswerError::Width { name, expected: 4, got: other.width() }),
    }
}
