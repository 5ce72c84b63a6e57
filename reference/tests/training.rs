//! Training operations against sums that the test itself forms, in integers, over casts of tensors that it transposed itself.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the report")]

use half::{bf16, f16};
use mx_reference::convention::{PROPAGATE, TE, TORCHAO_0_18};
use mx_reference::format::{BF16, F32};
use mx_reference::gemm::Model;
use mx_reference::training::{
    Grouped, GroupedOutputs, KernelPreference, Linear, LinearOutputs, OutputType, Recipe,
    TrainingConfig, TrainingError, all_to_all, pad_token_groups,
};
use mx_reference::{
    BlockShape, Blocking, Element, Input, Matrix, MatrixView, Profile, Quantized, ScaleMode,
    ShapeError, dequantize, quantize,
};
use proptest::prelude::*;
use rstest::rstest;

/// A row-major tensor.
#[derive(Clone, Debug, PartialEq)]
struct Tensor<T> {
    rows: usize,
    cols: usize,
    data: Vec<T>,
}

impl<T: Input> Tensor<T> {
    fn new(rows: usize, cols: usize, of: impl Fn(usize, usize) -> T) -> Self {
        let data = (0..rows * cols).map(|i| of(i / cols, i % cols)).collect();
        Self { rows, cols, data }
    }

    fn at(&self, r: usize, c: usize) -> T {
        self.data[r * self.cols + c]
    }

    fn view(&self) -> MatrixView<'_, T> {
        MatrixView::contiguous(&self.data, self.rows, self.cols).unwrap()
    }

    fn matrix(&self) -> Matrix<'_> {
        self.view().into()
    }

    fn transposed(&self) -> Self {
        Self::new(self.cols, self.rows, |r, c| self.at(c, r))
    }

    fn rows(&self, range: core::ops::Range<usize>) -> Self {
        Self::new(range.len(), self.cols, |r, c| self.at(range.start + r, c))
    }

    /// The tensor of values under a cast along its rows.
    fn cast(&self, config: &TrainingConfig) -> Tensor<f32> {
        let q = quantize(self.view(), config.profile(), Blocking::MX_ROW).unwrap();
        let shape = (self.rows, self.cols);
        let bits = dequantize(config.element, shape, BlockShape::MX, &q.elements, &q.scales, &F32)
            .unwrap();
        Tensor {
            rows: self.rows,
            cols: self.cols,
            data: bits.into_iter().map(f32::from_bits).collect(),
        }
    }

    fn values(&self) -> Tensor<f32> {
        let bits = |x: T| x.bits();
        let value = |bits: u32| match T::FORMAT.bits {
            32 => f32::from_bits(bits),
            _ if T::FORMAT == BF16 => bf16::from_bits(bits as u16).to_f32(),
            _ => f16::from_bits(bits as u16).to_f32(),
        };
        Tensor::new(self.rows, self.cols, |r, c| value(bits(self.at(r, c))))
    }
}

/// A·Bᵀ as f32 bits, rounded once: values are multiples of 2^-40, and their sums fit 128 bits.
fn product(a: &Tensor<f32>, b: &Tensor<f32>) -> Vec<u32> {
    const UNITS: f64 = (1u64 << 40) as f64;
    let integer = |x: f32| {
        let units = f64::from(x) * UNITS;
        assert!(units.fract().abs() < f64::MIN_POSITIVE && units.abs() < 2f64.powf(62.0), "{x}");
        units as i128
    };
    assert_eq!(a.cols, b.cols);
    let dot = |i: usize, j: usize| {
        let sum: i128 = (0..a.cols).map(|k| integer(a.at(i, k)) * integer(b.at(j, k))).sum();
        // The conversion rounds to nearest even, and the power of two is exact.
        ((sum as f32) * f32::from_bits((127 - 80) << 23)).to_bits()
    };
    (0..a.rows).flat_map(|i| (0..b.rows).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect()
}

/// The transposed tensor as a weight gradient takes it.
fn along_tokens(config: &TrainingConfig, tensor: &Tensor<bf16>) -> Tensor<f32> {
    let transposed = tensor.transposed();
    if config.wgrad_with_hp { transposed.values() } else { transposed.cast(config) }
}

/// Values over a few binades, none of them special, from a seed.
fn noise(rows: usize, cols: usize, seed: u64) -> Tensor<bf16> {
    Tensor::new(rows, cols, |r, c| {
        let mut z = seed.wrapping_add((r * cols + c + 1) as u64).wrapping_mul(0x9e3779b97f4a7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d049bb133111eb);
        z ^= z >> 31;
        let exponent = 124 + (z >> 8) % 7;
        bf16::from_bits((((z & 1) << 15) | (exponent << 7) | ((z >> 16) % 128)) as u16)
    })
}

/// Whole numbers, which every cast here keeps.
fn whole<T: Input>(rows: usize, cols: usize, numbers: &[i8], to: impl Fn(f32) -> T) -> Tensor<T> {
    Tensor::new(rows, cols, |r, c| to(numbers[(r * cols + c) % numbers.len()].into()))
}

fn f32_output(recipe: Recipe) -> TrainingConfig {
    TrainingConfig { output: OutputType::F32, ..recipe.config() }
}

fn run<T: Input>(
    config: TrainingConfig,
    x: &Tensor<T>,
    w: &Tensor<T>,
    g: &Tensor<T>,
) -> LinearOutputs {
    Linear::new(config).unwrap().run(x.matrix(), w.matrix(), g.matrix()).unwrap()
}

fn grouped<T: Input>(
    config: TrainingConfig,
    x: &Tensor<T>,
    w: &Tensor<T>,
    g: &Tensor<T>,
    ends: &[i32],
) -> GroupedOutputs {
    Grouped::new(config).unwrap().run(x.matrix(), w.matrix(), g.matrix(), ends).unwrap()
}

#[rstest]
#[case("mxfp8_rceil", Element::E4m3, ScaleMode::Rceil, KernelPreference::Auto, false)]
#[case("mxfp8_rceil_wgrad_with_hp", Element::E4m3, ScaleMode::Rceil, KernelPreference::Auto, true)]
#[case("mxfp8_emulated_rceil", Element::E4m3, ScaleMode::Rceil, KernelPreference::Emulated, false)]
#[case("mxfp8_emulated", Element::E4m3, ScaleMode::Floor, KernelPreference::Emulated, false)]
#[case("mxfp8_cublas", Element::E4m3, ScaleMode::Floor, KernelPreference::Auto, false)]
#[case("mxfp8_cublas_rceil", Element::E4m3, ScaleMode::Rceil, KernelPreference::Auto, false)]
#[case("mxfp4_emulated", Element::E2m1, ScaleMode::Floor, KernelPreference::Emulated, false)]
fn recipes(
    #[case] name: &str,
    #[case] element: Element,
    #[case] mode: ScaleMode,
    #[case] kernel: KernelPreference,
    #[case] wgrad_with_hp: bool,
) {
    let recipe = Recipe::from_name(name).unwrap();
    assert_eq!(recipe.name(), name);
    let config = recipe.config();
    assert_eq!(config.check(), Ok(()));
    assert_eq!(
        config,
        TrainingConfig {
            element,
            mode,
            convention: &PROPAGATE,
            output: OutputType::Bf16,
            wgrad_with_hp,
            pad_token_groups: false,
            kernel,
        }
    );
}

#[test]
fn every_recipe_is_listed_once() {
    let names: std::collections::BTreeSet<_> = Recipe::ALL.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), 7);
    assert_eq!(Recipe::from_name("mxfp8"), None);
}

#[rstest]
#[case(Element::Int8, ScaleMode::Rceil, KernelPreference::Emulated, Some("element"))]
#[case(Element::E5m2, ScaleMode::Rceil, KernelPreference::Auto, Some("element"))]
#[case(Element::E5m2, ScaleMode::Even, KernelPreference::Emulated, None)]
#[case(Element::E4m3, ScaleMode::Even, KernelPreference::Auto, Some("mode"))]
#[case(Element::E4m3, ScaleMode::Ceil, KernelPreference::Auto, Some("mode"))]
#[case(Element::E4m3, ScaleMode::Even, KernelPreference::Emulated, None)]
#[case(Element::E2m1, ScaleMode::Even, KernelPreference::Auto, None)]
fn settings_that_no_kernel_computes_are_refused(
    #[case] element: Element,
    #[case] mode: ScaleMode,
    #[case] kernel: KernelPreference,
    #[case] refused: Option<&str>,
) {
    let config = TrainingConfig { element, mode, kernel, ..Recipe::Mxfp8Rceil.config() };
    let setting = |error| match error {
        TrainingError::Config { setting, .. } => setting,
        other => panic!("{other}"),
    };
    assert_eq!(config.check().err().map(setting), refused);
    assert_eq!(Linear::new(config).err().map(setting), refused);
    assert_eq!(Grouped::new(config).err().map(setting), refused);
    assert_eq!(all_to_all(&config, &[], &[]).err().map(setting), refused);
}

#[test]
fn identity_weights_hand_through_what_casts_keep() {
    // 0 to 14 under 2^-5 or 2^-4, and ones: nothing is rounded, nothing saturates.
    let x =
        whole(64, 32, &[0, 1, 2, 3, -4, 5, 6, 7, 8, 9, -10, 11, 12, 13, 14, 14], bf16::from_f32);
    let w = Tensor::new(32, 32, |r, c| if r == c { bf16::ONE } else { bf16::ZERO });
    for recipe in Recipe::ALL.into_iter().filter(|r| r.config().element == Element::E4m3) {
        let step = run(recipe.config(), &x, &w, &x);
        let bits: Vec<u32> = x.data.iter().map(|x| x.to_bits().into()).collect();
        assert_eq!((step.y.rows, step.y.cols, step.y.format), (64, 32, &BF16));
        assert!(step.y.bits == bits && step.dx.bits == bits, "{}", recipe.name());
        assert_eq!(step.dw.bits.len(), 32 * 32);
        // Rows repeat, so a column holds one number 64 times.
        let number = |c: usize| x.at(0, c).to_f32();
        let dw = bf16::from_f32(64.0 * number(3) * number(5));
        assert_eq!(step.dw.bits[3 * 32 + 5], u32::from(dw.to_bits()));
    }
}

/// Every product against sums over the tensors themselves.
fn check_plain_products<T: Input>(
    config: TrainingConfig,
    (m, n, k): (usize, usize, usize),
    numbers: &[i8],
    to: impl Fn(f32) -> T,
) {
    let x = whole(m, k, &numbers[..67], &to);
    let w = whole(n, k, &numbers[67..134], &to);
    let g = whole(m, n, &numbers[134..], &to);
    let step = run(config, &x, &w, &g);
    let [x, w, g] = [x.values(), w.values(), g.values()];
    assert_eq!(step.y.bits, product(&x, &w));
    assert_eq!(step.dx.bits, product(&g, &w.transposed()));
    assert_eq!(step.dw.bits, product(&g.transposed(), &x.transposed()));
    assert_eq!([step.y.rows, step.dx.rows, step.dw.rows], [m, m, n]);
    assert_eq!([step.y.cols, step.dx.cols, step.dw.cols], [n, k, k]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Where casts are exact every recipe is the plain product, in every input type.
    #[test]
    fn whole_numbers_give_plain_products(
        recipe in prop::sample::select(Recipe::ALL.to_vec()),
        (m, n, k) in prop::sample::select(vec![(32, 32, 32), (32, 64, 96), (64, 32, 32), (96, 32, 64)]),
        numbers in prop::collection::vec(prop::sample::select(vec![0i8, 1, -1, 2, -2, 3, 4, -4, 6]), 201),
    ) {
        let config = f32_output(recipe);
        check_plain_products(config, (m, n, k), &numbers, bf16::from_f32);
        check_plain_products(config, (m, n, k), &numbers, f16::from_f32);
        if config.kernel == KernelPreference::Auto && !config.wgrad_with_hp {
            check_plain_products(config, (m, n, k), &numbers, |x| x);
        }
    }

    /// Each product contracts over casts along its own contraction.
    #[test]
    fn products_are_of_casts_along_their_contraction(
        recipe in prop::sample::select(Recipe::ALL.to_vec()), seed: u64,
    ) {
        let config = f32_output(recipe);
        let (x, w, g) = (noise(64, 32, seed), noise(96, 32, !seed), noise(64, 96, seed ^ 7));
        let step = run(config, &x, &w, &g);
        prop_assert_eq!(step.y.bits, product(&x.cast(&config), &w.cast(&config)));
        let w_columns = w.transposed().cast(&config);
        prop_assert_eq!(step.dx.bits, product(&g.cast(&config), &w_columns));
        prop_assert_eq!(step.dw.bits, product(&along_tokens(&config, &g), &along_tokens(&config, &x)));
    }

    #[test]
    fn every_group_is_a_linear_layer_of_its_own(
        recipe in prop::sample::select(Recipe::ALL.to_vec()),
        seed: u64,
        sizes in prop::sample::select(vec![
            vec![0, 1, 2], vec![1, 0, 2], vec![2, 1, 0], vec![0, 0, 0], vec![3], vec![0, 0, 1, 0], vec![1, 1],
        ]),
    ) {
        let config = f32_output(recipe);
        let mut end = 0;
        let ends: Vec<i32> = sizes.iter().map(|blocks| { end += 32 * blocks; end }).collect();
        let (tokens, experts) = (96, ends.len());
        let (x, w, g) = (noise(tokens, 64, seed), noise(experts * 32, 64, !seed), noise(tokens, 32, seed ^ 7));
        let step = grouped(config, &x, &w, &g, &ends);
        let (mut y, mut dx, mut dw) = (vec![], vec![], vec![]);
        let mut start = 0;
        for (expert, &end) in ends.iter().enumerate() {
            let rows = start..end as usize;
            let one = run(config, &x.rows(rows.clone()), &w.rows(expert * 32..(expert + 1) * 32), &g.rows(rows.clone()));
            y.extend(one.y.bits);
            dx.extend(one.dx.bits);
            if rows.is_empty() {
                prop_assert!(one.dw.bits.iter().all(|&bits| bits == 0));
            }
            dw.extend(one.dw.bits);
            start = rows.end;
        }
        y.resize(tokens * 32, 0);
        dx.resize(tokens * 64, 0);
        prop_assert_eq!(step.y.bits, y);
        prop_assert_eq!(step.dx.bits, dx);
        prop_assert_eq!(step.dw.bits, dw);
        prop_assert_eq!((step.dw.rows, step.dw.cols), (experts * 32, 64));
    }

    /// Padding gives each group the dw of the group with zero rows, and changes nothing else.
    #[test]
    fn padded_groups(
        recipe in prop::sample::select(Recipe::ALL.to_vec()),
        seed: u64,
        ends in prop::sample::select(vec![vec![5, 5, 40], vec![0, 33], vec![40, 40], vec![1, 32, 39], vec![]]),
    ) {
        let plain = f32_output(recipe);
        let config = TrainingConfig { pad_token_groups: true, ..plain };
        let experts = ends.len();
        let (x, w) = (noise(40, 32, seed), noise(experts * 32, 32, !seed));
        let g = noise(40, 32 * usize::from(experts > 0), seed ^ 7);
        let step = grouped(config, &x, &w, &g, &ends);
        let unpadded = Grouped::new(plain).unwrap();
        let y = unpadded.forward(x.matrix(), w.matrix(), &ends).unwrap().exact(&F32);
        let dx = unpadded.input_gradient(g.matrix(), w.matrix(), &ends).unwrap().exact(&F32);
        prop_assert_eq!((step.y, step.dx), (y, dx));
        let (mut dw, mut start) = (vec![], 0);
        for &end in &ends {
            let pad = |tensor: &Tensor<bf16>| {
                let group = tensor.rows(start..end as usize);
                Tensor::new(group.rows.div_ceil(32) * 32, group.cols, |r, c| {
                    if r < group.rows { group.at(r, c) } else { bf16::ZERO }
                })
            };
            dw.extend(product(&along_tokens(&config, &pad(&g)), &along_tokens(&config, &pad(&x))));
            start = end as usize;
        }
        prop_assert_eq!(step.dw.bits, dw);
    }

    #[test]
    fn received_rows_are_the_casts_of_permuted_rows(
        seed: u64, splits in prop::collection::vec(prop::collection::vec(0usize..5, 3), 3),
    ) {
        let config = f32_output(Recipe::Mxfp8Rceil);
        let ranks: Vec<_> = splits.iter().zip(0..)
            .map(|(splits, rank)| noise(splits.iter().sum(), 64, seed ^ rank)).collect();
        let matrices: Vec<_> = ranks.iter().map(Tensor::matrix).collect();
        let received = all_to_all(&config, &matrices, &splits).unwrap();
        for (receiver, received) in received.iter().enumerate() {
            let mut data = Vec::new();
            for (rank, splits) in ranks.iter().zip(&splits) {
                let first: usize = splits[..receiver].iter().sum();
                data.extend(rank.rows(first..first + splits[receiver]).data);
            }
            let rows = Tensor { rows: data.len() / 64, cols: 64, data };
            let values: Vec<u32> = rows.cast(&config).data.iter().map(|x| x.to_bits()).collect();
            prop_assert_eq!(&received.values.bits, &values);
            let codes = quantize(rows.view(), config.profile(), Blocking::MX_ROW).unwrap();
            prop_assert_eq!(&received.quantized, &codes);
            prop_assert_eq!(&received.splits, &splits.iter().map(|s| s[receiver]).collect::<Vec<_>>());
        }
    }
}

#[test]
fn experts_by_hand() {
    // Expert e doubles e times and shifts by one column; groups of 3, 0 and 61 tokens.
    let x = whole(64, 32, &[1, 2, 3, -4, 5, 6, 7], bf16::from_f32);
    let w = Tensor::new(3 * 32, 32, |r, c| {
        let one = if (r + 1) % 32 == c { 1.0 } else { 0.0 };
        bf16::from_f32(one * [1.0, 2.0, 4.0][r / 32])
    });
    let step = {
        let layer = Grouped::new(Recipe::Mxfp8Rceil.config()).unwrap();
        let y = layer.forward(x.matrix(), w.matrix(), &[3, 3, 64]).unwrap().exact(&BF16);
        let dx = layer.input_gradient(x.matrix(), w.matrix(), &[3, 3, 64]).unwrap().exact(&BF16);
        (y, dx)
    };
    for t in 0..64 {
        let factor = if t < 3 { 1.0 } else { 4.0 };
        for c in 0..32 {
            let expected = |c: usize| bf16::from_f32(factor * x.at(t, c).to_f32()).to_bits();
            assert_eq!(step.0.bits[t * 32 + c], u32::from(expected((c + 1) % 32)), "y {t} {c}");
            assert_eq!(step.1.bits[t * 32 + c], u32::from(expected((c + 31) % 32)), "dx {t} {c}");
        }
    }
}

#[test]
fn tokens_of_no_group_are_zero() {
    let ones = Tensor::new(64, 32, |_, _| bf16::ONE);
    let w = ones.rows(0..32);
    let step = grouped(Recipe::Mxfp8Rceil.config(), &ones, &w, &ones, &[32]);
    let thirty_two = u32::from(bf16::from_f32(32.0).to_bits());
    for output in [&step.y, &step.dx] {
        assert!(output.bits[..32 * 32].iter().all(|&bits| bits == thirty_two));
        assert!(output.bits[32 * 32..].iter().all(|&bits| bits == 0));
    }
    assert!(step.dw.bits.iter().all(|&bits| bits == thirty_two));
}

#[rstest]
#[case(&[32, 0], 1)]
#[case(&[32, 96], 1)]
#[case(&[-32, 64], 0)]
fn offsets_that_decrease_or_overrun_are_refused(#[case] ends: &[i32], #[case] at: usize) {
    let tokens = noise(64, 32, 1);
    for pad_token_groups in [false, true] {
        let config = TrainingConfig { pad_token_groups, ..Recipe::Mxfp8Rceil.config() };
        let layer = Grouped::new(config).unwrap();
        let (t, w) = (tokens.matrix(), tokens.matrix());
        for product in [
            layer.forward(t, w, ends),
            layer.input_gradient(t, w, ends),
            layer.weight_gradient(t, t, ends),
        ] {
            let Err(TrainingError::Shape {
                tensor: "ends",
                error: ShapeError::Offsets { index, .. },
            }) = product
            else {
                panic!("{ends:?}")
            };
            assert_eq!(index, at);
        }
    }
    assert!(matches!(pad_token_groups(tokens.view(), ends), Err(ShapeError::Offsets { .. })));
}

#[test]
fn groups_of_broken_blocks_matter_to_the_weight_gradient_of_casts_alone() {
    let (tokens, ends) = (noise(64, 32, 1), [5, 64]);
    let t = tokens.matrix();
    for kernel in KernelPreference::ALL {
        let config = TrainingConfig { kernel, ..Recipe::Mxfp8Rceil.config() };
        let layer = Grouped::new(config).unwrap();
        assert!(layer.forward(t, t, &ends).is_ok() && layer.input_gradient(t, t, &ends).is_ok());
        assert_eq!(
            layer.weight_gradient(t, t, &ends),
            Err(TrainingError::Shape {
                tensor: "ends",
                error: ShapeError::GroupStart { index: 0, got: 5, multiple: 32 }
            })
        );
        for config in [
            TrainingConfig { pad_token_groups: true, ..config },
            TrainingConfig { wgrad_with_hp: true, ..config },
        ] {
            assert!(Grouped::new(config).unwrap().weight_gradient(t, t, &ends).is_ok());
        }
    }
}

#[test]
fn padding_by_hand() {
    let tokens = Tensor::new(40, 2, |r, c| (10 * r + c) as f32);
    let padded = pad_token_groups(tokens.view(), &[0, 2, 2, 35]).unwrap();
    // 40 + 4 × 32 tokens; group 1 fills rows 0 and 1, group 3 rows 32 to 64; five tokens belong to no group.
    assert_eq!((padded.rows, padded.cols), (192, 2));
    assert_eq!((padded.starts, padded.ends), (vec![0, 0, 32, 32], vec![0, 32, 32, 96]));
    let expected = |row: usize| match row {
        0 | 1 => Some(row),
        32..=64 => Some(row - 30),
        _ => None,
    };
    for (row, pair) in padded.data.chunks(2).enumerate() {
        let want = expected(row).map_or([0.0, 0.0], |r| [(10 * r) as f32, (10 * r + 1) as f32]);
        assert_eq!([pair[0].to_bits(), pair[1].to_bits()], want.map(f32::to_bits), "row {row}");
    }
    // Nothing panics where padding passes the ends of an i32.
    let tall = MatrixView::<f32>::new(&[], 0, i32::MAX as usize, 0, 0, 1).unwrap();
    assert!(matches!(pad_token_groups(tall, &[i32::MAX]), Err(ShapeError::Offsets { .. })));
}

#[test]
fn a_weight_gradient_in_high_precision_is_of_the_tensors_themselves() {
    // 1 + 2^-7 needs eight bits, which no cast here keeps; and five tokens are no block.
    let fine = bf16::from_bits(0x3f81);
    let g = Tensor::new(5, 32, |_, _| fine);
    let config = f32_output(Recipe::Mxfp8RceilWgradWithHp);
    let dw = Linear::new(config).unwrap().weight_gradient(g.matrix(), g.matrix()).unwrap();
    // 5 × 129² / 2^14
    assert!(dw.exact(&F32).bits.iter().all(|&bits| bits == (83205.0f32 / 16384.0).to_bits()));
    let groups =
        Grouped::new(config).unwrap().weight_gradient(g.matrix(), g.matrix(), &[2, 5]).unwrap();
    let bits = groups.exact(&F32).bits;
    assert!(bits[..1024].iter().all(|&bits| bits == (33282.0f32 / 16384.0).to_bits()));
    assert!(bits[1024..].iter().all(|&bits| bits == (49923.0f32 / 16384.0).to_bits()));

    let wide = Tensor::new(32, 32, |_, _| 1.0f32);
    let refused = Linear::new(config).unwrap().weight_gradient(wide.matrix(), wide.matrix());
    assert!(matches!(refused, Err(TrainingError::InputType { tensor: "g", got: "f32", .. })));
}

/// One row whose first element is `first`, over the first of w.
fn single<T: Input>(rows: usize, first: T, zero: T) -> Tensor<T> {
    Tensor::new(rows, 32, |r, c| if r == 0 && c == 0 { first } else { zero })
}

#[test]
fn emulation_loses_what_bf16_cannot_hold() {
    // The largest bf16 rounds to 256 under 2^120, which is 2^128 in bf16: infinity. Times 2^-10 the product itself is 2^118.
    let (x, w) =
        (single(1, bf16::MAX, bf16::ZERO), single(1, bf16::from_f32(0.0009765625), bf16::ZERO));
    let y = |config| {
        let layer = Linear::new(config).unwrap();
        layer.forward(x.matrix(), w.matrix()).unwrap().exact(&BF16).bits
    };
    assert_eq!(y(Recipe::Mxfp8Rceil.config()), [(118 + 127) << 7]);
    assert_eq!(y(Recipe::Mxfp8EmulatedRceil.config()), [0x7f80]);
    // Half of it stays in range, and then there is no difference.
    let x = single(1, bf16::from_f32(f32::from_bits(0x7eff_0000)), bf16::ZERO);
    let y = |config| {
        let layer = Linear::new(config).unwrap();
        layer.forward(x.matrix(), w.matrix()).unwrap().exact(&BF16).bits
    };
    assert_eq!(y(Recipe::Mxfp8Rceil.config()), y(Recipe::Mxfp8EmulatedRceil.config()));
}

#[rstest]
#[case(3, 0)] // 0.375 of bf16's least subnormal
#[case(5, 8)] // 0.625
#[case(8, 8)]
fn grouped_emulation_rounds_f32_tensors_to_bf16(#[case] units: u32, #[case] emulated: u32) {
    // `units` × 2^-136, in f32's subnormal units of 2^-149, over 2^100.
    let x = single(1, f32::from_bits(units << 13), 0.0);
    let w = single(1, f32::from_bits((100 + 127) << 23), 0.0);
    let y = |kernel| {
        let config = TrainingConfig { kernel, ..f32_output(Recipe::Mxfp8Rceil) };
        let layer = Grouped::new(config).unwrap();
        layer.forward(x.matrix(), w.matrix(), &[1]).unwrap().exact(&F32).bits
    };
    let value = |units: u32| (units as f32 * f32::from_bits((127 - 36) << 23)).to_bits();
    assert_eq!(y(KernelPreference::Auto), [value(units)]);
    assert_eq!(y(KernelPreference::Emulated), [value(emulated)]);
}

#[test]
fn a_linear_layer_refuses_to_emulate_f32() {
    let x = Tensor::new(32, 32, |_, _| 1.0f32);
    let layer = Linear::new(Recipe::Mxfp8Emulated.config()).unwrap();
    let refused = layer.forward(x.matrix(), x.matrix());
    assert!(matches!(refused, Err(TrainingError::InputType { tensor: "x", got: "f32", .. })));
}

#[test]
fn nan_and_infinity_reach_every_output_of_their_block() {
    for recipe in Recipe::ALL {
        if recipe.config().element == Element::E4m3 {
            let mut x = noise(32, 32, 3);
            x.data[5] = bf16::INFINITY;
            let step = run(recipe.config(), &x, &noise(32, 32, 4), &noise(32, 32, 5));
            assert!(step.y.bits[..32].iter().all(|&bits| BF16.is_nan(bits)), "{}", recipe.name());
            assert!(step.y.bits[32..].iter().all(|&bits| !BF16.is_nan(bits)));
        }
    }
    // The convention decides: here infinity saturates to 448 × 2^127, which emulation overflows again.
    let x = single(1, bf16::INFINITY, bf16::ZERO);
    let w = single(1, bf16::from_f32(0.0009765625), bf16::ZERO);
    let y = |recipe: Recipe| {
        let config = TrainingConfig { convention: &TE, ..recipe.config() };
        Linear::new(config).unwrap().forward(x.matrix(), w.matrix()).unwrap().exact(&BF16).bits
    };
    // 448 × 2^117 = 1.75 × 2^125
    assert_eq!(y(Recipe::Mxfp8Rceil), [(125 + 127) << 7 | 0x60]);
    assert_eq!(y(Recipe::Mxfp8EmulatedRceil), [0x7f80]);
}

#[test]
fn emulation_differs_where_a_convention_halves_the_least_values() {
    // torchao 0.18 divides a block of byte 0 by 2^-126, so that bf16's least subnormal comes back as 2^-134, a tie to zero.
    let (x, w) = (
        single(1, bf16::from_bits(1), bf16::ZERO),
        single(1, bf16::from_bits((100 + 127) << 7), bf16::ZERO),
    );
    let y = |kernel| {
        let base = Recipe::Mxfp8Cublas.config();
        let config = TrainingConfig { convention: &TORCHAO_0_18, kernel, ..base };
        Linear::new(config).unwrap().forward(x.matrix(), w.matrix()).unwrap().exact(&BF16).bits
    };
    assert_eq!(y(KernelPreference::Auto), [(127 - 34) << 7]);
    assert_eq!(y(KernelPreference::Emulated), [0]);
}

#[test]
fn products_can_be_evaluated_by_models() {
    let (x, w) = (noise(32, 64, 8), noise(32, 64, 9));
    let forward = |recipe: Recipe| {
        Linear::new(recipe.config()).unwrap().forward(x.matrix(), w.matrix()).unwrap()
    };
    for (recipe, model, other) in [
        (Recipe::Mxfp8Rceil, Model::BlackwellMxf8f6f4, Model::BlackwellMxf4),
        (Recipe::Mxfp8EmulatedRceil, Model::HopperBf16, Model::BlackwellMxf8f6f4),
    ] {
        let product = forward(recipe);
        let exact = product.exact(&F32).bits;
        let modelled = product.gemm().accumulate(&model.accumulation(), &F32).unwrap();
        for (exact, modelled) in exact.into_iter().zip(modelled) {
            let (exact, modelled) = (f32::from_bits(exact), f32::from_bits(modelled));
            assert!((exact - modelled).abs() <= 64.0 * 32.0 * f32::from_bits((127 - 20) << 23));
        }
        assert!(product.gemm().accumulate(&other.accumulation(), &F32).is_err());
        let layer = Grouped::new(recipe.config()).unwrap();
        let groups = layer.forward(x.matrix(), w.rows(0..32).matrix(), &[32]).unwrap();
        let model = model.accumulation();
        assert_eq!(
            groups.accumulate(&model, &F32).unwrap().bits,
            product.gemm().accumulate(&model, &F32).unwrap()
        );
        assert!(groups.accumulate(&other.accumulation(), &F32).is_err());
    }
}

#[rstest]
fn six_casts(#[values(false, true)] wgrad_with_hp: bool) {
    let (x, w, g) = (noise(64, 96, 1), noise(32, 96, 2), noise(64, 32, 3));
    let config = TrainingConfig { wgrad_with_hp, ..Recipe::Mxfp8Rceil.config() };
    let layer = Linear::new(config).unwrap();
    let casts = layer.casts(x.matrix(), w.matrix(), g.matrix()).unwrap();
    let profile =
        Profile { element: Element::E4m3, mode: ScaleMode::Rceil, convention: &PROPAGATE };
    let rows =
        |x: &Tensor<bf16>| -> Quantized { quantize(x.view(), profile, Blocking::MX_ROW).unwrap() };
    assert_eq!([casts.x_row, casts.w_row, casts.g_row], [rows(&x), rows(&w), rows(&g)]);
    assert_eq!(casts.w_col, rows(&w.transposed()));
    let along_tokens = |x: &Tensor<bf16>| (!wgrad_with_hp).then(|| rows(&x.transposed()));
    assert_eq!([casts.g_col, casts.x_col], [along_tokens(&g), along_tokens(&x)]);
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let layer = Linear::new(Recipe::Mxfp8Rceil.config()).unwrap();
    let t = |rows, cols| noise(rows, cols, 1);
    let partial = |tensor, axis, length| TrainingError::Shape {
        tensor,
        error: ShapeError::PartialBlock { axis, length, block: 32 },
    };
    let run = |x: Tensor<bf16>, w: Tensor<bf16>, g: Tensor<bf16>| {
        layer.run(x.matrix(), w.matrix(), g.matrix()).unwrap_err()
    };
    assert_eq!(run(t(32, 40), t(32, 40), t(32, 32)), partial("x", "row", 40));
    assert_eq!(run(t(32, 32), t(40, 32), t(32, 40)), partial("g", "row", 40));
    assert_eq!(run(t(40, 32), t(32, 32), t(40, 32)), partial("g", "col", 40));
    let mismatch =
        |tensor, side, expected, got| TrainingError::Mismatch { tensor, side, expected, got };
    assert_eq!(run(t(32, 32), t(32, 64), t(32, 32)), mismatch("w", "columns", 32, 64));
    assert_eq!(run(t(32, 32), t(32, 32), t(32, 64)), mismatch("g", "columns", 32, 64));
    assert_eq!(run(t(32, 32), t(32, 32), t(64, 32)), mismatch("g", "rows", 32, 64));

    let (narrow, wide) = (t(32, 32), Tensor::new(32, 32, |_, _| 1.0f32));
    assert_eq!(
        layer.forward(narrow.matrix(), wide.matrix()),
        Err(TrainingError::MixedTypes { tensor: "w", expected: "bf16", got: "f32" })
    );

    let layer = Grouped::new(Recipe::Mxfp8Rceil.config()).unwrap();
    let experts = t(100, 32);
    assert_eq!(
        layer.forward(narrow.matrix(), experts.matrix(), &[8, 16, 32]).unwrap_err(),
        mismatch("w", "rows", 99, 100)
    );
    // 64 rows are whole blocks, those of four experts are not.
    let (g, experts) = (t(32, 16), t(64, 32));
    assert_eq!(
        layer.input_gradient(g.matrix(), experts.matrix(), &[8, 16, 24, 32]).unwrap_err(),
        partial("w", "col", 16)
    );
    // A view repeats rows for free; its cast cannot.
    let endless = MatrixView::new(&narrow.data, 0, usize::MAX / 16, 32, 0, 1).unwrap();
    assert!(matches!(
        layer.forward(endless.into(), narrow.matrix(), &[32]),
        Err(TrainingError::Shape { tensor: "x", error: ShapeError::View { .. } })
    ));
}

#[test]
fn splits_that_do_not_fit_are_refused() {
    let config = Recipe::Mxfp8Rceil.config();
    let (a, b) = (noise(3, 32, 1), noise(2, 32, 2));
    let send =
        |splits: &[Vec<usize>]| all_to_all(&config, &[a.matrix(), b.matrix()], splits).unwrap_err();
    let splits = |rank, expected, got| TrainingError::Splits { rank, expected, got };
    assert_eq!(send(&[vec![1, 1], vec![2, 0]]), splits(0, 3, 2));
    assert_eq!(send(&[vec![1, 2], vec![usize::MAX, 3]]), splits(1, 2, usize::MAX));
    let mismatch =
        |tensor, side, expected, got| TrainingError::Mismatch { tensor, side, expected, got };
    assert_eq!(send(&[vec![1, 2]]), mismatch("splits", "rows", 2, 1));
    assert_eq!(send(&[vec![1, 2], vec![2]]), mismatch("splits", "columns", 2, 1));
    let splits = [vec![1, 2], vec![1, 1]];
    let wider = noise(2, 64, 2);
    let refused = all_to_all(&config, &[a.matrix(), wider.matrix()], &splits);
    assert_eq!(refused.unwrap_err(), mismatch("tokens", "columns", 32, 64));
    let narrow = [noise(3, 16, 1), noise(2, 16, 2)];
    let refused = all_to_all(&config, &[narrow[0].matrix(), narrow[1].matrix()], &splits);
    assert!(matches!(
        refused,
        Err(TrainingError::Shape { error: ShapeError::PartialBlock { .. }, .. })
    ));
    let other = Tensor::new(2, 32, |_, _| 1.0f32);
    let refused = all_to_all(&config, &[a.matrix(), other.matrix()], &splits);
    assert!(matches!(refused, Err(TrainingError::MixedTypes { .. })));
    assert_eq!(all_to_all(&config, &[], &[]), Ok(vec![]));
}
