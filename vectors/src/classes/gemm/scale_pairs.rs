//! Every scale of A with every scale of B.

use super::operands::{Side, call as build, code, full, gemm, none};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Factor, Gemm, Op, Scaling, Test};

pub(in crate::classes) const CLASS: Class = Class {
    name: "g0-scale-pairs",
    aim: "every scale byte of A with every scale byte of B over a product of 1: byte 0 is 2^-127, the NaN byte NaN",
    faults: &[
        "triton PR 11624, 11737: byte 0 read as 0.0 in dot_scaled",
        "TransformerEngine PR 3262: byte 0 decoded as zero",
        "flashinfer PR 3932: subnormal E4M3 scales decoded as normal",
        "sglang PR 19948: E8M0 bytes read as E4M3",
        "LLVM 215445: E8M0 NaN decoded as infinity",
    ],
    source: Source::Tensors { count, call },
};

/// The bytes that decoders get wrong, and some between them; 128 rows of them.
const EDGES: [u8; 16] = [0, 1, 2, 3, 63, 64, 100, 126, 127, 128, 150, 191, 192, 253, 254, 255];

fn count(op: &Op, level: Level) -> u64 {
    match (gemm(op), level) {
        (None, _) | (_, Level::Smoke) => 0,
        (Some(g), _) if matches!(g.scaling, Scaling::Mx | Scaling::Nvfp4) => {
            if full(g) {
                2
            } else {
                1
            }
        }
        (Some(_), _) => 0,
    }
}

/// First the edges, then every byte.
fn call(op: &Op, n: u64) -> Call {
    let Some(g) = gemm(op) else { return none(op) };
    let place = if n == 0 { 5 } else { 40 };
    build(g, Test::Exact, side(g, g.a, n, place), side(g, g.b, n, place))
}

fn side(g: &Gemm, factor: Factor, n: u64, place: usize) -> Side {
    let bytes = if g.scaling == Scaling::Nvfp4 { 128 } else { 256 };
    let rows = if n == 0 { 128 } else { bytes };
    let mut side = Side::new(factor, g.scaling, rows, 128);
    let one = code(factor, false, 1, 0);
    for r in 0..rows {
        side.set(r, place, one);
        let byte = if n == 0 { usize::from(EDGES[r % EDGES.len()]) } else { r };
        let block = side.block_of(place);
        side.scale(r, block, (byte % bytes) as u8);
    }
    side
}
