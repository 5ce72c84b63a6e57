//! Which operands a product takes.

use mx_reference::Element;
use mx_reference::format::{BF16, E2M1, E4M3, E8M0, F16, Format, UE4M3};

/// Which operands the product under test takes, the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// E4M3 without scales.
    Fp8,
    /// bf16.
    Bf16,
    /// f16.
    F16,
    /// An MX element under E8M0 scales for blocks of 32.
    Mx(Element),
    /// E2M1 under UE4M3 scales for blocks of 16, without tensor scales.
    Nvfp4,
}

impl Operands {
    /// Every kind, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Fp8,
        Self::Bf16,
        Self::F16,
        Self::Mx(Element::E4m3),
        Self::Mx(Element::E5m2),
        Self::Mx(Element::E3m2),
        Self::Mx(Element::E2m3),
        Self::Mx(Element::E2m1),
        Self::Mx(Element::Int8),
        Self::Nvfp4,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp8 => "fp8",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Mx(Element::E4m3) => "mx-e4m3",
            Self::Mx(Element::E5m2) => "mx-e5m2",
            Self::Mx(Element::E3m2) => "mx-e3m2",
            Self::Mx(Element::E2m3) => "mx-e2m3",
            Self::Mx(Element::E2m1) => "mx-e2m1",
            Self::Mx(Element::Int8) => "mx-int8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operands| operands.name() == name)
    }

    /// The format of elements.
    pub const fn element(self) -> &'static Format {
        match self {
            Self::Fp8 => &E4M3,
            Self::Bf16 => &BF16,
            Self::F16 => &F16,
            Self::Mx(element) => element.format(),
            Self::Nvfp4 => &E2M1,
        }
    }

    /// The format of scales and how many elements each has, where there are any.
    pub const fn scales(self) -> Option<(&'static Format, usize)> {
        match self {
            Self::Fp8 | Self::Bf16 | Self::F16 => None,
            Self::Mx(_) => Some((&E8M0, 32)),
            Self::Nvfp4 => Some((&UE4M3, 16)),
        }
    }
}
