//! Bounds hold for every model and for f32 additions of the host in any order, and are narrow enough to be of use.

use approx::assert_relative_eq;
use mx_reference::format::{BF16, E2M1, E4M3, E5M2, E8M0, F16, F32, UE4M3};
use mx_reference::gemm::{Accepts, Accumulation, Bound, E8M13, ExactSum, Model, Scheme, Total};
use mx_reference::{Element, Format, Magnitude, Number, Rule};
use proptest::prelude::*;
use rstest::rstest;

use crate::noise::Noise;
use crate::side::{OUTPUTS, Side, Sum};

/// Two to the power of e, of a double.
fn two(e: i32) -> f64 {
    assert!((-1022..1024).contains(&e), "2^{e}");
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// What a case is made of.
#[derive(Clone, Debug)]
struct Data {
    k: usize,
    /// Exponents of scales and of halves lie this far from `centre`, on either side.
    spread: u64,
    centre: i32,
    c: C,
    /// The second half of K undoes the first, but for a few elements.
    cancelling: bool,
    tensor_scales: bool,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum C {
    None,
    /// Of the size of a product.
    Like,
    Subnormal,
    Zero,
}

/// Everything is so small that no partial sum overflows, for which the bounds hold.
fn data() -> impl Strategy<Value = Data> {
    let c = prop_oneof![Just(C::None), Just(C::Like), Just(C::Subnormal), Just(C::Zero)];
    let centre = prop_oneof![4 => -20i32..=20, 1 => Just(-70), 1 => -78i32..-60];
    (
        1usize..11,
        prop_oneof![Just(0u64), Just(3), Just(8)],
        centre,
        c,
        any::<[bool; 2]>(),
        any::<u64>(),
    )
        .prop_map(|(blocks, spread, centre, c, [cancelling, tensor_scales], seed)| Data {
            k: 64 * blocks,
            spread,
            centre,
            c,
            cancelling,
            tensor_scales,
            seed,
        })
}

impl Data {
    fn near(&self, noise: &mut Noise) -> i32 {
        self.centre + noise.below(2 * self.spread + 1) as i32 - self.spread as i32
    }

    fn codes(
        &self,
        noise: &mut Noise,
        format: &'static Format,
        scales: Option<(&'static Format, usize)>,
    ) -> Side {
        let side = Side::new(format, &noise.finite(format, self.k));
        match scales {
            None => side,
            Some((scales, block)) => {
                let byte = |noise: &mut Noise| match scales.name {
                    "e8m0" => (127 + self.near(noise)) as u8,
                    _ => noise.below(127) as u8,
                };
                let bytes: Vec<u8> = (0..self.k / block).map(|_| byte(noise)).collect();
                side.scaled(scales, &bytes, block)
            }
        }
    }

    fn halves(&self, noise: &mut Noise, format: &'static Format) -> Side {
        let bits = |noise: &mut Noise| match format.name {
            "bf16" => ((127 + self.near(noise)) as u16) << 7 | noise.below(128) as u16,
            _ => noise.below(0x7c00) as u16,
        };
        let halves: Vec<u16> =
            (0..self.k).map(|_| bits(noise) | (noise.below(2) as u16) << 15).collect();
        Side::halves(format, &halves)
    }

    fn element(noise: &mut Noise) -> &'static Format {
        Element::ALL[noise.below(6) as usize].format()
    }

    fn side(&self, noise: &mut Noise, accumulation: &Accumulation) -> Side {
        let mx = Some((&E8M0, 32));
        let fp8 = |noise: &mut Noise| if noise.below(2) == 0 { &E4M3 } else { &E5M2 };
        match accumulation.accepts {
            Accepts::Fp8 => {
                let format = fp8(noise);
                self.codes(noise, format, None)
            }
            Accepts::Dequantized if accumulation.registers == Some(&F16) => {
                self.halves(noise, &F16)
            }
            Accepts::Dequantized if noise.below(2) == 0 => self.codes(noise, &E4M3, mx),
            Accepts::Dequantized => self.halves(noise, &BF16),
            Accepts::MxFloat => {
                let format = Element::ALL[noise.below(5) as usize].format();
                self.codes(noise, format, mx)
            }
            Accepts::Mx => {
                let format = Self::element(noise);
                self.codes(noise, format, mx)
            }
            Accepts::Mxf4 => self.codes(noise, &E2M1, mx),
            Accepts::Nvfp4 => self.codes(noise, &E2M1, Some((&UE4M3, 16))),
            Accepts::Any => match noise.below(4) {
                0 => self.halves(noise, &BF16),
                1 => self.codes(noise, &E2M1, Some((&UE4M3, 16))),
                _ => {
                    let format = Self::element(noise);
                    self.codes(noise, format, mx)
                }
            },
        }
    }

    fn sum(&self, accumulation: &Accumulation) -> Sum {
        let mut noise = Noise::new(self.seed);
        let (mut a, mut b) =
            (self.side(&mut noise, accumulation), self.side(&mut noise, accumulation));
        if self.cancelling {
            for (side, sign) in [(&mut a, true), (&mut b, false)] {
                let (bit, half) = (side.format.sign_bit(), self.k / 2);
                for at in 3..half {
                    if side.halves.is_empty() {
                        side.bytes[half + at] = side.bytes[at] ^ if sign { bit as u8 } else { 0 };
                    } else {
                        side.halves[half + at] =
                            side.halves[at] ^ if sign { bit as u16 } else { 0 };
                    }
                }
                if let Some(scales) = &mut side.scales {
                    let half = scales.bytes.len() / 2;
                    let (low, high) = scales.bytes.split_at_mut(half);
                    high[..half].copy_from_slice(low);
                }
            }
        }
        let mantissa = noise.below(1 << 24) as u32;
        let sign = (mantissa & 1) << 31;
        let like = (127 + (2 * self.centre).clamp(-120, 60)) as u32;
        let c = match self.c {
            C::None => None,
            C::Like => Some((like + noise.below(12) as u32) << 23 | mantissa >> 1 | sign),
            C::Subnormal => Some(mantissa >> 1 | sign),
            C::Zero => Some(sign),
        };
        let mut scale = || {
            (120 + noise.below(16) as u32) << 23
                | noise.below(1 << 23) as u32
                | (noise.below(2) as u32) << 31
        };
        let scales = [scale(), scale()];
        // With tensor scales the bounds ask for sums that are not subnormal.
        let scaled = self.tensor_scales && self.centre > -30;
        Sum::new(a, b).with_c(c).times(scaled.then_some(scales))
    }
}

/// The bits of an output as a double.
fn value(output: &Format, bits: u32) -> f64 {
    match output.name {
        "f32" => f32::from_bits(bits).into(),
        "bf16" => f32::from_bits(bits << 16).into(),
        _ => half::f16::from_bits(bits as u16).into(),
    }
}

/// Low and high of a sum whose total is finite.
fn interval(sum: &Sum, accumulation: &Accumulation, output: &Format) -> [f64; 2] {
    match accumulation.rule(&sum.gemm(), 0, 0, output) {
        Rule::Between { low, high } => [low, high].map(|bits| value(output, bits)),
        other => panic!("{other:?} of {accumulation:?}"),
    }
}

fn lies_within(sum: &Sum, accumulation: &Accumulation, f32_bits: u32) -> Result<(), TestCaseError> {
    for output in OUTPUTS {
        let [low, high] = interval(sum, accumulation, output);
        let x = match output.name {
            "f32" => f32::from_bits(f32_bits).into(),
            // Conversions of `half` round to nearest even.
            "bf16" => half::bf16::from_f32(f32::from_bits(f32_bits)).into(),
            _ => half::f16::from_f32(f32::from_bits(f32_bits)).into(),
        };
        prop_assert!(low <= x && x <= high, "{}: {x:e} in {low:e} to {high:e}", output.name);
        let exact = value(output, sum.gemm().exact(output)[0]);
        prop_assert!(low <= exact && exact <= high, "{}: exact {exact:e}", output.name);
    }
    Ok(())
}

/// Values of a side as doubles, which hold every element with its scale.
fn values(side: &Side) -> Vec<f64> {
    let operand = |at: usize| {
        let element = match side.halves.get(at) {
            Some(&half) => side.format.decode(half.into()),
            None => side.format.decode(side.bytes[at].into()),
        };
        let scale = side.scales.as_ref().map(|s| s.format.decode(s.bytes[at / s.block].into()));
        double(element) * scale.map_or(1.0, double)
    };
    (0..side.len()).map(operand).collect()
}

fn double(x: Number) -> f64 {
    let magnitude = match x.magnitude {
        Magnitude::Finite { significand, exponent } => significand as f64 * two(exponent),
        Magnitude::Zero => 0.0,
        _ => panic!("{x:?}"),
    };
    if x.negative { -magnitude } else { magnitude }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Nearest,
    TowardZero,
    Either,
}

/// f32 arithmetic of the host.
struct Adder {
    direction: Direction,
    noise: Noise,
}

impl Adder {
    fn cuts(&mut self) -> bool {
        match self.direction {
            Direction::Nearest => false,
            Direction::TowardZero => true,
            Direction::Either => self.noise.below(2) == 0,
        }
    }

    /// A double to f32.
    fn round(&mut self, x: f64) -> f32 {
        let nearest = x as f32;
        let away = f64::from(nearest).abs() > x.abs();
        if away && self.cuts() { toward_zero(nearest) } else { nearest }
    }

    /// What an addition to nearest lost is known exactly (Knuth, The Art of Computer Programming 2, 4.2.2, theorem B).
    fn add(&mut self, a: f32, b: f32) -> f32 {
        let sum = a + b;
        let b_of_sum = sum - a;
        let lost = (a - (sum - b_of_sum)) + (b - b_of_sum);
        let away = (sum > 0.0 && lost < 0.0) || (sum < 0.0 && lost > 0.0);
        if away && self.cuts() { toward_zero(sum) } else { sum }
    }

    /// Any two at a time, until one is left.
    fn sum(&mut self, mut terms: Vec<f32>) -> f32 {
        while terms.len() > 1 {
            let at = self.noise.below(terms.len() as u64) as usize;
            let a = terms.swap_remove(at);
            let at = self.noise.below(terms.len() as u64) as usize;
            terms[at] = self.add(a, terms[at]);
        }
        terms.pop().unwrap_or(0.0)
    }

    /// To one accumulator, in a random order.
    fn chain(&mut self, mut terms: Vec<f32>) -> f32 {
        let mut sum = 0.0;
        while !terms.is_empty() {
            let at = self.noise.below(terms.len() as u64) as usize;
            let term = terms.swap_remove(at);
            sum = self.add(sum, term);
        }
        sum
    }
}

fn toward_zero(x: f32) -> f32 {
    f32::from_bits(x.to_bits() - 1)
}

const ANY_ORDER: Accumulation = Accumulation {
    accepts: Accepts::Any,
    registers: None,
    scheme: Scheme::AnyOrder,
    split: 1,
    tile: 128,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2500))]

    #[test]
    fn every_model_lies_within_its_bound(
        model in prop::sample::select(Model::ALL[1..].to_vec()), data in data(), split in 1usize..4,
    ) {
        let accumulation = Accumulation { split, ..model.accumulation() };
        let sum = data.sum(&accumulation);
        let bits = sum.gemm().accumulate(&accumulation, &F32).unwrap()[0];
        lies_within(&sum, &accumulation, bits)?;
    }

    /// Models whose products are rounded in no other place are of the class.
    #[test]
    fn f32_models_lie_within_the_bound_of_any_order(
        pairwise: bool, data in data(), split in 1usize..4,
    ) {
        let model = if pairwise { Model::F32Pairwise } else { Model::F32Sequential };
        let sum = data.sum(&ANY_ORDER);
        let sum = Sum { tensor_scales: None, ..sum };
        let accumulation = Accumulation { split, ..model.accumulation() };
        let bits = sum.gemm().accumulate(&accumulation, &F32).unwrap()[0];
        lies_within(&sum, &ANY_ORDER, bits)?;
    }

    #[test]
    fn f32_additions_of_the_host_lie_within_the_bound_of_any_order(
        data in data(),
        direction in prop::sample::select(vec![Direction::Nearest, Direction::TowardZero, Direction::Either]),
        tree: bool,
    ) {
        let sum = data.sum(&ANY_ORDER);
        let mut adder = Adder { direction, noise: Noise::new(!data.seed) };
        let products = values(&sum.a).into_iter().zip(values(&sum.b)).map(|(x, y)| x * y);
        let mut terms: Vec<f32> = products.map(|product| adder.round(product)).collect();
        let c = sum.c.map(|[c]| f32::from_bits(c));
        if sum.tensor_scales.is_none() {
            terms.extend(c);
        }
        let mut total = if tree { adder.sum(terms) } else { adder.chain(terms) };
        if let Some([x, y]) = sum.tensor_scales {
            let [x, y] = [x, y].map(|bits| f64::from(f32::from_bits(bits)));
            let alpha = adder.round(x * y);
            total = adder.round(f64::from(alpha) * f64::from(total));
            total = c.map_or(total, |c| adder.add(total, c));
        }
        lies_within(&sum, &ANY_ORDER, total.to_bits())?;
    }

    /// The exact model leaves no room.
    #[test]
    fn the_interval_of_the_exact_model_is_a_point(data in data()) {
        let accumulation = Model::Exact.accumulation();
        let sum = data.sum(&accumulation);
        let gemm = sum.gemm();
        prop_assert_eq!(accumulation.bound(&gemm, 0, 0), Some(Bound::ZERO));
        for output in OUTPUTS {
            prop_assert_eq!(accumulation.rule(&gemm, 0, 0, output), gemm.dot(0, 0).rule());
            prop_assert_eq!(
                gemm.accumulate(&accumulation, output).unwrap(), gemm.exact(output));
        }
    }

    /// Beside what does not sum up to a number there is no interval.
    #[test]
    fn what_is_not_finite_has_its_own_rule(
        model in prop::sample::select(Model::ALL.to_vec()), data in data(),
        c in prop::sample::select(vec![0x7f800000u32, 0xff800000, 0x7fc00000, 0xff800001]),
    ) {
        let accumulation = model.accumulation();
        let sum = data.sum(&accumulation).with_c(c);
        let (gemm, dot) = (sum.gemm(), sum.dot());
        prop_assert_eq!(accumulation.bound(&gemm, 0, 0), None);
        let rule = if c << 1 == 0xff000000 { Rule::Exact } else { Rule::AnyNan };
        prop_assert_eq!(accumulation.rule(&gemm, 0, 0, &F32), rule);
        prop_assert_eq!(Bound::above(&dot.total).to_bits(), f64::INFINITY.to_bits());
    }

    /// The accumulator of FP8 tensor cores keeps 13 bits, whatever goes in.
    #[test]
    fn ten_bits_of_e8m13_are_zero(
        model in prop::sample::select(vec![Model::AdaFp8, Model::HopperFp8]), data in data(),
    ) {
        let accumulation = model.accumulation();
        let sum = Sum { tensor_scales: None, ..data.sum(&accumulation) };
        let bits = sum.gemm().accumulate(&accumulation, &F32).unwrap()[0];
        prop_assert_eq!(bits & 0x3ff, 0);
        let held = double(E8M13.decode(bits >> 10));
        prop_assert_eq!(held.to_bits(), f64::from(f32::from_bits(bits)).to_bits());
    }

    #[test]
    fn above_is_not_below_and_hardly_above(
        integer in 1u128.., cut in 0u32..128, exponent in -320i32..190, negative: bool,
    ) {
        let integer = (integer >> cut).max(1);
        let mut sum = ExactSum::ZERO;
        sum.add_wide(negative, integer, exponent);
        let above = Bound::above(&Total::Finite(sum));
        prop_assert!(above.is_normal());
        // As integers of the lesser unit; a shift that would not fit is of the larger number.
        let significand = u128::from(above.to_bits() & ((1 << 52) - 1) | 1 << 52);
        let shift = (above.to_bits() >> 52) as i32 - 1075 - exponent;
        let is_above = if shift >= 0 {
            significand.leading_zeros() < shift as u32 || significand << shift >= integer
        } else {
            significand >= integer << -shift
        };
        prop_assert!(is_above, "{above:e}");
        assert_relative_eq!(above, integer as f64 * two(exponent), max_relative = 1e-9);
    }
}

/// The width of an interval over the magnitude of the sum, for K = 256: (K + N)·2^-F + N·2^-P of N steps, twice, where the magnitude
/// aligns everything.
#[rstest]
#[case::exact(Model::Exact.accumulation(), 0.0)]
#[case::any_order(ANY_ORDER, two(-12))]
#[case::sequential(Model::F32Sequential.accumulation(), 3.07e-5)]
#[case::pairwise(Model::F32Pairwise.accumulation(), 3.07e-5)]
#[case::ada_fp8(Model::AdaFp8.accumulation(), 0.071)]
#[case::hopper_fp8(Model::HopperFp8.accumulation(), 0.0675)]
#[case::promoted(Model::HopperFp8Promote128.accumulation(), 0.034)]
#[case::sm90(Model::Sm90MmaFp8.accumulation(), two(-17))]
#[case::blocks(Model::MxBlockF16Pair.accumulation(), two(-17))]
#[case::ada_bf16(Model::AdaBf16.accumulation(), 4.5e-5)]
#[case::hopper_bf16(Model::HopperBf16.accumulation(), two(-15))]
#[case::hopper_f16(Model::HopperF16.accumulation(), two(-15))]
#[case::mxf8f6f4(Model::BlackwellMxf8f6f4.accumulation(), two(-15))]
#[case::mxf4(Model::BlackwellMxf4.accumulation(), two(-19))]
#[case::mxf4nvf4(Model::BlackwellMxf4nvf4.accumulation(), two(-19))]
fn intervals_are_narrow(#[case] accumulation: Accumulation, #[case] limit: f64) {
    for seed in 0..50 {
        let data = Data {
            k: 256,
            spread: 3,
            centre: 0,
            c: C::None,
            cancelling: false,
            tensor_scales: false,
            seed,
        };
        let sum = data.sum(&accumulation);
        let products = values(&sum.a).into_iter().zip(values(&sum.b)).map(|(x, y)| (x * y).abs());
        let magnitude: f64 = products.sum();
        let dot = sum.dot();
        let bound = accumulation.bound(&sum.gemm(), 0, 0).unwrap().to_f64();
        let above = Bound::above(&dot.magnitude);
        assert!(2.0 * bound <= limit * magnitude, "{seed}: {:e}", 2.0 * bound / magnitude);
        assert!(limit.to_bits() == 0 || bound > 0.0);
        assert_relative_eq!(above, magnitude, max_relative = 1e-9);
    }
}

/// Hopper's FP8 by hand: K = 32 ones and c = 2, T = 34. (32 + 1)·2^(5 - 13) + 2^-13·34 + 2^-139 is 33/256 + 34/8192, and a little.
#[test]
fn a_bound_by_hand() {
    let ones = || Side::new(&E4M3, &[0x38; 32]);
    let sum = Sum::new(ones(), ones()).with_c(2f32.to_bits());
    let accumulation = Model::HopperFp8.accumulation();
    let bound = accumulation.bound(&sum.gemm(), 0, 0).unwrap().to_f64();
    let expected = 33.0 / 256.0 + 34.0 / 8192.0;
    assert!(bound > expected);
    assert_relative_eq!(bound, expected, max_relative = 1e-9);
    // 34 less and more 0.133056…, to f32 (33.866943359375 exactly, and so on) and to bf16, whose ulp is 1/4 there.
    let rule = |output| accumulation.rule(&sum.gemm(), 0, 0, output);
    let (low, high) = (34.0 - expected, 34.0 + expected);
    let bits = |x: f64| (x as f32).to_bits();
    // The little more is under half an ulp of f32, 2^-19, from numbers that f32 holds.
    assert_eq!(rule(&F32), Rule::Between { low: bits(low), high: bits(high) });
    assert_eq!(rule(&BF16), Rule::Between { low: 0x4207, high: 0x4209 });
}

/// One, and 255 products that are cut or rounded away next to it: what is lost is nearly all that the bound allows.
#[rstest]
#[case::ties_in_order(Model::F32Sequential.accumulation(), 0x38, 127 - 24, 0.99)]
#[case::hopper_fp8(Model::HopperFp8.accumulation(), 0x3f, 127 - 14, 0.8)]
#[case::mxf8f6f4(Model::BlackwellMxf8f6f4.accumulation(), 0x3f, 127 - 26, 0.8)]
fn bounds_are_nearly_reached(
    #[case] accumulation: Accumulation,
    #[case] code: u8,
    #[case] scale: u8,
    #[case] share: f64,
) {
    // Without scales where the model takes none: 2^-14 as 2^-7 × 2^-7, and c for the one.
    let fp8 = accumulation.accepts == Accepts::Fp8;
    let (a, b) = if fp8 { (0x07, 0x04) } else { (code, 0x38) };
    let small = Sum::new(Side::new(&E4M3, &[a; 256]), Side::new(&E4M3, &[b; 256]));
    let sum = if fp8 {
        small
    } else {
        Sum { a: small.a.clone().scaled(&E8M0, &[scale; 8], 32), ..small }
    };
    let sum = sum.with_c(1f32.to_bits());
    let [x, y] = [values(&sum.a)[0], values(&sum.b)[0]];
    let by = sum.gemm().accumulate(&accumulation, &F32).unwrap()[0];
    assert_eq!(by, 1f32.to_bits());
    let lost = 256.0 * x * y;
    let bound = accumulation.bound(&sum.gemm(), 0, 0).unwrap().to_f64();
    assert!(share * bound < lost && lost <= bound, "{lost:e} of {bound:e}");
}
