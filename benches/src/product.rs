//! Matrix products and training steps, beside bf16 through cuBLASLt.

use crate::cast::random_tensor;
use crate::measure::{Effort, median};
use mx_gpu::cublaslt::{self, CublasLt, Mode, WORKSPACE};
use mx_gpu::gemm::{By, Operand, Product};
use mx_gpu::layer::{Preference, Step};
use mx_gpu::quantize::{Arrangement, Blocks, Cast, Target};
use mx_gpu::{Buffer, Gpu, GpuError};
use mx_reference::convention::PROPAGATE;
use mx_reference::gemm::GemmShape;
use mx_reference::training::Recipe;
use mx_reference::{Element, ScaleMode, format};
use serde::Serialize;

/// One product.
#[derive(Clone, Debug, Serialize)]
pub struct Gemm {
    /// Rows of A, rows of B, contraction.
    pub shape: [usize; 3],
    /// Seconds of the MX product of e4m3 codes under their scales, bf16 out.
    pub mx_seconds: f64,
    /// Seconds of cuBLASLt's bf16 product of that shape.
    pub bf16_seconds: f64,
}

impl Gemm {
    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        self.shape.iter().fold(2.0, |flops, &length| flops * length as f64)
    }

    /// The rate of MX over that of bf16.
    pub fn of_bf16(&self) -> f64 {
        self.bf16_seconds / self.mx_seconds
    }
}

/// Measures e4m3 and bf16 products of one shape.
///
/// # Errors
/// What the device reports, out of memory for one.
pub fn gemm(gpu: &Gpu, effort: Effort, shape: GemmShape) -> Result<Gemm, GpuError> {
    let GemmShape { m, n, k } = shape;
    let (a, b) = (random_tensor(gpu, m * k, 1)?, random_tensor(gpu, n * k, 2)?);
    let quantized = |x: &Buffer, rows: usize| -> Result<(Buffer, Buffer), GpuError> {
        let (mut codes, mut scales) = (gpu.allocate(rows * k)?, gpu.allocate(rows * k / 32)?);
        let target = Target {
            elements: &mut codes.slice_mut(..rows * k),
            scales: &mut scales.slice_mut(..rows * k / 32),
            layout: Arrangement::Plain,
        };
        let (element, mode) = (Element::E4m3, ScaleMode::Rceil);
        let input = &format::BF16;
        let cast = Cast { element, mode, convention: &PROPAGATE, input, packed: false };
        gpu.quantize(cast, (rows, k), &x.slice(..2 * rows * k), Blocks::Row(target))?;
        Ok((codes, scales))
    };
    let ((a_codes, a_scales), (b_codes, b_scales)) = (quantized(&a, m)?, quantized(&b, n)?);
    let mut d = gpu.allocate(2 * m * n)?;
    let mut to = d.slice_mut(..2 * m * n);
    let (a_codes, a_scales) = (a_codes.slice(..m * k), a_scales.slice(..m * k / 32));
    let (b_codes, b_scales) = (b_codes.slice(..n * k), b_scales.slice(..n * k / 32));
    let element = Element::E4m3;
    let product = Product {
        shape,
        a: Operand { element, elements: &a_codes, scales: &a_scales, blocked: false },
        b: Operand { element, elements: &b_codes, scales: &b_scales, blocked: false },
        groups: None,
        output: &format::BF16,
        by: By::Halves,
    };
    let mx_seconds = median(gpu, effort, |_| gpu.multiply(&product, &mut to))?;
    let bf16 = Bf16::new(gpu, shape)?;
    let (a, b) = (a.slice(..2 * m * k), b.slice(..2 * n * k));
    let bf16_seconds = median(gpu, effort, |_| bf16.run([&a, &b], &mut to))?;
    Ok(Gemm { shape: [m, n, k], mx_seconds, bf16_seconds })
}

/// cuBLASLt's bf16 product of one shape.
struct Bf16 {
    library: CublasLt,
    product: cublaslt::Product,
    algorithm: cublaslt::Algorithm,
}

impl Bf16 {
    fn new(gpu: &Gpu, GemmShape { m, n, k }: GemmShape) -> Result<Self, GpuError> {
        let library = CublasLt::open(gpu, WORKSPACE)?;
        let bf16 = &format::BF16;
        let product = cublaslt::Product {
            m,
            n,
            k,
            a: bf16,
            b: bf16,
            d: bf16,
            mode: Mode::BF16,
            strides: None,
        };
        let algorithm = library.algorithm(&product)?;
        Ok(Self { library, product, algorithm })
    }

    fn run(
        &self,
        [a, b]: [&mx_gpu::View<'_>; 2],
        d: &mut mx_gpu::ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let operands = [a, b].map(|codes| cublaslt::Operand { codes, scales: None });
        self.library.multiply(&self.product, &self.algorithm, operands, 1.0, d)
    }
}

/// A training step: casts and products, forward and backward.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Tokens, features in, features out.
    pub shape: [usize; 3],
    /// Groups of tokens with weights of their own; 1 is a linear layer.
    pub groups: usize,
    /// The kernel preference.
    pub kernel: &'static str,
    /// Seconds of the whole step.
    pub seconds: f64,
    /// Seconds of its six casts (and dequantisation, where that is what is multiplied).
    pub cast_seconds: f64,
    /// Seconds of the three products in bf16.
    pub bf16_seconds: f64,
}

impl Layer {
    /// How many times faster than bf16 the step is.
    pub fn speedup(&self) -> f64 {
        self.bf16_seconds / self.seconds
    }
}

/// Measures a step under recipe `mxfp8_rceil`, and its products in bf16. In bf16 every operand lies as its product wants it, as if the
/// library took every layout equally fast; of groups, one product of all their tokens with one weight counts.
///
/// # Errors
/// What the device reports, out of memory for one.
pub fn layer(
    gpu: &Gpu,
    effort: Effort,
    GemmShape { m, n, k }: GemmShape,
    groups: usize,
    kernel: &'static str,
) -> Result<Layer, GpuError> {
    let preference = Preference::from_name(kernel)
        .ok_or_else(|| GpuError::Unsupported(format!("there is no kernel `{kernel}`")))?;
    let ends: Vec<i32> = (1..=groups).map(|group| (m / groups * group) as i32).collect();
    let ends = (groups > 1).then_some(&ends[..]);
    let x = random_tensor(gpu, m * k, 1)?;
    let w = random_tensor(gpu, groups * n * k, 2)?;
    let g = random_tensor(gpu, m * n, 3)?;
    let (x, w, g) = (x.slice(..2 * m * k), w.slice(..2 * groups * n * k), g.slice(..2 * m * n));
    let (mut y, mut dx) = (gpu.allocate(2 * m * n)?, gpu.allocate(2 * m * k)?);
    let mut dw = gpu.allocate(2 * groups * n * k)?;
    let (mut y, mut dx) = (y.slice_mut(..2 * m * n), dx.slice_mut(..2 * m * k));
    let mut dw = dw.slice_mut(..2 * groups * n * k);
    let config = Recipe::Mxfp8Rceil.config();
    let (seconds, cast_seconds) = {
        let mut step = Step::new(gpu, &config, preference, GemmShape { m, n, k }, ends)?;
        let whole = median(gpu, effort, |_| step.run([&x, &w, &g], [&mut y, &mut dx, &mut dw]))?;
        (whole, median(gpu, effort, |_| step.cast(&x, &w, &g))?)
    };
    let one = w.slice(..2 * n * k);
    let mut bf16_seconds = 0.0;
    let mut one_dw = dw.slice_mut(..2 * n * k);
    // Operands of the right sizes, whatever their order: x is [m, k] or [k, m], and so on.
    bf16_seconds += timed(gpu, effort, GemmShape { m, n, k }, [&x, &one], &mut y)?;
    bf16_seconds += timed(gpu, effort, GemmShape { m, n: k, k: n }, [&g, &one], &mut dx)?;
    bf16_seconds += timed(gpu, effort, GemmShape { m: n, n: k, k: m }, [&g, &x], &mut one_dw)?;
    Ok(Layer { shape: [m, k, n], groups, kernel, seconds, cast_seconds, bf16_seconds })
}

fn timed(
    gpu: &Gpu,
    effort: Effort,
    shape: GemmShape,
    operands: [&mx_gpu::View<'_>; 2],
    to: &mut mx_gpu::ViewMut<'_>,
) -> Result<f64, GpuError> {
    let product = Bf16::new(gpu, shape)?;
    median(gpu, effort, |_| product.run(operands, to))
}
