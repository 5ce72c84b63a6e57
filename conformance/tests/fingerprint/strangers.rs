//! Products that no model describes: other orders and roundings, flushed subnormals, garbage.

use crate::boxes::{Answer, every, expected, names, of_function};
use mx_conformance::fingerprint::{
    Bits, Group, Operands, Order, Subnormal, Subnormals, SumRounding,
};
use mx_reference::Element;
use mx_reference::format::{F16, F32, Format};
use mx_reference::gemm::{BlockScales, Codes, Gemm, Model, Operand};
use rstest::rstest;

/// Products of bf16 in f32, summed by a function.
fn summed(gemm: &Gemm<'_>, mut sum: impl FnMut(&[f32]) -> f32) -> Vec<u32> {
    let shape = gemm.shape();
    let [a, b] = gemm.operands().map(|operand| {
        let Codes::Halves(codes) = operand.codes else { panic!("bf16") };
        codes.iter().map(|&code| f32::from_bits(u32::from(code) << 16)).collect::<Vec<_>>()
    });
    let pairs = (0..shape.m).flat_map(|i| (0..shape.n).map(move |j| (i, j)));
    let dot = |(i, j)| {
        let product = |k| a[i * shape.k + k] * b[j * shape.k + k];
        sum(&(0..shape.k).map(product).collect::<Vec<_>>()).to_bits()
    };
    pairs.map(dot).collect()
}

/// One f32 accumulator of another rounding.
fn sequential(gemm: &Gemm<'_>, mut add: impl FnMut(f32, f32) -> f32) -> Vec<u32> {
    summed(gemm, |products| products.iter().fold(0f32, |sum, &x| add(sum, x)))
}

/// Every `lanes`-th product in an accumulator of its own.
fn lanes(products: &[f32], lanes: usize) -> f32 {
    (0..lanes).map(|lane| products.iter().skip(lane).step_by(lanes).sum::<f32>()).sum()
}

#[rstest]
#[case(|products: &[f32]| products.iter().rev().sum())]
#[case(|products: &[f32]| lanes(products, 2))]
#[case(|products: &[f32]| lanes(products, 8))]
#[case(|products: &[f32]| products.chunks(128).map(|chunk| lanes(chunk, 8)).sum())]
#[case(|products: &[f32]| products.chunks(2).map(|pair| pair.iter().rev().sum::<f32>()).rev().sum())]
fn other_orders_are_not_mistaken(#[case] sum: fn(&[f32]) -> f32) {
    let found = of_function(Operands::Bf16, |gemm| summed(gemm, sum));
    assert!(found.adds && found.matches.is_empty(), "{found}");
    assert!(matches!(found.group, Group::Unknown | Group::Single), "{found}");
    assert_ne!(found.reproduced, Some(true), "{found}");
    assert_eq!(found.accumulator_bits, Bits::Exactly(24), "{found}");
    assert_eq!(found.rounding, SumRounding::NearestEven, "{found}");
}

#[rstest]
#[case(16)]
#[case(64)]
#[case(128)]
#[case(256)]
fn blocks_of_one_accumulator_each(#[case] interval: usize) {
    let sum = |products: &[f32]| products.chunks(interval).map(|x| x.iter().sum::<f32>()).sum();
    let found = of_function(Operands::Bf16, |gemm| summed(gemm, sum));
    assert_eq!((found.order, found.group), (Order::InOrder, Group::Single), "{found}");
    assert_eq!(found.promotion, every(interval), "{found}");
    assert!(found.matches.is_empty(), "{found}");
}

/// An f32 addition rounded down where `down` says so for its exact sum, else up.
fn directed(a: f32, b: f32, down: impl Fn(f64) -> bool) -> f32 {
    // Exact for what matters here: the probes of rounding are a few bits apart.
    let exact = f64::from(a) + f64::from(b);
    let near = exact as f32;
    match (down(exact), f64::from(near) - exact) {
        (true, above) if above > 0.0 => near.next_down(),
        (false, below) if below < 0.0 => near.next_up(),
        _ => near,
    }
}

#[test]
fn roundings_of_one_accumulator() {
    let truncate = |gemm: &Gemm<'_>| sequential(gemm, |a, b| directed(a, b, |sum| sum > 0.0));
    let down = |gemm: &Gemm<'_>| sequential(gemm, |a, b| directed(a, b, |_| true));
    let up = |gemm: &Gemm<'_>| sequential(gemm, |a, b| directed(a, b, |_| false));
    let truncated = of_function(Operands::Bf16, truncate);
    assert_eq!(truncated.rounding, SumRounding::TowardZero, "{truncated}");
    assert_eq!(truncated.group, Group::Single, "{truncated}");
    assert_eq!(truncated.order, Order::InOrder, "{truncated}");
    assert_eq!(of_function(Operands::Bf16, down).rounding, SumRounding::Down);
    assert_eq!(of_function(Operands::Bf16, up).rounding, SumRounding::Up);
    let nearest = of_function(Operands::Bf16, |gemm| sequential(gemm, |a, b| a + b));
    assert_eq!(names(&nearest), ["f32-sequential"]);
    assert!(truncated.matches.is_empty());
}

/// Subnormal elements, scales and results count as zeros.
fn flushing(gemm: &Gemm<'_>, model: Model) -> Vec<u32> {
    let flush = |format: &Format, code: u32| {
        let exponent = format.decode(code).exponent();
        if exponent.is_some_and(|exponent| exponent < format.min_exponent()) { 0 } else { code }
    };
    let tensors = gemm.operands().map(|operand| {
        let of = |code: u32| flush(operand.format, code);
        let (bytes, halves) = match operand.codes {
            Codes::Bytes(codes) => {
                (codes.iter().map(|&code| of(code.into()) as u8).collect(), Vec::new())
            }
            Codes::Halves(codes) => {
                (Vec::new(), codes.iter().map(|&code| of(code.into()) as u16).collect())
            }
        };
        let scales: Vec<u8> = operand.scales.map_or_else(Vec::new, |scales| {
            scales.bytes.iter().map(|&code| flush(scales.format, code.into()) as u8).collect()
        });
        (bytes, halves, scales)
    });
    let [a, b] = [0, 1].map(|side| {
        let (bytes, halves, scales): &(Vec<u8>, Vec<u16>, Vec<u8>) = &tensors[side];
        let operand = gemm.operands()[side];
        let codes = match operand.codes {
            Codes::Bytes(_) => Codes::Bytes(bytes),
            Codes::Halves(_) => Codes::Halves(halves),
        };
        let scales = operand.scales.map(|s| BlockScales { bytes: scales, ..s });
        Operand { codes, scales, ..*operand }
    });
    let gemm = Gemm::new(gemm.shape(), a, b, None, None).expect("lengths stay");
    let d = gemm.accumulate(&model.accumulation(), &F32).expect("formats stay");
    d.into_iter().map(|bits| flush(&F32, bits)).collect()
}

#[rstest]
#[case(Model::HopperFp8, Operands::Fp8, Subnormal::NotSeen)]
#[case(Model::HopperBf16, Operands::Bf16, Subnormal::Flushed)]
#[case(Model::HopperF16, Operands::F16, Subnormal::NotSeen)]
#[case(Model::BlackwellMxf8f6f4, Operands::Mx(Element::E4m3), Subnormal::Flushed)]
#[case(Model::BlackwellMxf8f6f4, Operands::Mx(Element::E2m1), Subnormal::Flushed)]
#[case(Model::F32Sequential, Operands::Nvfp4, Subnormal::NotSeen)]
fn flushed_subnormals(
    #[case] model: Model,
    #[case] operands: Operands,
    #[case] results: Subnormal,
) {
    let found = of_function(operands, |gemm| flushing(gemm, model));
    let flushed = Subnormal::Flushed;
    let subnormals = found.subnormals;
    assert_eq!([subnormals.a, subnormals.b, subnormals.results], [flushed, flushed, results]);
    let (order, group, fraction, bits, rounding, promotion) = expected(model.accumulation().scheme);
    assert_eq!((found.order, found.group), (order, group), "{found}");
    assert_eq!(found.fraction_bits, fraction, "{found}");
    assert_eq!((found.accumulator_bits, found.rounding), (Bits::Exactly(bits), rounding));
    assert_eq!(found.promotion, promotion, "{found}");
    assert!(found.matches.is_empty(), "{found}");
}

#[test]
fn flushed_results_are_not_flushed_operands() {
    let found = of_function(Operands::Bf16, |gemm| {
        let d = gemm.accumulate(&Model::HopperBf16.accumulation(), &F32).expect("bf16");
        d.into_iter()
            .map(|bits| if bits & 0x7f80_0000 == 0 { bits & 1 << 31 } else { bits })
            .collect()
    });
    let Subnormals { results, a, b } = found.subnormals;
    let expected = (Subnormal::Flushed, Subnormal::Kept, Subnormal::Kept);
    assert_eq!((results, a, b), expected, "{found}");
}

#[test]
fn flushed_subnormals_of_nvfp4_leave_less_range() {
    let found = of_function(Operands::Nvfp4, |gemm| flushing(gemm, Model::BlackwellMxf4nvf4));
    assert_eq!(found.subnormals.a, Subnormal::Flushed);
    assert!(matches!(found.fraction_bits, Bits::AtLeast(26..)), "{found}");
    assert!(found.matches.is_empty());
}

#[rstest]
fn garbage_matches_nothing(
    #[values(Operands::Fp8, Operands::Bf16, Operands::Mx(Element::E2m1), Operands::Nvfp4)]
    operands: Operands,
) {
    let mut counter = 0u32;
    let mut boxes: [Answer; 6] = [
        Box::new(|gemm| vec![0x3f80_0000; gemm.shape().m * gemm.shape().n]),
        Box::new(|gemm| vec![0; gemm.shape().m * gemm.shape().n]),
        Box::new(|gemm| vec![0x7fc0_0000; gemm.shape().m * gemm.shape().n]),
        Box::new(|_| Vec::new()),
        Box::new(|gemm| vec![0xff80_0000; gemm.shape().m]),
        Box::new(move |gemm| {
            let outputs = gemm.shape().m * gemm.shape().n;
            (0..outputs)
                .map(|_| {
                    counter = counter.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
                    counter
                })
                .collect()
        }),
    ];
    for f in &mut boxes {
        let found = of_function(operands, f);
        assert!(!found.adds && found.matches.is_empty(), "{found}");
        assert_eq!((found.order, found.group), (Order::Unknown, Group::Unknown));
        assert_eq!(found.reproduced, None);
    }
}

/// Right in all that is small, and wrong in the rest: every stage must bear it.
#[rstest]
fn partly_garbage(#[values(1, 2, 3, 4, 5, 6, 7, 8, 9)] from: usize) {
    for operands in [Operands::Fp8, Operands::Mx(Element::E2m1), Operands::Nvfp4] {
        let mut calls = 0;
        let found = of_function(operands, |gemm| {
            calls += 1;
            let mut d = gemm.exact(&F32);
            if calls > from {
                d.iter_mut().zip(0u32..).for_each(|(d, i)| *d ^= i.wrapping_mul(0x9e37_79b1));
            }
            d
        });
        assert!(calls > from && found.matches.is_empty(), "{found}");
    }
}

#[test]
fn an_exact_sum_rounded_twice_is_no_model() {
    let found = of_function(Operands::Bf16, |gemm| {
        // The exact sum, twice rounded: to f16 and then to f32.
        let halves = gemm.exact(&F16).into_iter();
        halves
            .map(|code| {
                F32.encode(
                    F16.decode(code),
                    mx_reference::Rounding::NearestEven,
                    mx_reference::Overflow::Propagate,
                )
            })
            .collect()
    });
    assert!(found.matches.is_empty(), "{found}");
    assert_ne!(found.order, Order::Exact, "{found}");
}
