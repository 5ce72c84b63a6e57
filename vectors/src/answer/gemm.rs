//! Answers to matrix products.

use super::{AnswerError, bytes, matrix_shape, narrow, one, tensor};
use crate::op::{Gemm, GroupedGemm, Test};
use crate::tensor::{Data, Tensor, Tensors};
use mx_reference::gemm::{
    self, BlockScales, Codes, GemmShape, GroupAxis, ModelError, Operand, Scheme,
};
use mx_reference::{Format, Rule, ShapeError};

const READS: &str =
    "a_elements, a_scales, b_elements, b_scales (tensor_scale for NVFP4, c if there is one)";
const READS_GROUPED: &str = "a_elements, a_scales, b_elements, b_scales, offsets";

/// How products are computed: exactly, or by an accumulation.
pub trait Multiply {
    /// D, exactly and rounded once.
    fn exact(&self, product: &gemm::Gemm<'_>, output: &Format) -> Vec<u32>;

    /// D as an accumulation computes it.
    ///
    /// # Errors
    /// [`ModelError`] for operands that it is not of.
    fn accumulate(
        &self,
        product: &gemm::Gemm<'_>,
        accumulation: &gemm::Accumulation,
        output: &Format,
    ) -> Result<Vec<u32>, ModelError>;
}

/// The reference's products.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceProducts;

impl Multiply for ReferenceProducts {
    fn exact(&self, product: &gemm::Gemm<'_>, output: &Format) -> Vec<u32> {
        product.exact(output)
    }

    fn accumulate(
        &self,
        product: &gemm::Gemm<'_>,
        accumulation: &gemm::Accumulation,
        output: &Format,
    ) -> Result<Vec<u32>, ModelError> {
        product.accumulate(accumulation, output)
    }
}

/// The product that tensors describe, from a gemm call's inputs.
///
/// # Errors
/// [`AnswerError`] for tensors that are missing, of another type, or do not fit each other.
pub fn product<'a>(g: &Gemm, inputs: &'a Tensors) -> Result<gemm::Gemm<'a>, AnswerError> {
    let (a, (m, k)) = operand(g, inputs, ["a_elements", "a_scales"])?;
    let (b, (n, b_k)) = operand(g, inputs, ["b_elements", "b_scales"])?;
    if b_k != k {
        let (what, expected, got) = ("K of b_elements", k, b_k);
        return Err(ShapeError::Length { what, expected, got }.into());
    }
    let words = |name: &'static str| match inputs.get(name).map(|tensor| &tensor.data) {
        None => Ok(None),
        Some(Data::U32(words)) => Ok(Some(&words[..])),
        Some(other) => Err(AnswerError::Width { name, expected: 4, got: other.width() }),
    };
    let tensor_scales = match words("tensor_scale")? {
        None => None,
        Some(&[a, b]) => Some([a, b]),
        Some(other) => {
            let (what, expected, got) = ("tensor_scale", 2, other.len());
            return Err(ShapeError::Length { what, expected, got }.into());
        }
    };
    Ok(gemm::Gemm::new(GemmShape { m, n, k }, a, b, words("c")?, tensor_scales)?)
}

/// One operand and the shape of its elements.
fn operand<'a>(
    g: &Gemm,
    inputs: &'a Tensors,
    names: [&'static str; 2],
) -> Result<(Operand<'a>, (usize, usize)), AnswerError> {
    let elements = tensor(inputs, names[0], READS)?;
    let shape = matrix_shape(names[0], elements)?;
    Ok((operand_of(g, inputs, names, shape)?, shape))
}

fn operand_of<'a>(
    g: &Gemm,
    inputs: &'a Tensors,
    names: [&'static str; 2],
    (rows, k): (usize, usize),
) -> Result<Operand<'a>, AnswerError> {
    let factor = if names[0].starts_with('a') { g.a } else { g.b };
    let elements = tensor(inputs, names[0], READS)?;
    let codes = match &elements.data {
        Data::U8(codes) if factor.is_element() => Codes::Bytes(codes),
        Data::U16(bits) if !factor.is_element() => Codes::Halves(bits),
        other => {
            let expected = if factor.is_element() { 1 } else { 2 };
            return Err(AnswerError::Width { name: names[0], expected, got: other.width() });
        }
    };
    let scales = match g.scaling.block() {
        None => None,
        Some((block, format)) => {
            let scales = tensor(inputs, names[1], READS)?;
            check_scale_shape(names[1], scales, (rows, k), block)?;
            Some(BlockScales { format, bytes: bytes(names[1], scales)?, block })
        }
    };
    Ok(Operand { format: factor.format(), codes, scales })
}

/// Scales must have one row a row and one column a block: a flat or transposed tensor of the right length is not one.
fn check_scale_shape(
    what: &'static str,
    scales: &Tensor,
    (rows, k): (usize, usize),
    block: usize,
) -> Result<(), AnswerError> {
    let blocks = k.div_ceil(block);
    let fits = match scales.shape[..] {
        [r, c] => (r, c) == (rows, blocks),
        [e, r, c] => (e.checked_mul(r), c) == (Some(rows), blocks),
        _ => false,
    };
    if fits || !k.is_multiple_of(block) {
        // A partial block is named as such when the product is made.
        Ok(())
    } else {
        Err(AnswerError::Scales { name: what, expected: [rows, blocks], got: scales.shape.clone() })
    }
}

/// The right output of a gemm call.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit.
pub fn gemm_answer(g: &Gemm, inputs: &Tensors, by: &impl Multiply) -> Result<Tensors, AnswerError> {
    let product = product(g, inputs)?;
    let GemmShape { m, n, .. } = product.shape();
    Ok(one("output", [m, n], narrow(g.output, multiply(g, &product, by)?)))
}

fn multiply(
    g: &Gemm,
    product: &gemm::Gemm<'_>,
    by: &impl Multiply,
) -> Result<Vec<u32>, AnswerError> {
    let output = g.output.format();
    Ok(match g.test {
        Test::Modelled => by.accumulate(product, &g.accumulation(), output)?,
        Test::Exact | Test::Bounded => by.exact(product, output),
    })
}

/// How elements of a gemm call's output are compared, given the right ones.
pub(super) fn gemm_rules<'a>(
    g: &'a Gemm,
    inputs: &'a Tensors,
    expected: &'a Tensor,
) -> Box<dyn Fn(usize) -> Rule + 'a> {
    // The inputs had an answer, so they make a product.
    let Ok(product) = product(g, inputs) else { return Box::new(|_| Rule::Exact) };
    let n = product.shape().n.max(1);
    if g.test == Test::Bounded {
        let intervals = product.intervals(&g.accumulation(), g.output.format());
        return Box::new(move |index| {
            let bits = expected.data.get(index);
            plain_rule(g, bits).unwrap_or_else(|| intervals.rule(index / n, index % n))
        });
    }
    Box::new(move |index| {
        product_rule(g, &product, (index / n, index % n), expected.data.get(index))
    })
}

/// How one output of a product is compared.
pub(super) fn product_rule(
    g: &Gemm,
    product: &gemm::Gemm<'_>,
    (i, j): (usize, usize),
    expected: u32,
) -> Rule {
    plain_rule(g, expected).unwrap_or_else(|| match g.test {
        Test::Bounded => g.accumulation().rule(product, i, j, g.output.format()),
        Test::Exact | Test::Modelled => {
            let dot = product.dot(i, j);
            // What underflows is rounded by every accumulation but the exact one, and a later +0 takes its sign.
            let underflow = dot.total.finite().is_some_and(|sum| !sum.is_zero());
            match g.accumulation().scheme {
                Scheme::Exact => dot.rule(),
                _ if underflow => Rule::AnyZero,
                _ => dot.rule(),
            }
        }
    })
}

/// The rule of an output where its right bits alone decide it.
fn plain_rule(g: &Gemm, expected: u32) -> Option<Rule> {
    let output = g.output.format();
    if output.is_nan(expected) {
        return Some(Rule::AnyNan);
    }
    match g.test {
        Test::Bounded => None,
        Test::Exact if expected & !output.sign_bit() == 0 => None,
        Test::Exact | Test::Modelled => Some(Rule::Exact),
    }
}

/// The grouped product that tensors describe, and the shape of its output: A `[m, k]`; B `[groups, n, k]` for groups along M, `[n, k]`
/// for groups along K; `offsets` cumulative ends.
///
/// # Errors
/// [`AnswerError`] for tensors that do not fit, and for offsets that decrease or overrun.
pub fn grouped_product<'a>(
    g: &GroupedGemm,
    inputs: &'a Tensors,
) -> Result<(gemm::GroupedGemm<'a>, Vec<usize>), AnswerError> {
    let a = tensor(inputs, "a_elements", READS_GROUPED)?;
    let (m, k) = matrix_shape("a_elements", a)?;
    let b = tensor(inputs, "b_elements", READS_GROUPED)?;
    let ends = match &tensor(inputs, "offsets", READS_GROUPED)?.data {
        Data::I32(ends) => ends,
        other => {
            return Err(AnswerError::Width { name: "offsets", expected: 4, got: other.width() });
        }
    };
    let groups = ends.len();
    let (n, rows, b_k, output) = match (g.axis, &b.shape[..]) {
        (GroupAxis::M, &[experts, n, b_k]) if experts == groups => {
            (n, experts.saturating_mul(n), b_k, vec![m, n])
        }
        (GroupAxis::K, &[n, b_k]) => (n, n, b_k, vec![groups, m, n]),
        _ => return Err(AnswerError::Rank { name: "b_elements", shape: b.shape.clone() }),
    };
    if b_k != k {
        return Err(ShapeError::Length { what: "K of b_elements", expected: k, got: b_k }.into());
    }
    let a = operand_of(&g.gemm, inputs, ["a_elements", "a_scales"], (m, k))?;
    let b = operand_of(&g.gemm, inputs, ["b_elements", "b_scales"], (rows, k))?;
    Ok((gemm::GroupedGemm::new(GemmShape { m, n, k }, g.axis, ends, a, b)?, output))
}

/// The right output of a grouped call; zero in rows that belong to no group.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit.
pub fn grouped_answer(
    g: &GroupedGemm,
    inputs: &Tensors,
    by: &impl Multiply,
) -> Result<Tensors, AnswerError> {
    let (product, shape) = grouped_product(g, inputs)?;
    let mut output = vec![0; shape.iter().product()];
    product.try_each(|group, one| {
        let GemmShape { m, n, .. } = one.shape();
        let start = match g.axis {
            GroupAxis::M => product.groups()[group].start * n,
            GroupAxis::K => group * m * n,
        };
        output[start..start + m * n].copy_from_slice(&multiply(&g.gemm, &one, by)?);
        Ok::<(), AnswerError>(())
    })?;
    Ok(one("output", shape, narrow(g.gemm.output, output)))
}

/// How elements of a grouped call's output are compared. Rows of no group are free: nobody writes them.
pub(super) fn grouped_rules<'a>(
    g: &'a GroupedGemm,
    inputs: &'a Tensors,
    expected: &'a Tensor,
) -> Box<dyn Fn(usize) -> Rule + 'a> {
    let Ok((product, shape)) = grouped_product(g, inputs) else {
        return Box::new(|_| Rule::Exact);
    };
    let n = shape.last().copied().unwrap_or(1).max(1);
    let m = shape.iter().rev().nth(1).copied().unwrap_or(1).max(1);
    Box::new(move |index| {
        let (row, j) = (index / n, index % n);
        // The group that the row belongs to, and the row within it.
        let (group, i) = match g.axis {
            GroupAxis::M => match product.groups().iter().position(|group| group.contains(&row)) {
                Some(group) => (group, row - product.groups()[group].start),
                None => return Rule::Free,
            },
            GroupAxis::K => (row / m, row % m),
        };
        let expected = expected.data.get(index);
        plain_rule(&g.gemm, expected).unwrap_or_else(|| {
            product.group(group, |one| product_rule(&g.gemm, &one, (i, j), expected))
        })
    })
}
