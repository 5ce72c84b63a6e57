//! Forward and backward passes of linear layers, with and without groups of tokens.

use super::{GROUPS, RAGGED, ends};
use crate::class::{Call, Class, Level, Source};
use crate::op::{Linear, Op, Test};
use crate::rng::Stream;
use crate::tensor::{Data, Tensor, Tensors};
use half::bf16;

pub(in crate::classes) const CLASS: Class = Class {
    name: "linear",
    aim: "six casts and three products: which tensor is cast along which axis, NaN where it belongs, groups of every size",
    faults: &[
        "torchao PR 4470: gradients that are not contiguous",
        "TransformerEngine PR 2782, 3067, flashinfer 4531: groups without rows",
        "TransformerEngine PR 2905, 3070: shapes inferred from padded scales",
    ],
    source: Source::Tensors { count, call },
};

/// M, K, N.
const SHAPES: [(usize, usize, usize); 4] =
    [(128, 128, 128), (32, 64, 96), (96, 32, 64), (160, 96, 32)];
/// K and N of grouped layers.
const GROUPED: (usize, usize) = (64, 32);

/// What normal values are multiplied by.
const OCTAVES: [f32; 6] = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0];

#[derive(Clone, Copy)]
enum Kind {
    /// ±1 and ±1/2: casts lose nothing and no order of additions rounds.
    Exact,
    /// The same with NaN and infinity in single places.
    Specials,
    /// Normal values over some octaves.
    Random,
}
const KINDS: [Kind; 3] = [Kind::Exact, Kind::Specials, Kind::Random];

fn linear(op: &Op) -> Option<&Linear> {
    match op {
        Op::Linear(l) => Some(l),
        _ => None,
    }
}

fn count(op: &Op, level: Level) -> u64 {
    let groups = |l: &Linear| if l.pad { GROUPS.len() + RAGGED.len() } else { GROUPS.len() };
    let shapes = match (linear(op), level) {
        (None, _) | (_, Level::Smoke) => 0,
        (Some(l), _) if l.grouped => groups(l),
        (Some(_), _) => SHAPES.len(),
    };
    (shapes * KINDS.len()) as u64
}

fn call(op: &Op, n: u64) -> Call {
    let Some(l) = linear(op) else { return Call { op: *op, inputs: Tensors::new() } };
    let (which, kind) = (n as usize / KINDS.len(), KINDS[n as usize % KINDS.len()]);
    let mut inputs = Tensors::new();
    let ((m, k, columns), rows) = if l.grouped {
        let sizes: Vec<usize> = match GROUPS.get(which) {
            Some(blocks) => blocks.iter().map(|blocks| blocks * 32).collect(),
            None => RAGGED[which - GROUPS.len()].to_vec(),
        };
        let (k, columns) = GROUPED;
        inputs.insert("offsets".to_owned(), ends(sizes.iter().copied()));
        ((sizes.iter().sum(), k, columns), sizes.len() * columns)
    } else {
        let shape = SHAPES[which];
        (shape, shape.2)
    };
    let mut put = |name: &str, rows: usize, cols: usize| {
        let mut stream = Stream::new(&[CLASS.name, name], n);
        let bits = values(&mut stream, rows, cols, kind);
        let tensor = Tensor { shape: vec![rows, cols], data: Data::U16(bits) };
        inputs.insert(name.to_owned(), tensor);
    };
    put("x", m, k);
    put("w", rows, k);
    put("grad_output", m, columns);
    let test = match kind {
        Kind::Exact | Kind::Specials => Test::Exact,
        Kind::Random => Test::Bounded,
    };
    Call { op: Op::Linear(Linear { test, ..*l }), inputs }
}

fn values(stream: &mut Stream, rows: usize, cols: usize, kind: Kind) -> Vec<u16> {
    let mut bits: Vec<u16> = (0..rows * cols)
        .map(|_| {
            let x = match kind {
                Kind::Exact | Kind::Specials => {
                    let half = if stream.flag() { 0.5 } else { 1.0 };
                    if stream.flag() { -half } else { half }
                }
                Kind::Random => {
                    stream.normal() as f32 / 65536.0 * OCTAVES[stream.below(6) as usize]
                }
            };
            bf16::from_f32(x).to_bits()
        })
        .collect();
    if matches!(kind, Kind::Specials) && !bits.is_empty() {
        let length = bits.len() as u64;
        bits[stream.below(length) as usize] = 0x7fc0;
        bits[stream.below(length) as usize] = 0xff80;
    }
    bits
}
