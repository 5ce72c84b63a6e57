//! A linear layer, forward and backward: six casts and three products.

use super::cast::{Named, operand};
use super::config::{KernelPreference, TrainingConfig};
use super::error::TrainingError;
use super::product::{Output, OwnedOperand, Product};
use crate::format::Format;
use crate::gemm::GemmShape;
use crate::matrix::Matrix;
use crate::quantize::{Axis, Quantized};

/// A linear layer without bias under a configuration: x (M, K), w (N, K) and the output's gradient g (M, N), all of one type.
///
/// | product | A | B | contraction |
/// |---|---|---|---|
/// | y = x·wᵀ | x cast along rows | w cast along rows | K |
/// | dx = g·w | g cast along rows | w cast along columns | N |
/// | dw = gᵀ·x | g cast along columns | x cast along columns | M |
///
/// Every cast is of the unquantised tensor. Source: torchao `moe_training/mxfp8_linear.py` (`mx_mm`), up to release 0.16
/// `mx_formats/mx_linear.py`.
///
/// Emulated kernels dequantise to the type of the tensors, each product of element and scale rounded once to nearest even, and refuse
/// f32, whose products are not modelled here. (torchao's eager emulation takes bf16 and f32; f16 is this project's addition.)
///
/// ```
/// use half::bf16;
/// use mx_reference::MatrixView;
/// use mx_reference::training::{Linear, Recipe};
/// let ones = vec![bf16::ONE; 32 * 32];
/// let x = MatrixView::contiguous(&ones, 32, 32)?.into();
/// let layer = Linear::new(Recipe::Mxfp8Rceil.config())?;
/// let step = layer.run(x, x, x)?;
/// assert_eq!((step.y.bits[0], step.dw.rows), (bf16::from_f32(32.0).to_bits().into(), 32));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    config: TrainingConfig,
}

/// The casts of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Casts {
    /// x along K: (M, K).
    pub x_row: Quantized,
    /// w along K: (N, K).
    pub w_row: Quantized,
    /// g along N: (M, N).
    pub g_row: Quantized,
    /// w along N: (K, N).
    pub w_col: Quantized,
    /// g along M: (N, M). `None` where the weight gradient is computed in high precision.
    pub g_col: Option<Quantized>,
    /// x along M: (K, M). `None` as `g_col`.
    pub x_col: Option<Quantized>,
}

/// The results of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearOutputs {
    /// The output, (M, N).
    pub y: Output,
    /// The gradient of x, (M, K).
    pub dx: Output,
    /// The gradient of w, (N, K).
    pub dw: Output,
}

impl Linear {
    /// A layer under this configuration.
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

    /// Every cast of one step.
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit each other, or if K, N or (unless the weight gradient is computed in high
    /// precision) M is no multiple of 32.
    pub fn casts(
        &self,
        x: Matrix<'_>,
        w: Matrix<'_>,
        g: Matrix<'_>,
    ) -> Result<Casts, TrainingError> {
        let [x, w, g] = named(x, w, g);
        fit(&x, &w)?;
        fit_gradient(&x, &w, &g)?;
        let cast = |tensor: &Named<'_>, axis| tensor.cast(&self.config, axis);
        let along_tokens = |tensor: &Named<'_>| {
            (!self.config.wgrad_with_hp).then(|| cast(tensor, Axis::Col)).transpose()
        };
        Ok(Casts {
            x_row: cast(&x, Axis::Row)?,
            w_row: cast(&w, Axis::Row)?,
            g_row: cast(&g, Axis::Row)?,
            w_col: cast(&w, Axis::Col)?,
            g_col: along_tokens(&g)?,
            x_col: along_tokens(&x)?,
        })
    }

    /// y = x·wᵀ, (M, N).
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit, or K is no multiple of 32.
    pub fn forward(&self, x: Matrix<'_>, w: Matrix<'_>) -> Result<Product, TrainingError> {
        let [x, w, _] = named(x, w, x);
        fit(&x, &w)?;
        let ((m, k), (n, _)) = (x.tensor.shape(), w.tensor.shape());
        let (a, b) = (self.operand(&x, Axis::Row)?, self.operand(&w, Axis::Row)?);
        Product::new(GemmShape { m, n, k }, a, b)
    }

    /// dx = g·w, (M, K).
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit, or N is no multiple of 32.
    pub fn input_gradient(&self, g: Matrix<'_>, w: Matrix<'_>) -> Result<Product, TrainingError> {
        let [_, w, g] = named(g, w, g);
        let ((n, k), (m, _)) = (w.tensor.shape(), g.tensor.shape());
        w.like(&g)?;
        g.fits(None, Some(n))?;
        let (a, b) = (self.operand(&g, Axis::Row)?, self.operand(&w, Axis::Col)?);
        Product::new(GemmShape { m, n: k, k: n }, a, b)
    }

    /// dw = gᵀ·x, (N, K): of casts, or of the tensors themselves where the configuration says so.
    ///
    /// # Errors
    /// [`TrainingError`] if shapes or types do not fit, if M is no multiple of 32 for a product of casts, or if the tensors are f32
    /// for one in high precision.
    pub fn weight_gradient(&self, g: Matrix<'_>, x: Matrix<'_>) -> Result<Product, TrainingError> {
        let [x, _, g] = named(x, x, g);
        let ((m, k), (_, n)) = (x.tensor.shape(), g.tensor.shape());
        g.like(&x)?;
        g.fits(Some(m), None)?;
        let (a, b) = if self.config.wgrad_with_hp {
            (g.transposed()?, x.transposed()?)
        } else {
            (self.operand(&g, Axis::Col)?, self.operand(&x, Axis::Col)?)
        };
        Product::new(GemmShape { m: n, n: k, k: m }, a, b)
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
    ) -> Result<LinearOutputs, TrainingError> {
        let tensors = named(x, w, g);
        fit_gradient(&tensors[0], &tensors[1], &tensors[2])?;
        let (y, dx) = (self.forward(x, w)?, self.input_gradient(g, w)?);
        let dw = self.weight_gradient(g, x)?;
        let output = self.config.output.format();
        Ok(LinearOutputs { y: y.exact(output), dx: dx.exact(output), dw: dw.exact(output) })
    }

    fn operand(&self, tensor: &Named<'_>, axis: Axis) -> Result<OwnedOperand, TrainingError> {
        let cast = tensor.cast(&self.config, axis)?;
        operand(&self.config, tensor.name, cast, self.dequantized(tensor)?)
    }

    /// What emulation dequantises this tensor to.
    fn dequantized(&self, tensor: &Named<'_>) -> Result<&'static Format, TrainingError> {
        match (self.config.kernel, tensor.tensor) {
            (KernelPreference::Emulated, Matrix::F32(_)) => Err(TrainingError::InputType {
                tensor: tensor.name,
                expected: "bf16 or f16 for a linear layer with emulated kernels, which multiply in the type of the tensors; convert them or use kernel auto",
                got: tensor.format().name,
            }),
            _ => Ok(tensor.format()),
        }
    }
}

fn named<'a>(x: Matrix<'a>, w: Matrix<'a>, g: Matrix<'a>) -> [Named<'a>; 3] {
    [("x", x), ("w", w), ("g", g)].map(|(name, tensor)| Named { name, tensor })
}

/// x (M, K) and w (N, K).
fn fit(x: &Named<'_>, w: &Named<'_>) -> Result<(), TrainingError> {
    w.like(x)?;
    w.fits(None, Some(x.tensor.shape().1))
}

/// g (M, N).
fn fit_gradient(x: &Named<'_>, w: &Named<'_>, g: &Named<'_>) -> Result<(), TrainingError> {
    g.like(x)?;
    g.fits(Some(x.tensor.shape().0), Some(w.tensor.shape().0))
}
