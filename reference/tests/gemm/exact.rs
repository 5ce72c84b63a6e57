//! The exact product: nothing is lost before the one rounding.

use std::collections::BTreeMap;

use mx_reference::format::{E4M3, E5M2, E8M0, F16, F32};
use mx_reference::gemm::{ExactSum, Total};
use mx_reference::{Element, Magnitude};
use proptest::prelude::*;
use rstest::rstest;

use crate::noise::Noise;
use crate::side::{OUTPUTS, Side, Sum, codes, elements};

/// Sums of ±2^e rounded to f32, bf16 and f16.
#[rstest]
#[case::cancelled_over_the_whole_range(&[(1, 254), (1, -254), (-1, 254)], [0, 0, 0])]
#[case::cancelled_but_for_a_subnormal(&[(1, 254), (-1, -140), (-1, 254)], [0x80000200, 0x8000, 0x8000])]
#[case::cancelled_but_for_one(&[(-1, 254), (1, 0), (-1, -254), (1, 254)], [0x3f800000, 0x3f80, 0x3c00])]
#[case::the_largest_alone(&[(1, 254)], [0x7f800000, 0x7f80, 0x7c00])]
#[case::a_tie_in_f32(&[(1, 0), (1, -24)], [0x3f800000, 0x3f80, 0x3c00])]
#[case::above_a_tie_in_f32(&[(1, 0), (1, -24), (1, -254)], [0x3f800001, 0x3f80, 0x3c00])]
#[case::a_tie_in_f32_goes_up_to_even(&[(1, 0), (1, -23), (1, -24)], [0x3f800002, 0x3f80, 0x3c00])]
#[case::below_that_tie(&[(1, 0), (1, -23), (1, -24), (-1, -254)], [0x3f800001, 0x3f80, 0x3c00])]
#[case::a_tie_in_bf16(&[(1, 0), (1, -8)], [0x3f808000, 0x3f80, 0x3c04])]
#[case::a_tie_in_bf16_goes_up_to_even(&[(1, 0), (1, -7), (1, -8)], [0x3f818000, 0x3f82, 0x3c0c])]
#[case::a_tie_in_bf16_once_f32_has_rounded(&[(1, 0), (1, -8), (1, -26)], [0x3f808000, 0x3f81, 0x3c04])]
#[case::that_tie_from_below(&[(-1, 0), (-1, -7), (-1, -8), (1, -40)], [0xbf818000, 0xbf81, 0xbc0c])]
#[case::a_tie_in_f16(&[(1, 0), (1, -11)], [0x3f801000, 0x3f80, 0x3c00])]
#[case::a_tie_in_f16_once_f32_has_rounded(&[(1, 0), (1, -11), (1, -60)], [0x3f801000, 0x3f80, 0x3c01])]
#[case::f16_is_largest_below_the_tie(&[(1, 16), (-1, 4), (-1, -20)], [0x477ff000, 0x4780, 0x7bff])]
#[case::f16_overflows_from_the_tie(&[(-1, 16), (1, 4)], [0xc77ff000, 0xc780, 0xfc00])]
#[case::bf16_is_largest_below_the_tie(&[(1, 128), (-1, 119), (-1, -254)], [0x7f7f8000, 0x7f7f, 0x7c00])]
#[case::bf16_overflows_from_the_tie(&[(1, 128), (-1, 119)], [0x7f7f8000, 0x7f80, 0x7c00])]
#[case::f32_is_largest_below_the_tie(&[(-1, 128), (1, 103), (1, -254)], [0xff7fffff, 0xff80, 0xfc00])]
#[case::f32_overflows_from_the_tie(&[(-1, 128), (1, 103)], [0xff800000, 0xff80, 0xfc00])]
#[case::the_least_f32(&[(1, -149)], [0x00000001, 0, 0])]
#[case::a_tie_with_zero(&[(-1, -150)], [0x80000000, 0x8000, 0x8000])]
#[case::above_that_tie(&[(-1, -150), (-1, -254)], [0x80000001, 0x8000, 0x8000])]
#[case::a_tie_between_subnormals(&[(1, -149), (1, -150)], [0x00000002, 0, 0])]
#[case::the_largest_subnormal(&[(1, -126), (-1, -149)], [0x007fffff, 0x0080, 0])]
#[case::from_a_subnormal_up_to_normal(&[(1, -126), (-1, -150)], [0x00800000, 0x0080, 0])]
#[case::the_least_bf16(&[(1, -134), (1, -254)], [0x00008000, 0x0001, 0])]
#[case::the_least_f16(&[(-1, -25), (-1, -254)], [0xb3000000, 0xb300, 0x8001])]
fn a_sum_is_rounded_once(#[case] terms: &[(i32, i32)], #[case] expected: [u32; 3]) {
    assert_eq!(Sum::powers(terms).exact(), expected);
    let reversed: Vec<_> = terms.iter().rev().copied().collect();
    assert_eq!(Sum::powers(&reversed).exact(), expected);
}

/// Scale bytes 0 and 254 are 2^-127 and 2^127 over every element.
#[rstest]
#[case(Element::E4m3, 0x38)]
#[case(Element::E5m2, 0x3c)]
#[case(Element::E3m2, 0x0c)]
#[case(Element::E2m3, 0x08)]
#[case(Element::E2m1, 0x02)]
#[case(Element::Int8, 0x40)]
fn the_ends_of_e8m0_are_powers_of_two(#[case] element: Element, #[case] one: u8) {
    let side = |byte| Side::new(element.format(), &[one]).scaled(&E8M0, &[byte], 1);
    let product = |a, b| Sum::new(side(a), side(b)).exact()[0];
    assert_eq!(product(0, 254), 1f32.to_bits());
    assert_eq!(product(0, 127), 0x00400000);
    assert_eq!(product(1, 127), 0x00800000);
    assert_eq!(product(0, 105), 0x00000001);
    assert_eq!(product(254, 127), 0x7f000000);
}

/// The widest products of FP8: 448² × 2^254 less itself, next to the square of the least subnormal under the least scales.
#[rstest]
#[case::e4m3(&E4M3, 0x7e, 0x01, -18)]
#[case::e5m2(&E5M2, 0x7b, 0x01, -32)]
fn the_least_product_survives_the_largest(
    #[case] format: &'static mx_reference::Format,
    #[case] largest: u8,
    #[case] least: u8,
    #[case] square: i32,
) {
    let a = Side::new(format, &[largest, least, largest | 0x80]);
    let b = Side::new(format, &[largest, least, largest]);
    let scaled = |side: Side| side.scaled(&E8M0, &[254, 0, 254], 1);
    let Total::Finite(sum) = Sum::new(scaled(a), scaled(b)).dot().total else { panic!() };
    let bit = (square - 254 - ExactSum::UNIT) as usize;
    let mut expected = [0; 12];
    expected[bit / 64] = 1u64 << (bit % 64);
    assert_eq!(sum.limbs(), expected);
}

/// `value = significand × 2^exponent` as the tables of the formats have it.
fn scalar(format: &mx_reference::Format, code: u8) -> (i128, i32) {
    let (m, bias) = match format.name {
        "e4m3" => (3, 7),
        "e5m2" => (2, 15),
        "e3m2" => (2, 3),
        "e2m3" => (3, 1),
        "e2m1" => (1, 1),
        _ => return ((code as i8).into(), -6),
    };
    let bits = match format.name {
        "e4m3" | "e5m2" => 8,
        "e3m2" | "e2m3" => 6,
        _ => 4,
    };
    let magnitude = code & ((1 << (bits - 1)) - 1);
    let (e, fraction) = (i32::from(magnitude >> m), i128::from(magnitude & ((1 << m) - 1)));
    let significand = if e == 0 { fraction } else { fraction + (1 << m) };
    let sign = if code >> (bits - 1) == 0 { 1 } else { -1 };
    (sign * significand, e.max(1) - bias - m)
}

/// Integers for each power of two, carried upwards into binary digits.
#[derive(Default)]
struct Digits(BTreeMap<i32, i128>);

impl Digits {
    fn add(&mut self, integer: i128, exponent: i32) {
        *self.0.entry(exponent).or_default() += integer;
    }

    /// The digits from 2^-320 on, and what is carried beyond 2^447: 0, or -1 for a negative number.
    fn carried(&self, sign: i128) -> ([u64; 12], i128) {
        let mut limbs = [0; 12];
        let mut carry = 0i128;
        for bit in 0..768 {
            carry += sign * self.0.get(&(bit - 320)).copied().unwrap_or(0);
            limbs[bit as usize / 64] |= ((carry & 1) as u64) << (bit % 64);
            carry >>= 1;
        }
        (limbs, carry)
    }

    /// Rounded to f32, half to even.
    fn f32(&self) -> u32 {
        let negative = self.carried(1).1 < 0;
        let (limbs, _) = self.carried(if negative { -1 } else { 1 });
        let digit = |e: i32| limbs[(e + 320) as usize / 64] >> ((e + 320) % 64) & 1;
        let Some(top) = (-320..448).rev().find(|&e| digit(e) != 0) else { return 0 };
        let last = top.max(-126) - 23;
        let kept = (last..=top.max(last)).rev().fold(0u64, |kept, e| kept << 1 | digit(e));
        let rest = (-320..last - 1).any(|e| digit(e) != 0);
        let half = digit(last - 1) != 0;
        let kept = kept + u64::from(half && (rest || kept & 1 != 0));
        // A carry into the exponent is what is meant.
        let bits = if top < -126 { kept } else { kept + (((top + 126) as u64) << 23) };
        bits.min(0x7f800000) as u32 | u32::from(negative) << 31
    }
}

/// Both rows finite, of one pair of formats and with scales of every size.
fn long(a: Element, b: Element, k: usize, seed: u64) -> (Sum, Digits) {
    let mut noise = Noise::new(seed);
    let mut side = |element: Element| {
        let format = element.format();
        let codes: Vec<u8> = noise.finite(format, k);
        let scales: Vec<u8> = (0..k / 32).map(|_| noise.below(255) as u8).collect();
        Side::new(format, &codes).scaled(&E8M0, &scales, 32)
    };
    let (a, b) = (side(a), side(b));
    let mut digits = Digits::default();
    let scale = |side: &Side, at: usize| i32::from(side.scales.as_ref().unwrap().bytes[at / 32]);
    for at in 0..k {
        let ((x, e), (y, f)) = (scalar(a.format, a.bytes[at]), scalar(b.format, b.bytes[at]));
        digits.add(x * y, e + f + scale(&a, at) + scale(&b, at) - 254);
    }
    (Sum::new(a, b), digits)
}

#[rstest]
fn a_long_sum_has_every_digit(
    #[values(
        Element::E4m3,
        Element::E5m2,
        Element::E3m2,
        Element::E2m3,
        Element::E2m1,
        Element::Int8
    )]
    a: Element,
) {
    for (b, k) in Element::ALL.into_iter().zip([8192, 4096, 8192, 1184, 8192, 8192]) {
        for seed in 0..4 {
            let (sum, digits) = long(a, b, k, seed);
            let Total::Finite(total) = sum.dot().total else { panic!("{a:?} {b:?}") };
            assert_eq!(total.limbs(), digits.carried(1).0, "{a:?} {b:?} {seed}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn short_sums_have_every_digit_and_are_rounded_half_to_even(
        a in elements(), b in elements(), blocks in 1usize..4, seed: u64,
    ) {
        let (sum, digits) = long(a, b, 32 * blocks, seed);
        let Total::Finite(total) = sum.dot().total else { panic!() };
        prop_assert_eq!(total.limbs(), digits.carried(1).0);
        prop_assert_eq!(sum.exact()[0], digits.f32());
    }

    /// c, in the format of whose subnormals sums end.
    #[test]
    fn c_is_a_term_like_any_other(
        a in elements(), b in elements(), seed: u64, c in (0u32..0x7f800000, any::<bool>()),
    ) {
        let (sum, mut digits) = long(a, b, 32, seed);
        let (magnitude, negative) = c;
        let significand = i128::from(magnitude & 0x7fffff | u32::from(magnitude >= 0x800000) << 23);
        let sign = if negative { -1 } else { 1 };
        digits.add(sign * significand, (magnitude >> 23).max(1) as i32 - 150);
        let sum = sum.with_c(magnitude | u32::from(negative) << 31);
        prop_assert_eq!(sum.exact()[0], digits.f32());
    }

    #[test]
    fn the_order_of_k_leaves_every_bit(
        (a, b, order) in permuted(), c in prop::option::of(any::<u32>()),
    ) {
        let sum = Sum::new(a, b).with_c(c);
        let moved = |side: &Side| {
            let scales = side.scales.as_ref().unwrap();
            let pick = |bytes: &[u8]| order.iter().map(|&k| bytes[k]).collect::<Vec<u8>>();
            Side::new(side.format, &pick(&side.bytes)).scaled(scales.format, &pick(&scales.bytes), 1)
        };
        let other = Sum::new(moved(&sum.a), moved(&sum.b)).with_c(c);
        let (x, y) = (sum.dot(), other.dot());
        prop_assert_eq!((x.total, x.magnitude, x.rule()), (y.total, y.magnitude, y.rule()));
        prop_assert_eq!(sum.exact(), other.exact());
        prop_assert_eq!(sum.clone().swapped().exact(), sum.exact());
    }

    /// (a, b) and (-a, b) give opposite totals: rounding is symmetric.
    #[test]
    fn the_other_sign_of_a_is_the_other_sign_of_d(
        a in prop::sample::select(Element::ALL[..5].to_vec()), b in elements(), seed: u64,
    ) {
        let (sum, digits) = long(a, b, 32, seed);
        let flipped: Vec<u8> = sum.a.bytes.iter().map(|x| x ^ a.format().sign_bit() as u8).collect();
        let other = Sum { a: Side { bytes: flipped, ..sum.a.clone() }, ..sum.clone() };
        if digits.f32() << 1 != 0 {
            for (output, (x, y)) in OUTPUTS.iter().zip(sum.exact().into_iter().zip(other.exact())) {
                prop_assert_eq!(x ^ y, output.sign_bit());
            }
        }
    }

    /// The exact magnitude is the sum of the absolute values.
    #[test]
    fn the_magnitude_is_the_sum_without_signs(a in elements(), b in elements(), seed: u64) {
        let (sum, _) = long(a, b, 64, seed);
        let mut digits = Digits::default();
        let scale = |side: &Side, k: usize| i32::from(side.scales.as_ref().unwrap().bytes[k / 32]);
        for k in 0..64 {
            let ((x, e), (y, f)) =
                (scalar(a.format(), sum.a.bytes[k]), scalar(b.format(), sum.b.bytes[k]));
            digits.add((x * y).abs(), e + f + scale(&sum.a, k) + scale(&sum.b, k) - 254);
        }
        let dot = sum.with_c(0x42280000u32).dot();
        prop_assert_eq!(dot.magnitude.finite().unwrap().limbs(), digits.carried(1).0);
    }
}

/// Two rows with a scale for every element, and an order of their elements.
fn permuted() -> impl Strategy<Value = (Side, Side, Vec<usize>)> {
    let side = |element: Element, k: usize| {
        let format = element.format();
        // Mostly finite, or every sum would be NaN.
        let code = prop_oneof![40 => codes(format, true), 1 => codes(format, false)];
        let scale = prop_oneof![60 => 0u8..=254, 1 => Just(255u8)];
        (prop::collection::vec(code, k), prop::collection::vec(scale, k))
            .prop_map(move |(codes, scales)| Side::new(format, &codes).scaled(&E8M0, &scales, 1))
    };
    (elements(), elements(), 1usize..64).prop_flat_map(move |(a, b, k)| {
        let order: Vec<usize> = (0..k).collect();
        (side(a, k), side(b, k), Just(order).prop_shuffle())
    })
}

/// NVFP4: 16 × 6 × 0.5 × 448 / 512 = 42 and 16 × -1.5 × 1.5 × 1.125 × 1 = -40.5; 1.5 × 0.5 × 3 - 0.25 = 2.
#[test]
fn nvfp4_scales_and_tensor_scales_multiply() {
    use mx_reference::format::{E2M1, UE4M3};
    let side =
        |x, y, scales| Side::new(&E2M1, &[[x; 16], [y; 16]].concat()).scaled(&UE4M3, scales, 16);
    // 0x7e is 448, 0x81 is 2^-9 with a bit that is not looked at.
    let sum = Sum::new(side(0x7, 0x2, &[0x7e, 0x3c]), side(0x1, 0xb, &[0x81, 0x39]));
    assert_eq!(sum.exact()[0], 1.5f32.to_bits());
    let scaled = sum.times([0.5f32, 3.0].map(f32::to_bits)).with_c((-0.25f32).to_bits());
    assert_eq!(scaled.exact()[0], 2f32.to_bits());
    let Total::Finite(magnitude) = scaled.dot().magnitude else { panic!() };
    // (42 + 40.5) × 1.5.
    assert_eq!(
        f64::from(f32::from_bits(F32.encode(
            magnitude.number(),
            mx_reference::Rounding::NearestEven,
            mx_reference::Overflow::Propagate
        )))
        .to_bits(),
        123.75f64.to_bits()
    );
}

/// The ends of f32 as tensor scales: 1 × 2^-9 × 0.5 twice, times 2^-149 twice, times its inverse in A of a second product.
#[test]
fn the_least_tensor_scales_lose_nothing() {
    use mx_reference::format::{E2M1, UE4M3};
    let least = || Side::new(&E2M1, &[0x1]).scaled(&UE4M3, &[0x01], 1);
    let Total::Finite(sum) = Sum::new(least(), least()).times([1, 1]).dot().total else { panic!() };
    assert_eq!(sum.number().exponent(), Some(-20 - 298));
    let largest = || Side::new(&E2M1, &[0x7]).scaled(&UE4M3, &[0x7e], 1);
    let Total::Finite(sum) =
        Sum::new(largest(), largest()).times([0x7f7fffff, 0xff7fffff]).dot().total
    else {
        panic!()
    };
    // 6² × 448² is 1.72 × 2^22.
    assert_eq!((sum.is_negative(), sum.exponent()), (true, Some(22 + 256)));
}

/// Products of halves: bf16 from 2^-266 to 2^256, f16 from 2^-48 to 2^32.
#[rstest]
#[case::bf16(&mx_reference::format::BF16, [0x7f7f, 0x0001], 2 * -133)]
#[case::f16(&F16, [0x7bff, 0x0001], 2 * -24)]
fn halves_of_any_size_add_up(
    #[case] format: &'static mx_reference::Format,
    #[case] ends: [u16; 2],
    #[case] exponent: i32,
) {
    let [largest, least] = ends;
    let a = Side::halves(format, &[largest, least, largest]);
    let b = Side::halves(format, &[largest, least, largest | 0x8000]);
    let Total::Finite(sum) = Sum::new(a, b).dot().total else { panic!() };
    let mut expected = ExactSum::ZERO;
    expected.add_wide(false, 1, exponent);
    assert_eq!(sum, expected);
    assert!(matches!(sum.number().magnitude, Magnitude::Finite { .. }));
    assert_eq!(sum.exponent(), Some(exponent));
}
