//! Matrix products: every pair of element formats under every kind of scales against the reference, output by output.

use approx::assert_relative_eq;
use mx_native::{accumulate, gemm, gemm_with_magnitude};
use mx_reference::format::{
    BF16, E2M1, E2M3, E3M2, E4M3, E5M2, E8M0, F16, F32, Format, INT8, UE4M3,
};
use mx_reference::gemm::{
    BlockScales, Bound, Codes, Dot, Gemm, GemmShape, Model, ModelError, Operand, Total,
};
use mx_reference::{ExactSum, Magnitude, Number};
use proptest::prelude::*;
use proptest::sample::select;
use rayon::ThreadPoolBuilder;
use rstest::rstest;

/// An element format, its scales' format, and the elements a scale.
#[derive(Clone, Copy, Debug)]
struct Kind(&'static Format, Option<(&'static Format, usize)>);

const fn mx(format: &'static Format) -> Kind {
    Kind(format, Some((&E8M0, 32)))
}
const MX: [Kind; 6] = [mx(&E4M3), mx(&E5M2), mx(&E3M2), mx(&E2M3), mx(&E2M1), mx(&INT8)];
const NVFP4: Kind = Kind(&E2M1, Some((&UE4M3, 16)));
const OTHERS: [Kind; 8] = [
    NVFP4,
    Kind(&BF16, None),
    Kind(&F16, None),
    Kind(&E5M2, None),
    Kind(&E2M1, Some((&E8M0, 16))),
    Kind(&E4M3, Some((&E8M0, 8))),
    Kind(&E4M3, Some((&UE4M3, 32))),
    Kind(&E5M2, Some((&UE4M3, 1))),
];

/// Elements of a matrix.
#[derive(Clone, Copy, Debug)]
enum Elements {
    /// Every code there is.
    Random,
    /// Every number.
    Finite,
    /// Numbers, and something else once in so many of them.
    Specials(u64),
    /// Numbers of magnitudes near 1.
    Near,
    /// Zeros of both signs.
    Zeros,
    /// The largest magnitude, all of one sign.
    Largest,
    /// The smallest magnitude, of random sign.
    Least,
    /// Pairs that cancel against [`Elements::Cancelled`] and leave nothing.
    Cancelling,
    /// Equal neighbours.
    Cancelled,
}

/// Scales of a matrix.
#[derive(Clone, Copy, Debug)]
enum Scales {
    Constant,
    Narrow,
    Wide,
    All,
    Edges,
}

const ELEMENTS: [Elements; 8] = [
    Elements::Random,
    Elements::Finite,
    Elements::Specials(100),
    Elements::Specials(5000),
    Elements::Near,
    Elements::Zeros,
    Elements::Largest,
    Elements::Least,
];
const SCALES: [Scales; 5] =
    [Scales::Constant, Scales::Narrow, Scales::Wide, Scales::All, Scales::Edges];

fn hash(seed: u64, i: usize) -> u64 {
    let mut x = (seed << 32 ^ i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The codes and scales of a matrix.
struct Data {
    kind: Kind,
    bytes: Vec<u8>,
    halves: Vec<u16>,
    scales: Vec<u8>,
}

impl Data {
    fn new(kind: Kind, size: (usize, usize), pattern: (Elements, Scales), seed: u64) -> Self {
        let codes = (0..size.0 * size.1).map(|i| code(kind.0, pattern.0, seed, i) as u16);
        let halves: Vec<u16> = codes.collect();
        let blocks = kind.1.map_or(0, |(_, block)| size.0 * size.1 / block);
        let scales = (0..blocks).map(|i| scale(pattern.1, hash(seed + 1, i))).collect();
        Self { kind, bytes: halves.iter().map(|&code| code as u8).collect(), halves, scales }
    }

    fn operand(&self) -> Operand<'_> {
        let Kind(format, scales) = self.kind;
        let codes =
            if format.bits > 8 { Codes::Halves(&self.halves) } else { Codes::Bytes(&self.bytes) };
        let scales =
            scales.map(|(format, block)| BlockScales { format, bytes: &self.scales, block });
        Operand { format, codes, scales }
    }
}

fn code(format: &Format, elements: Elements, seed: u64, i: usize) -> u32 {
    let random = (0..).map(|n| hash(seed ^ n << 20, i) as u32 & ((1 << format.bits) - 1));
    let is_number = |&code: &u32| {
        let magnitude = format.decode(code).magnitude;
        matches!(magnitude, Magnitude::Zero | Magnitude::Finite { .. })
    };
    let find = |wanted: &dyn Fn(&u32) -> bool| random.clone().find(wanted).expect("a code");
    let sign = |seed: u64| (hash(seed, i) & 1) as u32 * format.sign_bit();
    match elements {
        Elements::Random => find(&|_| true),
        Elements::Specials(every)
            if format.has_nan() && hash(seed, i) >> 40 > (1 << 24) / every =>
        {
            find(&is_number)
        }
        Elements::Specials(_) if format.has_nan() => find(&|code| !is_number(code)),
        Elements::Finite | Elements::Specials(_) => find(&is_number),
        Elements::Near => find(&|&code| {
            format.decode(code).exponent().is_some_and(|exponent| (-8..8).contains(&exponent))
        }),
        Elements::Zeros => sign(seed),
        Elements::Largest => format.max_code() | ((seed & 1) as u32 * format.sign_bit()),
        Elements::Least => 1 | sign(seed),
        Elements::Cancelling => {
            let code = code(format, Elements::Near, seed, i & !1);
            let negative = if format.sign_bit() == 0 {
                code.wrapping_neg() & 0xff
            } else {
                code ^ format.sign_bit()
            };
            if i & 1 == 0 { code } else { negative }
        }
        Elements::Cancelled => code(format, Elements::Near, seed, i & !1),
    }
}

fn scale(scales: Scales, hash: u64) -> u8 {
    match scales {
        Scales::Constant => 120,
        Scales::Narrow => 119 + (hash % 17) as u8,
        Scales::Wide => (hash % 255) as u8,
        Scales::All if (hash >> 32).is_multiple_of(16) => 255,
        Scales::All => (hash % 256) as u8,
        Scales::Edges => [0, 254][(hash & 1) as usize],
    }
}

/// All outputs and magnitudes against the reference.
#[track_caller]
fn check(product: &Gemm<'_>) {
    let GemmShape { m, n, .. } = product.shape();
    let dots: Vec<Dot> =
        (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| product.dot(i, j)).collect();
    for output in [F32, BF16, F16] {
        let expected: Vec<u32> = dots.iter().map(|dot| dot.total.round(&output)).collect();
        assert_eq!(gemm(product, &output), expected, "{}", output.name);
    }
    let (d, magnitudes) = gemm_with_magnitude(product, &F32);
    assert!(dots.iter().map(|dot| dot.total.round(&F32)).eq(d));
    assert_eq!(magnitudes.len(), dots.len());
    for (dot, magnitude) in dots.iter().zip(magnitudes) {
        let (Some(_), Total::Finite(exact)) = (dot.total.finite(), dot.magnitude) else {
            assert_eq!(magnitude.to_bits(), f64::INFINITY.to_bits());
            continue;
        };
        assert!(at_most(&exact, magnitude), "{exact:?} {magnitude:e}");
        let above = Bound::above(&dot.magnitude);
        assert_relative_eq!(magnitude, above, max_relative = 1e-9, epsilon = 0.0);
    }
}

/// Whether a double is no less than an exact sum, which is a multiple of 2^-320: so the double may be cut to one.
fn at_most(exact: &ExactSum, x: f64) -> bool {
    let (field, mantissa) = (x.to_bits() >> 52, x.to_bits() & ((1 << 52) - 1));
    assert!(x == 0.0 || (1..2047).contains(&field), "a normal double: {x:e}");
    let (significand, exponent) = (mantissa | 1 << 52, field as i32 - 1075);
    let below = (ExactSum::UNIT - exponent).clamp(0, 63);
    let mut sum = ExactSum::ZERO;
    if x != 0.0 {
        sum.add(Number::finite(false, significand >> below, exponent + below));
    }
    *exact <= sum
}

#[track_caller]
fn check_pair(
    (a, b): (Kind, Kind),
    shape: (usize, usize, usize),
    elements: (Elements, Elements),
    scales: (Scales, Scales),
    seed: u64,
) {
    let (m, n, k) = shape;
    let a = Data::new(a, (m, k), (elements.0, scales.0), seed);
    let b = Data::new(b, (n, k), (elements.1, scales.1), seed + 2);
    let shape = GemmShape { m, n, k };
    check(&Gemm::new(shape, a.operand(), b.operand(), None, None).expect("fits"));
}

#[rstest]
fn every_pair_of_formats(
    #[values(0, 1, 2, 3, 4, 5)] a: usize,
    #[values(0, 1, 2, 3, 4, 5)] b: usize,
    #[values((3, 17, 96), (5, 9, 160))] shape: (usize, usize, usize),
) {
    for (seed, scales) in (0..).zip(SCALES) {
        for elements in ELEMENTS {
            check_pair((MX[a], MX[b]), shape, (elements, elements), (scales, scales), seed);
        }
        let cancelling = (Elements::Cancelling, Elements::Cancelled);
        check_pair((MX[a], MX[b]), shape, cancelling, (scales, scales), seed);
    }
}

#[rstest]
fn every_other_kind(#[values(0, 1, 2, 3, 4, 5, 6, 7)] kind: usize) {
    for (seed, scales) in (0..).zip(SCALES) {
        for elements in ELEMENTS {
            for other in [OTHERS[kind], NVFP4, Kind(&F16, None), mx(&E4M3), mx(&E5M2)] {
                let elements = (elements, elements);
                check_pair((OTHERS[kind], other), (5, 9, 96), elements, (scales, scales), seed);
                check_pair((other, OTHERS[kind]), (1, 3, 64), elements, (scales, scales), seed);
            }
        }
    }
}

#[rstest]
#[case(1, 1, 1184)]
#[case(33, 17, 160)]
#[case(17, 33, 1184)]
#[case(5, 33, 0)]
#[case(0, 3, 32)]
#[case(3, 0, 32)]
fn shapes(#[case] m: usize, #[case] n: usize, #[case] k: usize) {
    for kinds in [(MX[0], MX[0]), (MX[0], MX[1]), (NVFP4, NVFP4), (Kind(&BF16, None), MX[2])] {
        for elements in [Elements::Finite, Elements::Specials(5000), Elements::Near] {
            let scales = (Scales::Narrow, Scales::Narrow);
            check_pair(kinds, (m, n, k), (elements, elements), scales, 7);
        }
    }
}

/// One block that no multiple of anything fits.
#[test]
fn a_last_block_that_is_not_full() {
    for k in [1, 16, 31, 33, 48] {
        for kind in [Kind(&E4M3, None), Kind(&BF16, None), Kind(&E5M2, Some((&E8M0, 1)))] {
            let pattern = ((Elements::Finite, Elements::Near), (Scales::Narrow, Scales::Wide));
            check_pair((kind, kind), (5, 9, k), pattern.0, pattern.1, 11);
        }
    }
}

#[rstest]
#[case(mx(&E4M3), Elements::Finite, Scales::Wide)]
#[case(mx(&E4M3), Elements::Finite, Scales::Narrow)]
#[case(mx(&E5M2), Elements::Largest, Scales::Constant)]
#[case(mx(&E5M2), Elements::Finite, Scales::Edges)]
#[case(mx(&INT8), Elements::Largest, Scales::Constant)]
#[case(NVFP4, Elements::Largest, Scales::Wide)]
#[case(Kind(&F16, None), Elements::Largest, Scales::Constant)]
fn a_dot_over_a_million(#[case] kind: Kind, #[case] elements: Elements, #[case] scales: Scales) {
    check_pair((kind, kind), (1, 1, 1 << 20), (elements, elements), (scales, scales), 3);
}

/// A block and three others, ever further apart: past what i64 holds, and past what i128 holds, from below and from above.
#[rstest]
fn every_spread_of_scales(#[values(0, 1, 2, 3, 4, 5)] element: usize, #[values(0, 1)] sign: u64) {
    let largest = |seed| {
        let pattern = (Elements::Largest, Scales::Constant);
        Data::new(MX[element], (1, 128), pattern, seed)
    };
    let (mut a, mut b) = (largest(sign), largest(0));
    let shape = GemmShape { m: 1, n: 1, k: 128 };
    for low in 0..=254 {
        for high in [low, 127, 254] {
            a.scales = vec![low, high, high, high];
            for (low, high) in [(127, 127), (low, high), (high, low)] {
                b.scales = vec![low, high, high, high];
                check(&Gemm::new(shape, a.operand(), b.operand(), None, None).unwrap());
            }
        }
    }
}

/// 2^24 + 1 is a tie, which something far below decides.
#[rstest]
fn ties_decided_far_below(#[values(0x38, 0xb8)] decides: u8, #[values(0x38, 0xb8)] sign: u8) {
    let mut codes = [0u8; 96];
    (codes[0], codes[32], codes[64]) = (sign, sign, decides);
    for top in [24u8, 120, 254] {
        for least in 0..top - 24 {
            let scales = [top, top - 24, least];
            let a = Operand {
                format: &E4M3,
                codes: Codes::Bytes(&codes),
                scales: Some(BlockScales { format: &E8M0, bytes: &scales, block: 32 }),
            };
            let ones = [0x38; 96];
            let b = Operand { codes: Codes::Bytes(&ones), scales: None, ..a };
            let shape = GemmShape { m: 1, n: 1, k: 96 };
            check(&Gemm::new(shape, a, b, None, None).unwrap());
        }
    }
}

/// Scaled bf16 reaches so far that the shifts of two rows together leave the exponents of doubles, if only over zeros.
#[test]
fn rows_from_one_end_of_everything_to_the_other() {
    let (mut a, mut b) = ([0; 64], [0; 64]);
    ([a[0], a[32]], [b[1], b[33]]) = ([0x0001, 0x7f00], [0x0010, 0x7f00]);
    let operand = |codes| Operand {
        format: &BF16,
        codes: Codes::Halves(codes),
        scales: Some(BlockScales { format: &E8M0, bytes: &[0, 254], block: 32 }),
    };
    let shape = GemmShape { m: 1, n: 1, k: 64 };
    check(&Gemm::new(shape, operand(&a), operand(&b), None, None).unwrap());
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let data = |seed| Data::new(MX[0], (150, 96), (Elements::Specials(5000), Scales::Narrow), seed);
    let (a, b) = (data(0), data(5));
    let shape = GemmShape { m: 150, n: 150, k: 96 };
    let product = Gemm::new(shape, a.operand(), b.operand(), None, None).unwrap();
    let with = |threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| gemm_with_magnitude(&product, &BF16))
    };
    let expected = with(1);
    assert_eq!(expected.0, product.exact(&BF16));
    for threads in [2, 3, 7] {
        assert_eq!(with(threads), expected);
    }
}

#[test]
fn models_accumulate_like_the_reference() {
    let fp8 = Kind(&E4M3, None);
    for (seed, elements) in (0..).zip(ELEMENTS) {
        for kind in [fp8, mx(&E4M3), NVFP4, Kind(&BF16, None)] {
            let data = |rows, seed| Data::new(kind, (rows, 160), (elements, Scales::Narrow), seed);
            let (a, b) = (data(5, seed), data(3, seed + 9));
            let shape = GemmShape { m: 5, n: 3, k: 160 };
            let product = Gemm::new(shape, a.operand(), b.operand(), None, None).unwrap();
            for model in Model::ALL {
                let accumulation = &model.accumulation();
                let expected = product.accumulate(accumulation, &F16);
                assert_eq!(accumulate(&product, accumulation, &F16), expected, "{}", model.name());
            }
        }
    }
    let operand = Operand { format: &INT8, codes: Codes::Bytes(&[0; 32]), scales: None };
    let shape = GemmShape { m: 1, n: 1, k: 32 };
    let product = Gemm::new(shape, operand, operand, None, None).unwrap();
    let refused = accumulate(&product, &Model::HopperFp8.accumulation(), &F32);
    assert!(matches!(refused, Err(ModelError::Operands { side: "A", .. })));
    let empty = Gemm::new(GemmShape { m: 0, n: 0, k: 0 }, NONE, NONE, None, None).unwrap();
    assert_eq!(accumulate(&empty, &Model::AdaFp8.accumulation(), &F32), Ok(vec![]));
}

const NONE: Operand<'_> = Operand { format: &E4M3, codes: Codes::Bytes(&[]), scales: None };

fn shape() -> impl Strategy<Value = (usize, usize, usize)> {
    let size = || select(vec![1usize, 3, 4, 5, 8, 17, 33]);
    (size(), size(), select(vec![32usize, 64, 96, 160, 1184]))
        .prop_filter("large", |(m, n, k)| m * n * k < 100_000)
}

fn kinds() -> impl Strategy<Value = Kind> {
    select([MX.as_slice(), &OTHERS].concat())
}

/// Bits of f32: any, or of magnitudes that meet the products.
fn addends() -> impl Strategy<Value = u32> {
    let near = (any::<bool>(), 100u32..150, 0u32..1 << 23);
    let near = near.prop_map(|(sign, e, fraction)| u32::from(sign) << 31 | e << 23 | fraction);
    prop_oneof![1 => any::<u32>(), 8 => near, 1 => select(vec![0, 1 << 31, 0x7f80_0000, 0x7fc0_0000])]
}

proptest! {
    #[test]
    fn anything_at_all(
        (a, b) in (kinds(), kinds()), shape in shape(), seed in 0u64..1 << 16,
        elements in (select(ELEMENTS.to_vec()), select(ELEMENTS.to_vec())),
        scales in (select(SCALES.to_vec()), select(SCALES.to_vec())),
    ) {
        check_pair((a, b), shape, elements, scales, seed);
    }

    /// Scales are narrow where E8M0 ones with a tensor scale could leave the reference's accumulator.
    #[test]
    fn addends_and_tensor_scales(
        (a, b) in (kinds(), kinds()), (m, n) in (1usize..6, 1usize..10), seed in 0u64..1 << 16,
        elements in (select(ELEMENTS.to_vec()), select(ELEMENTS.to_vec())),
        c in prop::option::of(prop::collection::vec(addends(), 64)),
        tensor in prop::option::of([addends(), addends()]),
    ) {
        let scales = if tensor.is_some() { Scales::Narrow } else { Scales::All };
        let reach = |kind: Kind| kind.0 == &BF16;
        prop_assume!(tensor.is_none() || !reach(a) && !reach(b));
        let a = Data::new(a, (m, 96), (elements.0, scales), seed);
        let b = Data::new(b, (n, 96), (elements.1, scales), seed + 2);
        let c = c.as_ref().map(|c| &c[..m * n]);
        check(&Gemm::new(GemmShape { m, n, k: 96 }, a.operand(), b.operand(), c, tensor).unwrap());
    }

    /// C takes away what the products come to, up to their own rounding.
    #[test]
    fn addends_that_cancel(a in kinds(), b in kinds(), seed in 0u64..1 << 16) {
        let near = (Elements::Near, Scales::Narrow);
        let (a, b) = (Data::new(a, (5, 96), near, seed), Data::new(b, (9, 96), near, seed + 2));
        let shape = GemmShape { m: 5, n: 9, k: 96 };
        let product = Gemm::new(shape, a.operand(), b.operand(), None, None).unwrap();
        let c: Vec<u32> = gemm(&product, &F32).into_iter().map(|bits| bits ^ 1 << 31).collect();
        check(&Gemm::new(shape, a.operand(), b.operand(), Some(&c), None).unwrap());
    }
}
