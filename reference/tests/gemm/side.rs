//! Operands that own their tensors, and single sums of them.

use mx_reference::format::{BF16, E4M3, E8M0, F16, F32};
use mx_reference::gemm::{BlockScales, Codes, Dot, Gemm, GemmShape, Model, Operand};
use mx_reference::{Element, Format};
use proptest::prelude::*;

/// The output types, in the order of tables.
pub(crate) const OUTPUTS: [&Format; 3] = [&F32, &BF16, &F16];

pub(crate) const PLUS: u32 = 0x7f800000;
pub(crate) const MINUS: u32 = 0xff800000;
pub(crate) const NAN: u32 = 0x7fc00000;
pub(crate) const ONE: u32 = 0x3f800000;
pub(crate) const MINUS_ONE: u32 = 0xbf800000;
pub(crate) const MINUS_ZERO: u32 = 0x80000000;

/// One operand, its elements in one of two widths.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) format: &'static Format,
    pub(crate) bytes: Vec<u8>,
    pub(crate) halves: Vec<u16>,
    pub(crate) scales: Option<Scales>,
}

#[derive(Clone, Debug)]
pub(crate) struct Scales {
    pub(crate) format: &'static Format,
    pub(crate) bytes: Vec<u8>,
    pub(crate) block: usize,
}

impl Side {
    pub(crate) fn new(format: &'static Format, codes: &[u8]) -> Self {
        Self { format, bytes: codes.to_vec(), halves: Vec::new(), scales: None }
    }

    pub(crate) fn halves(format: &'static Format, codes: &[u16]) -> Self {
        Self { format, bytes: Vec::new(), halves: codes.to_vec(), scales: None }
    }

    pub(crate) fn scaled(self, format: &'static Format, bytes: &[u8], block: usize) -> Self {
        Self { scales: Some(Scales { format, bytes: bytes.to_vec(), block }), ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len().max(self.halves.len())
    }

    pub(crate) fn operand(&self) -> Operand<'_> {
        let wide = [BF16, F16].contains(self.format);
        let codes = if wide { Codes::Halves(&self.halves) } else { Codes::Bytes(&self.bytes) };
        let scales = self.scales.as_ref();
        let scales =
            scales.map(|s| BlockScales { format: s.format, bytes: &s.bytes, block: s.block });
        Operand { format: self.format, codes, scales }
    }
}

/// One sum: a row of A, a row of B, and what may come with them.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) c: Option<[u32; 1]>,
    pub(crate) tensor_scales: Option<[u32; 2]>,
}

impl Sum {
    pub(crate) fn new(a: Side, b: Side) -> Self {
        Self { a, b, c: None, tensor_scales: None }
    }

    /// Terms ±2^e with e from -254 to 254, as ±1 × 2^(e / 2) and 1 × 2^(e - e / 2).
    pub(crate) fn powers(terms: &[(i32, i32)]) -> Self {
        let byte = |e: i32| u8::try_from(e + 127).unwrap();
        let signs: Vec<u8> = terms.iter().map(|t| if t.0 < 0 { 0xb8 } else { 0x38 }).collect();
        let (a, b): (Vec<u8>, Vec<u8>) =
            terms.iter().map(|&(_, e)| (byte(e / 2), byte(e - e / 2))).unzip();
        Self::new(
            Side::new(&E4M3, &signs).scaled(&E8M0, &a, 1),
            Side::new(&E4M3, &vec![0x38; terms.len()]).scaled(&E8M0, &b, 1),
        )
    }

    /// Elements that are zero but at the places named: there a code of A and one of B.
    pub(crate) fn sparse(format: &'static Format, k: usize, at: &[(usize, u8, u8)]) -> Self {
        let (mut a, mut b) = (vec![0; k], vec![0; k]);
        for &(k, x, y) in at {
            (a[k], b[k]) = (x, y);
        }
        Self::new(Side::new(format, &a), Side::new(format, &b))
    }

    pub(crate) fn with_c(self, c: impl Into<Option<u32>>) -> Self {
        Self { c: c.into().map(|c| [c]), ..self }
    }

    pub(crate) fn times(self, tensor_scales: impl Into<Option<[u32; 2]>>) -> Self {
        Self { tensor_scales: tensor_scales.into(), ..self }
    }

    pub(crate) fn swapped(self) -> Self {
        Self {
            a: self.b,
            b: self.a,
            c: self.c,
            tensor_scales: self.tensor_scales.map(|[a, b]| [b, a]),
        }
    }

    pub(crate) fn gemm(&self) -> Gemm<'_> {
        let shape = GemmShape { m: 1, n: 1, k: self.a.len() };
        let c = self.c.as_ref().map(<[u32; 1]>::as_slice);
        Gemm::new(shape, self.a.operand(), self.b.operand(), c, self.tensor_scales).unwrap()
    }

    pub(crate) fn dot(&self) -> Dot {
        self.gemm().dot(0, 0)
    }

    /// The exact sum rounded to f32, bf16 and f16.
    pub(crate) fn exact(&self) -> [u32; 3] {
        OUTPUTS.map(|output| self.gemm().exact(output)[0])
    }

    /// A model's f32 bits.
    pub(crate) fn by(&self, model: Model) -> u32 {
        self.gemm().accumulate(&model.accumulation(), &F32).unwrap()[0]
    }
}

/// A finite code of a format, or any.
pub(crate) fn codes(format: &'static Format, finite: bool) -> impl Strategy<Value = u8> {
    let usable = move |code: &u8| {
        let magnitude = format.decode((*code).into()).magnitude;
        let finite_ = matches!(
            magnitude,
            mx_reference::Magnitude::Zero | mx_reference::Magnitude::Finite { .. }
        );
        !finite || finite_
    };
    (0..=(format.codes() - 1) as u8).prop_filter("finite codes only", usable)
}

pub(crate) fn elements() -> impl Strategy<Value = Element> {
    prop::sample::select(Element::ALL.to_vec())
}
