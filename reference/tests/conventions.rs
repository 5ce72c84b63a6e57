//! What the conventions say, sentence by sentence.

use mx_reference::block::Rule;
use mx_reference::convention::{Convention, PROPAGATE, TE, TORCHAO_0_18};
use mx_reference::format::F32;
use mx_reference::scale::even_threshold;
use mx_reference::{Element, Number, Profile, ScaleMode};
use rstest::rstest;

const NAN: u32 = 0x7fc0_0000;
const INF: u32 = 0x7f80_0000;
const ONE: u32 = 0x3f80_0000;
const FP8: [Element; 2] = [Element::E4m3, Element::E5m2];
const WITHOUT_NAN: [Element; 4] = [Element::E3m2, Element::E2m3, Element::E2m1, Element::Int8];

fn profile(element: Element, mode: ScaleMode, convention: &'static Convention) -> Profile {
    Profile { element, mode, convention }
}

/// Scale byte and codes of a block that starts with these f32 bits and goes on with `fill`.
fn block(profile: Profile, first: &[u32], fill: u32) -> (u8, [u8; 32]) {
    let mut bits = [fill; 32];
    bits[..first.len()].copy_from_slice(first);
    let mut codes = [0; 32];
    let scale = profile.quantize_block(&bits.map(|b| F32.decode(b)), &mut codes);
    (scale, codes)
}

fn rules(profile: Profile, first: &[u32], fill: u32) -> Vec<Rule> {
    let mut bits = [fill; 32];
    bits[..first.len()].copy_from_slice(first);
    let numbers: Vec<Number> = bits.iter().map(|&b| F32.decode(b)).collect();
    profile.trace(&numbers).lanes.iter().map(|lane| lane.rule).collect()
}

#[rstest]
fn propagate_amax_propagates_nan(
    #[values(0, 1, 15, 31)] lane: usize,
    #[values(0x7f80_0001, NAN, 0xffc0_0000, 0xffff_ffff)] nan: u32,
) {
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            let mut first = [ONE; 32];
            first[lane] = nan;
            assert_eq!(block(profile(element, mode, &PROPAGATE), &first, 0).0, 0xff);
        }
    }
}

#[rstest]
fn propagate_nan_or_inf_amax_gives_scale_0xff(#[values(NAN, INF, 0xff80_0000)] special: u32) {
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            assert_eq!(block(profile(element, mode, &PROPAGATE), &[special], ONE).0, 0xff);
        }
    }
}

#[test]
fn propagate_byte_0_is_exactly_two_to_the_minus_127() {
    for mode in [ScaleMode::Floor, ScaleMode::Rceil] {
        // 2^-126 over 2^-127 is 2; the least bf16 subnormal, 2^-133, over it is 2^-6.
        let p = profile(Element::E4m3, mode, &PROPAGATE);
        assert_eq!(block(p, &[], 0x0080_0000), (0, [0x40; 32]));
        assert_eq!(block(p, &[], 0x0001_0000), (0, [0x08; 32]));
    }
}

#[test]
fn propagate_a_zero_block_gives_byte_0_and_signed_zeros() {
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            let (scale, codes) = block(profile(element, mode, &PROPAGATE), &[0, 0x8000_0000], 0);
            let minus_zero = element.format().sign_bit() as u8;
            assert_eq!((scale, codes[0], codes[1], codes[2]), (0, 0, minus_zero, 0));
        }
    }
}

#[test]
fn propagate_elements_round_to_nearest_even() {
    let p = profile(Element::E2m1, ScaleMode::Floor, &PROPAGATE);
    // Ties 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5 beside an amax of 4.
    let ties = [4.0f32, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0].map(f32::to_bits);
    let (scale, codes) = block(p, &ties, 0);
    assert_eq!(scale, 0x7f);
    assert_eq!(codes[..8], [0x6, 0x0, 0x2, 0x2, 0x4, 0x4, 0x6, 0x6]);
}

#[test]
fn propagate_elements_saturate_to_the_largest_finite() {
    for element in Element::ALL {
        // The largest value below the next power of two: FLOOR scales it beyond max.
        let p = profile(element, ScaleMode::Floor, &PROPAGATE);
        let (_, codes) = block(p, &[0x43ff_ffff, 0xc3ff_ffff], 0);
        let largest = element.format().max_code() as u8;
        let most_negative = match element {
            Element::Int8 => 0x81,
            _ => largest | element.format().sign_bit() as u8,
        };
        assert_eq!(codes[..2], [largest, most_negative]);
    }
}

#[test]
fn propagate_minus_zero_is_kept() {
    let p = profile(Element::E4m3, ScaleMode::Rceil, &PROPAGATE);
    // -0, and negative values that underflow.
    let (_, codes) = block(p, &[ONE, 0x8000_0000, 0x8000_0001, 1], ONE);
    assert_eq!(codes[1..4], [0x80, 0x80, 0x00]);
}

#[test]
fn propagate_floor_ceil_and_even_never_give_0xff_for_a_finite_amax() {
    for element in Element::ALL {
        for mode in [ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even] {
            for amax in 0x7f00_0000..=0x7f7f_ffffu32 {
                if amax % 0x101 == 0 || amax == 0x7f7f_ffff {
                    let p = profile(element, mode, &PROPAGATE);
                    assert!(p.scale(F32.decode(amax)) < 0xff);
                }
            }
        }
    }
}

#[test]
fn propagate_even_carries_at_the_top_of_range() {
    let scale =
        |element, amax| profile(element, ScaleMode::Even, &PROPAGATE).scale(F32.decode(amax));
    assert_eq!(scale(Element::E4m3, 0x7f78_0000), 247);
    assert_eq!(scale(Element::E5m2, 0x7f70_0000), 240);
    assert_eq!(scale(Element::E2m1, 0x7f60_0000), 253);
}

#[test]
fn propagate_int8_clamps_at_0xfe() {
    for mode in [ScaleMode::Ceil, ScaleMode::Even] {
        assert_eq!(block(profile(Element::Int8, mode, &PROPAGATE), &[], 0x7f7f_ffff).0, 0xfe);
    }
}

#[test]
fn propagate_rceil_is_the_hardware_rule() {
    let scale = |amax| profile(Element::E4m3, ScaleMode::Rceil, &PROPAGATE).scale(F32.decode(amax));
    // 448 and 3.5 scale exactly; one ulp more takes the next power of two.
    assert_eq!([0x43e0_0000, 0x43e0_0001].map(scale), [0x7f, 0x80]);
    assert_eq!([0x4060_0000, 0x4060_0001].map(scale), [0x78, 0x79]);
    // q = 2^-127 and below give 0; 0x04600001 is the one f32 whose product rounds down to it.
    assert_eq!([0x0460_0000, 0x0460_0001, 0x0460_0002].map(scale), [0, 0, 1]);
}

#[test]
fn under_0xff_every_fp8_element_is_a_nan_code_with_sign_and_payload_free() {
    for element in FP8 {
        let p = profile(element, ScaleMode::Floor, &PROPAGATE);
        let (_, codes) = block(p, &[NAN], ONE);
        assert!(codes.iter().all(|&code| element.format().is_nan(code.into())));
        assert!(rules(p, &[NAN], ONE).iter().all(|&rule| rule == Rule::AnyNan));
    }
}

#[test]
fn under_0xff_fp6_fp4_and_int8_codes_are_free() {
    for element in WITHOUT_NAN {
        let p = profile(element, ScaleMode::Floor, &PROPAGATE);
        assert!(rules(p, &[INF], ONE).iter().all(|&rule| rule == Rule::Free));
        assert!(rules(p, &[ONE], ONE).iter().all(|&rule| rule == Rule::Exact));
    }
}

#[test]
fn int8_max_is_127_over_64() {
    let format = Element::Int8.format();
    assert_eq!(format.decode(format.max_code()), Number::finite(false, 127, -6));
}

#[test]
fn int8_code_0x80_is_never_produced() {
    for mode in ScaleMode::ALL {
        for amax in [0xbfff_ffff, 0xc000_0000, 0xff7f_ffff, 0xbfff_0000] {
            let (_, codes) = block(profile(Element::Int8, mode, &PROPAGATE), &[amax], amax);
            assert!(codes.iter().all(|&code| code != 0x80));
        }
    }
}

#[test]
fn int8_p_is_0() {
    assert_eq!(block(profile(Element::Int8, ScaleMode::Floor, &PROPAGATE), &[], ONE).0, 0x7f);
}

#[test]
fn int8_reciprocal_of_max_is_0x3f010204() {
    assert_eq!(Element::Int8.reciprocal_of_max(), 0x3f01_0204);
}

#[test]
fn int8_even_rounds_the_amax_to_6_fraction_bits() {
    assert_eq!(even_threshold(Element::Int8), 0x7f_0000);
    let scale = |amax| profile(Element::Int8, ScaleMode::Even, &PROPAGATE).scale(F32.decode(amax));
    assert_eq!([0x3ffe_ffff, 0x3fff_0000].map(scale), [0x7f, 0x80]);
}

#[test]
fn int8_a_subnormal_amax_counts_by_its_value() {
    let scale = |mode, amax| profile(Element::Int8, mode, &PROPAGATE).scale(F32.decode(amax));
    // 2^-127 itself needs no bump, one ulp more does.
    assert_eq!(scale(ScaleMode::Ceil, 0x0040_0000), 0);
    assert_eq!(scale(ScaleMode::Ceil, 0x0040_0001), 1);
    assert_eq!(scale(ScaleMode::Ceil, 0x003f_ffff), 0);
    assert_eq!(scale(ScaleMode::Even, 0x007f_ffff), 1);
    assert_eq!(scale(ScaleMode::Floor, 0x007f_ffff), 0);
}

#[test]
fn te_amax_drops_nan() {
    for element in FP8 {
        let p = profile(element, ScaleMode::Rceil, &TE);
        let with = block(p, &[NAN], ONE);
        assert_eq!(with.0, block(p, &[], ONE).0);
    }
    // Nothing is left of a block of NaNs.
    assert_eq!(block(profile(Element::E4m3, ScaleMode::Rceil, &TE), &[], NAN).0, 0);
}

#[test]
fn te_nan_elements_stay_nan_alone() {
    let p = profile(Element::E4m3, ScaleMode::Rceil, &TE);
    let (_, codes) = block(p, &[NAN], ONE);
    assert_eq!((codes[0], codes[1]), (0x7f, 0x78));
    let fp4 = profile(Element::E2m1, ScaleMode::Rceil, &TE);
    assert_eq!(rules(fp4, &[NAN], ONE)[..2], [Rule::Free, Rule::Exact]);
}

#[test]
fn te_inf_amax_gives_0xfe() {
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            assert_eq!(block(profile(element, mode, &TE), &[INF], ONE).0, 0xfe);
        }
    }
    // Infinity saturates, finite elements underflow.
    let (_, codes) = block(profile(Element::E4m3, ScaleMode::Rceil, &TE), &[INF, 0xff80_0000], ONE);
    assert_eq!(codes[..3], [0x7e, 0xfe, 0x00]);
}

#[test]
fn torchao_0_18_byte_0_blocks_are_divided_by_two_to_the_minus_126() {
    for mode in [ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even] {
        let p = profile(Element::E4m3, mode, &TORCHAO_0_18);
        assert_eq!(block(p, &[], 0x0080_0000), (0, [0x38; 32]));
    }
}

#[test]
fn torchao_0_18_rceil_divides_byte_0_blocks_by_1() {
    let p = profile(Element::E4m3, ScaleMode::Rceil, &TORCHAO_0_18);
    assert_eq!(block(p, &[0x8080_0000], 0x0080_0000).1[..2], [0x80, 0x00]);
}

#[rstest]
#[case(0x4060_0001, 0x78, 0x79)]
#[case(0x7f60_0027, 246, 247)]
#[case(0x7f60_0028, 247, 247)]
#[case(0x71e0_0016, 0xdb, 0xdc)]
#[case(0x43e0_0001, 0x80, 0x80)]
fn torchao_0_18_rceil_is_ceil_of_the_rounded_log2(
    #[case] amax: u32,
    #[case] faulty: u8,
    #[case] right: u8,
) {
    let scale =
        |convention| profile(Element::E4m3, ScaleMode::Rceil, convention).scale(F32.decode(amax));
    assert_eq!((scale(&TORCHAO_0_18), scale(&PROPAGATE)), (faulty, right));
}

#[rstest]
#[case(Element::E4m3, 247)]
#[case(Element::E5m2, 240)]
#[case(Element::E3m2, 251)]
#[case(Element::E2m3, 253)]
#[case(Element::E2m1, 253)]
fn torchao_0_18_inf_goes_through_the_exponent_field(#[case] element: Element, #[case] byte: u8) {
    for mode in [ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even] {
        let (scale, codes) = block(profile(element, mode, &TORCHAO_0_18), &[INF], ONE);
        assert_eq!((scale, u32::from(codes[0]), codes[1]), (byte, element.format().max_code(), 0));
    }
    assert_eq!(block(profile(element, ScaleMode::Rceil, &TORCHAO_0_18), &[INF], ONE).0, 0xfe);
}

#[test]
fn torchao_0_18_nan_leaves_finite_members_zero_except_under_rceil() {
    let floor = block(
        profile(Element::E4m3, ScaleMode::Floor, &TORCHAO_0_18),
        &[NAN, 0xbf80_0000, INF],
        ONE,
    );
    assert_eq!((floor.0, &floor.1[..4]), (0xff, &[0x7f, 0x80, 0x7f, 0x00][..]));
    let rceil = block(profile(Element::E4m3, ScaleMode::Rceil, &TORCHAO_0_18), &[NAN], ONE);
    assert_eq!(rceil, (0xff, [0x7f; 32]));
}
