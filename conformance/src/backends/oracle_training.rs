//! Training steps by the oracle: its casts and its products, put together here a second time.

use super::oracle::{element, quantize};
use mx_oracle::{Axis as OracleAxis, Blocking, GemmElements, GemmOperand, GemmScales, GemmShape};
use mx_reference::convention::PROPAGATE;
use mx_reference::gemm::GroupAxis;
use mx_reference::training::{KernelPreference, TrainingConfig};
use mx_reference::{Axis, BlockShape, Convention, ScaleLayout};
use mx_vectors::answer::{AnswerError, LINEAR_OUTPUTS, matrix_shape, one, tensor};
use mx_vectors::op::{AllToAll, GroupSwizzle, Linear};
use mx_vectors::{Data, Float, Op, Quantize, Tensor, Tensors};

/// The outputs of a step, an exchange or a grouped layout.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit.
pub(super) fn answer(
    op: &Op,
    convention: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    match op {
        Op::Linear(l) => linear(l, inputs),
        Op::AllToAll(a) => exchange(a, inputs),
        Op::GroupSwizzle(g) => swizzle(*g, inputs),
        _ => Err(AnswerError::Convention(convention.name)),
    }
}

/// A bf16 matrix.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    cols: usize,
    bits: Vec<u16>,
}

impl Matrix {
    fn of(inputs: &Tensors, name: &'static str) -> Result<Self, AnswerError> {
        let tensor = tensor(inputs, name, "x, w, grad_output, offsets")?;
        let (rows, cols) = matrix_shape(name, tensor)?;
        match &tensor.data {
            Data::U16(bits) => Ok(Self { rows, cols, bits: bits.clone() }),
            other => Err(AnswerError::Width { name, expected: 2, got: other.width() }),
        }
    }

    /// Rows from `first` on, and zero rows up to `padded`.
    fn cut(&self, first: usize, rows: usize, padded: usize) -> Self {
        let mut bits = self.bits[first * self.cols..(first + rows) * self.cols].to_vec();
        bits.resize(padded * self.cols, 0);
        Self { rows: padded, cols: self.cols, bits }
    }

    fn transposed(&self) -> Self {
        let at = |i: usize| self.bits[i % self.rows * self.cols + i / self.rows];
        let bits = (0..self.bits.len()).map(at).collect();
        Self { rows: self.cols, cols: self.rows, bits }
    }
}

/// One side of a product: quantised, or in bf16.
enum Side {
    Quantized { config: TrainingConfig, rows: usize, codes: Vec<u8>, scales: Vec<u8> },
    Plain(Matrix),
}

/// Casts a tensor along an axis as the configuration says; emulation goes back to bf16.
fn cast(config: &TrainingConfig, x: &Matrix, axis: Axis) -> Result<Side, AnswerError> {
    let q = Quantize {
        element: config.element,
        mode: config.mode,
        input: Float::Bf16,
        axis,
        block: BlockShape::MX,
        layout: ScaleLayout::Plain,
        view: None,
    };
    let input = Tensor { shape: vec![x.rows, x.cols], data: Data::U16(x.bits.clone()) };
    let inputs = Tensors::from([("input".to_owned(), input)]);
    let done = quantize(&q, &PROPAGATE, &inputs)?;
    let (rows, cols) = (done["elements"].shape[0], done["elements"].shape[1]);
    let take = |name: &str| match &done[name].data {
        Data::U8(data) => data.clone(),
        _ => Vec::new(),
    };
    let (codes, scales) = (take("elements"), take("scales"));
    match config.kernel {
        KernelPreference::Auto => Ok(Side::Quantized { config: *config, rows, codes, scales }),
        KernelPreference::Emulated => {
            let bits = to_bf16(config, (rows, cols), &codes, &scales);
            Ok(Side::Plain(Matrix { rows, cols, bits }))
        }
    }
}

fn to_bf16(
    config: &TrainingConfig,
    (rows, cols): (usize, usize),
    codes: &[u8],
    scales: &[u8],
) -> Vec<u16> {
    let blocking = Blocking { axis: OracleAxis::Row, rows: 1, cols: 32 };
    let (format, output) = (element(config.element), mx_oracle::Float::Bf16);
    let bits = mx_oracle::dequantize(format, output, blocking, rows, cols, codes, scales);
    bits.into_iter().map(|bits| bits as u16).collect()
}

fn multiply(a: &Side, b: &Side, k: usize) -> Vec<u16> {
    fn operand(side: &Side) -> (usize, GemmOperand<'_>) {
        match side {
            Side::Quantized { config, rows, codes, scales } => {
                let elements = GemmElements::Codes(element(config.element), codes);
                let format = mx_oracle::Format::E8m0;
                let scales = Some(GemmScales { format, bytes: scales, block: 32 });
                (*rows, GemmOperand { elements, scales })
            }
            Side::Plain(matrix) => {
                let elements = GemmElements::Floats(mx_oracle::Float::Bf16, &matrix.bits);
                (matrix.rows, GemmOperand { elements, scales: None })
            }
        }
    }
    let ((m, a), (n, b)) = (operand(a), operand(b));
    let output = mx_oracle::Float::Bf16;
    let bits = mx_oracle::gemm(GemmShape { m, n, k }, &a, &b, None, None, output);
    bits.into_iter().map(|bits| bits as u16).collect()
}

/// One layer: x [M, K], w [N, K], g [M, N].
fn layer(
    config: &TrainingConfig,
    x: &Matrix,
    w: &Matrix,
    g: &Matrix,
) -> Result<[Vec<u16>; 2], AnswerError> {
    let y = multiply(&cast(config, x, Axis::Row)?, &cast(config, w, Axis::Row)?, x.cols);
    let dx = multiply(&cast(config, g, Axis::Row)?, &cast(config, w, Axis::Col)?, g.cols);
    Ok([y, dx])
}

fn weight_gradient(
    config: &TrainingConfig,
    x: &Matrix,
    g: &Matrix,
) -> Result<Vec<u16>, AnswerError> {
    let (g, x, m) = if config.wgrad_with_hp {
        (Side::Plain(g.transposed()), Side::Plain(x.transposed()), x.rows)
    } else {
        (cast(config, g, Axis::Col)?, cast(config, x, Axis::Col)?, x.rows)
    };
    Ok(multiply(&g, &x, m))
}

fn linear(op: &Linear, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let config = op.config();
    let (x, w) = (Matrix::of(inputs, "x")?, Matrix::of(inputs, "w")?);
    let g = Matrix::of(inputs, "grad_output")?;
    let whole = std::iter::once(0..x.rows).collect();
    let groups = if op.grouped { offsets(inputs)? } else { whole };
    let n = g.cols;
    let (mut y, mut dx, mut dw) = (Vec::new(), Vec::new(), Vec::new());
    for (expert, group) in groups.iter().enumerate() {
        let (first, rows) = (group.start, group.len());
        let w = w.cut(expert * n, n, n);
        let [a, b] = layer(&config, &x.cut(first, rows, rows), &w, &g.cut(first, rows, rows))?;
        y.extend(a);
        dx.extend(b);
        let padded = if op.pad { rows.next_multiple_of(32) } else { rows };
        dw.extend(weight_gradient(
            &config,
            &x.cut(first, rows, padded),
            &g.cut(first, rows, padded),
        )?);
    }
    // Rows of no group.
    y.resize(x.rows * n, 0);
    dx.resize(x.rows * x.cols, 0);
    let shapes = [[x.rows, n], [x.rows, x.cols], [w.rows, x.cols]];
    let mut outputs = Tensors::new();
    for ((name, shape), bits) in LINEAR_OUTPUTS.into_iter().zip(shapes).zip([y, dx, dw]) {
        outputs.extend(one(name, shape, Data::U16(bits)));
    }
    Ok(outputs)
}

fn ints<'a>(inputs: &'a Tensors, name: &'static str) -> Result<&'a [i32], AnswerError> {
    match &tensor(inputs, name, "offsets or splits")?.data {
        Data::I32(data) => Ok(data),
        other => Err(AnswerError::Width { name, expected: 4, got: other.width() }),
    }
}

fn offsets(inputs: &Tensors) -> Result<Vec<std::ops::Range<usize>>, AnswerError> {
    let mut start = 0;
    let ends = ints(inputs, "offsets")?.iter().map(|&end| end as usize);
    Ok(ends.map(|end| std::mem::replace(&mut start, end)..end).collect())
}

fn exchange(op: &AllToAll, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let config = op.recipe.config();
    let x = Matrix::of(inputs, "input")?;
    let auto = TrainingConfig { kernel: KernelPreference::Auto, ..config };
    let Side::Quantized { codes, scales, .. } = cast(&auto, &x, Axis::Row)? else {
        return Ok(Tensors::new());
    };
    let ranks = tensor(inputs, "splits", "splits")?.shape[0];
    let splits = ints(inputs, "splits")?;
    let size = |from: usize, to: usize| splits[from * ranks + to] as usize;
    let (mut moved_codes, mut moved_scales) = (Vec::new(), Vec::new());
    for to in 0..ranks {
        for from in 0..ranks {
            let senders: usize = (0..from).flat_map(|r| (0..ranks).map(move |t| size(r, t))).sum();
            let first = senders + (0..to).map(|t| size(from, t)).sum::<usize>();
            let last = first + size(from, to);
            moved_codes.extend_from_slice(&codes[first * x.cols..last * x.cols]);
            moved_scales.extend_from_slice(&scales[first * x.cols / 32..last * x.cols / 32]);
        }
    }
    let bits = to_bf16(&config, (x.rows, x.cols), &moved_codes, &moved_scales);
    let mut outputs = one("output", [x.rows, x.cols], Data::U16(bits));
    outputs.extend(one("elements", [x.rows, x.cols], Data::U8(moved_codes)));
    outputs.extend(one("scales", [x.rows, x.cols / 32], Data::U8(moved_scales)));
    Ok(outputs)
}

fn swizzle(op: GroupSwizzle, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    let scales = tensor(inputs, "scales", "scales, offsets")?;
    let Data::U8(plain) = &scales.data else { return Ok(Tensors::new()) };
    let cols = *scales.shape.last().unwrap_or(&1);
    let mut out = Vec::new();
    let length = match op {
        GroupSwizzle::Experts => {
            let (experts, rows) = (scales.shape[0], scales.shape[1]);
            for expert in 0..experts {
                let part = &plain[expert * rows * cols..(expert + 1) * rows * cols];
                out.extend(mx_oracle::arrange_blocked(rows, cols, part));
            }
            out.len()
        }
        GroupSwizzle::Axis(GroupAxis::M) => {
            let groups = offsets(inputs)?;
            for group in &groups {
                let part = &plain[group.start * cols..group.end * cols];
                out.extend(mx_oracle::arrange_blocked(group.len(), cols, part));
            }
            (scales.shape[0] + 128 * groups.len()) * cols.next_multiple_of(4)
        }
        GroupSwizzle::Axis(GroupAxis::K) => {
            let groups = offsets(inputs)?;
            let rows = scales.shape[0];
            for group in &groups {
                let line = |r: usize| &plain[r * cols + group.start..r * cols + group.end];
                let part: Vec<u8> = (0..rows).flat_map(line).copied().collect();
                out.extend(mx_oracle::arrange_blocked(rows, group.len(), &part));
            }
            rows.next_multiple_of(128) * (cols + 4 * groups.len())
        }
    };
    // What is left of the buffer is zero.
    out.resize(length, 0);
    Ok(one("scales", [length], Data::U8(out)))
}
