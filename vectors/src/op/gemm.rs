//! Matrix products as ops.

use super::Float;
use mx_reference::gemm::{Accepts, Accumulation, GroupAxis, Model, Scheme};
use mx_reference::{Element, Format, format};
use std::collections::BTreeMap;

/// What the elements of a GEMM operand are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Factor {
    /// An MX element format, one code a byte.
    Element(Element),
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
}

impl Factor {
    /// Every factor, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Element(Element::E4m3),
        Self::Element(Element::E5m2),
        Self::Element(Element::E3m2),
        Self::Element(Element::E2m3),
        Self::Element(Element::E2m1),
        Self::Element(Element::Int8),
        Self::Bf16,
        Self::F16,
    ];

    /// The descriptor.
    pub const fn format(self) -> &'static Format {
        match self {
            Self::Element(element) => element.format(),
            Self::Bf16 => &format::BF16,
            Self::F16 => &format::F16,
        }
    }

    /// The name in ids, on the command line and on the wire.
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// The factor of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|factor| factor.name() == name)
    }

    /// True for one code a byte.
    pub const fn is_element(self) -> bool {
        matches!(self, Self::Element(_))
    }
}

/// How the operands of a GEMM are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scaling {
    /// E8M0 for every 32 elements along K.
    Mx,
    /// The same with every scale 1: what FP8 hardware without block scales can be asked.
    Unit,
    /// UE4M3 for every 16 elements along K, and an f32 tensor scale for each operand.
    Nvfp4,
    /// No scales: bf16 and f16.
    Plain,
}

impl Scaling {
    /// Every scaling, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Mx, Self::Unit, Self::Nvfp4, Self::Plain];

    /// The name in ids.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mx => "mx",
            Self::Unit => "unit",
            Self::Nvfp4 => "nvfp4",
            Self::Plain => "plain",
        }
    }

    /// Elements a scale, and the scale's format.
    pub const fn block(self) -> Option<(usize, &'static Format)> {
        match self {
            Self::Mx | Self::Unit => Some((32, &format::E8M0)),
            Self::Nvfp4 => Some((16, &format::UE4M3)),
            Self::Plain => None,
        }
    }
}

/// What an answer is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Test {
    /// The exact sum, rounded once: for inputs whose sum no accumulation in the backend's class rounds, whatever its order.
    Exact,
    /// The interval around the exact sum that the bound of the backend's accumulation allows.
    Bounded,
    /// The bits that the declared model computes.
    Modelled,
}

/// Split-K as a backend has it for one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Split {
    /// The parts that K is cut into; 1 is none.
    pub parts: u32,
    /// The k of a tile, of which each part but the last has equally many.
    pub tile: u32,
}

impl Split {
    /// K in one part.
    pub const NONE: Self = Self { parts: 1, tile: 128 };
}

/// D = A·Bᵀ over operands contiguous along K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gemm {
    /// Elements of A.
    pub a: Factor,
    /// Elements of B.
    pub b: Factor,
    /// How both are scaled.
    pub scaling: Scaling,
    /// Type of D.
    pub output: Float,
    /// The accumulation that the backend declares; without one f32 additions in any order.
    pub accumulate: Option<Model>,
    /// How the backend says it splits K for this shape, none where it says nothing. No id names it.
    pub split: Split,
    /// What the answer is held to.
    pub test: Test,
}

/// f32 additions in an order that is not known.
const ANY_ORDER: Accumulation = Accumulation {
    accepts: Accepts::Any,
    registers: None,
    scheme: Scheme::AnyOrder,
    split: 1,
    tile: 128,
};

/// The name of the class of accumulations that is declared by declaring none.
pub const ANY_ORDER_NAME: &str = "f32";

impl Gemm {
    /// The accumulation that the answer may have.
    pub const fn accumulation(&self) -> Accumulation {
        let accumulation = match self.accumulate {
            Some(model) => model.accumulation(),
            None => ANY_ORDER,
        };
        let Split { parts, tile } = self.split;
        match parts {
            0 | 1 => accumulation,
            _ => Accumulation { split: parts as usize, tile: tile as usize, ..accumulation },
        }
    }

    /// The name of that accumulation on the wire.
    pub const fn accumulation_name(&self) -> &'static str {
        match self.accumulate {
            Some(model) => model.name(),
            None => ANY_ORDER_NAME,
        }
    }

    /// The fields of the wire's `profile` object. Without a block there are no scales.
    pub(super) fn fields(&self) -> BTreeMap<&'static str, String> {
        let mut fields = BTreeMap::from([
            ("a_element", self.a.name().to_owned()),
            ("b_element", self.b.name().to_owned()),
            ("output", self.output.name().to_owned()),
            ("accumulate", self.accumulation_name().to_owned()),
        ]);
        if let Some((block, _)) = self.scaling.block() {
            fields.insert("block", block.to_string());
        }
        fields
    }

    /// The element segment of ids: `e4m3-e5m2`.
    pub fn pair(&self) -> String {
        format!("{}-{}", self.a.name(), self.b.name())
    }

    /// Whether this product is one of the declared accumulation's: FP8 hardware without block scales is asked products with
    /// scales of 1 and nothing else, and no other backend is asked those.
    pub fn is_of_its_model(&self) -> bool {
        let accepts = self.accumulation().accepts;
        let fp8 = |factor| matches!(factor, Factor::Element(Element::E4m3 | Element::E5m2));
        let both = |is: &dyn Fn(Factor) -> bool| is(self.a) && is(self.b);
        match (accepts, self.scaling) {
            (Accepts::Fp8, scaling) => scaling == Scaling::Unit && both(&fp8),
            (_, Scaling::Unit) => false,
            (Accepts::Any, _) => true,
            (Accepts::Dequantized, scaling) => {
                // bf16 registers hold every element format under ordinary scales, f16 ones do not.
                let registers = self.accumulation().registers;
                let plain = |f: Factor| registers == Some(f.format());
                both(&plain) || scaling != Scaling::Plain && registers == Some(&format::BF16)
            }
            (Accepts::Mx, scaling) => scaling == Scaling::Mx && both(&|f| f.is_element()),
            (Accepts::MxFloat, scaling) => {
                scaling == Scaling::Mx
                    && both(&|f| f.is_element() && f != Factor::Element(Element::Int8))
            }
            (Accepts::Mxf4, scaling) => {
                scaling == Scaling::Mx && both(&|f| f == Factor::Element(Element::E2m1))
            }
            (Accepts::Nvfp4, scaling) => {
                matches!(scaling, Scaling::Mx | Scaling::Nvfp4)
                    && both(&|f| f == Factor::Element(Element::E2m1))
            }
        }
    }
}

/// A product for each group of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupedGemm {
    /// The product.
    pub gemm: Gemm,
    /// Which axis the groups cut.
    pub axis: GroupAxis,
}
