//! Accumulation models by sums small enough to follow.

use mx_reference::Format;
use mx_reference::format::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, F16, F32, INT8, UE4M3};
use mx_reference::gemm::{Accumulation, Model};
use rstest::rstest;

use crate::side::{MINUS, NAN, OUTPUTS, PLUS, Side, Sum};

/// 2^e.
const fn two(e: i32) -> f32 {
    if e < -126 { f32::from_bits(1 << (e + 149)) } else { f32::from_bits(((e + 127) as u32) << 23) }
}

/// The place of a product, and its factors.
type Product = (usize, f32, f32);

fn e4m3(x: f32) -> u8 {
    let (sign, magnitude) = ((x.to_bits() >> 24) as u8 & 0x80, x.abs());
    let exponent = (magnitude.to_bits() >> 23) as i32 - 127;
    sign | if exponent < -6 {
        (magnitude * 512.0) as u8
    } else {
        ((exponent + 7) as u8) << 3 | (magnitude.to_bits() >> 20) as u8 & 7
    }
}

fn e2m1(x: f32) -> u8 {
    let code = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].iter().position(|&v| v >= x.abs()).unwrap();
    code as u8 | (x.to_bits() >> 28) as u8 & 8
}

fn fp8(k: usize, products: &[Product]) -> Sum {
    let codes: Vec<_> = products.iter().map(|&(k, x, y)| (k, e4m3(x), e4m3(y))).collect();
    Sum::sparse(&E4M3, k, &codes)
}

fn bf16(k: usize, products: &[Product]) -> Sum {
    let (mut a, mut b) = (vec![0; k], vec![0; k]);
    for &(k, x, y) in products {
        (a[k], b[k]) = ((x.to_bits() >> 16) as u16, (y.to_bits() >> 16) as u16);
    }
    Sum::new(Side::halves(&BF16, &a), Side::halves(&BF16, &b))
}

/// All terms with the other sign.
fn negated(sum: &Sum) -> Sum {
    let bit = sum.a.format.sign_bit();
    let a = Side {
        bytes: sum.a.bytes.iter().map(|code| code ^ bit as u8).collect(),
        halves: sum.a.halves.iter().map(|code| code ^ bit as u16).collect(),
        ..sum.a.clone()
    };
    Sum { a, ..sum.clone() }.with_c(sum.c.map(|[c]| c ^ 0x80000000))
}

/// Cutting toward zero and rounding to nearest know no sign, except that a sum of zero is positive.
fn assert_gives(accumulation: Accumulation, sum: &Sum, expected: f32) {
    let by = |sum: &Sum| sum.gemm().accumulate(&accumulation, &F32).unwrap()[0];
    let bits = expected.to_bits();
    assert_eq!(by(sum), bits, "{:e}, not {expected:e}", f32::from_bits(by(sum)));
    assert_eq!(by(&negated(sum)), if bits == 0 { 0 } else { bits ^ 0x80000000 });
    assert_eq!(by(&sum.clone().swapped()), bits);
}

const TINY: (f32, f32) = (two(-7), two(-7));

#[rstest]
#[case::a_product_13_bits_below_the_largest_counts(&[(0, 1.0, 1.0), (1, two(-6), two(-7))], 1.0 + two(-13))]
#[case::one_14_bits_below_does_not(&[(0, 1.0, 1.0), (1, TINY.0, TINY.1)], 1.0)]
#[case::nor_do_four_of_them(&[(0, 1.0, 1.0), (1, TINY.0, TINY.1), (2, TINY.0, TINY.1), (3, TINY.0, TINY.1), (31, TINY.0, TINY.1)], 1.0)]
#[case::products_are_cut_not_rounded(&[(0, 1.0, 1.0), (1, 1.5 * two(-6), two(-7))], 1.0 + two(-13))]
#[case::negative_ones_too(&[(0, 1.0, 1.0), (1, -1.5 * two(-6), two(-7))], 1.0 - two(-13))]
#[case::negative_ones_below_the_cut_are_nothing(&[(0, 1.0, 1.0), (1, -TINY.0, TINY.1)], 1.0)]
#[case::the_sum_is_cut_to_13_bits(&[(0, 1.0, 1.0), (1, 1.0, 1.0), (2, two(-6), two(-7))], 2.0)]
#[case::just_below_the_next(&[(0, 1.0, 1.0), (1, 1.0, 1.0), (2, two(-6), two(-6)), (3, two(-6), two(-7))], 2.0 + two(-12))]
#[case::products_are_not_normalised(&[(0, 1.5, 1.5), (1, -1.5, 1.5), (2, two(-6), two(-7))], two(-13))]
#[case::the_same_product_of_a_larger_factor(&[(0, 2.25, 1.0), (1, -2.25, 1.0), (2, two(-6), two(-7))], 0.0)]
#[case::the_largest_counts_even_when_cancelled(&[(0, 256.0, 256.0), (1, -256.0, 256.0), (2, 1.0, two(2))], 0.0)]
#[case::and_what_is_within_reach_of_it(&[(0, 256.0, 256.0), (1, -256.0, 256.0), (2, 1.0, two(3))], 8.0)]
#[case::nothing(&[], 0.0)]
fn fp8_steps_cut(
    #[values(Model::AdaFp8, Model::HopperFp8, Model::HopperFp8Promote128)] model: Model,
    #[case] products: &[Product],
    #[case] expected: f32,
) {
    // On Ada everything beyond the sixteenth would be another step.
    let near: Vec<Product> = products.iter().map(|&(k, x, y)| (k.min(15), x, y)).collect();
    assert_gives(model.accumulation(), &fp8(32, &near), expected);
}

#[rstest]
#[case::c_13_bits_below_counts(two(-13), &[(0, 1.0, 1.0)], 1.0 + two(-13))]
#[case::c_14_bits_below_does_not(two(-14), &[(0, 1.0, 1.0)], 1.0)]
#[case::c_decides_where_products_are_cut(1.0, &[(0, TINY.0, TINY.1), (1, two(-6), two(-7))], 1.0 + two(-13))]
#[case::c_is_cut_though_nothing_is_added(1.0 + two(-13) + two(-23), &[], 1.0 + two(-13))]
#[case::products_of_subnormals_align_as_the_least_normal(two(-26), &[(0, two(-9), two(-9))], two(-18))]
#[case::and_reach_13_bits_below_that(two(-25), &[(0, two(-9), two(-9))], two(-18) + two(-25))]
fn c_is_a_term_of_the_first_step(
    #[values(Model::AdaFp8, Model::HopperFp8)] model: Model,
    #[case] c: f32,
    #[case] products: &[Product],
    #[case] expected: f32,
) {
    let sum = fp8(32, products).with_c(c.to_bits());
    assert_gives(model.accumulation(), &sum, expected);
}

#[test]
fn without_a_step_c_is_left_as_it_is() {
    let c = 1.0 + two(-23);
    assert_gives(Model::HopperFp8.accumulation(), &fp8(0, &[]).with_c(c.to_bits()), c);
}

/// What a step ends with, the next begins with; a small product is lost beside it, but not before it came or after it has gone.
#[rstest]
#[case::within_16(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (15, TINY.0, TINY.1)], 0.0, 0.0)]
#[case::within_32(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (16, TINY.0, TINY.1)], two(-14), 0.0)]
#[case::after_32(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (32, TINY.0, TINY.1)], two(-14), two(-14))]
#[case::gone_in_the_second_16(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (32, TINY.0, TINY.1)], two(-14), two(-14))]
#[case::gone_in_the_same_16(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (31, TINY.0, TINY.1)], 0.0, 0.0)]
#[case::gone_in_the_same_32(&[(0, 1.0, 1.0), (32, -1.0, 1.0), (48, TINY.0, TINY.1)], two(-14), 0.0)]
#[case::small_first(&[(0, TINY.0, TINY.1), (32, 1.0, 1.0), (64, -1.0, 1.0)], 0.0, 0.0)]
#[case::small_last(&[(0, 1.0, 1.0), (32, -1.0, 1.0), (95, TINY.0, TINY.1)], two(-14), two(-14))]
#[case::small_sums_grow(&[(0, TINY.0, TINY.1), (16, TINY.0, TINY.1), (32, 1.0, 1.0)], 1.0 + two(-13), 1.0 + two(-13))]
fn steps_of_fp8_are_chained_in_order_of_k(
    #[case] products: &[Product],
    #[case] ada: f32,
    #[case] hopper: f32,
) {
    let sum = fp8(96, products);
    assert_gives(Model::AdaFp8.accumulation(), &sum, ada);
    assert_gives(Model::HopperFp8.accumulation(), &sum, hopper);
}

#[rstest]
#[case::small_after_128(None, &[(0, 1.0, 1.0), (128, TINY.0, TINY.1)], 1.0 + two(-14), 1.0)]
#[case::small_before_128(None, &[(0, 1.0, 1.0), (127, TINY.0, TINY.1)], 1.0, 1.0)]
#[case::small_before_256(None, &[(128, 1.0, 1.0), (255, TINY.0, TINY.1)], 1.0, 1.0)]
#[case::c_is_in_no_chain(Some(two(-20)), &[(0, 1.0, 1.0)], 1.0 + two(-20), 1.0)]
#[case::c_comes_first(Some(two(24)), &[(0, 1.0, 1.0), (128, 1.0, 1.0)], two(24), two(24))]
#[case::chains_are_added_one_by_one(None, &[(0, 256.0, 256.0), (128, two(-4), two(-4)), (256, two(-4), two(-4))], two(16), two(16))]
#[case::to_nearest(None, &[(0, 64.0, 1.0), (128, two(-9), 3.0 * two(-9))], 64.0 + two(-16), 64.0)]
#[case::and_even(None, &[(0, 64.0, 1.0), (128, two(-9), two(-9))], 64.0, 64.0)]
#[case::a_last_chain_is_shorter(None, &[(0, 1.0, 1.0), (256, TINY.0, TINY.1), (300, TINY.0, TINY.1)], 1.0 + two(-13), 1.0)]
fn promotion_adds_a_fresh_chain_every_128(
    #[case] c: Option<f32>,
    #[case] products: &[Product],
    #[case] promoted: f32,
    #[case] chained: f32,
) {
    let sum = fp8(320, products).with_c(c.map(f32::to_bits));
    assert_gives(Model::HopperFp8Promote128.accumulation(), &sum, promoted);
    assert_gives(Model::HopperFp8.accumulation(), &sum, chained);
}

const BIG: (f32, f32) = (256.0, 256.0);

/// k mod 4 in {0, 1}, then {2, 3}. 25 bits below 2^16 is 2^-9.
#[rstest]
#[case::within_the_first_half(&[(0, BIG.0, BIG.1), (1, -256.0, 256.0), (4, two(-5), two(-5))], None, 0.0)]
#[case::and_25_bits_below(&[(0, BIG.0, BIG.1), (29, -256.0, 256.0), (4, two(-4), two(-5))], None, two(-9))]
#[case::from_k_0_and_17_to_the_second_half(&[(0, BIG.0, BIG.1), (17, -256.0, 256.0), (2, two(-5), two(-5))], None, two(-10))]
#[case::halves_are_chained(&[(0, BIG.0, BIG.1), (2, -256.0, 256.0), (31, two(-5), two(-5))], None, 0.0)]
#[case::the_second_half_comes_second(&[(3, BIG.0, BIG.1), (0, two(-5), two(-5)), (6, -256.0, 256.0)], None, 0.0)]
#[case::the_next_32_are_others(&[(0, BIG.0, BIG.1), (2, -256.0, 256.0), (32, two(-5), two(-5))], None, two(-10))]
#[case::and_are_added_to_nearest(&[(0, BIG.0, BIG.1), (32, 3.0 * two(-4), two(-4))], None, two(16) + two(-6))]
#[case::ties_to_even(&[(0, BIG.0, BIG.1), (34, two(-4), two(-4))], None, two(16))]
#[case::one_by_one(&[(32, two(-4), two(-4)), (64, two(-4), two(-4)), (0, BIG.0, BIG.1)], None, two(16))]
#[case::c_is_in_no_half(&[(0, 3.0 * two(-4), two(-4))], Some(two(16)), two(16) + two(-6))]
#[case::c_comes_first(&[(0, two(-4), two(-4)), (32, two(-4), two(-4))], Some(two(16)), two(16))]
fn sm_90_takes_pairs_of_k_in_halves(
    #[values(Model::Sm90MmaFp8, Model::MxBlockF16Pair)] model: Model,
    #[case] products: &[Product],
    #[case] c: Option<f32>,
    #[case] expected: f32,
) {
    let sum = fp8(96, products).with_c(c.map(f32::to_bits));
    assert_gives(model.accumulation(), &sum, expected);
}

/// Blocks of 32, under the sum of the exponents of both scales. A product at k = 32·n + 2 or 3 is of the second half of block n.
#[rstest]
#[case::scales_align_nothing(&[(0, BIG.0, BIG.1), (1, -256.0, 256.0), (4, two(-4), two(-5))], [-100, 0, 0], two(-109))]
#[case::nor_lose_anything(&[(0, BIG.0, BIG.1), (1, -256.0, 256.0), (4, two(-5), two(-5))], [100, 0, 0], 0.0)]
#[case::each_block_its_own(&[(0, 1.0, 1.0), (32, 1.0, 1.0), (64, 1.0, 1.0)], [3, -20, 2], 12.0 + two(-20))]
#[case::added_to_nearest(&[(0, 1.0, 1.0), (32, 1.5, 1.0)], [0, -24, 0], 1.0 + two(-23))]
#[case::ties_to_even(&[(0, 1.0, 1.0), (32, 1.0, 1.0)], [0, -24, 0], 1.0)]
#[case::in_order(&[(0, 1.0, 1.0), (32, 1.0, 1.0), (64, 1.0, 1.0)], [-24, -24, 0], 1.0 + two(-23))]
#[case::one_by_one(&[(0, 1.0, 1.0), (32, 1.0, 1.0), (64, 1.0, 1.0)], [0, -24, -24], 1.0)]
#[case::sums_have_24_bits(&[(0, 256.0, 256.0), (1, two(-4), two(-4)), (32, -256.0, 256.0)], [0, 0, 0], 0.0)]
#[case::of_their_own(&[(0, 256.0, 256.0), (1, two(-3), two(-4)), (32, -256.0, 256.0)], [0, 0, 0], two(-7))]
#[case::scaled_sums_are_not_rounded(&[(0, 1.0, 1.0), (32, 1.0, 1.0)], [-149, -150, 0], two(-148))]
#[case::but_what_they_are_added_to(&[(0, 1.0, 1.0), (32, 1.0, 1.0)], [-150, -149, 0], two(-149))]
#[case::subnormal_sums_round_to_nearest(&[(0, 1.5, 1.0)], [-149, 0, 0], two(-148))]
#[case::beyond_the_largest_scale(&[(0, two(-9), 0.5)], [137, 0, 0], two(127))]
#[case::below_the_least_scale(&[(0, 256.0, 256.0)], [-165, 0, 0], two(-149))]
#[case::far_beyond(&[(0, two(-9), two(-9))], [254, 0, 0], f32::INFINITY)]
#[case::far_below(&[(0, 256.0, 256.0), (32, 1.0, 1.0)], [-254, -3, 0], 0.125)]
#[case::nothing_under_the_largest(&[(32, 1.0, 1.0)], [254, 0, 254], 1.0)]
#[case::nothing_under_the_least(&[], [-254, -254, -254], 0.0)]
#[case::infinity_stays(&[(0, 1.0, 1.0), (32, -256.0, 256.0)], [128, 100, 0], f32::INFINITY)]
fn blocks_are_scaled_when_they_are_added(
    #[case] products: &[Product],
    #[case] exponents: [i32; 3],
    #[case] expected: f32,
) {
    let sum = fp8(96, products);
    let byte = |exponent: i32| u8::try_from(exponent + 127).unwrap();
    let a = exponents.map(|e| byte(e / 2));
    let b = exponents.map(|e| byte(e - e / 2));
    let sum = Sum::new(sum.a.scaled(&E8M0, &a, 32), sum.b.scaled(&E8M0, &b, 32));
    assert_gives(Model::MxBlockF16Pair.accumulation(), &sum, expected);
}

/// What is rounded to zero keeps its sign until it meets zero again.
#[test]
fn a_negative_block_that_underflows_is_negative_zero() {
    let sum = |blocks: usize| {
        let side = Side::new(&E4M3, &[[0xb8].as_slice(), &vec![0; 32 * blocks - 1]].concat());
        let ones = Side::new(&E4M3, &vec![0x38; 32 * blocks]);
        let sum = Sum::new(side, ones);
        let scaled = |side: &Side| side.clone().scaled(&E8M0, &vec![0; blocks], 32);
        Sum::new(scaled(&sum.a), scaled(&sum.b)).by(Model::MxBlockF16Pair)
    };
    assert_eq!(sum(1), 0x80000000);
    assert_eq!(sum(2), 0);
}

/// Codes of two blocks, all of one block alike, and where their infinities and NaN meet.
#[rstest]
#[case::infinity([0x7c, 0x3c], [127; 2], PLUS)]
#[case::under_any_scale([0xfc, 0x3c], [0, 254], MINUS)]
#[case::of_both_signs([0x7c, 0xfc], [127; 2], 0x7fffffff)]
#[case::nan([0x3c, 0x7d], [127; 2], 0x7fffffff)]
#[case::a_nan_scale([0x3c, 0x3c], [127, 255], 0x7fffffff)]
#[case::over_zeros([0x00, 0x3c], [255, 127], 0x7fffffff)]
#[case::an_overflow_meets_infinity([0x7b, 0xfc], [254, 127], 0x7fffffff)]
#[case::an_overflow_meets_its_like([0x7b, 0x7c], [254, 127], PLUS)]
#[case::an_overflow_meets_a_number([0x7b, 0xfb], [254, 254], PLUS)]
fn special_blocks(#[case] codes: [u8; 2], #[case] scales: [u8; 2], #[case] expected: u32) {
    let side = Side::new(&E5M2, &codes.map(|code| [code; 32]).concat());
    let side = side.scaled(&E8M0, &scales, 32);
    let sum = Sum::new(side, Side::new(&E5M2, &[0x3c; 64]));
    assert_eq!(sum.by(Model::MxBlockF16Pair), expected);
    assert_eq!(sum.swapped().by(Model::MxBlockF16Pair), expected);
}

/// 32 products of the largest codes of every format: all are f16, and so few that nothing is cut.
#[rstest]
#[case(&E4M3, 0x7e, 448.0)]
#[case(&E5M2, 0x7b, 57344.0)]
#[case(&E3M2, 0x1f, 28.0)]
#[case(&E2M3, 0x1f, 7.5)]
#[case(&E2M1, 0x07, 6.0)]
#[case(&INT8, 0x7f, 127.0 / 64.0)]
#[case(&INT8, 0x80, -2.0)]
fn blocks_of_every_format(#[case] format: &'static Format, #[case] code: u8, #[case] value: f32) {
    let sum = Sum::new(Side::new(format, &[code; 32]), Side::new(format, &[code; 32]));
    let expected = 32.0 * value * value;
    assert_eq!(sum.by(Model::MxBlockF16Pair), expected.to_bits());
    assert_eq!(sum.exact()[0], expected.to_bits());
}

#[rstest]
#[case::bits_24(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (2, two(-12), two(-12))], two(-24), two(-24))]
#[case::bits_25(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (2, two(-12), two(-13))], 0.0, two(-25))]
#[case::bits_26(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (2, two(-13), two(-13))], 0.0, 0.0)]
#[case::after_8(&[(0, 1.0, 1.0), (1, -1.0, 1.0), (8, two(-20), two(-20))], two(-40), 0.0)]
#[case::after_16(&[(0, 1.0, 1.0), (8, -1.0, 1.0), (16, two(-20), two(-20))], two(-40), two(-40))]
#[case::gone_in_the_second_8(&[(0, 1.0, 1.0), (8, -1.0, 1.0), (9, two(-20), two(-20))], 0.0, 0.0)]
#[case::the_sum_is_cut_to_24_bits(&[(0, 1.0, 1.0), (1, two(-12), 1.5 * two(-11))], 1.0 + two(-23), 1.0 + two(-23))]
#[case::not_normalised(&[(0, 1.5, 1.5), (1, -1.5, 1.5), (2, two(-12), two(-12))], two(-24), two(-24))]
#[case::of_a_larger_factor(&[(0, 2.25, 1.0), (1, -2.25, 1.0), (2, two(-12), two(-12))], 0.0, two(-24))]
fn bf16_steps_are_of_8_products_and_24_bits_or_of_16_and_25(
    #[case] products: &[Product],
    #[case] ada: f32,
    #[case] hopper: f32,
) {
    let sum = bf16(32, products);
    assert_gives(Model::AdaBf16.accumulation(), &sum, ada);
    assert_gives(Model::HopperBf16.accumulation(), &sum, hopper);
}

/// Elements align by the format they are multiplied in: 2^-9 of E4M3 is 2^-6 to FP8 tensor cores, and itself in bf16.
#[rstest]
#[case::reaches_into_bf16(Model::HopperBf16, two(-40), two(-18) + two(-40))]
#[case::not_from_e4m3(Model::BlackwellMxf8f6f4, two(-38), two(-18))]
#[case::but_25_bits(Model::BlackwellMxf8f6f4, two(-37), two(-18) + two(-37))]
fn subnormals_align_as_their_registers_hold_them(
    #[case] model: Model,
    #[case] c: f32,
    #[case] expected: f32,
) {
    let sum = fp8(32, &[(0, two(-9), two(-9))]);
    assert_gives(model.accumulation(), &sum.clone().with_c(c.to_bits()), expected);
    // Block scales move both, tensor cores' and bf16's.
    let scale = |side: Side, byte| side.scaled(&E8M0, &[byte], 32);
    let scaled = Sum::new(scale(sum.a, 127 + 8), scale(sum.b, 127 - 3));
    let up = |x: f32| x * two(5);
    assert_gives(model.accumulation(), &scaled.with_c(up(c).to_bits()), up(expected));
}

/// 2^-24, the least subnormal of f16, aligns as 2^-14.
#[rstest]
#[case::reached(two(-39), two(-24) + two(-39))]
#[case::below(two(-40), two(-24))]
fn subnormals_of_f16_align_as_its_least_normal(#[case] c: f32, #[case] expected: f32) {
    let side = |bits| Side::halves(&F16, &[bits]);
    let sum = Sum::new(side(0x0001), side(0x3c00)).with_c(c.to_bits());
    assert_gives(Model::HopperF16.accumulation(), &sum, expected);
}

/// Ones and minus ones under 2^127, and c.
#[rstest]
#[case::two_to_the_128(&[(0, 1.0, 1.0), (1, 1.0, 1.0)], None, f32::INFINITY)]
#[case::cancelled_within_a_step(&[(0, 1.0, 1.0), (1, 1.0, 1.0), (2, -1.0, 1.0)], None, two(127))]
#[case::cancelled_too_late(&[(0, 1.0, 1.0), (1, 1.0, 1.0), (32, -1.0, 1.0)], None, f32::INFINITY)]
#[case::infinity_stays(&[(0, 1.0, 1.0), (1, 1.0, 1.0), (32, -1.0, 16.0)], None, f32::INFINITY)]
#[case::cut_to_the_largest(&[(0, 1.0, 1.0), (1, 1.0, 1.0)], Some(-two(102)), f32::MAX)]
#[case::c_26_bits_below_is_nothing(&[(0, 1.0, 1.0), (1, 1.0, 1.0)], Some(-two(101)), f32::INFINITY)]
fn beyond_f32_is_infinite(
    #[case] products: &[Product],
    #[case] c: Option<f32>,
    #[case] expected: f32,
) {
    let sum = fp8(64, products).with_c(c.map(f32::to_bits));
    let sum = Sum { a: sum.a.clone().scaled(&E8M0, &[254; 2], 32), ..sum };
    assert_gives(Model::BlackwellMxf8f6f4.accumulation(), &sum, expected);
}

/// Products of 2^-150, and larger, in one step.
#[rstest]
#[case::one(&[(0, 1.0, 1.0)], 0.0)]
#[case::two_make_the_least_f32(&[(0, 1.0, 1.0), (1, 1.0, 1.0)], two(-149))]
#[case::three_are_cut(&[(0, 1.0, 1.0), (1, 2.0, 1.0)], two(-149))]
#[case::small_ones_reach_2_to_the_minus_158(&[(0, two(-8), 1.0), (1, 2.0, 1.0), (2, -two(-8), 1.0)], two(-149))]
fn subnormal_sums_are_cut(#[case] products: &[Product], #[case] expected: f32) {
    let sum = fp8(32, products);
    let scaled = |side: &Side| side.clone().scaled(&E8M0, &[127 - 75], 32);
    let sum = Sum::new(scaled(&sum.a), scaled(&sum.b));
    let by = sum.by(Model::BlackwellMxf8f6f4);
    // The sign of a sum cut to nothing is its own.
    assert_eq!(by, expected.to_bits());
    assert_eq!(negated(&sum).by(Model::BlackwellMxf8f6f4), expected.to_bits() | 0x80000000);
}

/// Groups of 16 FP4 products, the third under a smaller scale; all in one step of 64 and 35 bits.
#[rstest]
#[case::bits_35(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (32, 1.0, 1.0)], -35, two(-35))]
#[case::bits_36(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (32, 1.0, 1.0)], -36, 0.0)]
#[case::products_of_a_group_are_summed_first(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (32, 1.0, 1.0), (47, 1.0, 1.0)], -36, two(-35))]
#[case::groups_are_cut_each(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (32, 1.0, 1.0), (48, 1.0, 1.0)], -36, 0.0)]
#[case::only_scales_align(&[(0, 6.0, 6.0), (1, 6.0, 6.0), (16, -6.0, 6.0), (17, -6.0, 6.0), (32, 1.0, 1.0)], -35, two(-35))]
#[case::cancelled_groups_do_not_align(&[(0, 6.0, 6.0), (1, -6.0, 6.0), (32, 1.0, 1.0)], -100, two(-100))]
#[case::the_next_step_is_another(&[(0, 1.0, 1.0), (16, -1.0, 1.0), (96, 1.0, 1.0)], -60, two(-60))]
#[case::steps_are_chained(&[(0, 1.0, 1.0), (64, -1.0, 1.0), (96, 1.0, 1.0)], -36, 0.0)]
#[case::halves_of_units(&[(32, 0.5, 0.5), (33, 0.5, 1.5)], -10, two(-10))]
fn fp4_groups_are_exact_and_align_by_their_scales(
    #[values(Model::BlackwellMxf4, Model::BlackwellMxf4nvf4)] model: Model,
    #[case] products: &[Product],
    #[case] third: i32,
    #[case] expected: f32,
) {
    let codes: Vec<_> = products.iter().map(|&(k, x, y)| (k, e2m1(x), e2m1(y))).collect();
    let sum = Sum::sparse(&E2M1, 128, &codes);
    let small = (127 + third) as u8;
    // The third and the fourth group of each step.
    let scales = [127, 127, small, small, 127, 127, small, small];
    let scaled = Sum::new(sum.a.scaled(&E8M0, &scales, 16), sum.b.scaled(&E8M0, &[127; 8], 16));
    assert_gives(model.accumulation(), &scaled, expected);
}

/// Scales 1.5 × 1.5 and 2.25 × 1 are both 2.25, but align as 1 and as 2; -35 bits from there is c.
#[rstest]
#[case::of_one_and_a_half([0x3c, 0x3c], two(-35))]
#[case::of_two_and_a_quarter([0x41, 0x38], 0.0)]
fn nvfp4_scales_are_not_normalised(#[case] scales: [u8; 2], #[case] expected: f32) {
    let sum = Sum::sparse(&E2M1, 64, &[(0, 0x2, 0x2), (16, 0xa, 0x2)]);
    let scaled = |side: Side, byte| side.scaled(&UE4M3, &[byte; 4], 16);
    let sum =
        Sum::new(scaled(sum.a, scales[0]), scaled(sum.b, scales[1])).with_c(two(-35).to_bits());
    assert_gives(Model::BlackwellMxf4nvf4.accumulation(), &sum, expected);
}

/// Ones beside 2^24 are half an ulp. Products of `powers` are 2^e.
#[rstest]
#[case::ones_are_lost_one_by_one(&[(1, 24), (1, 0), (1, 0), (1, 0)], None, two(24), two(24) + 2.0)]
#[case::not_before_it_came(&[(1, 0), (1, 0), (1, 24)], None, two(24) + 2.0, two(24) + 2.0)]
#[case::an_odd_one_is_carried(&[(1, 24), (1, 0), (1, 0), (1, 0), (1, 0)], None, two(24), two(24) + 4.0)]
#[case::through_two_levels(&[(1, 24), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0)], None, two(24), two(24) + 4.0)]
#[case::c_is_first_or_last(&[(1, 24), (-1, 24)], Some(1.0), 0.0, 1.0)]
#[case::c_alone(&[], Some(1.5), 1.5, 1.5)]
#[case::to_nearest(&[(1, 24), (1, 1), (1, 0)], None, two(24) + 4.0, two(24) + 4.0)]
#[case::products_that_f32_cannot_hold(&[(1, -149), (1, -150), (1, -150)], None, two(-148), two(-149))]
#[case::infinity_on_the_way(&[(1, 127), (1, 127), (-1, 127), (-1, 120)], None, f32::INFINITY, f32::INFINITY)]
fn f32_in_order_and_by_pairs(
    #[case] terms: &[(i32, i32)],
    #[case] c: Option<f32>,
    #[case] sequential: f32,
    #[case] pairwise: f32,
) {
    let sum = Sum::powers(terms).with_c(c.map(f32::to_bits));
    assert_gives(Model::F32Sequential.accumulation(), &sum, sequential);
    assert_gives(Model::F32Pairwise.accumulation(), &sum, pairwise);
}

/// 2^24 and ones, 1 ulp being 2.
#[rstest]
#[case::one_part(1, 256, &[0, 128, 129], None, two(24))]
#[case::two_parts(2, 256, &[0, 128, 129], None, two(24) + 2.0)]
#[case::within_the_first(2, 256, &[0, 126, 127], None, two(24))]
#[case::parts_are_whole_tiles(2, 384, &[0, 192, 256], None, two(24))]
#[case::the_last_may_be_shorter(2, 384, &[0, 256, 383], None, two(24) + 2.0)]
#[case::three_parts(3, 384, &[0, 128, 255], None, two(24) + 2.0)]
#[case::parts_are_added_in_order(3, 384, &[0, 128, 256], None, two(24))]
#[case::a_tile_that_is_not_whole(2, 130, &[0, 128, 129], None, two(24) + 2.0)]
#[case::more_parts_than_tiles(9, 256, &[0, 128, 129], None, two(24) + 2.0)]
#[case::one_tile_is_not_split(4, 128, &[0, 126, 127], None, two(24))]
#[case::c_comes_last(2, 256, &[0, 128], Some(-two(24)), 0.0)]
#[case::c_comes_first_without_parts(1, 256, &[0, 128], Some(-two(24)), 1.0)]
#[case::c_comes_last_after_one_part(2, 128, &[0, 1], Some(-two(24)), 0.0)]
fn split_k_sums_parts_of_whole_tiles(
    #[case] split: usize,
    #[case] k: usize,
    #[case] places: &[usize],
    #[case] c: Option<f32>,
    #[case] expected: f32,
) {
    let products: Vec<Product> =
        places.iter().map(|&k| (k, 1.0, if k == 0 { two(8) } else { 1.0 })).collect();
    let sum = fp8(k, &products);
    // The first element is 2^8 × 2^8 under 2^8 of the first block of 1.
    let mut scales = vec![127; k];
    scales[0] = 127 + 16;
    let sum = Sum { a: sum.a.clone().scaled(&E8M0, &scales, 1), ..sum };
    let sum = sum.with_c(c.map(f32::to_bits));
    assert_gives(Accumulation { split, ..Model::F32Sequential.accumulation() }, &sum, expected);
}

#[test]
fn split_k_of_a_chain_starts_each_part_from_zero() {
    let sum = fp8(256, &[(0, 1.0, 1.0), (128, TINY.0, TINY.1)]);
    let split = Accumulation { split: 2, ..Model::HopperFp8.accumulation() };
    assert_gives(split, &sum, 1.0 + two(-14));
}

/// A term that a chain loses beside 1 is kept where a part begins.
#[rstest]
#[case(64, 2, 320, 192)]
#[case(128, 2, 320, 256)]
#[case(64, 7, 9344, 1344)]
#[case(128, 7, 9344, 1408)]
#[case(128, 3, 8192, 2816)]
#[case(512, 3, 8192, 3072)]
fn parts_are_whole_tiles_of_any_width(
    #[case] tile: usize,
    #[case] split: usize,
    #[case] k: usize,
    #[case] end: usize,
) {
    let accumulation = Accumulation { split, tile, ..Model::HopperFp8.accumulation() };
    let sum = |at| fp8(k, &[(0, 1.0, 1.0), (at, TINY.0, TINY.1)]);
    assert_gives(accumulation, &sum(end - 1), 1.0);
    assert_gives(accumulation, &sum(end), 1.0 + two(-14));
}

/// Alpha is the product of the tensor scales in f32; C joins its product with the sum, and both are rounded once.
#[rstest]
#[case::alpha_is_rounded(1.0, [1.0 + two(-23), 1.0 + two(-23)], -1.0 - two(-22), 0.0)]
#[case::alpha_times_the_sum_is_not(1.0 + two(-7), [1.0 + two(-23), 1.0], -1.0 - two(-7) - two(-23), two(-30))]
#[case::c_is_in_no_step(1.0, [2.0, 0.5], two(-20), 1.0 + two(-20))]
#[case::alpha_scales_the_sum_alone(3.0, [0.5, -4.0], 1.0, -5.0)]
fn tensor_scales_are_the_epilogue(
    #[case] value: f32,
    #[case] tensor_scales: [f32; 2],
    #[case] c: f32,
    #[case] expected: f32,
) {
    let sum = bf16(16, &[(0, value, 1.0)]).with_c(c.to_bits());
    let sum = sum.times(tensor_scales.map(f32::to_bits));
    for model in [Model::F32Sequential, Model::HopperBf16, Model::AdaBf16] {
        assert_eq!(sum.by(model), expected.to_bits(), "{model:?}");
    }
}

/// The f32 that a model ends with is rounded to the output type: 1 + 2^-8 + 2^-26 is cut to a tie of bf16.
#[test]
fn outputs_are_rounded_from_f32() {
    let sum = bf16(16, &[(0, 1.0, 1.0), (1, two(-8), 1.0), (2, two(-13), two(-13))]);
    let by = |model: Model, output| sum.gemm().accumulate(&model.accumulation(), output).unwrap();
    assert_eq!(by(Model::HopperBf16, &F32), [0x3f808000]);
    assert_eq!(by(Model::HopperBf16, &BF16), [0x3f80]);
    assert_eq!(by(Model::HopperBf16, &F16), [0x3c04]);
    assert_eq!(by(Model::Exact, &BF16), [0x3f81]);
}

/// A sum that every model takes.
fn taken_by(model: Model) -> Sum {
    match model {
        Model::AdaBf16 | Model::HopperBf16 => bf16(64, &[(0, 1.0, 1.0)]),
        Model::HopperF16 => {
            let side = || Side::halves(&F16, &[0x3c00; 64]);
            Sum::new(side(), side())
        }
        Model::BlackwellMxf4 | Model::BlackwellMxf4nvf4 => Sum::sparse(&E2M1, 64, &[(0, 0x2, 0x2)]),
        _ => Sum::new(Side::new(&E5M2, &[0x3c; 64]), Side::new(&E5M2, &[0x3c; 64])),
    }
}

#[test]
fn nan_is_all_ones_in_hardware_and_quiet_in_definitions() {
    for model in Model::ALL {
        let definition = matches!(model, Model::Exact | Model::F32Sequential | Model::F32Pairwise);
        let expected =
            if definition { [0x7fc00000, 0x7fc0, 0x7e00] } else { [0x7fffffff, 0x7fff, 0x7fff] };
        let sum = taken_by(model);
        for nan in [
            sum.clone().with_c(0xff800001u32),
            sum.clone().times([PLUS, 0]),
            sum.times([PLUS, PLUS]).with_c(MINUS),
        ] {
            let by = OUTPUTS
                .map(|output| nan.gemm().accumulate(&model.accumulation(), output).unwrap()[0]);
            assert_eq!(by, expected, "{model:?}");
        }
    }
}

#[test]
fn infinities_are_infinite_in_every_model() {
    for model in Model::ALL {
        for (infinity, expected) in
            [(PLUS, [PLUS, 0x7f80, 0x7c00]), (MINUS, [MINUS, 0xff80, 0xfc00])]
        {
            let sum = taken_by(model).with_c(infinity);
            let by = OUTPUTS
                .map(|output| sum.gemm().accumulate(&model.accumulation(), output).unwrap()[0]);
            assert_eq!(by, expected, "{model:?}");
        }
    }
}

/// An infinite element, of which E5M2 has codes, and NaN of both.
#[rstest]
#[case::infinity(&[0x7c, 0x3c], PLUS)]
#[case::less_infinity(&[0x7c, 0xfc], 0x7fffffff)]
#[case::nan(&[0x7d, 0x3c], 0x7fffffff)]
fn special_elements_of_fp8(
    #[values(
        Model::AdaFp8,
        Model::HopperFp8,
        Model::HopperFp8Promote128,
        Model::Sm90MmaFp8,
        Model::MxBlockF16Pair,
        Model::BlackwellMxf8f6f4
    )]
    model: Model,
    #[case] codes: &[u8],
    #[case] expected: u32,
) {
    let sum = Sum::new(Side::new(&E5M2, codes), Side::new(&E5M2, &[0x3c; 2]));
    assert_eq!(sum.by(model), expected);
}

/// Infinities that finite sums grow into cancel to the NaN of the addition that meets them.
#[test]
fn infinities_of_partial_sums_can_meet() {
    let terms = [[(1, 127); 2], [(-1, 127); 2]].concat();
    let sum = Sum::powers(&terms);
    assert_eq!(sum.by(Model::F32Pairwise), NAN);
    assert_eq!(sum.by(Model::F32Sequential), PLUS);
    assert_eq!(sum.by(Model::Exact), 0);
}

/// Some columns alone are those of D.
#[test]
fn some_columns_are_those_of_all() {
    use mx_reference::gemm::{Gemm, GemmShape};
    let mut noise = crate::noise::Noise::new(7);
    let (a, b) = (noise.finite(&E4M3, 3 * 64), noise.finite(&E5M2, 5 * 64));
    let (a, b) = (Side::new(&E4M3, &a), Side::new(&E5M2, &b));
    let c: Vec<u32> = (0..15).map(|i| (i as f32).to_bits()).collect();
    let shape = GemmShape { m: 3, n: 5, k: 64 };
    let gemm = Gemm::new(shape, a.operand(), b.operand(), Some(&c), None).unwrap();
    for model in [Model::Exact, Model::F32Pairwise, Model::HopperFp8, Model::Sm90MmaFp8] {
        let accumulation = model.accumulation();
        let all = gemm.accumulate(&accumulation, &BF16).unwrap();
        let columns = gemm.accumulated(&accumulation, &BF16, 2..4).unwrap();
        for (i, row) in all.chunks(5).enumerate() {
            assert_eq!(columns.row(i), row[2..4]);
        }
    }
}
