//! Every op with parameters that a run can ask for: the cells that classes fill with cases.

use crate::op::{
    AllToAll, Cast, CastOverflow, CastRounding, Dequantize, Factor, Float, Gemm, GroupSwizzle,
    GroupedGemm, Linear, Op, Pack, Quantize, Scaling, Split, Target, Test,
};
use mx_reference::gemm::GroupAxis;
use mx_reference::pack::PackOrder;
use mx_reference::training::Recipe;
use mx_reference::{Axis, BlockShape, Element, ScaleLayout, ScaleMode};

/// The ways to cut and lay out a quantised tensor, in the order of reports.
const ARRANGEMENTS: [(Axis, BlockShape, ScaleLayout); 6] = [
    (Axis::Row, BlockShape::MX, ScaleLayout::Plain),
    (Axis::Col, BlockShape::MX, ScaleLayout::Plain),
    (Axis::Row, BlockShape::TILE, ScaleLayout::Plain),
    (Axis::Row, BlockShape::MX, ScaleLayout::Blocked),
    (Axis::Col, BlockShape::MX, ScaleLayout::Blocked),
    (Axis::Row, BlockShape::TILE, ScaleLayout::Blocked),
];

/// Every cell, in the order of reports.
pub fn cells() -> Vec<Op> {
    let mut cells = Vec::new();
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            for input in Float::ALL {
                cells.extend(ARRANGEMENTS.map(|(axis, block, layout)| {
                    Op::Quantize(Quantize { element, mode, input, axis, block, layout, view: None })
                }));
            }
        }
    }
    for element in Element::ALL {
        cells.extend(Float::ALL.map(|output| Op::Dequantize(Dequantize { element, output })));
    }
    for target in Target::ALL {
        for rounding in CastRounding::ALL {
            for overflow in CastOverflow::ALL {
                cells.extend(
                    Float::ALL.map(|input| Op::Cast(Cast { target, rounding, overflow, input })),
                );
            }
        }
    }
    for element in Element::ALL {
        for order in PackOrder::ALL.into_iter().filter(|order| order.applies_to(element)) {
            cells.push(Op::Pack(Pack { element, order }));
        }
    }
    cells.push(Op::Swizzle);
    cells.extend(products().into_iter().map(Op::Gemm));
    for gemm in products().into_iter().filter(is_grouped) {
        cells.extend(GroupAxis::ALL.map(|axis| Op::GroupedGemm(GroupedGemm { gemm, axis })));
    }
    for (grouped, pad) in [(false, false), (true, false), (true, true)] {
        cells.extend(Recipe::ALL.map(|recipe| {
            let (accumulate, test) = (None, Test::Bounded);
            Op::Linear(Linear { recipe, grouped, pad, accumulate, test })
        }));
    }
    cells.extend(Recipe::ALL.map(|recipe| Op::AllToAll(AllToAll { recipe })));
    cells.extend(GroupSwizzle::ALL.map(Op::GroupSwizzle));
    cells
}

/// Every product: pairs of element formats, FP8 with scales of 1, NVFP4, bf16 and f16.
fn products() -> Vec<Gemm> {
    let elements = Element::ALL.map(Factor::Element);
    let mut pairs = Vec::new();
    for a in elements {
        pairs.extend(elements.map(|b| (a, b, Scaling::Mx)));
    }
    let fp8 = [Element::E4m3, Element::E5m2].map(Factor::Element);
    for a in fp8 {
        pairs.extend(fp8.map(|b| (a, b, Scaling::Unit)));
    }
    let fp4 = Factor::Element(Element::E2m1);
    pairs.push((fp4, fp4, Scaling::Nvfp4));
    pairs.extend([Factor::Bf16, Factor::F16].map(|factor| (factor, factor, Scaling::Plain)));
    let with_output = |(a, b, scaling): (Factor, Factor, Scaling)| {
        let (accumulate, split, test) = (None, Split::NONE, Test::Exact);
        Float::ALL.map(|output| Gemm { a, b, scaling, output, accumulate, split, test })
    };
    pairs.into_iter().flat_map(with_output).collect()
}

/// Products that mixtures of experts are trained with: one format, MX or bf16.
fn is_grouped(g: &Gemm) -> bool {
    let scaled = match g.scaling {
        Scaling::Mx => true,
        Scaling::Plain => g.a == Factor::Bf16,
        Scaling::Unit | Scaling::Nvfp4 => false,
    };
    scaled && g.a == g.b && g.output != Float::F16
}
