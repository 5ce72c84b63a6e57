//! A training step of a linear layer, or of one for each group of tokens: six casts and three products.
//!
//! | output | A | B | contracts |
//! |---|---|---|---|
//! | y [m, n] | x along rows | w along rows | k |
//! | `grad_input` [m, k] | `grad_output` along rows | w along columns | n |
//! | `grad_weight` [n, k] | `grad_output` along columns | x along columns | m |
//!
//! Each tensor is read once: both directions come from one pass. Source: torchao `moe_training/mxfp8_linear.py`, `mxfp8_grouped_mm.py`.

use crate::cublaslt::{self, Algorithm, CublasLt, Mode, WORKSPACE};
use crate::device::Gpu;
use crate::error::GpuError;
use crate::gemm::{By, Operand, Product};
use crate::launch::sized;
use crate::quantize::{Arrangement, Blocks, Cast, Groups, Target};
use crate::{Buffer, View, ViewMut};
use mx_reference::gemm::{GemmShape, GroupAxis, group_ranges};
use mx_reference::training::{KernelPreference, TrainingConfig};
use mx_reference::{Format, format};
use std::collections::BTreeMap;
use std::ops::Range;

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// This crate's products of codes under their scales.
    Blocks,
    /// cuBLASLt's bf16 products of dequantised codes.
    Bf16,
}

impl Kernel {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Blocks, Self::Bf16];

    /// The name that a preference takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "mx-blocks",
            Self::Bf16 => "cublaslt-bf16",
        }
    }
}

/// Which kernels a step runs: one preference for linear and grouped products alike, and for what casts leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preference {
    /// Products of codes under their scales.
    Auto,
    /// Products of dequantised codes.
    Emulated,
    /// This one.
    Named(Kernel),
}

impl Preference {
    /// `auto`, `emulated`, or a kernel by name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "emulated" => Some(Self::Emulated),
            _ => Kernel::ALL.into_iter().find(|kernel| kernel.name() == name).map(Self::Named),
        }
    }

    /// Every name.
    pub fn names() -> Vec<&'static str> {
        ["auto", "emulated"].into_iter().chain(Kernel::ALL.map(Kernel::name)).collect()
    }

    /// What multiplies, in forward and backward passes, linear and grouped; casts along rows and columns leave what it takes.
    pub const fn kernel(self) -> Kernel {
        match self {
            Self::Auto => Kernel::Blocks,
            Self::Emulated => Kernel::Bf16,
            Self::Named(kernel) => kernel,
        }
    }
}

impl From<KernelPreference> for Preference {
    fn from(preference: KernelPreference) -> Self {
        match preference {
            KernelPreference::Auto => Self::Auto,
            KernelPreference::Emulated => Self::Emulated,
        }
    }
}

/// Codes and scales of one cast, and their values in bf16 where those are multiplied. Experts lie one after the other.
#[derive(Debug)]
struct Side {
    experts: usize,
    rows: usize,
    cols: usize,
    codes: Buffer,
    scales: Buffer,
    values: Option<Buffer>,
}

impl Side {
    fn new(gpu: &Gpu, [experts, rows, cols]: [usize; 3], kernel: Kernel) -> Result<Self, GpuError> {
        let count = experts * rows * cols;
        let values = match kernel {
            Kernel::Blocks => None,
            Kernel::Bf16 => Some(gpu.allocate(2 * count)?),
        };
        let (codes, scales) = (gpu.allocate(count)?, gpu.allocate(count / 32)?);
        Ok(Self { experts, rows, cols, codes, scales, values })
    }

    fn count(&self) -> usize {
        self.experts * self.rows * self.cols
    }

    /// Bytes of one expert's codes.
    fn expert(&self, expert: usize) -> Range<usize> {
        let each = self.rows * self.cols;
        expert * each..(expert + 1) * each
    }

    fn views(&self) -> (View<'_>, View<'_>) {
        let count = self.count();
        (self.codes.slice(..count), self.scales.slice(..count / 32))
    }

    fn dequantize(&mut self, gpu: &Gpu, cast: Cast) -> Result<(), GpuError> {
        let count = self.count();
        let shape = (self.experts * self.rows, self.cols);
        let Some(values) = &mut self.values else { return Ok(()) };
        let (codes, scales) = (self.codes.slice(..count), self.scales.slice(..count / 32));
        let to = &mut values.slice_mut(..2 * count);
        gpu.dequantize(cast.element, shape, &codes, &scales, &format::BF16, to)
    }

    /// bf16 values of a range of rows, from their first column in it to the last.
    fn values(&self, rows: Range<usize>, cols: Range<usize>) -> Result<View<'_>, GpuError> {
        let none = || GpuError::Unsupported("codes were not dequantised".to_owned());
        let values = self.values.as_ref().ok_or_else(none)?;
        let last = rows.end.saturating_sub(1) * self.cols + cols.end;
        Ok(values.slice(2 * (rows.start * self.cols + cols.start)..2 * last))
    }
}

/// Token groups of a step.
#[derive(Debug)]
struct Tokens {
    ends: Vec<i32>,
    along_m: Groups,
    along_k: Groups,
}

/// A step of one shape, with the memory for what lies between casts and products.
#[derive(Debug)]
pub struct Step {
    gpu: Gpu,
    library: Option<CublasLt>,
    /// By shape, and whether operands are strided.
    algorithms: BTreeMap<([usize; 3], bool), Algorithm>,
    kernel: Kernel,
    cast: Cast,
    output: &'static Format,
    shape: GemmShape,
    tokens: Option<Tokens>,
    x: [Side; 2],
    w: [Side; 2],
    g: [Side; 2],
}

impl Step {
    /// Prepares a step of `shape`: m tokens of k features in, n out. With `ends` each group of tokens meets weights of its own.
    ///
    /// # Errors
    /// [`GpuError::Shape`] unless all three and every group are whole blocks; [`GpuError::Unsupported`] for a weight gradient in high
    /// precision and for padding of groups; [`GpuError::Missing`] without cuBLASLt, if it multiplies; [`GpuError::Driver`].
    pub fn new(
        gpu: &Gpu,
        config: &TrainingConfig,
        preference: Preference,
        shape: GemmShape,
        ends: Option<&[i32]>,
    ) -> Result<Self, GpuError> {
        if config.wgrad_with_hp || config.pad_token_groups {
            return Err(GpuError::Unsupported(
                "a step takes wgrad_with_hp = false and groups that are padded already".to_owned(),
            ));
        }
        let kernel = preference.kernel();
        let (element, mode) = (config.element, config.mode);
        let convention = config.convention;
        let cast = Cast { element, mode, convention, input: &format::BF16, packed: false };
        let GemmShape { m, n, k } = shape;
        let experts = ends.map_or(1, <[i32]>::len);
        let tokens = match ends {
            None => None,
            Some(ends) => {
                group_ranges(ends, m, 32)?;
                let blocks: Vec<i32> = ends.iter().map(|end| end / 32).collect();
                Some(Tokens {
                    ends: ends.to_vec(),
                    along_m: gpu.groups(GroupAxis::M, ends)?,
                    along_k: gpu.groups(GroupAxis::K, &blocks)?,
                })
            }
        };
        let library = match kernel {
            Kernel::Blocks => None,
            Kernel::Bf16 => Some(CublasLt::open(gpu, WORKSPACE)?),
        };
        let side = |experts, rows, cols| Side::new(gpu, [experts, rows, cols], kernel);
        Ok(Self {
            gpu: gpu.clone(),
            library,
            algorithms: BTreeMap::new(),
            kernel,
            cast,
            output: config.output.format(),
            shape,
            tokens,
            x: [side(1, m, k)?, side(1, k, m)?],
            w: [side(experts, n, k)?, side(experts, k, n)?],
            g: [side(1, m, n)?, side(1, n, m)?],
        })
    }

    /// Runs it on bf16 tensors x [m, k], w [n, k] (of every group) and `grad_output` [m, n] into y [m, n], `grad_input` [m, k] and
    /// `grad_weight` [n, k] (of every group).
    ///
    /// # Errors
    /// [`GpuError::Size`]; [`GpuError::Unsupported`] for what a kernel does not take; [`GpuError::Driver`].
    pub fn run(
        &mut self,
        [x, w, grad_output]: [&View<'_>; 3],
        [y, grad_input, grad_weight]: [&mut ViewMut<'_>; 3],
    ) -> Result<(), GpuError> {
        self.cast(x, w, grad_output)?;
        let GemmShape { m, n, k } = self.shape;
        self.along_m(GemmShape { m, n, k }, Which::Forward, y)?;
        self.along_m(GemmShape { m, n: k, k: n }, Which::GradInput, grad_input)?;
        self.weights(GemmShape { m: n, n: k, k: m }, grad_weight)
    }

    /// All six casts.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn cast(&mut self, x: &View<'_>, w: &View<'_>, g: &View<'_>) -> Result<(), GpuError> {
        for (from, sides) in [(x, &mut self.x), (w, &mut self.w), (g, &mut self.g)] {
            let [row, col] = sides;
            sized("input", 2 * row.count(), from.len())?;
            for expert in 0..row.experts {
                let range = row.expert(expert);
                let scales = range.start / 32..range.end / 32;
                let from = from.slice(2 * range.start..2 * range.end);
                let shape = (row.rows, row.cols);
                let mut views = (
                    row.codes.slice_mut(range.clone()),
                    row.scales.slice_mut(scales.clone()),
                    col.codes.slice_mut(range),
                    col.scales.slice_mut(scales),
                );
                let layout = Arrangement::Plain;
                let along_rows = Target { elements: &mut views.0, scales: &mut views.1, layout };
                let along_cols = Target { elements: &mut views.2, scales: &mut views.3, layout };
                let both = Blocks::Both(along_rows, along_cols);
                self.gpu.quantize(self.cast, shape, &from, both)?;
            }
            row.dequantize(&self.gpu, self.cast)?;
            col.dequantize(&self.gpu, self.cast)?;
        }
        Ok(())
    }

    /// y or the gradient of the input.
    fn along_m(
        &mut self,
        shape: GemmShape,
        which: Which,
        to: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let GemmShape { m, n, k } = shape;
        if self.kernel == Kernel::Blocks {
            let (a, b) = self.sides(which);
            let groups = self.tokens.as_ref().map(|tokens| &tokens.along_m);
            return self.blocks(shape, a, b, groups, to);
        }
        let ranges = match &self.tokens {
            None => std::iter::once(0..m).collect(),
            Some(tokens) => group_ranges(&tokens.ends, m, 32)?,
        };
        let width = self.output.bits as usize / 8;
        sized("output", m * n * width, to.len())?;
        for (expert, rows) in ranges.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let shape = GemmShape { m: rows.len(), n, k };
            let mut to = to.slice_mut(rows.start * n * width..rows.end * n * width);
            let rows = [rows, expert * n..(expert + 1) * n];
            self.bf16(shape, which, Part { rows, cols: 0..k }, &mut to)?;
        }
        Ok(())
    }

    /// The gradient of the weights.
    fn weights(&mut self, shape: GemmShape, to: &mut ViewMut<'_>) -> Result<(), GpuError> {
        let GemmShape { m, n, k } = shape;
        if self.kernel == Kernel::Blocks {
            let (a, b) = self.sides(Which::GradWeight);
            let groups = self.tokens.as_ref().map(|tokens| &tokens.along_k);
            return self.blocks(shape, a, b, groups, to);
        }
        let ranges = match &self.tokens {
            None => std::iter::once(0..k).collect(),
            Some(tokens) => group_ranges(&tokens.ends, k, 32)?,
        };
        let bytes = m * n * self.output.bits as usize / 8;
        sized("output", ranges.len() * bytes, to.len())?;
        for (group, cols) in ranges.into_iter().enumerate() {
            let mut to = to.slice_mut(group * bytes..(group + 1) * bytes);
            if cols.is_empty() {
                self.gpu.clear(&mut to)?;
                continue;
            }
            let shape = GemmShape { m, n, k: cols.len() };
            self.bf16(shape, Which::GradWeight, Part { rows: [0..m, 0..n], cols }, &mut to)?;
        }
        Ok(())
    }

    const fn sides(&self, which: Which) -> (&Side, &Side) {
        let ([x, x_col], [w, w_col], [g, g_col]) = (&self.x, &self.w, &self.g);
        match which {
            Which::Forward => (x, w),
            Which::GradInput => (g, w_col),
            Which::GradWeight => (g_col, x_col),
        }
    }

    fn blocks(
        &self,
        shape: GemmShape,
        a: &Side,
        b: &Side,
        groups: Option<&Groups>,
        to: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let ((a, a_scales), (b, b_scales)) = (a.views(), b.views());
        let element = self.cast.element;
        let product = Product {
            shape,
            a: Operand { element, elements: &a, scales: &a_scales, blocked: false },
            b: Operand { element, elements: &b, scales: &b_scales, blocked: false },
            groups,
            output: self.output,
            by: By::Halves,
        };
        self.gpu.multiply(&product, to)
    }

    fn bf16(
        &mut self,
        GemmShape { m, n, k }: GemmShape,
        which: Which,
        Part { rows: [a_rows, b_rows], cols }: Part,
        to: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let (bf16, d, mode) = (&format::BF16, self.output, Mode::BF16);
        let (a, b) = self.sides(which);
        let strides = [a.cols, b.cols];
        let strides = (strides != [k; 2]).then_some(strides);
        let product = cublaslt::Product { m, n, k, a: bf16, b: bf16, d, mode, strides };
        let key = ([m, n, k], strides.is_some());
        let missing = || GpuError::Unsupported("cuBLASLt was not opened".to_owned());
        let known = self.algorithms.get(&key).copied();
        let library = self.library.as_ref().ok_or_else(missing)?;
        let algorithm = match known {
            Some(algorithm) => algorithm,
            None => library.algorithm(&product)?,
        };
        let (a, b) = (a.values(a_rows, cols.clone())?, b.values(b_rows, cols)?);
        let operands = [
            cublaslt::Operand { codes: &a, scales: None },
            cublaslt::Operand { codes: &b, scales: None },
        ];
        library.multiply(&product, &algorithm, operands, 1.0, to)?;
        self.algorithms.insert(key, algorithm);
        Ok(())
    }
}

/// The part of both operands that a product takes.
#[derive(Clone, Debug)]
struct Part {
    rows: [Range<usize>; 2],
    cols: Range<usize>,
}

/// Which product of a step.
#[derive(Clone, Copy, Debug)]
enum Which {
    Forward,
    GradInput,
    GradWeight,
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::training::Recipe;
    use rstest::rstest;

    #[rstest]
    #[case("auto", Kernel::Blocks)]
    #[case("emulated", Kernel::Bf16)]
    #[case("mx-blocks", Kernel::Blocks)]
    #[case("cublaslt-bf16", Kernel::Bf16)]
    fn one_preference_decides(#[case] name: &str, #[case] kernel: Kernel) {
        assert_eq!(Preference::from_name(name).map(Preference::kernel), Some(kernel));
        assert!(Preference::names().contains(&name));
    }

    #[test]
    fn recipes_say_which() {
        let kernel = |recipe: Recipe| Preference::from(recipe.config().kernel).kernel();
        assert_eq!(kernel(Recipe::Mxfp8Rceil), Kernel::Blocks);
        assert_eq!(kernel(Recipe::Mxfp8EmulatedRceil), Kernel::Bf16);
        assert_eq!(Preference::from_name("blocks"), None);
    }
}
