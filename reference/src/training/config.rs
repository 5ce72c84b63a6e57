//! Recipes: the settings of MX training by the names that users know.

use super::error::TrainingError;
use crate::block::Profile;
use crate::convention::{Convention, PROPAGATE};
use crate::element::Element;
use crate::format::{BF16, F32, Format};
use crate::scale::ScaleMode;

/// Which kernels run, in torchao's words. It governs casts along rows and along columns, linear layers and grouped ones alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelPreference {
    /// Products of codes under their scales, as block-scaled tensor cores take them.
    Auto,
    /// Codes are dequantised first, each product of element and scale rounded to a 16-bit type, and multiplied as matrices of that
    /// type. It differs from [`Self::Auto`] only where a product of element and scale is not exact there.
    Emulated,
}

impl KernelPreference {
    /// Both, in the order of reports.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Emulated];

    /// The name on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Emulated => "emulated",
        }
    }

    /// The preference of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }
}

/// The type that products are rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutputType {
    /// bfloat16.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl OutputType {
    /// Both, in the order of reports.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::F32];

    /// The descriptor.
    pub const fn format(self) -> &'static Format {
        match self {
            Self::Bf16 => &BF16,
            Self::F32 => &F32,
        }
    }

    /// The name on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|output| output.name() == name)
    }
}

/// Everything that decides the bits of a training operation.
///
/// Activations, weights and gradients share one element format, and blocks are 32 elements along the contraction, as in torchao's
/// `MXFP8TrainingOpConfig`. Change a recipe by struct update:
///
/// ```
/// use mx_reference::convention::TE;
/// use mx_reference::training::{OutputType, Recipe, TrainingConfig};
/// let config = TrainingConfig { convention: &TE, output: OutputType::F32, ..Recipe::Mxfp8Rceil.config() };
/// config.check()?;
/// # Ok::<(), mx_reference::training::TrainingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingConfig {
    /// The element format of every cast.
    pub element: Element,
    /// The scale mode of every cast.
    pub mode: ScaleMode,
    /// The convention of every cast.
    pub convention: &'static Convention,
    /// What every product is rounded to (`out_dtype`).
    pub output: OutputType,
    /// Whether the weight gradient is a product of the unquantised tensors. Then nothing is cast along the tokens.
    pub wgrad_with_hp: bool,
    /// Whether each token group is padded with zero rows to a multiple of 32 before it is cast along the tokens
    /// (`pad_token_groups_for_grouped_mm`). Linear layers do not look at it.
    pub pad_token_groups: bool,
    /// Which kernels run.
    pub kernel: KernelPreference,
}

impl TrainingConfig {
    /// What casts depend on.
    pub const fn profile(&self) -> Profile {
        Profile { element: self.element, mode: self.mode, convention: self.convention }
    }

    /// Checks that some kernel computes this combination: emulation takes every floating-point element format in every mode; the
    /// others take E2M1, and E4M3 with FLOOR or RCEIL, all that the cast kernels know
    /// (torchao `mx_formats/config.py::_validate_kernel_preference`, `mx_formats/kernels.py`).
    ///
    /// # Errors
    /// [`TrainingError::Config`] names the setting.
    pub const fn check(&self) -> Result<(), TrainingError> {
        let (setting, expected, got) = match (self.kernel, self.element, self.mode) {
            (_, Element::Int8, _) => (
                "element",
                "a floating-point format: torchao trains with e4m3, e5m2, e3m2, e2m3 or e2m1",
                self.element.name(),
            ),
            (KernelPreference::Auto, Element::E5m2 | Element::E3m2 | Element::E2m3, _) => (
                "element",
                "e4m3 or e2m1 with kernel auto, or kernel emulated",
                self.element.name(),
            ),
            (KernelPreference::Auto, Element::E4m3, ScaleMode::Ceil | ScaleMode::Even) => (
                "mode",
                "floor or rceil with e4m3 and kernel auto, or kernel emulated",
                self.mode.name(),
            ),
            _ => return Ok(()),
        };
        Err(TrainingError::Config { setting, expected, got })
    }
}

/// The settings that have a name.
///
/// The first three are of torchao's `moe_training/config.py` (`MXFP8TrainingRecipe`), the others of `mx_formats/config.py`
/// (`MXLinearRecipeName`, up to release 0.16). All give bf16, under the default convention, without padding of token groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recipe {
    /// E4M3, RCEIL.
    Mxfp8Rceil,
    /// E4M3, RCEIL; weight gradient of unquantised tensors.
    Mxfp8RceilWgradWithHp,
    /// E4M3, RCEIL, emulated.
    Mxfp8EmulatedRceil,
    /// E4M3, FLOOR, emulated.
    Mxfp8Emulated,
    /// E4M3, FLOOR.
    Mxfp8Cublas,
    /// E4M3, RCEIL: today's [`Self::Mxfp8Rceil`].
    Mxfp8CublasRceil,
    /// E2M1, FLOOR, emulated.
    Mxfp4Emulated,
}

impl Recipe {
    /// Every recipe, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Mxfp8Rceil,
        Self::Mxfp8RceilWgradWithHp,
        Self::Mxfp8EmulatedRceil,
        Self::Mxfp8Emulated,
        Self::Mxfp8Cublas,
        Self::Mxfp8CublasRceil,
        Self::Mxfp4Emulated,
    ];

    /// torchao's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mxfp8Rceil => "mxfp8_rceil",
            Self::Mxfp8RceilWgradWithHp => "mxfp8_rceil_wgrad_with_hp",
            Self::Mxfp8EmulatedRceil => "mxfp8_emulated_rceil",
            Self::Mxfp8Emulated => "mxfp8_emulated",
            Self::Mxfp8Cublas => "mxfp8_cublas",
            Self::Mxfp8CublasRceil => "mxfp8_cublas_rceil",
            Self::Mxfp4Emulated => "mxfp4_emulated",
        }
    }

    /// The recipe of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|recipe| recipe.name() == name)
    }

    /// What it stands for.
    pub const fn config(self) -> TrainingConfig {
        let element = match self {
            Self::Mxfp4Emulated => Element::E2m1,
            _ => Element::E4m3,
        };
        let mode = match self {
            Self::Mxfp8Emulated | Self::Mxfp8Cublas | Self::Mxfp4Emulated => ScaleMode::Floor,
            _ => ScaleMode::Rceil,
        };
        let kernel = match self {
            Self::Mxfp8EmulatedRceil | Self::Mxfp8Emulated | Self::Mxfp4Emulated => {
                KernelPreference::Emulated
            }
            _ => KernelPreference::Auto,
        };
        TrainingConfig {
            element,
            mode,
            convention: &PROPAGATE,
            output: OutputType::Bf16,
            wgrad_with_hp: matches!(self, Self::Mxfp8RceilWgradWithHp),
            pad_token_groups: false,
            kernel,
        }
    }
}
