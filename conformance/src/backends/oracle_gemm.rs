//! Matrix products by the oracle. Names and shapes are translated; nothing is computed outside it.

use super::oracle::float;
use mx_oracle::{GemmElements, GemmOperand, GemmScales, GemmShape};
use mx_reference::gemm::GroupAxis;
use mx_vectors::answer::{AnswerError, grouped_product, narrow, one, product};
use mx_vectors::op::{Factor, Gemm, GroupedGemm, Scaling, Test};
use mx_vectors::{Data, Op, Tensor, Tensors};

/// The output of a product or a grouped product.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit, and for models: the oracle knows the exact answer alone.
pub(super) fn answer(op: &Op, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    match op {
        Op::Gemm(g) => gemm(g, inputs),
        Op::GroupedGemm(g) => grouped(g, inputs),
        _ => Ok(Tensors::new()),
    }
}

fn gemm(g: &Gemm, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let shape = product(g, inputs)?.shape();
    exact_only(g)?;
    let [a, b] = [side(g, inputs, "a"), side(g, inputs, "b")];
    let words = |name: &str| match inputs.get(name).map(|tensor| &tensor.data) {
        Some(Data::U32(words)) => Some(&words[..]),
        _ => None,
    };
    let tensor_scales = words("tensor_scale").map(|scales| [scales[0], scales[1]]);
    let all = Rows { first: 0, count: shape.m };
    let (m, n, k) = (shape.m, shape.n, shape.k);
    let bits = mx_oracle::gemm(
        GemmShape { m, n, k },
        &a.operand(all, k),
        &b.operand(Rows { first: 0, count: n }, k),
        words("c"),
        tensor_scales,
        float(g.output),
    );
    Ok(one("output", [m, n], narrow(g.output, bits)))
}

fn grouped(g: &GroupedGemm, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let (product, shape) = grouped_product(g, inputs)?;
    exact_only(&g.gemm)?;
    let [a, b] = [side(&g.gemm, inputs, "a"), side(&g.gemm, inputs, "b")];
    let (k, n) = (inputs["a_elements"].shape[1], *shape.last().unwrap_or(&0));
    let rows = inputs["a_elements"].shape[0];
    let output = float(g.gemm.output);
    let mut bits = match g.axis {
        // Rows that belong to no group stay zero.
        GroupAxis::M => vec![0; rows * n],
        GroupAxis::K => Vec::new(),
    };
    for (group, range) in product.groups().iter().enumerate() {
        match g.axis {
            GroupAxis::M => {
                let shape = GemmShape { m: range.len(), n, k };
                let a = a.operand(Rows { first: range.start, count: range.len() }, k);
                let b = b.operand(Rows { first: group * n, count: n }, k);
                let done = mx_oracle::gemm(shape, &a, &b, None, None, output);
                bits[range.start * n..range.end * n].copy_from_slice(&done);
            }
            GroupAxis::K => {
                let shape = GemmShape { m: rows, n, k: range.len() };
                let (a, b) = (a.columns(k, range.clone()), b.columns(k, range.clone()));
                let (a, b) = (
                    a.operand(Rows { first: 0, count: rows }, range.len()),
                    b.operand(Rows { first: 0, count: n }, range.len()),
                );
                bits.extend(mx_oracle::gemm(shape, &a, &b, None, None, output));
            }
        }
    }
    Ok(one("output", shape, narrow(g.gemm.output, bits)))
}

const fn exact_only(g: &Gemm) -> Result<(), AnswerError> {
    match g.test {
        Test::Exact | Test::Bounded => Ok(()),
        Test::Modelled => Err(AnswerError::Convention(g.accumulation_name())),
    }
}

/// Rows of an operand.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    count: usize,
}

/// An operand as the oracle reads it.
struct Side {
    factor: Factor,
    scaling: Scaling,
    codes: Vec<u8>,
    halves: Vec<u16>,
    scales: Vec<u8>,
}

fn side(g: &Gemm, inputs: &Tensors, name: &str) -> Side {
    let bytes = |tensor: Option<&Tensor>| match tensor.map(|tensor| &tensor.data) {
        Some(Data::U8(bytes)) => bytes.clone(),
        _ => Vec::new(),
    };
    let elements = inputs.get(&format!("{name}_elements"));
    let halves = match elements.map(|tensor| &tensor.data) {
        Some(Data::U16(halves)) => halves.clone(),
        _ => Vec::new(),
    };
    Side {
        factor: if name == "a" { g.a } else { g.b },
        scaling: g.scaling,
        codes: bytes(elements),
        halves,
        scales: bytes(inputs.get(&format!("{name}_scales"))),
    }
}

impl Side {
    fn operand(&self, rows: Rows, k: usize) -> GemmOperand<'_> {
        let cut = rows.first * k..(rows.first + rows.count) * k;
        let elements = match self.factor {
            Factor::Element(e) => GemmElements::Codes(super::oracle::element(e), &self.codes[cut]),
            Factor::Bf16 => GemmElements::Floats(mx_oracle::Float::Bf16, &self.halves[cut]),
            Factor::F16 => GemmElements::Floats(mx_oracle::Float::F16, &self.halves[cut]),
        };
        let format = match self.scaling {
            Scaling::Mx | Scaling::Unit => Some((mx_oracle::Format::E8m0, 32)),
            Scaling::Nvfp4 => Some((mx_oracle::Format::Ue4m3, 16)),
            Scaling::Plain => None,
        };
        let scales = format.map(|(format, block)| {
            let across = k / block;
            let bytes = &self.scales[rows.first * across..(rows.first + rows.count) * across];
            GemmScales { format, bytes, block }
        });
        GemmOperand { elements, scales }
    }

    /// Columns cut out of every row.
    fn columns(&self, k: usize, range: std::ops::Range<usize>) -> Self {
        fn cut<T: Copy>(data: &[T], width: usize, range: std::ops::Range<usize>) -> Vec<T> {
            let rows = data.chunks_exact(width.max(1));
            rows.flat_map(|row| row[range.clone()].iter().copied()).collect()
        }
        let block = if self.scaling == Scaling::Nvfp4 { 16 } else { 32 };
        Self {
            codes: cut(&self.codes, k, range.clone()),
            halves: cut(&self.halves, k, range.clone()),
            scales: cut(&self.scales, k / block, range.start / block..range.end / block),
            ..*self
        }
    }
}
