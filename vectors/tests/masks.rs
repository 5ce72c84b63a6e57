//! Class `g4-masks`: a sum that is cut elsewhere along K has other outputs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_reference::Element;
use mx_reference::gemm::{Accumulation, FusedDot, Model, Scheme};
use mx_vectors::answer::product;
use mx_vectors::classes::ALL;
use mx_vectors::op::{Factor, Gemm, Scaling, Split, Test};
use mx_vectors::{Float, Level, Op, Source};
use rstest::rstest;

/// The least share of outputs, over the cases whose K is that long, on which two accumulations differ.
fn differing(op: Gemm, long: usize, one: &Accumulation, other: &Accumulation) -> f64 {
    let class = ALL.iter().find(|class| class.name == "g4-masks").unwrap();
    let Source::Tensors { count, call } = class.source else { panic!("tensors") };
    let op = Op::Gemm(op);
    let mut least = f64::INFINITY;
    for n in 0..count(&op, Level::Standard) {
        let call = call(&op, n);
        let Op::Gemm(g) = call.op else { panic!("a product") };
        let gemm = product(&g, &call.inputs).unwrap();
        if gemm.shape().k < long {
            continue;
        }
        let outputs = [one, other].map(|by| gemm.accumulate(by, g.output.format()).unwrap());
        let wrong = outputs[0].iter().zip(&outputs[1]).filter(|(a, b)| a != b).count();
        least = least.min(wrong as f64 / outputs[0].len() as f64);
    }
    least
}

fn op(model: Model, factor: Factor, scaling: Scaling) -> Gemm {
    let (accumulate, split, test) = (Some(model), Split::NONE, Test::Modelled);
    Gemm { a: factor, b: factor, scaling, output: Float::F32, accumulate, split, test }
}

const E4M3: Factor = Factor::Element(Element::E4m3);
const E2M1: Factor = Factor::Element(Element::E2m1);

#[rstest]
#[case(Model::HopperFp8, E4M3, Scaling::Unit)]
#[case(Model::HopperFp8Promote128, E4M3, Scaling::Unit)]
#[case(Model::HopperBf16, Factor::Bf16, Scaling::Plain)]
#[case(Model::HopperF16, Factor::F16, Scaling::Plain)]
#[case(Model::F32Sequential, Factor::Bf16, Scaling::Plain)]
#[case(Model::MxBlockF16Pair, E4M3, Scaling::Mx)]
#[case(Model::BlackwellMxf8f6f4, E2M1, Scaling::Mx)]
#[case(Model::BlackwellMxf8f6f4, Factor::Element(Element::E5m2), Scaling::Mx)]
#[case(Model::BlackwellMxf4nvf4, E2M1, Scaling::Nvfp4)]
fn every_split_shows(
    #[case] model: Model,
    #[case] factor: Factor,
    #[case] scaling: Scaling,
    #[values(2, 3, 8)] split: usize,
) {
    let whole = model.accumulation();
    let parts = Accumulation { split, ..whole };
    let share = differing(op(model, factor, scaling), 1184, &whole, &parts);
    assert!(share > 0.2, "{share}");
}

#[test]
fn another_interval_of_promotion_shows() {
    let model = Model::HopperFp8Promote128;
    let step = FusedDot { length: 32, fraction: 13, accumulator: &mx_reference::gemm::E8M13 };
    let of = |promote| {
        let scheme = Scheme::Chain { step, promote: Some(promote) };
        Accumulation { scheme, ..model.accumulation() }
    };
    for interval in [64, 256, 512] {
        let share =
            differing(op(model, E4M3, Scaling::Unit), 256, &model.accumulation(), &of(interval));
        assert!(share > 0.2, "{interval}: {share}");
    }
}
