//! Every op with parameters that a run can ask for: the cells that classes fill with cases.

use crate::op::{Cast, CastOverflow, CastRounding, Dequantize, Float, Op, Pack, Quantize, Target};
use mx_reference::pack::PackOrder;
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
    cells
}
