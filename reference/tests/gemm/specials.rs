//! NaN, infinities and zeros.

use mx_reference::Rule;
use mx_reference::format::{E2M1, E4M3, E5M2, E8M0, UE4M3};
use rstest::rstest;

use crate::side::{MINUS, MINUS_ONE, MINUS_ZERO, NAN, ONE, OUTPUTS, PLUS, Side, Sum};

/// An f32 that is zero, infinite, NaN or ±1, as the output types have it.
fn everywhere(bits: u32) -> [u32; 3] {
    match bits {
        0 => [0; 3],
        MINUS_ZERO => [0x80000000, 0x8000, 0x8000],
        ONE => [ONE, 0x3f80, 0x3c00],
        MINUS_ONE => [MINUS_ONE, 0xbf80, 0xbc00],
        PLUS => [PLUS, 0x7f80, 0x7c00],
        MINUS => [MINUS, 0xff80, 0xfc00],
        _ => [0x7fc00000, 0x7fc0, 0x7e00],
    }
}

fn rule(expected: u32) -> Rule {
    if expected == NAN { Rule::AnyNan } else { Rule::Exact }
}

/// Codes of E5M2: 0x7c infinity, 0x7d to 0x7f NaN, 0x3c one, 0x7b the largest, 0x01 the least.
#[rstest]
#[case::a_nan_counts_over_zero(&[0x7d, 0x3c], &[0x00, 0x3c], NAN)]
#[case::a_nan_of_either_sign(&[0xfe, 0x3c], &[0x3c, 0x3c], NAN)]
#[case::a_nan_beside_infinity(&[0x7f, 0x7c], &[0x3c, 0x3c], NAN)]
#[case::zero_times_infinity(&[0x00, 0x3c], &[0x7c, 0x3c], NAN)]
#[case::negative_zero_times_infinity(&[0x3c, 0x80], &[0x3c, 0xfc], NAN)]
#[case::zero_times_infinity_beside_infinity(&[0x7c, 0x00], &[0x3c, 0x7c], NAN)]
#[case::infinity_less_infinity(&[0x7c, 0xfc], &[0x3c, 0x3c], NAN)]
#[case::infinity_less_infinity_of_the_other_operand(&[0x7c, 0x3c], &[0x3c, 0xfc], NAN)]
#[case::infinities_of_one_sign(&[0x7c, 0xfc], &[0x3c, 0xbc], PLUS)]
#[case::negative_infinities(&[0x7c, 0x7c], &[0xbc, 0xbc], MINUS)]
#[case::infinity_and_the_largest(&[0x7c, 0xfb], &[0x3c, 0x7b], PLUS)]
#[case::negative_infinity_and_the_largest(&[0x7b, 0xfc], &[0x7b, 0x01], MINUS)]
#[case::infinity_squared(&[0xfc, 0xbc], &[0xfc, 0x7b], PLUS)]
#[case::infinity_times_negative_infinity(&[0x7c, 0x3c], &[0xfc, 0x3c], MINUS)]
#[case::finite(&[0x3c, 0x3c], &[0xbc, 0x00], MINUS_ONE)]
fn elements_that_are_not_finite(#[case] a: &[u8], #[case] b: &[u8], #[case] expected: u32) {
    let sum = Sum::new(Side::new(&E5M2, a), Side::new(&E5M2, b));
    for sum in [sum.clone().swapped(), sum] {
        assert_eq!(sum.exact(), everywhere(expected));
        assert_eq!(sum.dot().rule(), rule(expected));
    }
}

#[rstest]
#[case::a_nan_scale_over_zeros(&[0x00, 0x3c], &[0xff, 0x7f], NAN)]
#[case::a_nan_scale_over_infinity(&[0x7c, 0x3c], &[0xff, 0x7f], NAN)]
#[case::the_least_scale_of_infinity(&[0xfc, 0x3c], &[0x00, 0x7f], MINUS)]
#[case::the_largest_scale_of_zero(&[0x00, 0x3c], &[0xfe, 0x7f], ONE)]
fn block_scales_that_are_not_ordinary(
    #[case] a: &[u8],
    #[case] scales: &[u8],
    #[case] expected: u32,
) {
    let ones = Side::new(&E5M2, &[0x3c, 0x3c]);
    let sum = Sum::new(Side::new(&E5M2, a).scaled(&E8M0, scales, 1), ones);
    for sum in [sum.clone().swapped(), sum] {
        assert_eq!(sum.exact(), everywhere(expected));
        assert_eq!(sum.dot().rule(), rule(expected));
    }
}

/// Bit 7 of a UE4M3 byte says nothing: 0x7f and 0xff are NaN, 0x00 and 0x80 zero, 0x38 and 0xb8 one.
#[rstest]
#[case::nan(&[0x0], 0x7f, NAN)]
#[case::nan_with_bit_7(&[0x2], 0xff, NAN)]
#[case::one_with_bit_7(&[0xa], 0xb8, MINUS_ONE)]
#[case::zero(&[0x2], 0x00, 0)]
#[case::zero_with_bit_7(&[0x2], 0x80, 0)]
fn nvfp4_scales_that_are_not_ordinary(#[case] a: &[u8], #[case] scale: u8, #[case] expected: u32) {
    let one = Side::new(&E2M1, &[0x2]);
    let sum = Sum::new(Side::new(&E2M1, a).scaled(&UE4M3, &[scale], 1), one);
    assert_eq!(sum.exact(), everywhere(expected));
    let infinite = Side::new(&E5M2, &[0x7c]);
    assert_eq!(
        Sum::new(sum.a, infinite).dot().rule(),
        match (scale & 0x7f, a[0]) {
            (0x38, 0xa) => Rule::Exact,
            _ => Rule::AnyNan,
        }
    );
}

/// The element of A times one, times both tensor scales, plus c.
#[rstest]
#[case::c_is_nan(0x3c, Some(0xff800001), None, NAN)]
#[case::c_is_nan_beside_infinity(0x7c, Some(0x7fffffff), None, NAN)]
#[case::a_tensor_scale_is_nan(0x3c, None, Some([NAN, ONE]), NAN)]
#[case::a_tensor_scale_is_nan_over_zero(0x00, None, Some([ONE, 0x7f800001]), NAN)]
#[case::zero_times_an_infinite_tensor_scale(0x00, None, Some([PLUS, ONE]), NAN)]
#[case::infinity_times_a_zero_tensor_scale(0x7c, None, Some([0, ONE]), NAN)]
#[case::tensor_scales_zero_and_infinity(0x3c, None, Some([0, PLUS]), NAN)]
#[case::infinite_tensor_scale(0x3c, None, Some([PLUS, ONE]), PLUS)]
#[case::infinite_tensor_scale_of_a_negative_sum(0xbc, None, Some([ONE, PLUS]), MINUS)]
#[case::negative_infinite_tensor_scale(0x3c, None, Some([MINUS, ONE]), MINUS)]
#[case::two_negative_infinite_tensor_scales(0x3c, None, Some([MINUS, MINUS]), PLUS)]
#[case::infinite_sum_and_a_negative_tensor_scale(0x7c, None, Some([MINUS_ONE, ONE]), MINUS)]
#[case::negative_infinite_sum_and_two(0xfc, None, Some([MINUS_ONE, MINUS_ONE]), MINUS)]
#[case::infinite_sum_less_infinite_c(0x7c, Some(MINUS), None, NAN)]
#[case::scaled_infinite_sum_less_infinite_c(0x7c, Some(PLUS), Some([MINUS_ONE, ONE]), NAN)]
#[case::scaled_infinite_sum_and_infinite_c(0x7c, Some(MINUS), Some([MINUS_ONE, ONE]), MINUS)]
#[case::infinite_c(0x7b, Some(MINUS), None, MINUS)]
#[case::infinite_c_beside_a_sum_beyond_f32(0x7b, Some(MINUS), Some([0x7f000000, 0x7f000000]), MINUS)]
#[case::tensor_scales_leave_c_alone(0x3c, Some(ONE), Some([MINUS_ONE, 0x40000000]), MINUS_ONE)]
fn tensor_scales_and_c(
    #[case] a: u8,
    #[case] c: Option<u32>,
    #[case] tensor_scales: Option<[u32; 2]>,
    #[case] expected: u32,
) {
    let sum = Sum::new(Side::new(&E5M2, &[a]), Side::new(&E5M2, &[0x3c]));
    let sum = sum.with_c(c).times(tensor_scales);
    for sum in [sum.clone().swapped(), sum] {
        assert_eq!(sum.exact(), everywhere(expected));
        assert_eq!(sum.dot().rule(), rule(expected));
    }
}

/// Codes of E4M3: 0x80 is -0, 0xb8 is -1. An accumulator that starts from +0 makes +0 of negative zeros, one that starts from the
/// first product -0.
#[rstest]
#[case::one_negative_zero(&[0x80], &[0x38], None, None, Rule::AnyZero)]
#[case::only_negative_zeros(&[0x80, 0x00, 0xb8], &[0x38, 0xb8, 0x00], None, None, Rule::AnyZero)]
#[case::negative_zeros_and_c(&[0x80, 0x80], &[0x38, 0x00], Some(MINUS_ZERO), None, Rule::AnyZero)]
#[case::negative_by_tensor_scale(&[0x00], &[0x38], None, Some([MINUS_ONE, ONE]), Rule::AnyZero)]
#[case::one_positive_zero(&[0x80, 0x80], &[0x38, 0x80], None, None, Rule::Exact)]
#[case::positive_zeros(&[0x00, 0x80], &[0x38, 0x80], None, None, Rule::Exact)]
#[case::positive_c(&[0x80], &[0x38], Some(0), None, Rule::Exact)]
#[case::positive_by_tensor_scale(&[0x80], &[0x38], None, Some([MINUS_ONE, ONE]), Rule::Exact)]
#[case::cancelled(&[0x38, 0xb8], &[0x38, 0x38], None, None, Rule::Exact)]
#[case::cancelled_by_c(&[0x38], &[0x38], Some(MINUS_ONE), None, Rule::Exact)]
#[case::cancelled_beside_negative_zero(&[0x80, 0x38, 0xb8], &[0x38; 3], Some(MINUS_ZERO), None, Rule::Exact)]
fn zero_is_positive(
    #[case] a: &[u8],
    #[case] b: &[u8],
    #[case] c: Option<u32>,
    #[case] tensor_scales: Option<[u32; 2]>,
    #[case] rule: Rule,
) {
    let sum = Sum::new(Side::new(&E4M3, a), Side::new(&E4M3, b)).with_c(c).times(tensor_scales);
    assert_eq!(sum.exact(), [0; 3]);
    assert_eq!(sum.dot().rule(), rule);
}

/// Below half of the least subnormal: 2^-149, 2^-133 and 2^-24.
#[rstest]
#[case::negative(-1, [0x80000000, 0x8000, 0x8000])]
#[case::positive(1, [0; 3])]
fn what_underflows_keeps_its_sign(#[case] sign: i32, #[case] expected: [u32; 3]) {
    let sum = Sum::powers(&[(sign, -254)]);
    assert_eq!(sum.exact(), expected);
    assert_eq!(sum.dot().rule(), Rule::Exact);
    assert_eq!(sum.with_c(MINUS_ZERO).exact(), expected);
    let below = Sum::powers(&[(1, 200), (sign, -150), (-1, 200)]);
    assert_eq!(below.exact()[0], expected[0]);
}

#[rstest]
#[case::nothing(None, None, [0; 3])]
#[case::c(Some(ONE), None, everywhere(ONE))]
#[case::c_and_tensor_scales(Some(MINUS_ONE), Some([PLUS.wrapping_sub(1), ONE]), everywhere(MINUS_ONE))]
#[case::negative_zero(Some(MINUS_ZERO), None, [0; 3])]
#[case::infinite_c(Some(MINUS), None, everywhere(MINUS))]
#[case::an_infinite_tensor_scale(None, Some([PLUS, ONE]), everywhere(NAN))]
fn a_sum_of_nothing_is_zero(
    #[case] c: Option<u32>,
    #[case] tensor_scales: Option<[u32; 2]>,
    #[case] expected: [u32; 3],
) {
    let empty = Side::new(&E4M3, &[]).scaled(&E8M0, &[], 32);
    let sum = Sum::new(empty.clone(), empty).with_c(c).times(tensor_scales);
    assert_eq!(sum.exact(), expected);
    assert_eq!(
        sum.dot().rule(),
        if expected == everywhere(NAN) { Rule::AnyNan } else { Rule::Exact }
    );
}

#[test]
fn outputs_are_in_the_order_of_the_tables() {
    assert_eq!(OUTPUTS.map(|output| output.name), ["f32", "bf16", "f16"]);
}
