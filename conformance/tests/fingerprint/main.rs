//! Every model, asked for its products alone, gives its own parameters back; so do parameters that no model has.

mod boxes;
mod face;
mod strangers;

use boxes::{Closed, OPTIONS, every, expected, fused, names, of, step};
use mx_conformance::fingerprint::{
    Bits, Operands, Options, Order, Promotion, Split, Subnormal, SumRounding, fingerprint,
};
use mx_reference::Element;
use mx_reference::format::F32;
use mx_reference::gemm::{Accepts, Accumulation, E8M13, Model, Scheme};
use rstest::rstest;

#[rstest]
#[case(Operands::Fp8, 12)]
#[case(Operands::Bf16, 5)]
#[case(Operands::F16, 4)]
#[case(Operands::Mx(Element::E4m3), 7)]
#[case(Operands::Mx(Element::E5m2), 7)]
#[case(Operands::Mx(Element::E3m2), 7)]
#[case(Operands::Mx(Element::E2m3), 7)]
#[case(Operands::Mx(Element::E2m1), 9)]
#[case(Operands::Mx(Element::Int8), 6)]
#[case(Operands::Nvfp4, 7)]
fn every_model_gives_itself_back(#[case] operands: Operands, #[case] models: usize) {
    let mut told = 0;
    for model in Model::ALL {
        let accumulation = model.accumulation();
        let Ok(found) = fingerprint(&mut Closed(accumulation), operands, OPTIONS) else {
            continue;
        };
        told += 1;
        let (order, group, fraction, bits, rounding, promotion) = expected(accumulation.scheme);
        let name = model.name();
        assert!(names(&found).iter().any(|found| found == name), "{found}");
        if let (Model::MxBlockF16Pair, Operands::Mx(element)) = (model, operands)
            && !matches!(element, Element::E4m3 | Element::E5m2)
        {
            // Nothing is cut within 32 products of narrow formats, so that nobody sees that they are summed in halves.
            let seen = (found.group, found.rounding, found.promotion);
            assert_eq!(seen, (fused(32), SumRounding::NearestEven, Promotion::None), "{found}");
            continue;
        }
        assert!(found.adds, "{name}");
        assert_eq!(found.order, order, "{name}");
        assert_eq!(found.group, group, "{name}");
        if order == Order::Exact {
            assert!(matches!(found.fraction_bits, Bits::AtLeast(23..)), "{found}");
        } else {
            assert_eq!(found.fraction_bits, fraction, "{name}");
        }
        assert_eq!(found.accumulator_bits, Bits::Exactly(bits), "{name}");
        assert_eq!(found.rounding, rounding, "{name}");
        assert_eq!(found.promotion, promotion, "{name}");
        assert_eq!(found.split, Split::None, "{name}");
        let has_subnormals = operands != Operands::Mx(Element::Int8);
        let kept = if has_subnormals { Subnormal::Kept } else { Subnormal::NotSeen };
        assert_eq!([found.subnormals.a, found.subnormals.b], [kept; 2], "{name}");
        let small = !matches!(operands, Operands::Fp8 | Operands::F16 | Operands::Nvfp4);
        let kept = if small { Subnormal::Kept } else { Subnormal::NotSeen };
        assert_eq!(found.subnormals.results, kept, "{name}");
        assert_eq!(found.reproduced, Some(true), "{name}");
        // A second name is another model of the same numbers.
        for other in &found.matches {
            let other = Model::from_name(other.model).unwrap().accumulation();
            assert_eq!(other.scheme, accumulation.scheme, "{found}");
        }
    }
    assert_eq!(told, models);
}

/// Bits that a sum of `length` products aligned to `fraction` bits can have below its leading one, in the probes.
fn longest_sum(length: usize, fraction: u32) -> u32 {
    fraction + (length - 1).ilog2()
}

#[rstest]
fn parameters_that_no_model_has(
    #[values(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26)] fraction: u32,
    #[values(Operands::Fp8, Operands::Bf16)] operands: Operands,
) {
    let promotions = [None, Some(64), Some(128), Some(256)];
    for (case, length) in [4, 8, 16, 32].into_iter().enumerate() {
        // The other operands have range enough; a few of their cases show that this does no harm.
        if operands == Operands::Bf16 && !(case + fraction as usize).is_multiple_of(3) {
            continue;
        }
        for accumulator in [&F32, &E8M13] {
            let promote = promotions[(case + fraction as usize) % 4];
            let scheme = Scheme::Chain { step: step(length, fraction, accumulator), promote };
            let found = of(scheme, 1, operands);
            let (order, group, fraction_bits, bits, rounding, promotion) = expected(scheme);
            let what = format!("{scheme:?}\n{found}");
            assert_eq!(found.order, order, "{what}");
            assert_eq!(found.group, group, "{what}");
            assert_eq!(found.fraction_bits, fraction_bits, "{what}");
            assert_eq!(found.promotion, promotion, "{what}");
            assert_eq!(found.reproduced, Some(true), "{what}");
            let rounds = longest_sum(length, fraction) >= bits;
            let expected = if rounds { rounding } else { SumRounding::NotSeen };
            assert_eq!(found.rounding, expected, "{what}");
            if found.accumulator_bits != Bits::Exactly(bits) {
                let Bits::AtLeast(least) = found.accumulator_bits else { panic!("{what}") };
                assert!(!rounds && least <= bits, "{what}");
            }
            for found in &found.matches {
                let model = Model::from_name(found.model).unwrap();
                assert_eq!(model.accumulation().scheme, scheme, "{what}");
            }
        }
    }
}

#[rstest]
fn halves_of_other_widths(#[values(23, 24, 26)] fraction: u32) {
    let scheme = Scheme::Halves { step: step(16, fraction, &F32) };
    let found = of(scheme, 1, Operands::Fp8);
    let (order, group, fraction, ..) = expected(scheme);
    assert_eq!((found.order, found.group, found.fraction_bits), (order, group, fraction));
    assert_eq!(found.promotion, every(32));
    assert!(found.matches.is_empty());
}

#[rstest]
#[case(Model::HopperFp8, Operands::Fp8)]
#[case(Model::HopperFp8Promote128, Operands::Fp8)]
#[case(Model::Sm90MmaFp8, Operands::Fp8)]
#[case(Model::MxBlockF16Pair, Operands::Mx(Element::E5m2))]
#[case(Model::HopperBf16, Operands::Bf16)]
#[case(Model::F32Sequential, Operands::Bf16)]
#[case(Model::BlackwellMxf8f6f4, Operands::Mx(Element::E4m3))]
#[case(Model::BlackwellMxf8f6f4, Operands::Mx(Element::E2m1))]
#[case(Model::BlackwellMxf4nvf4, Operands::Nvfp4)]
fn splits(#[case] model: Model, #[case] operands: Operands) {
    for (split, parts) in [
        (2, vec![1024, 1024]),
        (3, vec![768, 768, 512]),
        (4, vec![512, 512, 512, 512]),
        (6, vec![384, 384, 384, 384, 384, 128]),
    ] {
        let mut closed = Closed(Accumulation { split, ..model.accumulation() });
        let options = Options { k: 2048, ..OPTIONS };
        let found = fingerprint(&mut closed, operands, options).unwrap();
        let (order, group, .., promotion) = expected(model.accumulation().scheme);
        assert_eq!(found.split, Split::Parts(parts), "{found}");
        assert_eq!((found.order, found.group), (order, group), "{found}");
        assert_eq!(found.promotion, promotion, "{found}");
        assert_eq!(found.reproduced, Some(true), "{found}");
        let names = names(&found);
        let short = format!("{} (split in {split})", model.name());
        let whole = format!("{} (split in {split}, whole tiles of 128 k)", model.name());
        // Chunks of 14 bits are added without a rounding, so that tiles of chunks do not show.
        let open = model == Model::HopperFp8Promote128 && names.contains(&short);
        assert!(open || names.contains(&whole), "{found}");
        // A second name is another model of the same numbers.
        for other in &found.matches {
            let scheme = Model::from_name(other.model).unwrap().accumulation().scheme;
            assert_eq!((scheme, other.split), (model.accumulation().scheme, split), "{found}");
        }
    }
}

/// A split of every K, so that a part of the shortest contraction is as short as a promotion interval or a step.
#[rstest]
fn splits_of_every_k(
    #[values(
        (Model::HopperFp8, Operands::Fp8),
        (Model::HopperFp8Promote128, Operands::Fp8),
        (Model::HopperBf16, Operands::Bf16),
        (Model::F32Sequential, Operands::Bf16),
        (Model::F32Sequential, Operands::Fp8),
        (Model::BlackwellMxf8f6f4, Operands::Mx(Element::E4m3)),
        (Model::BlackwellMxf8f6f4, Operands::Mx(Element::E2m1)),
        (Model::BlackwellMxf4nvf4, Operands::Nvfp4),
        (Model::MxBlockF16Pair, Operands::Mx(Element::E5m2))
    )]
    of: (Model, Operands),
    #[values(2, 3, 4, 8)] split: usize,
    #[values(32, 64)] tile: usize,
) {
    let (model, operands) = of;
    let accumulation = Accumulation { split, tile, ..model.accumulation() };
    let options = Options { k: 2048, ..OPTIONS };
    let found = fingerprint(&mut Closed(accumulation), operands, options).unwrap();
    let (order, group, fraction, bits, rounding, promotion) = expected(accumulation.scheme);
    assert!(matches!(&found.split, Split::Parts(parts) if parts.len() == split), "{found}");
    assert_eq!((found.order, found.group), (order, group), "{found}");
    assert_eq!((found.fraction_bits, found.rounding), (fraction, rounding), "{found}");
    assert_eq!(found.accumulator_bits, Bits::Exactly(bits), "{found}");
    assert_eq!(found.promotion, promotion, "{found}");
    assert_eq!(found.reproduced, Some(true), "{found}");
    let name = format!("{} (split in {split}, whole tiles of {tile} k)", model.name());
    assert!(names(&found).contains(&name), "{found}");
}

/// Without a longer contraction nobody knows whether the end of a chain is a promotion's or a part's.
#[rstest]
fn no_promotion_is_invented_where_k_may_not_grow(
    #[values((1, Some(64)), (2, None), (4, None))] of: (usize, Option<usize>),
    #[values(128, 256)] k: usize,
) {
    let (split, promote) = of;
    let scheme = Scheme::Chain { step: step(32, 13, &E8M13), promote };
    let closed = Accumulation { accepts: Accepts::Any, registers: None, scheme, split, tile: 32 };
    let found = fingerprint(&mut Closed(closed), Operands::Fp8, Options { k, ..OPTIONS }).unwrap();
    let right = promote.map_or(Promotion::None, every);
    assert!([right, Promotion::Unknown].contains(&found.promotion), "{found}");
}

/// A promotion next to a split whose parts are no multiple of it.
#[test]
fn a_part_that_ends_within_a_promotion() {
    let scheme = Scheme::Chain { step: step(32, 13, &E8M13), promote: Some(256) };
    let (accepts, registers, split, tile) = (Accepts::Fp8, None, 3, 128);
    let closed = Accumulation { accepts, registers, scheme, split, tile };
    for k in [2048, 4096] {
        let options = Options { k, ..OPTIONS };
        let found = fingerprint(&mut Closed(closed), Operands::Fp8, options).unwrap();
        assert_eq!(found.promotion, every(256), "{found}");
        assert!(matches!(&found.split, Split::Parts(parts) if parts.len() == 3), "{found}");
        assert_eq!(found.reproduced, Some(true), "{found}");
    }
}

/// Narrow elements under one scale cannot hold large and small terms, so that other probes are used.
#[rstest]
fn narrow_elements(
    #[values(Operands::Mx(Element::E2m1), Operands::Nvfp4)] operands: Operands,
    #[values(4, 8, 16, 32, 64)] length: usize,
) {
    for (fraction, accumulator, promote) in
        [(25, &F32, None), (13, &E8M13, Some(128)), (24, &F32, Some(256)), (18, &E8M13, None)]
    {
        let scheme = Scheme::Chain { step: step(length, fraction, accumulator), promote };
        let found = of(scheme, 1, operands);
        let (order, group, fraction_bits, .., promotion) = expected(scheme);
        let what = format!("{scheme:?}\n{found}");
        assert_eq!((found.order, found.group), (order, group), "{what}");
        assert_eq!(found.fraction_bits, fraction_bits, "{what}");
        assert_eq!(found.promotion, promotion, "{what}");
        assert_eq!(found.reproduced, Some(true), "{what}");
    }
}

#[test]
fn a_long_step() {
    let scheme = Scheme::Chain { step: step(128, 25, &F32), promote: None };
    let found = of(scheme, 1, Operands::Bf16);
    assert_eq!(found.group, fused(128), "{found}");
    assert_eq!((found.fraction_bits, found.reproduced), (Bits::Exactly(25), Some(true)));
}
