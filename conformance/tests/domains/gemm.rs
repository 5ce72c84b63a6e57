//! Matrix products: sums of every two kinds of operands, under scales of every size.

use std::fmt::Debug;

use mx_oracle::{Float, GemmElements, GemmOperand, GemmScales};
use mx_reference::format::{BF16, E2M1, E8M0, F16, F32, UE4M3};
use mx_reference::gemm::{BlockScales, Bound, Codes, Gemm, GemmShape, Model, ModelError, Operand};
use mx_reference::{Element, Format, Magnitude};
use mx_vectors::rng::Stream;
use rstest::rstest;

use crate::tally::Tally;

/// A kind of operand.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// An MX format under E8M0 scales.
    Mx(Element),
    /// E2M1 under UE4M3 scales.
    Nvfp4,
    Bf16,
    F16,
}

impl Kind {
    const fn format(self) -> &'static Format {
        match self {
            Self::Mx(element) => element.format(),
            Self::Nvfp4 => &E2M1,
            Self::Bf16 => &BF16,
            Self::F16 => &F16,
        }
    }

    /// The scale format and its block.
    const fn scales(self) -> Option<(&'static Format, usize)> {
        match self {
            Self::Mx(_) => Some((&E8M0, 32)),
            Self::Nvfp4 => Some((&UE4M3, 16)),
            Self::Bf16 | Self::F16 => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Scales {
    Constant,
    Near,
    Full,
    /// Full, and NaN here and there.
    Nan,
    /// 0, 1, 253 and 254.
    Extreme,
}

#[derive(Clone, Copy, Debug)]
enum Elements {
    /// All codes; few of those that are not finite, or nothing else would be seen.
    Any,
    Finite,
    /// Each odd element undoes the one before, but for a few.
    Cancelling,
    /// The largest magnitude, with both signs.
    Largest,
}

#[derive(Clone, Copy, Debug)]
enum C {
    None,
    Any,
    /// What the product is, rounded to f32, with the other sign.
    Residue,
}

const SCALES: [Scales; 5] =
    [Scales::Constant, Scales::Near, Scales::Full, Scales::Nan, Scales::Extreme];
const ELEMENTS: [Elements; 4] =
    [Elements::Any, Elements::Finite, Elements::Cancelling, Elements::Largest];
const ADDENDS: [C; 3] = [C::None, C::Any, C::Residue];
const OUTPUTS: [(&Format, Float); 3] =
    [(&F32, Float::F32), (&BF16, Float::Bf16), (&F16, Float::F16)];

const SHAPES: [GemmShape; 5] = [
    GemmShape { m: 33, n: 31, k: 32 },
    GemmShape { m: 17, n: 19, k: 64 },
    GemmShape { m: 16, n: 33, k: 96 },
    GemmShape { m: 23, n: 25, k: 160 },
    GemmShape { m: 16, n: 17, k: 1184 },
];
/// Outputs of the shapes before the last, which comes with one kind of addend at a time.
const DOTS: usize = 33 * 31 + 17 * 19 + 16 * 33 + 23 * 25;
const LONG_DOTS: usize = 16 * 17;

/// One operand of `rows` rows.
#[derive(Clone, Debug)]
struct Side {
    kind: Kind,
    rows: usize,
    k: usize,
    codes: Vec<u8>,
    halves: Vec<u16>,
    scales: Vec<u8>,
}

impl Side {
    fn new(
        stream: &mut Stream,
        kind: Kind,
        (rows, k): (usize, usize),
        (elements, scales): (Elements, Scales),
        alternating: bool,
    ) -> Self {
        let format = kind.format();
        let mut codes: Vec<u16> =
            (0..rows * k).map(|_| element(stream, format, elements, k)).collect();
        if let Elements::Cancelling = elements {
            for pair in codes.chunks_exact_mut(2) {
                if stream.below(k as u64) != 0 {
                    pair[1] = if alternating { opposite(format, pair[0]) } else { pair[0] };
                }
            }
        }
        let wide = matches!(kind, Kind::Bf16 | Kind::F16);
        let (halves, codes) = if wide {
            (codes, Vec::new())
        } else {
            (Vec::new(), codes.iter().map(|&c| c as u8).collect())
        };
        let scales = kind.scales().map_or_else(Vec::new, |(format, block)| {
            scale_bytes(stream, format, scales, rows * k / block, k / block)
        });
        Self { kind, rows, k, codes, halves, scales }
    }

    fn reference(&self) -> Operand<'_> {
        let codes = match self.kind {
            Kind::Bf16 | Kind::F16 => Codes::Halves(&self.halves),
            _ => Codes::Bytes(&self.codes),
        };
        let scales = self.kind.scales();
        let scales =
            scales.map(|(format, block)| BlockScales { format, bytes: &self.scales, block });
        Operand { format: self.kind.format(), codes, scales }
    }

    fn oracle(&self) -> GemmOperand<'_> {
        let elements = match self.kind {
            Kind::Mx(element) => {
                GemmElements::Codes(mx_oracle::Format::ELEMENTS[element as usize], &self.codes)
            }
            Kind::Nvfp4 => GemmElements::Codes(mx_oracle::Format::E2m1, &self.codes),
            Kind::Bf16 => GemmElements::Floats(Float::Bf16, &self.halves),
            Kind::F16 => GemmElements::Floats(Float::F16, &self.halves),
        };
        let scales = self.kind.scales().map(|(_, block)| {
            let ocp = matches!(self.kind, Kind::Mx(_));
            let format = if ocp { mx_oracle::Format::E8m0 } else { mx_oracle::Format::Ue4m3 };
            GemmScales { format, bytes: &self.scales, block }
        });
        GemmOperand { elements, scales }
    }

    /// Elements in another order along K, each still under its scale: blocks trade places, and elements within 16 of them.
    fn permuted(&self, blocks: &[usize], within: &[usize]) -> Self {
        let at = |r: usize, k: usize| {
            r * self.k + blocks[k / 32] * 32 + k % 32 / 16 * 16 + within[k % 16]
        };
        let places =
            || (0..self.rows).flat_map(|r| (0..self.k).map(move |k| (r, k))).map(|(r, k)| at(r, k));
        let scales = self.kind.scales().map_or_else(Vec::new, |(_, block)| {
            let across = self.k / block;
            let of = |r: usize, s: usize| {
                let first = s * block;
                self.scales[r * across + (blocks[first / 32] * 32 + first % 32) / block]
            };
            (0..self.rows).flat_map(|r| (0..across).map(move |s| of(r, s))).collect()
        });
        let codes = if self.codes.is_empty() {
            Vec::new()
        } else {
            places().map(|i| self.codes[i]).collect()
        };
        let halves = if self.halves.is_empty() {
            Vec::new()
        } else {
            places().map(|i| self.halves[i]).collect()
        };
        Self { codes, halves, scales, ..*self }
    }
}

fn is_finite(format: &Format, code: u32) -> bool {
    !matches!(format.decode(code).magnitude, Magnitude::Nan | Magnitude::Infinite)
}

fn element(stream: &mut Stream, format: &Format, elements: Elements, k: usize) -> u16 {
    if let Elements::Largest = elements {
        let code = format.max_code() as u16;
        return if stream.flag() { opposite(format, code) } else { code };
    }
    let specials = matches!(elements, Elements::Any);
    loop {
        let code = stream.below(format.codes()) as u32;
        if is_finite(format, code) || (specials && stream.below(k as u64) < 4) {
            return code as u16;
        }
    }
}

/// The code of the other sign.
fn opposite(format: &Format, code: u16) -> u16 {
    match format.sign_bit() {
        0 => u16::from((code as u8).wrapping_neg()),
        bit => code ^ bit as u16,
    }
}

/// Scale bytes of a format whose NaN is 0xff, or 0x7f with any bit 7.
fn scale_bytes(
    stream: &mut Stream,
    format: &Format,
    scales: Scales,
    count: usize,
    across: usize,
) -> Vec<u8> {
    let ocp = *format == E8M0;
    let (one, numbers) = if ocp { (127, 255) } else { (0x38, 127) };
    let constant = stream.below(numbers) as u8;
    let mut byte = || {
        let full = stream.below(numbers) as u8;
        let byte = match scales {
            Scales::Constant => constant,
            Scales::Near => one - 8 + stream.below(17) as u8,
            Scales::Nan if stream.below(8 * across as u64) == 0 => numbers as u8,
            Scales::Full | Scales::Nan => full,
            Scales::Extreme => {
                let last = numbers as u8 - 1;
                [0, 1, last - 1, last][stream.below(4) as usize]
            }
        };
        if ocp { byte } else { byte | (stream.below(2) as u8) << 7 }
    };
    (0..count).map(|_| byte()).collect()
}

/// Any f32, but few that are not finite.
fn any_f32(stream: &mut Stream) -> u32 {
    loop {
        let bits = stream.word() as u32;
        match stream.below(64) {
            0..4 => return bits & 0x80000000,
            4..8 => return bits & 0x807fffff,
            8 => return bits | 0x7f800000,
            9 => return bits & 0x80000000 | 0x7f800000,
            _ if bits & 0x7f800000 != 0x7f800000 => return bits,
            _ => {}
        }
    }
}

/// One product, as the three sources see it.
struct Product {
    shape: GemmShape,
    a: Side,
    b: Side,
    c: Option<Vec<u32>>,
    tensor_scales: Option<[u32; 2]>,
}

impl Product {
    fn reference(&self) -> Gemm<'_> {
        let (a, b) = (self.a.reference(), self.b.reference());
        Gemm::new(self.shape, a, b, self.c.as_deref(), self.tensor_scales)
            .expect("tensors that fit their shape")
    }

    fn by_oracle(&self, output: Float) -> Vec<u32> {
        let shape = mx_oracle::GemmShape { m: self.shape.m, n: self.shape.n, k: self.shape.k };
        let (a, b) = (self.a.oracle(), self.b.oracle());
        mx_oracle::gemm(shape, &a, &b, self.c.as_deref(), self.tensor_scales, output)
    }

    fn add(&mut self, c: C, stream: &mut Stream) {
        self.c = match c {
            C::None => None,
            C::Any => Some((0..self.shape.m * self.shape.n).map(|_| any_f32(stream)).collect()),
            C::Residue => {
                self.c = None;
                Some(self.by_oracle(Float::F32).iter().map(|bits| bits ^ 0x80000000).collect())
            }
        };
    }

    fn compare(&self, tally: &mut Tally, what: &dyn Debug) {
        let gemm = self.reference();
        for (format, float) in OUTPUTS {
            let n = self.shape.n;
            tally.compare(
                |i| format!("{what:?} to {} at ({}, {})", format.name, i / n, i % n),
                &[
                    ("oracle", &self.by_oracle(float)),
                    ("reference", &gemm.exact(format)),
                    ("native", &mx_native::gemm(&gemm, format)),
                ],
            );
        }
    }
}

fn patterns() -> impl Iterator<Item = (Elements, Scales)> {
    ELEMENTS.iter().flat_map(|&elements| SCALES.map(|scales| (elements, scales)))
}

/// How many outputs [`random`] compares.
const fn outputs(pairs: usize) -> u64 {
    let patterns = SCALES.len() * ELEMENTS.len();
    let dots = pairs * patterns * (ADDENDS.len() * DOTS + LONG_DOTS);
    (dots * OUTPUTS.len()) as u64
}

/// Every pattern, shape and addend of one pair.
fn random(tally: &mut Tally, a: Kind, b: Kind, tensor_scaled: bool) {
    let name = format!("{a:?} {b:?} {tensor_scaled}");
    let mut stream = Stream::new(&["domains", "gemm", &name], 0);
    for shape in SHAPES {
        for (number, patterns) in patterns().enumerate() {
            let GemmShape { m, n, k } = shape;
            let tensor_scales = tensor_scaled.then(|| [any_f32(&mut stream), any_f32(&mut stream)]);
            let mut product = Product {
                shape,
                a: Side::new(&mut stream, a, (m, k), patterns, true),
                b: Side::new(&mut stream, b, (n, k), patterns, false),
                c: None,
                tensor_scales,
            };
            let long = shape == SHAPES[SHAPES.len() - 1];
            let one = number % ADDENDS.len();
            for &c in if long { &ADDENDS[one..=one] } else { &ADDENDS } {
                product.add(c, &mut stream);
                product.compare(tally, &(a, b, shape, patterns, c, tensor_scales));
            }
        }
    }
}

#[rstest]
#[ignore = "seconds, but only where optimised: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn random_products_of_every_two_elements(
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
    let mut tally = Tally::long(format!("products of {}", a.name()), outputs(Element::ALL.len()));
    for b in Element::ALL {
        random(&mut tally, Kind::Mx(a), Kind::Mx(b), false);
    }
    tally.finish();
}

#[rstest]
#[case::nvfp4(Kind::Nvfp4, &[Kind::Nvfp4, Kind::Mx(Element::E2m1), Kind::Bf16], false)]
#[case::nvfp4_under_tensor_scales(Kind::Nvfp4, &[Kind::Nvfp4], true)]
#[case::bf16(Kind::Bf16, &[Kind::Bf16, Kind::Mx(Element::E4m3), Kind::F16], false)]
#[case::f16(Kind::F16, &[Kind::F16, Kind::Mx(Element::Int8), Kind::Nvfp4], false)]
#[ignore = "seconds, but only where optimised: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn random_products_of_others(
    #[case] a: Kind,
    #[case] others: &[Kind],
    #[case] tensor_scaled: bool,
) {
    let under = if tensor_scaled { " under tensor scales" } else { "" };
    let mut tally = Tally::long(format!("products of {a:?}{under}"), outputs(others.len()));
    for &b in others {
        random(&mut tally, a, b, tensor_scaled);
    }
    tally.finish();
}

/// Every operand kind with itself and with the next.
fn pairs() -> impl Iterator<Item = (Kind, Kind)> {
    let mx = Element::ALL.into_iter().map(Kind::Mx);
    let kinds: Vec<Kind> = mx.chain([Kind::Nvfp4, Kind::Bf16, Kind::F16]).collect();
    (0..kinds.len())
        .flat_map(move |i| [(kinds[i], kinds[i]), (kinds[i], kinds[(i + 1) % kinds.len()])])
}

/// A permutation of numbers below n.
fn shuffled(stream: &mut Stream, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, stream.below(i as u64 + 1) as usize);
    }
    order
}

#[test]
#[ignore = "seconds, but only where optimised: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn the_order_of_k_leaves_every_bit() {
    const SHAPE: GemmShape = GemmShape { m: 17, n: 16, k: 320 };
    const ORDERS: u64 = 2;
    let announced = pairs().count() * patterns().count() * OUTPUTS.len() * SHAPE.m * SHAPE.n;
    let mut tally = Tally::long("orders of k", announced as u64 * ORDERS);
    for (a, b) in pairs() {
        let mut stream = Stream::new(&["domains", "orders", &format!("{a:?} {b:?}")], 0);
        for patterns in patterns() {
            let GemmShape { m, n, k } = SHAPE;
            let side = |stream: &mut Stream, kind, rows, alternating| {
                Side::new(stream, kind, (rows, k), patterns, alternating)
            };
            let (a, b) = (side(&mut stream, a, m, true), side(&mut stream, b, n, false));
            let mut product = Product { shape: SHAPE, a, b, c: None, tensor_scales: None };
            product.add(C::Any, &mut stream);
            let before = OUTPUTS.map(|(format, float)| {
                (product.by_oracle(float), mx_native::gemm(&product.reference(), format))
            });
            for _ in 0..ORDERS {
                let (blocks, within) = (shuffled(&mut stream, k / 32), shuffled(&mut stream, 16));
                let permuted = Product {
                    a: product.a.permuted(&blocks, &within),
                    b: product.b.permuted(&blocks, &within),
                    c: product.c.clone(),
                    ..product
                };
                for ((format, float), (oracle, native)) in OUTPUTS.iter().zip(&before) {
                    tally.compare(
                        |i| {
                            format!(
                                "{:?} {:?} {patterns:?} at {i}",
                                permuted.a.kind, permuted.b.kind
                            )
                        },
                        &[
                            ("oracle", oracle),
                            ("oracle permuted", &permuted.by_oracle(*float)),
                            ("native", native),
                            ("native permuted", &mx_native::gemm(&permuted.reference(), format)),
                        ],
                    );
                }
            }
        }
    }
    tally.finish();
}

/// Operands for a model, mostly such as it takes.
fn operands(model: Model) -> [Kind; 2] {
    match model {
        Model::Exact | Model::F32Sequential => [Kind::Nvfp4, Kind::Mx(Element::Int8)],
        Model::F32Pairwise => [Kind::Bf16, Kind::Mx(Element::E3m2)],
        Model::AdaBf16 | Model::HopperBf16 => [Kind::Bf16, Kind::Mx(Element::E4m3)],
        Model::HopperF16 => [Kind::F16, Kind::F16],
        Model::MxBlockF16Pair => [Kind::Mx(Element::E5m2), Kind::Mx(Element::Int8)],
        Model::BlackwellMxf8f6f4 => [Kind::Mx(Element::E5m2), Kind::Mx(Element::E2m3)],
        Model::BlackwellMxf4 => [Kind::Mx(Element::E2m1); 2],
        Model::BlackwellMxf4nvf4 => [Kind::Nvfp4; 2],
        _ => [Kind::Mx(Element::E4m3), Kind::Mx(Element::E5m2)],
    }
}

/// The native accumulation is the reference's, spread over threads: of each model, outputs and refusals.
#[rstest]
#[case::near(Scales::Near, Elements::Finite)]
#[case::anything(Scales::Nan, Elements::Any)]
fn native_models_are_those_of_the_reference(#[case] scales: Scales, #[case] elements: Elements) {
    let mut tally = Tally::short("accumulations", (Model::ALL.len() * 3 * 13 * 11 * 3) as u64);
    for model in Model::ALL {
        let mut stream = Stream::new(&["domains", "accumulations", model.name()], 0);
        for (split, k) in [(1, 96), (2, 384), (3, 256)] {
            let shape = GemmShape { m: 13, n: 11, k };
            let [a, b] = operands(model);
            let mut product = Product {
                shape,
                a: Side::new(&mut stream, a, (13, k), (elements, scales), true),
                b: Side::new(&mut stream, b, (11, k), (elements, scales), false),
                c: None,
                tensor_scales: None,
            };
            if let Model::AdaFp8
            | Model::HopperFp8
            | Model::HopperFp8Promote128
            | Model::Sm90MmaFp8 = model
            {
                product.a.scales.fill(0x7f);
                product.b.scales.fill(0x7f);
            }
            product.add(C::Any, &mut stream);
            let mut accumulation = model.accumulation();
            accumulation.split = split;
            let gemm = product.reference();
            for (format, _) in OUTPUTS {
                let both = [
                    gemm.accumulate(&accumulation, format),
                    mx_native::accumulate(&gemm, &accumulation, format),
                ];
                let refused = matches!(both[0], Err(ModelError::Operands { .. }));
                // Under scales of every size some values are not bf16's.
                assert!(!refused || matches!(scales, Scales::Nan), "{model:?}");
                let [reference, native] =
                    both.map(|d| d.unwrap_or_else(|_| vec![u32::MAX; 13 * 11]));
                tally.compare(
                    |i| format!("{model:?} split {split} {} at {i}", format.name),
                    &[("reference", &reference), ("native", &native)],
                );
            }
        }
    }
    tally.finish();
}

/// Sums of absolute values: the oracle's and the reference's are one number, which the native bound hardly exceeds.
#[test]
fn magnitudes() {
    const SHAPE: GemmShape = GemmShape { m: 9, n: 7, k: 160 };
    let patterns = [
        (Elements::Any, Scales::Nan),
        (Elements::Finite, Scales::Full),
        (Elements::Cancelling, Scales::Near),
        (Elements::Largest, Scales::Extreme),
    ];
    let mut tally =
        Tally::short("magnitudes", (pairs().count() * patterns.len() * SHAPE.m * SHAPE.n) as u64);
    for (a, b) in pairs() {
        let mut stream = Stream::new(&["domains", "magnitudes", &format!("{a:?} {b:?}")], 0);
        for patterns in patterns {
            let GemmShape { m, n, k } = SHAPE;
            let a = Side::new(&mut stream, a, (m, k), patterns, true);
            let b = Side::new(&mut stream, b, (n, k), patterns, false);
            let mut product = Product { shape: SHAPE, a, b, c: None, tensor_scales: None };
            product.add(C::Any, &mut stream);
            let gemm = product.reference();
            let (d, above) = mx_native::gemm_with_magnitude(&gemm, &F32);
            assert_eq!(d, gemm.exact(&F32));
            let (oracle_a, oracle_b) = (product.a.oracle(), product.b.oracle());
            let oracle_shape = mx_oracle::GemmShape { m, n, k };
            let mut by_oracle = Vec::new();
            let mut by_reference = Vec::new();
            for (at, above) in above.into_iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let found = mx_oracle::dot(oracle_shape, &oracle_a, &oracle_b, None, i, j);
                by_oracle.push(found.map_or(u32::MAX, |dot| dot.magnitude.nearest(Float::F32)));
                let dot = gemm.dot(i, j);
                let finite = dot.magnitude.finite().is_some();
                by_reference.push(if finite { dot.magnitude.round(&F32) } else { u32::MAX });
                if dot.total.finite().is_some() {
                    let bound = Bound::above(&dot.magnitude);
                    assert!(
                        above >= bound * (1.0 - 1e-9) && above <= bound * (1.0 + 1e-9),
                        "{above:e} and {bound:e} at ({i}, {j}) of {patterns:?}"
                    );
                } else {
                    assert!(
                        above.is_infinite() && above > 0.0,
                        "{above:e} at ({i}, {j}) of {patterns:?}"
                    );
                }
            }
            tally.compare(
                |i| format!("{:?} {:?} {patterns:?} at {i}", product.a.kind, product.b.kind),
                &[("oracle", &by_oracle), ("reference", &by_reference)],
            );
        }
    }
    tally.finish();
}
