//! The linear layers of a mixture of experts: one weight for every group of tokens.

use super::cast::{Named, operand};
use super::config::TrainingConfig;
use super::error::TrainingError;
use super::pad::pad_token_groups;
use super::product::{GroupedProduct, Output, OwnedCodes, OwnedOperand};
use crate::error::ShapeError;
use crate::format::BF16;
use crate::gemm::{GemmShape, GroupAxis, group_ranges};
use crate::matrix::{Input, Matrix, MatrixView};
use crate::quantize::{Axis, BlockShape};

const BLOCK: usize = BlockShape::MX.cols();

/// The linear layers of E experts under a configuration: tokens x (T, K), weights w (E, N, K) as one matrix of E·N rows, the output's
/// gradient g (T, N), all of one type, and E cumulative ends of the groups along T. Equal ends are empty groups; tokens beyond the
/// last end belong to none, and their rows of y and dx are zero.
///
/// | product | A | B | groups cut | result |
/// |---|---|---|---|---|
/// | y = x·wᵀ | x cast along rows | w cast along rows | rows | (T, N) |
/// | dx = g·w | g cast along rows | each expert's w cast along columns | rows | (T, K) |
/// | dw = gᵀ·x | g cast along columns | x cast along columns | the contraction | (E, N, K), zero for empty groups |
///
/// Padding of token groups takes effect where casts run along T, in dw: blocks along K and N never cross a token, so that padded rows
/// would change no row of y and dx. Without padding every group must end at a multiple of 32 for a dw of casts.
///
/// Source: torchao `moe_training/mxfp8_grouped_mm.py`, which takes E4M3 alone. Its emulation dequantises to bf16 whatever the type of
/// the tensors; so does this, each product of element and scale rounded once to nearest even.
///
/// ```
/// use half::bf16;
/// use mx_reference::MatrixView;
/// use mx_reference::training::{Grouped, Recipe};
/// let ones = vec![bf16::ONE; 64 * 32];
/// let tokens = MatrixView::contiguous(&ones, 64, 32)?.into();
/// let experts = MatrixView::contiguous(&ones, 2 * 32, 32)?.into();
/// let layer = Grouped::new(Recipe::Mxfp8Rceil.config())?;
/// let step = layer.run(tokens, experts, tokens, &[0, 64])?;
/// let value = |x: f32| u32::from(bf16::from_f32(x).to_bits());
/// assert_eq!((step.y.bits[0], step.dw.bits[0], step.dw.bits[32 * 32]), (value(32.0), 0, value(64.0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped {
    config: TrainingConfig,
}

/// The results of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedOutputs {
    /// The output, (T, N).
    pub y: Output,
    /// The gradient of x, (T, K).
    pub dx: Output,
    /// The gradient of w, (E, N, K) as one matrix of E·N rows.
    pub dw: Output,
}

impl Grouped {
    /// Layers under this configuration.
    ///
    /// # Errors
    /// [`TrainingError::Config`] as [`TrainingConfig::check`].
    pub fn new(config: TrainingConfig) -> Result<Self, TrainingError> {
        config.check()?;
        Ok(Self { config })
    }

    /// The configuration.
    pub const fn config(&self) -> &TrainingConfig {
        &self.config
    }

    /// y = x·wᵀ, each group of tokens by its expert.
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit, if ends decrease or overrun, or if K is no multiple of 32.
    pub fn forward(
        &self,
        x: Matrix<'_>,
        w: Matrix<'_>,
        ends: &[i32],
    ) -> Result<GroupedProduct, TrainingError> {
        let (x, w) = (Named { name: "x", tensor: x }, Named { name: "w", tensor: w });
        let (t, k) = x.tensor.shape();
        w.like(&x)?;
        w.fits(None, Some(k))?;
        let n = rows_of_each(&w, ends)?;
        group_ranges(ends, t, 1).map_err(TrainingError::of("ends"))?;
        let operands = [self.operand(&x, Axis::Row)?, self.operand(&w, Axis::Row)?];
        GroupedProduct::new(GemmShape { m: t, n, k }, GroupAxis::M, ends.to_vec(), operands)
    }

    /// dx = g·w, each group of tokens by its expert.
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit, if ends decrease or overrun, or if N is no multiple of 32.
    pub fn input_gradient(
        &self,
        g: Matrix<'_>,
        w: Matrix<'_>,
        ends: &[i32],
    ) -> Result<GroupedProduct, TrainingError> {
        let (g, w) = (Named { name: "g", tensor: g }, Named { name: "w", tensor: w });
        let ((t, _), (_, k)) = (g.tensor.shape(), w.tensor.shape());
        w.like(&g)?;
        let n = rows_of_each(&w, ends)?;
        g.fits(None, Some(n))?;
        group_ranges(ends, t, 1).map_err(TrainingError::of("ends"))?;
        let b = self.expert_columns(&w, n)?;
        let operands = [self.operand(&g, Axis::Row)?, b];
        GroupedProduct::new(GemmShape { m: t, n: k, k: n }, GroupAxis::M, ends.to_vec(), operands)
    }

    /// dw = gᵀ·x, one for every group: of casts, or of the tensors themselves where the configuration says so.
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit, if ends decrease or overrun, if a group of a product of casts does not end at a
    /// multiple of 32 and padding is off, or if the tensors are f32 for a product in high precision.
    pub fn weight_gradient(
        &self,
        g: Matrix<'_>,
        x: Matrix<'_>,
        ends: &[i32],
    ) -> Result<GroupedProduct, TrainingError> {
        let (g, x) = (Named { name: "g", tensor: g }, Named { name: "x", tensor: x });
        let ((t, k), (_, n)) = (x.tensor.shape(), g.tensor.shape());
        g.like(&x)?;
        g.fits(Some(t), None)?;
        let TrainingConfig { wgrad_with_hp, pad_token_groups: pad, .. } = self.config;
        let multiple = if wgrad_with_hp || pad { 1 } else { BLOCK };
        group_ranges(ends, t, multiple).map_err(TrainingError::of("ends"))?;
        let (a, a_tokens) = self.tokens(&g, ends)?;
        let (b, Tokens { length, ends }) = self.tokens(&x, ends)?;
        debug_assert_eq!((a_tokens.length, &a_tokens.ends), (length, &ends));
        GroupedProduct::new(GemmShape { m: n, n: k, k: length }, GroupAxis::K, ends, [a, b])
    }

    /// One step: the three products, each exact and rounded once to the output type.
    ///
    /// # Errors
    /// Those of [`Self::forward`], [`Self::input_gradient`] and [`Self::weight_gradient`].
    pub fn run(
        &self,
        x: Matrix<'_>,
        w: Matrix<'_>,
        g: Matrix<'_>,
        ends: &[i32],
    ) -> Result<GroupedOutputs, TrainingError> {
        let y = self.forward(x, w, ends)?;
        let dx = self.input_gradient(g, w, ends)?;
        let dw = self.weight_gradient(g, x, ends)?;
        let output = self.config.output.format();
        Ok(GroupedOutputs { y: y.exact(output), dx: dx.exact(output), dw: dw.exact(output) })
    }

    fn operand(&self, tensor: &Named<'_>, axis: Axis) -> Result<OwnedOperand, TrainingError> {
        operand(&self.config, tensor.name, tensor.cast(&self.config, axis)?, &BF16)
    }

    /// Each expert's weight cast along its N rows, (K, N) each, one after the other.
    fn expert_columns(&self, w: &Named<'_>, n: usize) -> Result<OwnedOperand, TrainingError> {
        if !n.is_multiple_of(BLOCK) {
            let error =
                ShapeError::PartialBlock { axis: Axis::Col.name(), length: n, block: BLOCK };
            return Err(TrainingError::Shape { tensor: w.name, error });
        }
        // With N a multiple of 32 no block of the whole (K, E·N) cast crosses from one expert to the next.
        let whole = self.operand(w, Axis::Col)?;
        let (rows, k) = w.tensor.shape();
        let experts = rows.checked_div(n).unwrap_or(0);
        let codes = match &whole.codes {
            OwnedCodes::Bytes(codes) => OwnedCodes::Bytes(by_expert(codes, experts, k)),
            OwnedCodes::Halves(codes) => OwnedCodes::Halves(by_expert(codes, experts, k)),
        };
        let scales = whole.scales.map(|scales| by_expert(&scales, experts, k));
        Ok(OwnedOperand { codes, scales, ..whole })
    }

    /// A tensor of tokens as an operand that contracts over them, padded if the configuration says so.
    fn tokens(
        &self,
        tensor: &Named<'_>,
        ends: &[i32],
    ) -> Result<(OwnedOperand, Tokens), TrainingError> {
        match tensor.tensor {
            _ if !self.config.pad_token_groups => {
                let length = tensor.tensor.shape().0;
                Ok((self.along_tokens(tensor)?, Tokens { length, ends: ends.to_vec() }))
            }
            Matrix::F32(view) => self.padded_tokens(tensor.name, view, ends),
            Matrix::Bf16(view) => self.padded_tokens(tensor.name, view, ends),
            Matrix::F16(view) => self.padded_tokens(tensor.name, view, ends),
        }
    }

    fn padded_tokens<T: Input + Default>(
        &self,
        name: &'static str,
        view: MatrixView<'_, T>,
        ends: &[i32],
    ) -> Result<(OwnedOperand, Tokens), TrainingError> {
        let of = TrainingError::of(name);
        let padded = pad_token_groups(view, ends).map_err(&of)?;
        let tensor = Named { name, tensor: padded.view().map_err(&of)?.into() };
        let operand = self.along_tokens(&tensor)?;
        Ok((operand, Tokens { length: padded.rows, ends: padded.ends }))
    }

    fn along_tokens(&self, tensor: &Named<'_>) -> Result<OwnedOperand, TrainingError> {
        if self.config.wgrad_with_hp {
            tensor.transposed()
        } else {
            self.operand(tensor, Axis::Col)
        }
    }
}

/// The contraction over tokens: how long it is, padding included, and where its groups end.
struct Tokens {
    length: usize,
    ends: Vec<i32>,
}

/// N: the rows of each of the experts, one for every group.
fn rows_of_each(w: &Named<'_>, ends: &[i32]) -> Result<usize, TrainingError> {
    let rows = w.tensor.shape().0;
    let n = rows.checked_div(ends.len()).unwrap_or(0);
    w.fits(Some(n * ends.len()), None)?;
    Ok(n)
}

/// (K, E·L) as (E·K, L).
fn by_expert<T: Copy>(data: &[T], experts: usize, k: usize) -> Vec<T> {
    let length = data.len().checked_div(experts * k).unwrap_or(0);
    (0..experts)
        .flat_map(|expert| (0..k).map(move |row| (row * experts + expert) * length))
        .flat_map(|start| &data[start..start + length])
        .copied()
        .collect()
}
