//! Implementations that answer the test and not the question.

use super::blocks::{About, model};
use super::{Area, Delta, Device, FaultModel, quantizes, set, sides};
use crate::backend::Refusal;
use mx_reference::ScaleLayout;
use mx_vectors::answer::input_bits;
use mx_vectors::{Data, LANES, Level, Op, Quantize, Source, Tensor, Tensors, classes};
use std::collections::BTreeSet;

const fn device(
    about: About,
    applies: fn(&Op) -> bool,
    run: fn(&mut Device<'_>) -> Result<(), Refusal>,
) -> FaultModel {
    model(Area::Cheat, about, applies, Delta::Device(run))
}

fn every(_: &Op) -> bool {
    true
}

/// Ops whose outputs can all be NaN.
fn says_nan(op: &Op) -> bool {
    match op {
        Op::Quantize(q) => q.element.format().has_nan(),
        Op::Cast(c) => c.target.format().has_nan(),
        Op::Dequantize(_) | Op::Gemm(_) | Op::GroupedGemm(_) => true,
        _ => false,
    }
}

/// The NaN of an output.
fn nan(op: &Op) -> u32 {
    match op {
        Op::Quantize(q) => q.element.format().nan_code,
        Op::Cast(c) => c.target.format().nan_code,
        Op::Dequantize(d) => d.output.format().nan_code,
        Op::Gemm(g) => g.output.format().nan_code,
        Op::GroupedGemm(g) => g.gemm.output.format().nan_code,
        _ => 0,
    }
}

fn fill(tensor: &mut Tensor, bits: impl Fn(usize) -> Option<u32>) {
    for i in 0..tensor.data.len() {
        if let Some(bits) = bits(i) {
            set(tensor, i, bits);
        }
    }
}

/// The blocks of level smoke for a profile, as bits.
fn smoke_blocks(q: &Quantize) -> BTreeSet<Vec<u32>> {
    let mut known = BTreeSet::new();
    for class in &classes::ALL {
        if let Source::Blocks { count, block } = class.source {
            known.extend((0..count(q, Level::Smoke)).map(|n| block(q, n).to_vec()));
        }
    }
    known
}

pub(super) const MODELS: &[FaultModel] = &[
    device(
        [
            "cheat-outputs-of-previous-call",
            "from the second call on, a call answers with the outputs of the one before where shapes agree",
            "KernelBench adversarial kernels: result reuse; pygpubench",
        ],
        every,
        |device| {
            let right = device.right()?;
            let last = std::mem::replace(&mut device.memory.last, right.clone());
            let shape = |tensors: &Tensors| {
                tensors.iter().map(|(name, t)| (name.clone(), t.shape.clone())).collect::<Vec<_>>()
            };
            let stale = shape(&last) == shape(&right);
            device.write(if stale { &last } else { &right })
        },
    ),
    device(
        [
            "cheat-cached-by-shape",
            "an answer is cached by the shape of its inputs",
            "KernelBench adversarial kernels, Sakana AI CUDA Engineer: reuse of a result that was right once",
        ],
        every,
        |device| {
            let key = device.shapes();
            let right = device.right()?;
            let cached = device.memory.by_shape.entry(key).or_insert(right).clone();
            device.write(&cached)
        },
    ),
    device(
        [
            "cheat-inputs-overwritten",
            "the inputs are zeroed on the way out, so that a reference computed from them agrees with zeros",
            "KernelBench adversarial kernels: input zeroing",
        ],
        every,
        |device| {
            let right = device.right()?;
            device.write(&right)?;
            for tensor in device.inputs.values_mut() {
                fill(tensor, |_| Some(0));
            }
            Ok(())
        },
    ),
    device(
        [
            "cheat-nan-everywhere",
            "every element is NaN, which a tolerant comparison takes for equal",
            "pygpubench 7: NaN as a wildcard",
        ],
        says_nan,
        |device| {
            let mut outputs = device.right()?;
            let bits = nan(&device.call.op);
            for (_, tensor) in outputs.iter_mut().filter(|(name, _)| *name != "scales") {
                fill(tensor, |_| Some(bits));
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "cheat-zeros",
            "every element is zero, within any absolute tolerance of small data",
            "onnxruntime PR 31155, KernelBench 165",
        ],
        every,
        |device| {
            let mut outputs = device.right()?;
            for tensor in outputs.values_mut() {
                fill(tensor, |_| Some(0));
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "cheat-first-batch-only",
            "the first 16 rows are right, and the others repeat them",
            "cutlass 3511, PR 3558: only batch 0 is verified",
        ],
        |op| quantizes(op, |_| true) || matches!(op, Op::Gemm(_) | Op::Dequantize(_)),
        |device| {
            let mut outputs = device.right()?;
            for (name, tensor) in &mut outputs {
                let (rows, cols) = sides(tensor);
                let blocked = name == "scales" && tensor.shape.len() == 1;
                if blocked || rows <= 16 {
                    continue;
                }
                let own = tensor.clone();
                fill(tensor, |i| {
                    let (r, c) = (i / cols.max(1), i % cols.max(1));
                    Some(own.data.get(r % 16 * cols + c))
                });
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "cheat-aligned-shapes-only",
            "only tensors whose rows and columns are multiples of 128 are computed, others in their whole tiles",
            "arXiv 2606.20128: kernels certified by one shape",
        ],
        |op| quantizes(op, |_| true),
        |device| {
            let mut outputs = device.right()?;
            if let Some(elements) = outputs.get_mut("elements") {
                let (rows, cols) = sides(elements);
                let (whole_rows, whole_cols) = (rows / 128 * 128, cols / 128 * 128);
                fill(elements, |i| {
                    let inside = i / cols.max(1) < whole_rows && i % cols.max(1) < whole_cols;
                    (!inside).then_some(0)
                });
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "cheat-memoised-vectors",
            "the blocks of the committed smoke pack are looked up, everything else is zero",
            "gpu-mode: public seeds combined with a secret one against it",
        ],
        |op| quantizes(op, |q| q.layout == ScaleLayout::Plain && q.block.rows() == 1),
        |device| {
            let mut outputs = device.right()?;
            let Op::Quantize(q) = device.call.op else { return device.write(&outputs) };
            let profile = Quantize { view: None, ..q };
            let known = device.memory.learnt.entry(device.call.op);
            let known = known.or_insert_with(|| smoke_blocks(&profile)).clone();
            let input = &device.call.inputs["input"];
            let cols = outputs.get("elements").map_or(0, |tensor| sides(tensor).1);
            let blocks = (cols / LANES).max(1);
            let knows = |block: usize| {
                let (r, first) = (block / blocks, block % blocks * LANES);
                let bits = (first..first + LANES).map(|c| input_bits(&q, input, r, c));
                known.contains(&bits.collect::<Vec<u32>>())
            };
            let scales = outputs.get("scales").map_or(0, |tensor| tensor.data.len());
            let unknown: Vec<bool> = (0..scales).map(|block| !knows(block)).collect();
            for (name, tensor) in &mut outputs {
                let lanes = if name == "scales" { 1 } else { LANES };
                fill(tensor, |i| unknown[i / lanes].then_some(0));
            }
            device.write(&outputs)
        },
    ),
    device(
        [
            "cheat-ordinary-data-only",
            "only numbers of ordinary size are computed; NaN, infinities, subnormals and zeros count as 1",
            "KernelBench levels 1 and 2: inputs of torch.rand alone",
        ],
        |op| quantizes(op, |_| true),
        |device| {
            let Op::Quantize(q) = device.call.op else { return Ok(()) };
            let format = q.input.format();
            let one = ((format.bias as u32) << format.mantissa_bits, format.sign_bit());
            let mut call = device.call.clone();
            if let Some(input) = call.inputs.get_mut("input") {
                let ordinary = |bits: u32| {
                    let e = format.decode(bits).exponent();
                    e.is_some_and(|e| e >= format.min_exponent())
                };
                for i in 0..input.data.len() {
                    let bits = input.data.get(i);
                    if !ordinary(bits) {
                        set(input, i, one.0 | bits & one.1);
                    }
                }
            }
            let answer = crate::backends::native::answer(&call.op, device.convention, &call.inputs);
            match answer {
                Ok(outputs) => device.write(&outputs),
                Err(error) => Err(super::raised(&error)),
            }
        },
    ),
    device(
        [
            "cheat-one-step-off",
            "codes are off by one, within any mean squared error that tests allow",
            "SuperNPUBench PR 49, PR 102: MSE below 0.1 passes every code off by one",
        ],
        |op| quantizes(op, |_| true),
        |device| {
            let mut outputs = device.right()?;
            if let Some(Data::U8(codes)) = outputs.get_mut("elements").map(|t| &mut t.data) {
                for code in codes {
                    *code ^= 1;
                }
            }
            device.write(&outputs)
        },
    ),
];
