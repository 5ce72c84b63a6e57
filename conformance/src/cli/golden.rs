//! `mxcert golden`.

use super::args::{AxisArg, GoldenArgs, GoldenOp, LayoutArg};
use super::usage;
use mx_conformance::golden::{self, GemmRequest, QuantizeRequest};
use mx_conformance::verdict::Exit;
use mx_reference::convention::PROPAGATE;
use mx_reference::{Axis, Blocking, Profile, ScaleLayout};
use mx_vectors::op::{Cast, CastRounding, Dequantize, Target};

pub(super) fn run(args: GoldenArgs) -> anyhow::Result<Exit> {
    let result = match args.op {
        GoldenOp::Quantize(q) => {
            let (element, mode) = q.profile;
            let request = QuantizeRequest {
                profile: Profile { element, mode, convention: q.convention },
                blocking: Blocking {
                    axis: match q.axis {
                        AxisArg::Row => Axis::Row,
                        AxisArg::Col => Axis::Col,
                    },
                    shape: q.block,
                    pad: q.pad,
                },
                layout: match q.layout {
                    LayoutArg::Plain => ScaleLayout::Plain,
                    LayoutArg::Blocked => ScaleLayout::Blocked,
                },
                dtype: q.dtype,
            };
            golden::quantize(&request, &q.files.input, &q.files.output)
        }
        GoldenOp::Dequantize(d) => {
            let op = Dequantize { element: d.element, output: d.dtype };
            golden::dequantize(op, d.block, &d.files.input, &d.files.output)
        }
        GoldenOp::Gemm(g) => {
            let request = GemmRequest {
                a: g.a_element,
                b: g.b_element,
                block: g.block,
                output: g.dtype,
                accumulate: g.accumulate,
            };
            golden::gemm(&request, &g.files.input, &g.files.output)
        }
        GoldenOp::Cast(c) => {
            let usual = match c.element {
                Target::E8m0 => CastRounding::Up,
                _ => CastRounding::Even,
            };
            let cast = |input| Cast {
                target: c.element,
                rounding: c.rounding.unwrap_or(usual),
                overflow: c.overflow,
                input,
            };
            golden::cast(cast, c.dtype, &PROPAGATE, &c.files.input, &c.files.output)
        }
    };
    match result {
        Ok(()) => Ok(Exit::Conformant),
        Err(error) => Err(usage(error.to_string())),
    }
}
