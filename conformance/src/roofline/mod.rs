//! The least time that a linear layer's training step can take on a GPU, in bf16 and in MX.
//!
//! The model is the one that torchao's `float8_roofline` benchmark plots (`torchao/testing/training/roofline_utils.py`),
//! so that figures can be laid side by side. A kernel takes the longest of its arithmetic at the peak that GEMMs reach,
//! its memory traffic at the bandwidth that kernels reach, and a floor; kernels add up. A step is three GEMMs, and in
//! MX two casts of each tensor: along its rows and along its columns, for the two GEMMs that contract it one way and
//! the other.
//!
//! Two things differ from torchao: a scale costs one byte in every format (there, scales of FP4 cost half a byte), and
//! the GEMMs of an emulated recipe run in bf16, as emulation does (there, at the FP8 peak). One does not: the scales
//! that casts write, 1/32 of the elements, are left out.

mod gpu;
mod kernel;
mod recipe;
mod shape;
mod table;

pub use gpu::{Figure, Gpu, UnknownGpu};
pub use kernel::{Bound, Kernel, NoFp4, Operands, cast, gemm};
pub use recipe::{Direction, Recipe, Role, UnknownRecipe};
pub use shape::{Shape, ShapeError};
pub use table::render;

use serde::Serialize;

/// The name and version of the JSON form of [`Roofline`].
pub const SCHEMA: &str = "mxcert-roofline/1";

/// Estimates of some shapes on one GPU. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The version of mxcert.
    pub mxcert: &'static str,
    /// The GPU.
    pub gpu: &'static Gpu,
    /// What MX is here.
    pub recipe: &'static Recipe,
    /// One entry a shape, in the order asked for.
    pub shapes: Vec<Estimate>,
}

/// One shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The layer.
    #[serde(flatten)]
    pub shape: Shape,
    /// The step in bf16: GEMMs alone.
    pub bf16: Step,
    /// The step in MX, each cast a kernel that reads bf16 from memory.
    pub unfused: Step,
    /// The step in MX, with the row casts of input and output gradient fused into the kernels before them.
    pub fused: Step,
    /// How many times faster than bf16.
    pub speedup: Speedup,
}

/// A training step, or rather its kernels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The GEMMs.
    pub gemms: Gemms,
    /// The casts.
    pub casts: Vec<Cast>,
    /// All GEMMs.
    pub gemm_seconds: f64,
    /// All casts.
    pub cast_seconds: f64,
    /// Everything.
    pub seconds: f64,
}

/// The GEMMs of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gemms {
    /// Output: (M, K) × (K, N).
    pub forward: Kernel,
    /// Gradient of the input: (M, N) × (N, K).
    pub grad_input: Kernel,
    /// Gradient of the weight: (K, M) × (M, N).
    pub grad_weight: Kernel,
}

/// A cast from bf16.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cast {
    /// Of what.
    pub role: Role,
    /// Which way blocks run.
    pub direction: Direction,
    /// What it costs.
    #[serde(flatten)]
    pub kernel: Kernel,
}

/// How many times faster than bf16 the step in MX is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// With each cast a kernel of its own.
    pub unfused: f64,
    /// With casts fused.
    pub fused: f64,
}

/// Estimates all `shapes`.
///
/// # Errors
/// [`NoFp4`] if the recipe needs what the GPU does not have.
pub fn roofline(
    gpu: &'static Gpu,
    recipe: &'static Recipe,
    shapes: &[Shape],
) -> Result<Roofline, NoFp4> {
    let shapes =
        shapes.iter().map(|&shape| estimate(gpu, recipe, shape)).collect::<Result<_, _>>()?;
    Ok(Roofline { schema: SCHEMA, mxcert: env!("CARGO_PKG_VERSION"), gpu, recipe, shapes })
}

/// Estimates one shape.
///
/// # Errors
/// [`NoFp4`] if the recipe needs what the GPU does not have.
pub fn estimate(gpu: &Gpu, recipe: &Recipe, shape: Shape) -> Result<Estimate, NoFp4> {
    estimate_groups(gpu, recipe, shape, 1)
}

/// Estimates a grouped layer: its tokens in groups, each with weights of its own. Weights of all groups are cast; products are those of
/// all tokens with one weight, so that what reading the other weights adds is left out.
///
/// # Errors
/// [`NoFp4`] if the recipe needs what the GPU does not have.
pub fn estimate_groups(
    gpu: &Gpu,
    recipe: &Recipe,
    shape: Shape,
    groups: u32,
) -> Result<Estimate, NoFp4> {
    let in_bf16 = gemms(gpu, shape, Operands::Bf16, Operands::Bf16)?;
    let in_mx = gemms(gpu, shape, recipe.operands(), recipe.wgrad_operands())?;
    let bf16 = Step::new(in_bf16, Vec::new());
    let unfused = Step::new(in_mx, casts(gpu, recipe, (shape, groups), false));
    let fused = Step::new(in_mx, casts(gpu, recipe, (shape, groups), true));
    let speedup =
        Speedup { unfused: bf16.seconds / unfused.seconds, fused: bf16.seconds / fused.seconds };
    Ok(Estimate { shape, bf16, unfused, fused, speedup })
}

fn gemms(gpu: &Gpu, shape: Shape, operands: Operands, wgrad: Operands) -> Result<Gemms, NoFp4> {
    let Shape { m, k, n } = shape;
    Ok(Gemms {
        forward: gemm(gpu, operands, shape)?,
        grad_input: gemm(gpu, operands, Shape { m, k: n, n: k })?,
        grad_weight: gemm(gpu, wgrad, Shape { m: k, k: m, n })?,
    })
}

fn casts(gpu: &Gpu, recipe: &Recipe, (shape, groups): (Shape, u32), fuse: bool) -> Vec<Cast> {
    let mut casts = Vec::new();
    for role in Role::ALL {
        let times = if role == Role::Weight { u64::from(groups) } else { 1 };
        let elements = role.elements(shape).saturating_mul(times);
        for direction in Direction::ALL.into_iter().filter(|&way| recipe.casts(role, way)) {
            let fused = fuse && role.follows_an_op() && direction == Direction::Row;
            let kernel = cast(gpu, recipe.element, elements, fused);
            casts.push(Cast { role, direction, kernel });
        }
    }
    casts
}

impl Step {
    fn new(gemms: Gemms, casts: Vec<Cast>) -> Self {
        let Gemms { forward, grad_input, grad_weight } = gemms;
        let gemm_seconds = forward.seconds + grad_input.seconds + grad_weight.seconds;
        // An empty sum of f64 is -0.0, which prints as such.
        let cast_seconds = casts.iter().fold(0.0, |sum, cast| sum + cast.kernel.seconds);
        Self { gemms, casts, gemm_seconds, cast_seconds, seconds: gemm_seconds + cast_seconds }
    }
}
