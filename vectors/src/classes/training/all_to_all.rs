//! Token rows that travel between ranks: who sends how many to whom, and what is in them.

use crate::class::{Call, Class, Level, Source};
use crate::op::Op;
use crate::rng::Stream;
use crate::tensor::{Data, Tensor, Tensors};

pub(in crate::classes) const CLASS: Class = Class {
    name: "all-to-all",
    aim: "rows that tell their sender, under splits of every kind: even, none, all to one, ragged",
    faults: &["TransformerEngine PR 2782, 3067, flashinfer 4531: groups without rows"],
    source: Source::Tensors { count, call },
};

/// How many rows each rank (a row of the table) sends to each.
const SPLITS: [&[&[usize]]; 4] = [
    &[&[2, 2], &[2, 2]],
    &[&[0, 3, 1], &[0, 0, 0], &[5, 0, 2]],
    &[&[7]],
    &[&[1, 0, 0, 9], &[0, 0, 0, 4], &[3, 3, 3, 3], &[0, 33, 0, 1]],
];
const WIDTH: usize = 96;

fn count(op: &Op, level: Level) -> u64 {
    match (op, level) {
        (Op::AllToAll(_), Level::Smoke) => 2,
        (Op::AllToAll(_), _) => SPLITS.len() as u64,
        _ => 0,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let table = SPLITS[n as usize];
    let sizes: Vec<i32> =
        table.iter().flat_map(|sent| sent.iter().map(|&size| size as i32)).collect();
    let rows: usize = table.iter().flat_map(|sent| sent.iter()).sum();
    let mut stream = Stream::new(&[CLASS.name], n);
    let mut bits = Vec::with_capacity(rows * WIDTH);
    for row in 0..rows {
        for lane in 0..WIDTH {
            // Rows differ in their exponents, lanes in their mantissas; every eleventh row has a special.
            let exponent = 100 + (row * 7 % 40) as u16;
            let x = exponent << 7 | stream.below(128) as u16 | u16::from(stream.flag()) << 15;
            bits.push(if row % 11 == 10 && lane == 40 { 0x7fc0 } else { x });
        }
    }
    let input = Tensor { shape: vec![rows, WIDTH], data: Data::U16(bits) };
    let splits = Tensor { shape: vec![table.len(), table.len()], data: Data::I32(sizes) };
    let inputs = [("input".to_owned(), input), ("splits".to_owned(), splits)];
    Call { op: *op, inputs: Tensors::from(inputs) }
}
