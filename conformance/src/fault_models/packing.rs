//! Codes side by side in bytes.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, sides, u8s};
use mx_reference::pack::{PackOrder, pack};
use mx_vectors::op::Pack;
use mx_vectors::{Call, Data, Op, Tensors};

fn packs(op: &Op, of: impl Fn(&Pack) -> bool) -> bool {
    matches!(op, Op::Pack(pack) if of(pack))
}

fn fp4(op: &Op) -> bool {
    packs(op, |p| p.element.format().bits == 4)
}

fn fp6(op: &Op) -> bool {
    packs(op, |p| p.element.format().bits == 6)
}

fn sub_byte(op: &Op) -> bool {
    fp4(op) || fp6(op)
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(Area::Packing, about, applies, Delta::Outputs(change))
}

/// Replaces the packed bytes by another function of all codes.
fn repack(call: &Call, outputs: &mut Tensors, bytes: impl Fn(&Pack, &[u8]) -> Vec<u8>) {
    let (Op::Pack(op), Some(elements)) = (call.op, call.inputs.get("elements")) else { return };
    let (Data::U8(codes), Some(packed)) = (&elements.data, outputs.get_mut("packed")) else {
        return;
    };
    for (to, from) in u8s(packed).iter_mut().zip(bytes(&op, codes)) {
        *to = from;
    }
}

/// Packed in another order, where the format has it.
fn reordered(op: &Pack, codes: &[u8], order: PackOrder) -> Vec<u8> {
    pack(op.element, order, codes).unwrap_or_default()
}

pub(super) const MODELS: &[FaultModel] = &[
    outputs(
        [
            "pack-nibbles-swapped",
            "the first FP4 code goes into the nibble that the order gives the second",
            "triton PR 5197, torchao PR 3123, composable_kernel PR 1889, comfy-kitchen PR 41",
        ],
        fp4,
        |call, outputs| {
            repack(call, outputs, |op, codes| {
                let other = match op.order {
                    PackOrder::HighNibbleFirst => PackOrder::LittleEndian,
                    _ => PackOrder::HighNibbleFirst,
                };
                reordered(op, codes, other)
            });
        },
    ),
    outputs(
        [
            "pack-eight-bit-spacing",
            "FP4 pairs are packed 8 bits apart, so every second code is lost",
            "rocjitsu PR 6870",
        ],
        fp4,
        |call, outputs| {
            repack(call, outputs, |_, codes| {
                codes.chunks_exact(2).map(|pair| pair[0] & 0xf).collect()
            });
        },
    ),
    outputs(
        [
            "pack-fp6-other-order",
            "FP6 is packed in the other of the two orders in use",
            "torchao PR 3382",
        ],
        fp6,
        |call, outputs| {
            repack(call, outputs, |op, codes| {
                let other = match op.order {
                    PackOrder::TorchaoFp6 => PackOrder::LittleEndian,
                    _ => PackOrder::TorchaoFp6,
                };
                reordered(op, codes, other)
            });
        },
    ),
    outputs(
        [
            "pack-fp6-big-endian",
            "the three bytes of an FP6 group are stored the other way around",
            "mxDataGenerator, rocm-libraries PR 7439: byte order of packed groups",
        ],
        fp6,
        |call, outputs| {
            repack(call, outputs, |op, codes| {
                let mut bytes = reordered(op, codes, op.order);
                bytes.chunks_exact_mut(3).for_each(<[u8]>::reverse);
                bytes
            });
        },
    ),
    outputs(
        [
            "pack-sign-dropped",
            "the mask of a code leaves out its sign",
            "ROCm triton 330, microxcaling 3: masks of the wrong width",
        ],
        sub_byte,
        |call, outputs| {
            repack(call, outputs, |op, codes| {
                let mask = (op.element.format().sign_bit() - 1) as u8;
                let masked: Vec<u8> = codes.iter().map(|code| code & mask).collect();
                reordered(op, &masked, op.order)
            });
        },
    ),
    outputs(
        [
            "pack-rows-apart-by-elements",
            "the row stride of the packed buffer is counted in elements instead of bytes",
            "aiter PR 4467",
        ],
        sub_byte,
        |call, outputs| {
            let Some(packed) = outputs.get_mut("packed") else { return };
            let (rows, width) = sides(packed);
            let cols = call.inputs.get("elements").map_or(0, |tensor| sides(tensor).1);
            let data = u8s(packed);
            let own = data.to_vec();
            data.fill(0);
            for r in 0..rows {
                for i in 0..width {
                    if let Some(to) = data.get_mut(r * cols + i) {
                        *to = own[r * width + i];
                    }
                }
            }
        },
    ),
    outputs(
        [
            "pack-last-group-dropped",
            "the last group of each row is not packed",
            "aiter PR 4467, compressed-tensors PR 781: bounds of packed rows",
        ],
        sub_byte,
        |_, outputs| {
            let Some(packed) = outputs.get_mut("packed") else { return };
            let width = sides(packed).1.max(1);
            for (i, byte) in u8s(packed).iter_mut().enumerate() {
                if i % width + 1 == width {
                    *byte = 0;
                }
            }
        },
    ),
    outputs(
        [
            "pack-eight-bit-reversed",
            "codes of 8 bits are swapped within 16-bit words",
            "compressed-tensors PR 781: elements read by another width",
        ],
        |op| packs(op, |p| p.element.format().bits == 8),
        |_, outputs| {
            if let Some(packed) = outputs.get_mut("packed") {
                u8s(packed).chunks_exact_mut(2).for_each(<[u8]>::reverse);
            }
        },
    ),
];
