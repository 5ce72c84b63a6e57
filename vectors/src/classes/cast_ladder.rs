//! Casts of f32 across its whole range: every power of two, each mantissa bit alone, values next to powers of two, NaN
//! payloads, random patterns.

use super::matrix;
use crate::bits;
use crate::class::{Call, Class, Level, Source};
use crate::op::{Float, Op};
use crate::rng::Stream;
use crate::tensor::Tensors;

pub(super) const CLASS: Class = Class {
    name: "cast-ladder",
    aim: "f32 powers of two, single mantissa bits, specials and random patterns",
    faults: &[
        "onnx PR 7784: mantissa mask 0x4FFFFF",
        "tilelang-metax PR 101: E8M0 of subnormals, 0xFE stepped to 0xFF",
        "LLVM 214919: E8M0 of zero and of negatives",
        "onnxruntime 16938: signalling NaN taken for infinity",
        "CUTLASS float_ue8m0_t: host and device differ at infinity",
        "arch-com 848: NaN test of another width",
    ],
    source: Source::Tensors { count, call },
};

/// Uniform patterns, NaNs among them.
const RANDOM: usize = 4096;
/// Exponent fields whose mantissa bits are asked one by one: subnormal, tiny, around 1, large, largest.
const FIELDS: [u32; 9] = [0, 1, 100, 120, 126, 127, 129, 142, 254];

fn count(op: &Op, _: Level) -> u64 {
    u64::from(matches!(op, Op::Cast(cast) if cast.input == Float::F32))
}

fn call(op: &Op, _: u64) -> Call {
    let Op::Cast(cast) = op else { return Call { op: *op, inputs: Tensors::new() } };
    let float = cast.input;
    let mantissa_bits = float.format().mantissa_bits;
    let exponents = bits::min_exponent(float)..=bits::max_exponent(float);
    let powers = exponents.filter_map(|k| bits::power(float, k));
    let single = FIELDS
        .into_iter()
        .flat_map(|field| (0..mantissa_bits).map(move |bit| field << mantissa_bits | 1 << bit));
    let mut magnitudes: Vec<u32> =
        powers.flat_map(|x| [-1, 0, 1].map(|ulps| bits::step(float, x, ulps))).collect();
    magnitudes.extend(single);
    magnitudes.extend([0, bits::max_finite(float), bits::infinity(float)]);
    let mut data: Vec<u32> = magnitudes
        .into_iter()
        .flat_map(|x| [false, true].map(|negative| bits::signed(float, x, negative)))
        .chain(bits::nans(float))
        .collect();
    let mut stream = Stream::new(&[CLASS.name, cast.target.format().name], 0);
    data.extend((0..RANDOM).map(|_| (stream.word() >> 32) as u32 >> (32 - float.format().bits)));
    matrix::one(*op, "input", bits::tensor(float, [data.len()], data))
}
