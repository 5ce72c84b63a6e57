//! Ops as data: what a backend is asked to do, beside the tensors it is asked to do it to.

mod gemm;
mod training;

pub use gemm::{ANY_ORDER_NAME, Factor, Gemm, GroupedGemm, Scaling, Split, Test};
pub use training::{AllToAll, GroupSwizzle, Linear};

use mx_reference::pack::PackOrder;
use mx_reference::{
    Axis, BlockShape, Blocking, Element, Format, Overflow, Rounding, ScaleLayout, ScaleMode, format,
};
use std::collections::BTreeMap;

/// An input or output type of 16 or 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Float {
    /// IEEE binary32, in U32 tensors.
    F32,
    /// bfloat16, in U16 tensors.
    Bf16,
    /// IEEE binary16, in U16 tensors.
    F16,
}

impl Float {
    /// Every type, in the order of reports.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// The descriptor.
    pub const fn format(self) -> &'static Format {
        match self {
            Self::F32 => &format::F32,
            Self::Bf16 => &format::BF16,
            Self::F16 => &format::F16,
        }
    }

    /// The name in ids, on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// The type of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|float| float.name() == name)
    }
}

/// What a backend is asked to do. Shapes come from the tensors beside it, names from the table in the README.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// `input` → `scales`, `elements`.
    Quantize(Quantize),
    /// `elements`, `scales` → `output`.
    Dequantize(Dequantize),
    /// `input` → `elements`.
    Cast(Cast),
    /// `elements` → `packed`.
    Pack(Pack),
    /// `scales` → `scales` in the blocked layout.
    Swizzle,
    /// `a_elements`, `a_scales`, `b_elements`, `b_scales` (and `tensor_scale`) → `output`.
    Gemm(Gemm),
    /// The same with `offsets`, a product for each group.
    GroupedGemm(GroupedGemm),
    /// `x`, `w`, `grad_output` (and `offsets`) → `y`, `grad_input`, `grad_weight`.
    Linear(Linear),
    /// `input`, `splits` → `scales`, `elements`, `output`.
    AllToAll(AllToAll),
    /// `scales` (and `offsets`) → `scales` in the blocked layout of their groups.
    GroupSwizzle(GroupSwizzle),
}

/// Block quantisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantize {
    /// Element format.
    pub element: Element,
    /// Scale mode.
    pub mode: ScaleMode,
    /// Input type.
    pub input: Float,
    /// Which way blocks run.
    pub axis: Axis,
    /// The shape of a block.
    pub block: BlockShape,
    /// Layout of the scales.
    pub layout: ScaleLayout,
    /// How the input lies in its buffer, if not contiguous.
    pub view: Option<View>,
}

/// A strided view of a flat `input` buffer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// Index of element (0, 0).
    pub offset: usize,
    /// Rows of the view.
    pub rows: usize,
    /// Columns of the view.
    pub cols: usize,
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub col_stride: usize,
}

impl View {
    /// The whole of a row-major buffer.
    pub const fn contiguous((rows, cols): (usize, usize)) -> Self {
        Self { offset: 0, rows, cols, row_stride: cols, col_stride: 1 }
    }
}

/// Dequantisation with plain E8M0 scales, blocks of 32 along rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dequantize {
    /// Element format.
    pub element: Element,
    /// Output type.
    pub output: Float,
}

/// What a cast casts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An element format.
    Element(Element),
    /// The scale format of MX.
    E8m0,
    /// The block scale format of NVFP4.
    Ue4m3,
}

impl Target {
    /// Every target, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Element(Element::E4m3),
        Self::Element(Element::E5m2),
        Self::Element(Element::E3m2),
        Self::Element(Element::E2m3),
        Self::Element(Element::E2m1),
        Self::Element(Element::Int8),
        Self::E8m0,
        Self::Ue4m3,
    ];

    /// The descriptor.
    pub const fn format(self) -> &'static Format {
        match self {
            Self::Element(element) => element.format(),
            Self::E8m0 => &format::E8M0,
            Self::Ue4m3 => &format::UE4M3,
        }
    }

    /// The target of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.format().name == name)
    }
}

/// A cast without scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cast {
    /// Target format.
    pub target: Target,
    /// Rounding.
    pub rounding: CastRounding,
    /// What becomes of values beyond the largest.
    pub overflow: CastOverflow,
    /// Input type.
    pub input: Float,
}

/// The roundings that casts are asked for, by the names of `--rounding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CastRounding {
    /// To nearest, ties to even.
    Even,
    /// To nearest, ties away from zero.
    Away,
    /// To nearest, ties toward zero.
    ZeroTies,
    /// Toward zero.
    Truncate,
    /// Toward positive infinity.
    Up,
}

impl CastRounding {
    /// Every rounding.
    pub const ALL: [Self; 5] = [Self::Even, Self::Away, Self::ZeroTies, Self::Truncate, Self::Up];

    /// The name on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Away => "away",
            Self::ZeroTies => "zero-ties",
            Self::Truncate => "truncate",
            Self::Up => "up",
        }
    }

    /// The rounding of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rounding| rounding.name() == name)
    }

    /// The reference's rounding.
    pub const fn rounding(self) -> Rounding {
        match self {
            Self::Even => Rounding::NearestEven,
            Self::Away => Rounding::NearestAway,
            Self::ZeroTies => Rounding::NearestTowardZero,
            Self::Truncate => Rounding::TowardZero,
            Self::Up => Rounding::Up,
        }
    }
}

/// The overflow rules, by the names of `--overflow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CastOverflow {
    /// The largest finite magnitude.
    Saturate,
    /// Infinity or NaN where the format has them.
    Propagate,
}

impl CastOverflow {
    /// Both rules.
    pub const ALL: [Self; 2] = [Self::Saturate, Self::Propagate];

    /// The name on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Saturate => "saturate",
            Self::Propagate => "propagate",
        }
    }

    /// The rule of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|overflow| overflow.name() == name)
    }

    /// The reference's rule.
    pub const fn overflow(self) -> Overflow {
        match self {
            Self::Saturate => Overflow::Saturate,
            Self::Propagate => Overflow::Propagate,
        }
    }
}

/// Wire packing of one-code-a-byte rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pack {
    /// Element format.
    pub element: Element,
    /// Order of the codes.
    pub order: PackOrder,
}

impl Quantize {
    /// The blocking, without padding.
    pub const fn blocking(&self) -> Blocking {
        Blocking { axis: self.axis, shape: self.block, pad: false }
    }

    /// The axis segment without layout: `row`, `col` or `32x32`.
    pub fn axis_name(&self) -> &'static str {
        if self.block == BlockShape::TILE { "32x32" } else { self.axis.name() }
    }

    /// The block as the wire and the command line name it: `32`, `32x32`.
    pub fn block_name(&self) -> String {
        if self.block == BlockShape::TILE {
            "32x32".to_owned()
        } else {
            self.block.cols().to_string()
        }
    }
}

impl Op {
    /// The op's name: the first segment of its ids.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Quantize(_) => "quantize",
            Self::Dequantize(_) => "dequantize",
            Self::Cast(_) => "cast",
            Self::Pack(_) => "pack",
            Self::Swizzle => "swizzle",
            Self::Gemm(_) => "gemm",
            Self::GroupedGemm(_) => "grouped_gemm",
            Self::Linear(Linear { grouped: false, .. }) => "linear",
            Self::Linear(Linear { grouped: true, .. }) => "grouped_linear",
            Self::AllToAll(_) => "all_to_all",
            Self::GroupSwizzle(_) => "group_swizzle",
        }
    }

    /// The id up to the class: `op/element/mode/input/axis`, with `-` for segments the op does not have.
    ///
    /// ```
    /// use mx_vectors::op::{Cast, CastOverflow, CastRounding, Float, Op, Target};
    /// let cast = Cast {
    ///     target: Target::E8m0,
    ///     rounding: CastRounding::Up,
    ///     overflow: CastOverflow::Saturate,
    ///     input: Float::F32,
    /// };
    /// assert_eq!(Op::Cast(cast).prefix(), "cast/e8m0/up+saturate/f32/-");
    /// ```
    pub fn prefix(&self) -> String {
        let name = self.name();
        match self {
            Self::Quantize(q) => {
                let (element, mode, input) = (q.element.name(), q.mode.name(), q.input.name());
                let layout = match q.layout {
                    ScaleLayout::Plain => String::new(),
                    layout => format!("+{}", layout.name()),
                };
                format!("{name}/{element}/{mode}/{input}/{}{layout}", q.axis_name())
            }
            Self::Dequantize(d) => format!("{name}/{}/-/{}/row", d.element.name(), d.output.name()),
            Self::Cast(c) => {
                let (rounding, overflow) = (c.rounding.name(), c.overflow.name());
                format!(
                    "{name}/{}/{rounding}+{overflow}/{}/-",
                    c.target.format().name,
                    c.input.name()
                )
            }
            Self::Pack(p) => format!("{name}/{}/{}/-/-", p.element.name(), p.order.name()),
            Self::Swizzle => format!("{name}/-/-/-/-"),
            Self::Gemm(g) => {
                format!("{name}/{}/{}/{}/-", g.pair(), g.scaling.name(), g.output.name())
            }
            Self::GroupedGemm(g) => {
                let (gemm, axis) = (&g.gemm, g.axis.name());
                let (scaling, output) = (gemm.scaling.name(), gemm.output.name());
                format!("{name}/{}/{scaling}/{output}/{axis}", gemm.pair())
            }
            Self::Linear(l) => {
                let element = l.config().element.name();
                let pad = if l.pad { "+pad" } else { "" };
                format!("{name}/{element}/{}{pad}/{}/-", l.recipe.name(), Linear::INPUT.name())
            }
            Self::AllToAll(a) => {
                let (element, recipe) = (a.element().name(), a.recipe.name());
                format!("{name}/{element}/{recipe}/{}/row", Linear::INPUT.name())
            }
            Self::GroupSwizzle(g) => format!("{name}/-/-/-/{}", g.name()),
        }
    }

    /// The fields of the wire's `profile` object, convention and shapes excepted.
    pub fn fields(&self) -> BTreeMap<&'static str, String> {
        let own = |pairs: &[(&'static str, &str)]| {
            pairs.iter().map(|&(key, value)| (key, value.to_owned())).collect()
        };
        match self {
            Self::Quantize(q) => own(&[
                ("element", q.element.name()),
                ("mode", q.mode.name()),
                ("input", q.input.name()),
                ("axis", q.axis_name()),
                ("block", &q.block_name()),
                ("layout", q.layout.name()),
            ]),
            Self::Dequantize(d) => {
                own(&[("element", d.element.name()), ("input", d.output.name()), ("block", "32")])
            }
            Self::Cast(c) => own(&[
                ("element", c.target.format().name),
                ("rounding", c.rounding.name()),
                ("overflow", c.overflow.name()),
                ("input", c.input.name()),
            ]),
            Self::Pack(p) => own(&[("element", p.element.name()), ("order", p.order.name())]),
            Self::Swizzle => BTreeMap::new(),
            Self::Gemm(g) => g.fields(),
            Self::GroupedGemm(g) => {
                let mut fields = g.gemm.fields();
                fields.insert("axis", g.axis.name().to_owned());
                fields
            }
            Self::Linear(l) => l.fields(),
            Self::AllToAll(a) => own(&[
                ("recipe", a.recipe.name()),
                ("element", a.element().name()),
                ("mode", a.recipe.config().mode.name()),
                ("input", Linear::INPUT.name()),
            ]),
            Self::GroupSwizzle(g) => own(&[("axis", g.name())]),
        }
    }
}
