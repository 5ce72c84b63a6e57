//! Products of known accumulations, and what their fingerprints must say.

use mx_conformance::fingerprint::{
    Bits, Fingerprint, Group, Layout, Operands, Options, Order, PlainGemm, Promotion, SumRounding,
    fingerprint,
};
use mx_reference::format::{F32, Format};
use mx_reference::gemm::{Accepts, Accumulation, FusedDot, Gemm, ModelError, Scheme};

pub(crate) const OPTIONS: Options = Options { k: 1024, multiple: (1, 1, 32) };

/// An accumulation whose products alone can be asked for.
pub(crate) struct Closed(pub(crate) Accumulation);

impl PlainGemm for Closed {
    type Error = ModelError;

    fn multiply(&mut self, gemm: &Gemm<'_>) -> Result<Vec<u32>, ModelError> {
        gemm.accumulate(&self.0, &F32)
    }
}

pub(crate) type Answer = Box<dyn FnMut(&Gemm<'_>) -> Vec<u32>>;

/// Any function as a product that never fails.
pub(crate) struct Function<F>(pub(crate) F);

impl<F: FnMut(&Gemm<'_>) -> Vec<u32>> PlainGemm for Function<F> {
    type Error = core::convert::Infallible;

    fn multiply(&mut self, gemm: &Gemm<'_>) -> Result<Vec<u32>, Self::Error> {
        Ok((self.0)(gemm))
    }
}

pub(crate) fn of_function(operands: Operands, f: impl FnMut(&Gemm<'_>) -> Vec<u32>) -> Fingerprint {
    fingerprint(&mut Function(f), operands, OPTIONS).unwrap()
}

pub(crate) fn of(scheme: Scheme, split: usize, operands: Operands) -> Fingerprint {
    let (accepts, registers, tile) = (Accepts::Any, None, 128);
    let accumulation = Accumulation { accepts, registers, scheme, split, tile };
    fingerprint(&mut Closed(accumulation), operands, OPTIONS).expect("takes any operands")
}

pub(crate) fn step(length: usize, fraction: u32, accumulator: &'static Format) -> FusedDot {
    FusedDot { length, fraction, accumulator }
}

pub(crate) const fn fused(length: usize) -> Group {
    Group::Fused { length, layout: Layout::Contiguous, exact: None }
}

pub(crate) const fn every(interval: usize) -> Promotion {
    Promotion::Every {
        interval,
        accumulator_bits: Bits::Exactly(24),
        rounding: SumRounding::NearestEven,
    }
}

pub(crate) fn names(found: &Fingerprint) -> Vec<String> {
    found.matches.iter().map(ToString::to_string).collect()
}

/// Order, group, fraction bits, accumulator bits, rounding and promotion of a scheme.
pub(crate) fn expected(scheme: Scheme) -> (Order, Group, Bits, u32, SumRounding, Promotion) {
    let nearest = SumRounding::NearestEven;
    let of_step = |step: FusedDot, group, promotion| {
        let bits = step.accumulator.mantissa_bits + 1;
        let fraction = Bits::Exactly(step.fraction);
        (Order::InOrder, group, fraction, bits, SumRounding::TowardZero, promotion)
    };
    match scheme {
        Scheme::Exact => {
            (Order::Exact, Group::AtLeast(128), Bits::Unknown, 24, nearest, Promotion::None)
        }
        Scheme::Sequential => {
            (Order::InOrder, Group::Single, Bits::None, 24, nearest, Promotion::None)
        }
        Scheme::Pairwise => {
            (Order::Pairwise, Group::Single, Bits::None, 24, nearest, Promotion::None)
        }
        Scheme::Chain { step, promote } => {
            of_step(step, fused(step.length), promote.map_or(Promotion::None, every))
        }
        Scheme::Halves { step } => {
            let layout = Layout::Interleaved { period: 4, run: 2 };
            let group = Group::Fused { length: step.length, layout, exact: None };
            of_step(step, group, every(32))
        }
        Scheme::Groups { step } => {
            let layout = Layout::Contiguous;
            let group = Group::Fused { length: step.length, layout, exact: Some(16) };
            of_step(step, group, Promotion::None)
        }
        Scheme::AnyOrder => panic!("not a model"),
    }
}
