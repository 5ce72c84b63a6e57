//! Operands that a model is not of.

use mx_reference::Format;
use mx_reference::format::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, F16, F32, INT8, UE4M3};
use mx_reference::gemm::{Accepts, Accumulation, Model, ModelError, Scheme};
use rstest::rstest;

use crate::side::{Side, Sum};

const K: usize = 64;

/// Ones, in the codes of the format.
fn ones(format: &'static Format) -> Side {
    match format.name {
        "bf16" => Side::halves(format, &[0x3f80; K]),
        "f16" => Side::halves(format, &[0x3c00; K]),
        name => {
            let one = match name {
                "e4m3" => 0x38,
                "e5m2" => 0x3c,
                "e3m2" => 0x0c,
                "e2m3" => 0x08,
                "e2m1" => 0x02,
                _ => 0x40,
            };
            Side::new(format, &[one; K])
        }
    }
}

fn scaled(format: &'static Format, scales: &'static Format, byte: u8, block: usize) -> Side {
    ones(format).scaled(scales, &vec![byte; K / block], block)
}

/// The operand beside one that the model takes, on both sides.
fn is_taken(model: Model, side: &Side) -> bool {
    let taken = match model {
        Model::HopperBf16 | Model::AdaBf16 => ones(&BF16),
        Model::HopperF16 => ones(&F16),
        Model::BlackwellMxf4 | Model::BlackwellMxf4nvf4 => ones(&E2M1),
        _ => ones(&E4M3),
    };
    let accumulation = model.accumulation();
    let as_a = Sum::new(side.clone(), taken.clone());
    let as_b = as_a.clone().swapped();
    let answers = [("A", as_a), ("B", as_b)].map(|(name, sum)| {
        let answer = sum.gemm().accumulate(&accumulation, &F32);
        assert_eq!(accumulation.check(&sum.gemm()), answer.clone().map(|_| ()));
        match answer {
            Ok(d) => {
                assert_eq!(d.len(), 1);
                true
            }
            Err(ModelError::Operands { side, got, .. }) => {
                assert_eq!(side, name);
                let refused = if name == "A" { &sum.a } else { &sum.b };
                assert!(got.starts_with(refused.format.name), "{got}");
                false
            }
            Err(other) => panic!("{other}"),
        }
    });
    assert_eq!(answers[0], answers[1]);
    answers[0]
}

#[rstest]
#[case::e4m3(&[ones(&E4M3)], true)]
#[case::e5m2(&[ones(&E5M2)], true)]
#[case::scales_of_one(&[scaled(&E4M3, &E8M0, 0x7f, 32), scaled(&E5M2, &E8M0, 0x7f, 16)], true)]
#[case::other_scales(&[scaled(&E4M3, &E8M0, 0x80, 32), scaled(&E4M3, &E8M0, 0x7e, 32), scaled(&E5M2, &E8M0, 0xff, 32)], false)]
#[case::scales_of_nvfp4(&[scaled(&E4M3, &UE4M3, 0x7f, 16), scaled(&E4M3, &UE4M3, 0x38, 16)], false)]
#[case::narrower(&[ones(&E3M2), ones(&E2M3), ones(&E2M1), scaled(&E2M1, &E8M0, 0x7f, 32)], false)]
#[case::int8(&[ones(&INT8)], false)]
#[case::halves(&[ones(&BF16), ones(&F16)], false)]
fn fp8_models_take_fp8_without_scales(
    #[values(Model::AdaFp8, Model::HopperFp8, Model::HopperFp8Promote128, Model::Sm90MmaFp8)] model: Model,
    #[case] sides: &[Side],
    #[case] taken: bool,
) {
    assert_eq!(model.accumulation().accepts, Accepts::Fp8);
    for side in sides {
        assert_eq!(is_taken(model, side), taken, "{side:?}");
    }
}

/// One scale among many counts.
#[test]
fn fp8_models_look_at_every_scale() {
    let mut side = scaled(&E4M3, &E8M0, 0x7f, 32);
    side.scales.as_mut().unwrap().bytes[1] = 0x80;
    assert!(!is_taken(Model::HopperFp8, &side));
}

#[rstest]
#[case::every_floating_point_format(&[&E4M3, &E5M2, &E3M2, &E2M3, &E2M1].map(|f| scaled(f, &E8M0, 0xfe, 32)), true)]
#[case::without_scales(&[ones(&E3M2)], true)]
#[case::longer_blocks(&[scaled(&E4M3, &E8M0, 0x00, 64)], true)]
#[case::shorter_blocks(&[scaled(&E4M3, &E8M0, 0x7f, 16), scaled(&E2M1, &E8M0, 0x7f, 16)], false)]
#[case::other_scales(&[scaled(&E4M3, &UE4M3, 0x38, 32), scaled(&E2M1, &UE4M3, 0x38, 32)], false)]
#[case::int8(&[ones(&INT8), scaled(&INT8, &E8M0, 0x7f, 32)], false)]
#[case::halves(&[ones(&BF16), ones(&F16)], false)]
fn mxf8f6f4_takes_floating_point_under_e8m0(#[case] sides: &[Side], #[case] taken: bool) {
    for side in sides {
        assert_eq!(is_taken(Model::BlackwellMxf8f6f4, side), taken, "{side:?}");
    }
}

#[rstest]
#[case::every_format(&[&E4M3, &E5M2, &E3M2, &E2M3, &E2M1, &INT8].map(|f| scaled(f, &E8M0, 0xfe, 32)), true)]
#[case::without_scales(&[ones(&E3M2), ones(&INT8)], true)]
#[case::longer_blocks(&[scaled(&INT8, &E8M0, 0x00, 64)], true)]
#[case::shorter_blocks(&[scaled(&E4M3, &E8M0, 0x7f, 16), scaled(&INT8, &E8M0, 0x7f, 16)], false)]
#[case::other_scales(&[scaled(&E4M3, &UE4M3, 0x38, 32), scaled(&E2M1, &UE4M3, 0x38, 32)], false)]
#[case::halves(&[ones(&BF16), ones(&F16)], false)]
fn our_kernel_takes_every_mx_format(#[case] sides: &[Side], #[case] taken: bool) {
    for side in sides {
        assert_eq!(is_taken(Model::MxBlockF16Pair, side), taken, "{side:?}");
    }
}

#[rstest]
#[case::blocks_of_16(scaled(&E2M1, &E8M0, 0x01, 16), true, true)]
#[case::blocks_of_32(scaled(&E2M1, &E8M0, 0xff, 32), true, true)]
#[case::without_scales(ones(&E2M1), true, true)]
#[case::nvfp4(scaled(&E2M1, &UE4M3, 0x38, 16), false, true)]
#[case::shorter_blocks(scaled(&E2M1, &E8M0, 0x7f, 8), false, false)]
#[case::shorter_blocks_of_nvfp4(scaled(&E2M1, &UE4M3, 0x38, 8), false, false)]
#[case::e4m3(scaled(&E4M3, &E8M0, 0x7f, 32), false, false)]
#[case::e2m3(ones(&E2M3), false, false)]
#[case::int8(scaled(&INT8, &E8M0, 0x7f, 32), false, false)]
#[case::halves(ones(&BF16), false, false)]
fn fp4_models_take_e2m1_under_their_scales(
    #[case] side: Side,
    #[case] mxf4: bool,
    #[case] nvf4: bool,
) {
    assert_eq!(is_taken(Model::BlackwellMxf4, &side), mxf4);
    assert_eq!(is_taken(Model::BlackwellMxf4nvf4, &side), nvf4);
}

/// Ones under scales: bf16 reaches from 2^-133 to below 2^128 with 8 bits, f16 from 2^-24 to below 2^16 with 11.
#[rstest]
#[case::halves(ones(&BF16), true, true)]
#[case::f16(ones(&F16), true, true)]
#[case::f16_of_eleven_bits(Side::halves(&F16, &[0x3c01; K]), false, true)]
#[case::bf16_too_small(Side::halves(&BF16, &[0x3300 - 0x80; K]), true, false)]
#[case::bf16_infinite(Side::halves(&BF16, &[0x7f80; K]), true, true)]
#[case::f16_nan(Side::halves(&F16, &[0x7e01; K]), true, true)]
#[case::largest_scale(scaled(&E4M3, &E8M0, 0xfe, 32), true, false)]
#[case::largest_of_f16(scaled(&E4M3, &E8M0, 0x7f + 15, 32), true, true)]
#[case::beyond_f16(scaled(&E4M3, &E8M0, 0x7f + 16, 32), true, false)]
#[case::least_of_f16(scaled(&E4M3, &E8M0, 0x7f - 24, 32), true, true)]
#[case::below_f16(scaled(&E4M3, &E8M0, 0x7f - 25, 32), true, false)]
#[case::least_scale(scaled(&E4M3, &E8M0, 0x00, 32), true, false)]
#[case::least_of_bf16(Side::new(&E4M3, &[0x08; K]).scaled(&E8M0, &[0x00; 2], 32), true, false)]
#[case::below_bf16(Side::new(&E4M3, &[0x01; K]).scaled(&E8M0, &[0x00; 2], 32), false, false)]
#[case::beyond_bf16(Side::new(&E4M3, &[0x40; K]).scaled(&E8M0, &[0xfe; 2], 32), false, false)]
#[case::nan_scales(scaled(&E4M3, &E8M0, 0xff, 32), true, true)]
#[case::int8(ones(&INT8), true, true)]
#[case::nvfp4(scaled(&E2M1, &UE4M3, 0x3f, 16), true, true)]
fn dequantising_models_take_what_their_registers_hold(
    #[case] side: Side,
    #[case] bf16: bool,
    #[case] f16: bool,
) {
    assert_eq!(is_taken(Model::HopperBf16, &side), bf16);
    assert_eq!(is_taken(Model::AdaBf16, &side), bf16);
    assert_eq!(is_taken(Model::HopperF16, &side), f16);
}

#[rstest]
fn definitions_take_anything(
    #[values(Model::Exact, Model::F32Sequential, Model::F32Pairwise)] model: Model,
) {
    for side in [
        scaled(&INT8, &E8M0, 0xfe, 32),
        scaled(&E2M1, &UE4M3, 0x38, 8),
        ones(&F16),
        scaled(&E5M2, &E8M0, 0, 16),
    ] {
        assert!(is_taken(model, &side));
    }
}

#[test]
fn any_order_is_no_model() {
    let any = Accumulation { scheme: Scheme::AnyOrder, ..Model::Exact.accumulation() };
    let sum = Sum::new(ones(&E4M3), ones(&E4M3));
    assert_eq!(sum.gemm().accumulate(&any, &F32), Err(ModelError::NotAModel));
}

#[test]
fn a_refusal_says_what_came_and_what_is_taken() {
    let sum = Sum::new(ones(&E4M3), scaled(&E5M2, &E8M0, 0x80, 32));
    let refused = sum.gemm().accumulate(&Model::HopperFp8.accumulation(), &F32).unwrap_err();
    let ModelError::Operands { side, expected, got } = &refused else { panic!("{refused}") };
    assert_eq!(*side, "B");
    assert!(expected.contains("0x7F"), "{expected}");
    assert_eq!(got, "e5m2 with e8m0 scales for blocks of 32");
    assert!(refused.to_string().starts_with("operand B is e5m2"), "{refused}");
}

#[test]
fn models_go_by_their_names() {
    for model in Model::ALL {
        assert_eq!(Model::from_name(model.name()), Some(model));
        assert!(!model.source().is_empty() && !model.standing().name().is_empty());
    }
    assert_eq!(Model::from_name("hopper"), None);
}
