//! Matrix products: scales of the wrong block, sums of the wrong width, results rounded the wrong way.

use super::blocks::{About, model};
use super::{Area, Delta, FaultModel, set, sides, u8s};
use mx_reference::format::{BF16, E8M0, F32};
use mx_reference::gemm::{
    Accepts, Accumulation, BlockScales, Codes, E8M13, FusedDot, Gemm as Product, GemmShape, Model,
    ModelError, Operand, Scheme, Total,
};
use mx_reference::{Format, Magnitude, Number, Overflow, Rounding};
use mx_vectors::answer::{Multiply, product};
use mx_vectors::op::{Factor, Gemm, Scaling};
use mx_vectors::{Call, Data, Float, Op, Tensor, Tensors};

const AREA: Area = Area::Gemm;

/// Products of operands whose formats are read as others.
pub(super) struct Misread {
    pub(super) element: fn(&'static Format) -> &'static Format,
    pub(super) scale: fn(&'static Format) -> &'static Format,
}

impl Misread {
    fn operand<'a>(&self, right: &Operand<'a>) -> Operand<'a> {
        let scales = right.scales;
        Operand {
            format: (self.element)(right.format),
            codes: right.codes,
            scales: scales.map(|s| BlockScales { format: (self.scale)(s.format), ..s }),
        }
    }
}

impl Multiply for Misread {
    fn exact(&self, right: &Product<'_>, output: &Format) -> Vec<u32> {
        let [a, b] = right.operands();
        let (a, b) = (self.operand(a), self.operand(b));
        match Product::new(right.shape(), a, b, right.c(), right.tensor_scales()) {
            Ok(misread) => mx_native::gemm(&misread, output),
            Err(_) => mx_native::gemm(right, output),
        }
    }

    fn accumulate(
        &self,
        right: &Product<'_>,
        _: &Accumulation,
        output: &Format,
    ) -> Result<Vec<u32>, ModelError> {
        Ok(self.exact(right, output))
    }
}

/// Products by another accumulation than the one that is asked for.
pub(super) struct Accumulating(pub(super) Accumulation);

impl Multiply for Accumulating {
    fn exact(&self, product: &Product<'_>, output: &Format) -> Vec<u32> {
        mx_native::accumulate(product, &self.0, output)
            .unwrap_or_else(|_| mx_native::gemm(product, output))
    }

    fn accumulate(
        &self,
        product: &Product<'_>,
        _: &Accumulation,
        output: &Format,
    ) -> Result<Vec<u32>, ModelError> {
        Ok(self.exact(product, output))
    }
}

fn gemm(op: &Op, of: impl Fn(&Gemm) -> bool) -> bool {
    matches!(op, Op::Gemm(g) if g.scaling != Scaling::Unit && of(g))
}

/// Products whatever they are rounded to: for what happens to a sum.
fn every(op: &Op) -> bool {
    gemm(op, |_| true)
}

/// Products in f32: for what happens before a sum is rounded, which is the same for every output type.
fn before_rounding(op: &Op) -> bool {
    gemm(op, |g| g.output == Float::F32)
}

fn scaled(op: &Op) -> bool {
    before_rounding(op) && gemm(op, |g| matches!(g.scaling, Scaling::Mx | Scaling::Nvfp4))
}

fn mx(op: &Op) -> bool {
    before_rounding(op) && gemm(op, |g| g.scaling == Scaling::Mx)
}

fn nvfp4(op: &Op) -> bool {
    before_rounding(op) && gemm(op, |g| g.scaling == Scaling::Nvfp4)
}

/// Products in f32 of one format: an accumulator does not know what it adds.
fn of_one_format(op: &Op) -> bool {
    before_rounding(op) && gemm(op, |g| g.a == g.b)
}

fn sixteen_bits_out(op: &Op) -> bool {
    gemm(op, |g| g.output != Float::F32)
}

const fn inputs(about: About, applies: fn(&Op) -> bool, change: fn(&Call) -> Call) -> FaultModel {
    model(AREA, about, applies, Delta::Inputs(change))
}

const fn outputs(
    about: About,
    applies: fn(&Op) -> bool,
    change: fn(&Call, &mut Tensors),
) -> FaultModel {
    model(AREA, about, applies, Delta::Outputs(change))
}

/// The call with one of its inputs changed.
fn with(call: &Call, name: &str, change: impl FnOnce(&mut Tensor)) -> Call {
    let mut call = call.clone();
    if let Some(tensor) = call.inputs.get_mut(name) {
        change(tensor);
    }
    call
}

/// The call with both operands' elements changed, each a function of its bits.
fn with_elements(call: &Call, change: impl Fn(&Format, u32) -> u32) -> Call {
    let Op::Gemm(g) = call.op else { return call.clone() };
    let one = |call: Call, name, factor: Factor| {
        with(&call, name, |tensor| {
            for i in 0..tensor.data.len() {
                let bits = tensor.data.get(i);
                set(tensor, i, change(factor.format(), bits));
            }
        })
    };
    one(one(call.clone(), "a_elements", g.a), "b_elements", g.b)
}

/// The call without what lies beyond the last multiple of a length along K.
fn without_tail(call: &Call, multiple: usize) -> Call {
    let mut call = call.clone();
    let k = call.inputs.get("a_elements").map_or(0, |tensor| sides(tensor).1);
    let whole = k / multiple * multiple;
    for (name, tensor) in &mut call.inputs {
        let cols = sides(tensor).1.max(1);
        let (each, neutral) = match name.as_str() {
            "a_elements" | "b_elements" => (1, 0),
            "a_scales" | "b_scales" => (k / cols, 0x7f),
            _ => continue,
        };
        for i in 0..tensor.data.len() {
            if i % cols * each >= whole {
                set(tensor, i, neutral);
            }
        }
    }
    call
}

/// Changes outputs, given the type of the output.
fn each_output(call: &Call, outputs: &mut Tensors, change: impl Fn(&Format, u32) -> u32) {
    let Op::Gemm(g) = call.op else { return };
    let Some(output) = outputs.get_mut("output") else { return };
    for i in 0..output.data.len() {
        let bits = output.data.get(i);
        set(output, i, change(g.output.format(), bits));
    }
}

/// Outputs made from those of an f32 product.
fn from_f32(call: &Call, outputs: &mut Tensors, rounding: Rounding) {
    let Op::Gemm(g) = call.op else { return };
    let (Ok(product), Some(output)) = (product(&g, &call.inputs), outputs.get_mut("output")) else {
        return;
    };
    for (i, bits) in mx_native::gemm(&product, &F32).into_iter().enumerate() {
        let x = F32.decode(bits);
        set(output, i, g.output.format().encode(x, rounding, Overflow::Propagate));
    }
}

/// One product of a sum: elements and scales of both sides.
struct Term {
    elements: [Number; 2],
    scales: [u8; 2],
}

/// Sums again, from other products, every output in which a pair of scale bytes is one of `affected`.
fn resum(
    call: &Call,
    outputs: &mut Tensors,
    affected: impl Fn(u8, u8) -> bool,
    value: impl Fn(&Term) -> Number,
) {
    let Op::Gemm(g) = call.op else { return };
    let Ok(product) = product(&g, &call.inputs) else { return };
    let GemmShape { m, n, k } = product.shape();
    let [a, b] = product.operands();
    let (Some(a_scales), Some(b_scales)) = (a.scales, b.scales) else { return };
    let (Codes::Bytes(a_codes), Codes::Bytes(b_codes)) = (a.codes, b.codes) else { return };
    let Some(output) = outputs.get_mut("output") else { return };
    let blocks = k / a_scales.block.max(1);
    let decode =
        [a, b].map(|side| (0..256).map(|code| side.format.decode(code)).collect::<Vec<Number>>());
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let (sa, sb) = (&a_scales.bytes[i * blocks..], &b_scales.bytes[j * blocks..]);
        if !(0..blocks).any(|block| affected(sa[block], sb[block])) {
            continue;
        }
        let mut total = Total::ZERO;
        for at in 0..k {
            let block = at / a_scales.block;
            let scales = [sa[block], sb[block]];
            let codes = [a_codes[i * k + at], b_codes[j * k + at]];
            let elements = [0, 1].map(|side| decode[side][usize::from(codes[side])]);
            let ordinary = !affected(scales[0], scales[1]) && !scales.contains(&0xff);
            if ordinary && elements[0].times(elements[1]).is_zero() {
                continue;
            }
            total.add(value(&Term { elements, scales }));
        }
        set(output, i * n + j, total.round(g.output.format()));
    }
}

fn as_f32(x: Number) -> Number {
    F32.decode(F32.encode(x, Rounding::NearestEven, Overflow::Propagate))
}

fn power(byte: u8) -> Number {
    E8M0.decode(byte.into())
}

pub(super) const MODELS: &[FaultModel] = &[
    inputs(
        [
            "gemm-scales-of-a-for-b",
            "both operands are scaled by the scales of A",
            "cutlass 3535: SFB layout branches on the major of SFA",
        ],
        scaled,
        |call| {
            let own = call.inputs.get("a_scales").cloned();
            with(call, "b_scales", |scales| {
                let Some(own) = own.filter(|own| !own.data.is_empty()) else { return };
                for i in 0..scales.data.len() {
                    set(scales, i, own.data.get(i % own.data.len()));
                }
            })
        },
    ),
    inputs(
        ["gemm-scales-of-b-transposed", "the scales of B are read column major", "torchao PR 4229"],
        scaled,
        |call| {
            with(call, "b_scales", |scales| {
                let (rows, cols) = sides(scales);
                let data = u8s(scales);
                let own = data.to_vec();
                for (i, byte) in data.iter_mut().enumerate() {
                    *byte = own[i % cols * rows + i / cols];
                }
            })
        },
    ),
    inputs(
        [
            "gemm-scales-one-block-late",
            "each block of A is scaled by the scale of the block before",
            "cutlass 3394, 3046",
        ],
        scaled,
        |call| {
            with(call, "a_scales", |scales| {
                let cols = sides(scales).1.max(1);
                u8s(scales).chunks_mut(cols).for_each(|row| row.rotate_right(1));
            })
        },
    ),
    inputs(
        [
            "gemm-scale-rows-swapped",
            "rows r and r + 32 of a tile of scales trade roles",
            "cutlass 3394, 3046: swizzled scale index",
        ],
        scaled,
        |call| {
            with(call, "a_scales", |scales| {
                let (rows, cols) = sides(scales);
                let data = u8s(scales);
                let own = data.to_vec();
                for r in 0..rows {
                    let other = if (r ^ 32) < rows { r ^ 32 } else { r };
                    data[r * cols..(r + 1) * cols]
                        .copy_from_slice(&own[other * cols..(other + 1) * cols]);
                }
            })
        },
    ),
    inputs(
        [
            "gemm-scales-ignored",
            "scales are not applied",
            "sglang PR 19948, 28662: scales left out",
        ],
        scaled,
        |call| {
            let one = match call.op {
                Op::Gemm(g) if g.scaling == Scaling::Nvfp4 => 0x38,
                _ => 0x7f,
            };
            let call = with(call, "a_scales", |scales| u8s(scales).fill(one));
            with(&call, "b_scales", |scales| u8s(scales).fill(one))
        },
    ),
    inputs(
        [
            "gemm-k-tail-dropped",
            "products beyond the last multiple of 64 along K are left out",
            "triton PR 8974, TransformerEngine PR 2905: K that fills no tile",
        ],
        before_rounding,
        |call| without_tail(call, 64),
    ),
    inputs(
        [
            "gemm-k-last-128-dropped",
            "the last 128 products of a K beyond 1024 are left out",
            "TransformerEngine PR 2695, torchao PR 4278: the last stage of a pipeline is lost",
        ],
        of_one_format,
        |call| {
            let k = call.inputs.get("a_elements").map_or(0, |tensor| sides(tensor).1);
            if k > 1024 { without_tail(call, k - 128) } else { call.clone() }
        },
    ),
    inputs(
        [
            "gemm-nan-elements-zero",
            "NaN elements count as zero",
            "rocm-libraries PR 7439: NaN lost in a reference",
        ],
        |op| before_rounding(op) && gemm(op, |g| [g.a, g.b].iter().any(|f| f.format().has_nan())),
        |call| with_elements(call, |format, bits| if format.is_nan(bits) { 0 } else { bits }),
    ),
    inputs(
        [
            "gemm-infinite-elements-clamped",
            "infinite elements count as the largest number",
            "rocm-libraries PR 7439, llvm 215445",
        ],
        |op| {
            let has = |factor: Factor| {
                factor.format().decode(factor.format().max_code() + 1).magnitude
                    == Magnitude::Infinite
            };
            before_rounding(op) && gemm(op, |g| has(g.a) || has(g.b))
        },
        |call| {
            with_elements(call, |format, bits| {
                let infinite = format.decode(bits).magnitude == Magnitude::Infinite;
                if infinite { bits - 1 } else { bits }
            })
        },
    ),
    inputs(
        [
            "gemm-zero-blocks-skipped",
            "blocks of zeros are skipped with their scales, so a NaN scale over zeros is lost",
            "triton PR 8974: NaN scales of masked blocks",
        ],
        mx,
        |call| {
            let skip = |call: Call, elements: &str, scales: &str| {
                let codes = call.inputs.get(elements).cloned();
                with(&call, scales, |scales| {
                    let Some(Data::U8(codes)) = codes.map(|tensor| tensor.data) else { return };
                    for (byte, block) in u8s(scales).iter_mut().zip(codes.chunks(32)) {
                        if block.iter().all(|&code| code == 0) {
                            *byte = 0x7f;
                        }
                    }
                })
            };
            let call = skip(call.clone(), "a_elements", "a_scales");
            skip(call, "b_elements", "b_scales")
        },
    ),
    inputs(
        [
            "gemm-element-subnormals-flushed",
            "subnormal elements count as zero",
            "tt-metal PR 42106, ROCm triton 330",
        ],
        |op| {
            let has = |f: Factor| f.format().exponent_bits > 0 && f != Factor::Bf16;
            before_rounding(op) && gemm(op, |g| has(g.a) || has(g.b))
        },
        |call| {
            with_elements(call, |format, bits| {
                let magnitude = bits & !format.sign_bit();
                let subnormal = format.exponent_bits > 0
                    && magnitude > 0
                    && magnitude >> format.mantissa_bits == 0;
                if subnormal { bits & format.sign_bit() } else { bits }
            })
        },
    ),
    inputs(
        ["gemm-int8-minus-128", "code 0x80 counts as -127/64", "tt-metal 49907, microxcaling 3"],
        |op| {
            let int8 = |f: Factor| f == Factor::Element(mx_reference::Element::Int8);
            before_rounding(op) && gemm(op, |g| int8(g.a) || int8(g.b))
        },
        |call| {
            with_elements(
                call,
                |format, bits| {
                    if format.name == "int8" && bits == 0x80 { 0x81 } else { bits }
                },
            )
        },
    ),
    inputs(
        [
            "gemm-tensor-scale-ignored",
            "the tensor scales of NVFP4 are not applied",
            "kekzl/imp 1544: NVFP4 without its global scale",
        ],
        nvfp4,
        |call| {
            with(call, "tensor_scale", |scales| {
                (0..scales.data.len()).for_each(|i| set(scales, i, 1f32.to_bits()));
            })
        },
    ),
    inputs(
        [
            "gemm-tensor-scale-of-a-alone",
            "only A's tensor scale is applied",
            "flashinfer PR 3497, PR 3398: the second global scale is lost",
        ],
        nvfp4,
        |call| {
            with(call, "tensor_scale", |scales| {
                if scales.data.len() > 1 {
                    set(scales, 1, 1f32.to_bits());
                }
            })
        },
    ),
    outputs(
        [
            "gemm-stored-column-major",
            "the output is stored column major",
            "torchao PR 4229, cutlass 3535: majors mixed up",
        ],
        every,
        |_, outputs| {
            let Some(output) = outputs.get_mut("output") else { return };
            let (rows, cols) = sides(output);
            let own = output.clone();
            for i in 0..own.data.len() {
                set(output, i, own.data.get(i % rows * cols + i / rows));
            }
        },
    ),
    outputs(
        [
            "gemm-rounded-twice",
            "sums are rounded to f32 and then to the output type",
            "Megatron-LM PR 6588: materialised in another type first",
        ],
        sixteen_bits_out,
        |call, outputs| from_f32(call, outputs, Rounding::NearestEven),
    ),
    outputs(
        [
            "gemm-output-truncated",
            "sums are cut to the output type instead of rounded",
            "bitstring 342, triton 5925: narrowing by truncation",
        ],
        sixteen_bits_out,
        |call, outputs| from_f32(call, outputs, Rounding::TowardZero),
    ),
    outputs(
        [
            "gemm-overflow-saturates",
            "sums beyond the output type become its largest number",
            "Model-Optimizer 1633, onnx 6220: saturation where the type has infinity",
        ],
        |op| gemm(op, |g| g.scaling == Scaling::Mx || g.a == Factor::Bf16),
        |call, outputs| {
            each_output(call, outputs, |format, bits| {
                let infinite = format.decode(bits).magnitude == Magnitude::Infinite;
                if infinite { bits - 1 } else { bits }
            });
        },
    ),
    outputs(
        [
            "gemm-subnormal-outputs-flushed",
            "subnormal sums are flushed to zero",
            "tt-metal PR 42106, pytorch PR 185878",
        ],
        |op| gemm(op, |g| g.scaling == Scaling::Mx || g.a == Factor::Bf16),
        |call, outputs| {
            each_output(call, outputs, |format, bits| {
                let magnitude = bits & !format.sign_bit();
                if magnitude >> format.mantissa_bits == 0 { bits & format.sign_bit() } else { bits }
            });
        },
    ),
    outputs(
        ["gemm-zeros-negative", "sums of zero are -0", "rocm-libraries PR 7439: signed zero"],
        every,
        |call, outputs| {
            each_output(
                call,
                outputs,
                |format, bits| {
                    if bits == 0 { format.sign_bit() } else { bits }
                },
            );
        },
    ),
    outputs(
        [
            "gemm-nan-sums-zero",
            "sums that are NaN are stored as zero",
            "microxcaling's comparator, torch.nan_to_num behind a product",
        ],
        every,
        |call, outputs| {
            each_output(call, outputs, |format, bits| if format.is_nan(bits) { 0 } else { bits });
        },
    ),
    outputs(
        [
            "gemm-scale-product-in-f32",
            "the scales of a pair of blocks are multiplied in f32, which ends at 2^±127",
            "triton PR 11737, gpt-oss weights.py: scales as floats",
        ],
        mx,
        |call, outputs| {
            let beyond = |a: u8, b: u8| {
                let sum = i32::from(a) + i32::from(b);
                a != 0xff && b != 0xff && !(106..=381).contains(&sum)
            };
            resum(call, outputs, beyond, |term| {
                let scale = as_f32(power(term.scales[0]).times(power(term.scales[1])));
                term.elements[0].times(term.elements[1]).times(scale)
            });
        },
    ),
    outputs(
        [
            "gemm-scale-bytes-added-in-a-byte",
            "the exponents of two scales are added in a byte, which wraps",
            "llama.cpp MXFP4: exponents in a byte",
        ],
        mx,
        |call, outputs| {
            let wraps = |a: u8, b: u8| {
                let sum = i32::from(a) + i32::from(b) - 127;
                a != 0xff && b != 0xff && !(0..=254).contains(&sum)
            };
            resum(call, outputs, wraps, |term| {
                let [a, b] = term.scales;
                let scale = if a == 0xff || b == 0xff {
                    Number::NAN
                } else {
                    let sum = a.wrapping_add(b).wrapping_sub(127);
                    Number::finite(false, 1, i32::from(sum) - 127)
                };
                term.elements[0].times(term.elements[1]).times(scale)
            });
        },
    ),
    outputs(
        [
            "gemm-dequantised-in-f32",
            "elements are multiplied by their scales in f32 before they are multiplied with each other",
            "transformers 5.24 convert_moe_packed_tensors, gpt-oss weights.py",
        ],
        |op| mx(op) && gemm(op, |g| [g.a, g.b].iter().any(|f| f.format().max_exponent() > 0)),
        |call, outputs| {
            let extreme = |a: u8, b: u8| {
                [a, b].iter().any(|&byte| byte != 0xff && !(30..=236).contains(&byte))
            };
            resum(call, outputs, extreme, |term| {
                let value =
                    |side: usize| as_f32(term.elements[side].times(power(term.scales[side])));
                value(0).times(value(1))
            });
        },
    ),
];

const ANY: Accumulation = Accumulation {
    accepts: Accepts::Any,
    registers: None,
    scheme: Scheme::Sequential,
    split: 1,
    tile: 128,
};

const fn chain(length: usize, fraction: u32, accumulator: &'static Format) -> Accumulation {
    let step = FusedDot { length, fraction, accumulator };
    Accumulation { scheme: Scheme::Chain { step, promote: None }, ..ANY }
}

const fn accumulating(
    about: About,
    applies: fn(&Op) -> bool,
    declared: Option<Model>,
    accumulation: Accumulation,
) -> FaultModel {
    let delta = Delta::Accumulation(accumulation);
    FaultModel { accumulate: declared, ..model(AREA, about, applies, delta) }
}

/// Products that sum in another way than their declaration says.
pub(super) const ACCUMULATIONS: &[FaultModel] = &[
    accumulating(
        [
            "gemm-accumulates-14-bits",
            "sums are kept in 14 bits where f32 is declared",
            "DeepSeek-V3 issue 197, DeepGEMM issue 37",
        ],
        of_one_format,
        None,
        chain(32, 13, &E8M13),
    ),
    accumulating(
        [
            "gemm-accumulates-bf16",
            "sums are kept in bf16 where f32 is declared",
            "TransformerEngine PR 501, aiter 2421: accumulators of the output's type",
        ],
        of_one_format,
        None,
        chain(16, 24, &BF16),
    ),
    accumulating(
        [
            "gemm-f32-declared-exact",
            "f32 additions in order are declared to be exact",
            "torchao PR 1643, PR 1835: equality with cuBLAS that nobody could check",
        ],
        of_one_format,
        Some(Model::Exact),
        ANY,
    ),
    accumulating(
        [
            "gemm-order-other-than-declared",
            "neighbours are added pairwise where additions in order are declared",
            "miles PR 1054, PR 1261: not bitwise equal to the library it stands for",
        ],
        of_one_format,
        Some(Model::F32Sequential),
        Accumulation { scheme: Scheme::Pairwise, ..ANY },
    ),
    accumulating(
        [
            "gemm-promotion-left-out",
            "FP8 sums are never promoted to f32 where every 128 products are declared",
            "DeepGEMM issue 37, DeepSeek-V3 issue 197: fast accumulation",
        ],
        |op| matches!(op, Op::Gemm(g) if g.scaling == Scaling::Unit && g.output == Float::F32),
        Some(Model::HopperFp8Promote128),
        Model::HopperFp8.accumulation(),
    ),
];
