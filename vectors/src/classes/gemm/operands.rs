//! What product classes are built from: operands as they grow, and which cells get every shape.

use crate::class::Call;
use crate::op::{Factor, Float, Gemm, Op, Scaling, Test};
use crate::rng::Stream;
use crate::tensor::{Data, Tensor, Tensors};
use mx_reference::format::UE4M3;
use mx_reference::{Element, Number, Overflow, Rounding};

/// The gemm of an op that is one the declared accumulation is of.
pub(super) fn gemm(op: &Op) -> Option<&Gemm> {
    match op {
        Op::Gemm(g) if g.is_of_its_model() => Some(g),
        _ => None,
    }
}

/// Cells that get every shape: f32 outputs of one format, and of the two FP8 formats together. The others get shapes that are
/// multiples of 128, which look at what is theirs: another pair's decoding, another type's rounding.
pub(super) fn full(g: &Gemm) -> bool {
    let fp8 = |f| matches!(f, Factor::Element(Element::E4m3 | Element::E5m2));
    g.output == Float::F32 && (g.a == g.b || fp8(g.a) && fp8(g.b))
}

/// The stream of a case of a product.
pub(super) fn stream(class: &str, g: &Gemm, n: u64) -> Stream {
    let names = [class, g.a.name(), g.b.name(), g.scaling.name(), g.output.name()];
    Stream::new(&names, n)
}

/// One operand under construction: zeros under scales of 1.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) factor: Factor,
    pub(super) scaling: Scaling,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) codes: Vec<u32>,
    pub(super) scales: Vec<u8>,
}

impl Side {
    pub(super) fn new(factor: Factor, scaling: Scaling, rows: usize, k: usize) -> Self {
        let blocks = scaling.block().map_or(0, |(block, _)| k / block);
        let scales = vec![scale_byte(scaling, 0); rows * blocks];
        Self { factor, scaling, rows, k, codes: vec![0; rows * k], scales }
    }

    pub(super) fn set(&mut self, r: usize, k: usize, code: u32) {
        self.codes[r * self.k + k] = code;
    }

    pub(super) fn blocks(&self) -> usize {
        self.scaling.block().map_or(0, |(block, _)| self.k / block)
    }

    /// Sets the scale of a block, unless scales are 1 by what the cell is.
    pub(super) fn scale(&mut self, r: usize, block: usize, byte: u8) {
        if matches!(self.scaling, Scaling::Mx | Scaling::Nvfp4) {
            let blocks = self.blocks();
            self.scales[r * blocks + block] = byte;
        }
    }

    /// The block of an element.
    pub(super) fn block_of(&self, k: usize) -> usize {
        self.scaling.block().map_or(0, |(block, _)| k / block)
    }

    fn tensors(self, shape: &[usize], names: [&str; 2], tensors: &mut Tensors) {
        let data = if self.factor.is_element() {
            Data::U8(self.codes.into_iter().map(|code| code as u8).collect())
        } else {
            Data::U16(self.codes.into_iter().map(|code| code as u16).collect())
        };
        tensors.insert(names[0].to_owned(), Tensor { shape: shape.to_vec(), data });
        if let Some((block, _)) = self.scaling.block() {
            let mut shape = shape.to_vec();
            if let Some(last) = shape.last_mut() {
                *last /= block;
            }
            tensors.insert(names[1].to_owned(), Tensor::u8(shape, self.scales));
        }
    }
}

/// The byte of a scale of `2^exponent`; for UE4M3 as near as it has one.
pub(super) fn scale_byte(scaling: Scaling, exponent: i32) -> u8 {
    match scaling {
        Scaling::Mx => (exponent + 127).clamp(0, 254) as u8,
        Scaling::Unit | Scaling::Plain => 127,
        Scaling::Nvfp4 => {
            let power = Number::finite(false, 1, exponent);
            UE4M3.encode(power, Rounding::NearestEven, Overflow::Saturate) as u8
        }
    }
}

/// The code of `±significand × 2^exponent`, which must be a number of the factor's format.
pub(super) fn code(factor: Factor, negative: bool, significand: u64, exponent: i32) -> u32 {
    let x = Number::finite(negative, significand, exponent);
    factor.format().encode(x, Rounding::NearestEven, Overflow::Saturate)
}

/// A random code that is a number. bf16 and f16 stay within 2^±20.
pub(super) fn number(factor: Factor, stream: &mut Stream) -> u32 {
    let format = factor.format();
    if !factor.is_element() {
        let exponent = stream.below(16) as i32 - 8;
        let significand = 1 << format.mantissa_bits | stream.below(1 << format.mantissa_bits);
        return code(factor, stream.flag(), significand, exponent - format.mantissa_bits as i32);
    }
    loop {
        let code = stream.below(format.codes()) as u32;
        if format.decode(code).magnitude_is_number() {
            return code;
        }
    }
}

/// Tells a code that is a number from NaN and infinity.
trait IsNumber {
    fn magnitude_is_number(self) -> bool;
}

impl IsNumber for Number {
    fn magnitude_is_number(self) -> bool {
        self.is_zero() || self.exponent().is_some()
    }
}

/// The code with its sign cleared.
pub(super) fn positive(factor: Factor, code: u32) -> u32 {
    match factor {
        Factor::Element(Element::Int8) if code >= 0x80 => (0x100 - code).min(0x7f),
        _ => code & !factor.format().sign_bit(),
    }
}

/// The code with the other sign. The most negative INT8 code has none and gives the largest.
pub(super) fn negated(factor: Factor, code: u32) -> u32 {
    match factor {
        Factor::Element(Element::Int8) => {
            (0x100 - code).min(0xff) & if code == 0x80 { 0x7f } else { 0xff }
        }
        _ => code ^ factor.format().sign_bit(),
    }
}

/// The call of a product. NVFP4 has tensor scales of 2^-2 and 2^3: exact, and seen if they are left out or swapped for one.
pub(super) fn call(g: &Gemm, test: Test, a: Side, b: Side) -> Call {
    let mut inputs = Tensors::new();
    let (m, n, k) = (a.rows, b.rows, a.k);
    a.tensors(&[m, k], ["a_elements", "a_scales"], &mut inputs);
    b.tensors(&[n, k], ["b_elements", "b_scales"], &mut inputs);
    if g.scaling == Scaling::Nvfp4 {
        let data = Data::U32(vec![0.25f32.to_bits(), 8f32.to_bits()]);
        inputs.insert("tensor_scale".to_owned(), Tensor { shape: vec![2], data });
    }
    Call { op: Op::Gemm(Gemm { test, ..*g }), inputs }
}

/// The inputs of a grouped product: A, B with this shape, and the offsets.
pub(super) fn grouped_inputs(a: Side, b: Side, b_shape: &[usize], offsets: &[i32]) -> Tensors {
    let mut inputs = Tensors::new();
    let shape = [a.rows, a.k];
    a.tensors(&shape, ["a_elements", "a_scales"], &mut inputs);
    b.tensors(b_shape, ["b_elements", "b_scales"], &mut inputs);
    let data = Data::I32(offsets.to_vec());
    inputs.insert("offsets".to_owned(), Tensor { shape: vec![offsets.len()], data });
    inputs
}

/// Nothing to ask: what a class returns for an op that it has no case for.
pub(super) fn none(op: &Op) -> Call {
    Call { op: *op, inputs: Tensors::new() }
}
