//! Every scale byte with every code.
//!
//! Byte 0 is 2^-127 and not zero, byte 255 is NaN and not infinity or 2^128, and subnormal codes and scales stack.

use crate::class::{Call, Class, Level, Source};
use crate::op::{Dequantize, Op};
use crate::tensor::{Tensor, Tensors};

pub(super) const CLASS: Class = Class {
    name: "decode",
    aim: "all 256 scale bytes times all codes",
    faults: &[
        "TransformerEngine PR 3262, triton PR 11624: byte 0 decoded as zero",
        "transformers 5.24 convert_moe_packed_tensors: byte 255 decoded as 2^128",
        "LLVM 215445: E8M0 NaN decoded as infinity",
        "1Cat-vLLM PR 222: scales below f16's normal range flushed",
        "vLLM PR 34577: exponent shifted without its bias",
        "intel-xpu-triton PR 7029: 0x7F decoded as 480",
        "rocm-libraries PR 7439: signed zero and subnormals",
        "sglang PR 19948: E8M0 bytes read as E4M3",
        "vLLM PR 53709: test scales from 119 to 127 only",
    ],
    source: Source::Tensors { count, call },
};

/// The bytes that decoders get wrong.
const EDGES: [u8; 5] = [0, 1, 127, 254, 255];
/// A matrix with another byte in every block.
const MIXED: (usize, usize) = (16, 32);

fn count(op: &Op, level: Level) -> u64 {
    match (op, level) {
        (Op::Dequantize(_), Level::Smoke) => 1,
        (Op::Dequantize(_), _) => 3,
        _ => 0,
    }
}

fn call(op: &Op, n: u64) -> Call {
    let &Op::Dequantize(d) = op else { return Call { op: *op, inputs: Tensors::new() } };
    let codes = d.element.format().codes() as usize;
    match n {
        0 => product(d, &EDGES),
        1 => product(d, &std::array::from_fn::<u8, 256, _>(|byte| byte as u8)),
        _ => {
            let (rows, blocks) = MIXED;
            let scales = (0..rows * blocks).map(|i| (i * 37 % 256) as u8).collect();
            let elements = (0..rows * blocks * 32).map(|i| (i * 5 + i / 32) % codes);
            tensors(d, (rows, 32 * blocks), elements.map(|code| code as u8).collect(), scales)
        }
    }
}

/// A row for each byte, with every code in it; short formats repeat theirs to fill a block.
fn product(d: Dequantize, bytes: &[u8]) -> Call {
    let codes = d.element.format().codes() as usize;
    let cols = codes.max(32);
    let row = (0..cols).map(|c| (c % codes) as u8);
    let elements = bytes.iter().flat_map(|_| row.clone()).collect();
    let scales = bytes.iter().flat_map(|&byte| std::iter::repeat_n(byte, cols / 32)).collect();
    tensors(d, (bytes.len(), cols), elements, scales)
}

fn tensors(
    d: Dequantize,
    (rows, cols): (usize, usize),
    elements: Vec<u8>,
    scales: Vec<u8>,
) -> Call {
    let inputs = [
        ("elements".to_owned(), Tensor::u8([rows, cols], elements)),
        ("scales".to_owned(), Tensor::u8([rows, cols / 32], scales)),
    ];
    Call { op: Op::Dequantize(d), inputs: Tensors::from(inputs) }
}
