//! Our own products on a device, bit for bit beside their model. Without a device the tests say so and pass, unless
//! `MXCERT_GPU=required`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_gpu::gemm::{By, Operand, Product};
use mx_gpu::{Arch, Gpu, GpuError};
use mx_reference::format::{BF16, E8M0, F16, F32};
use mx_reference::gemm::{
    BlockScales, Codes, GemmShape, GroupAxis, GroupedGemm, Model, Operand as Terms,
};
use mx_reference::grouped_layout::{GroupedLayout, arrange_experts};
use mx_reference::{Element, Format, ScaleLayout};
use rstest::rstest;

/// A device whose tensor cores the model is of.
fn device() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) if matches!(gpu.arch(), Arch::Sm80 | Arch::Sm89) => {
            println!("skipped: {} sums otherwise", gpu.arch());
            None
        }
        Ok(gpu) => Some(gpu),
        Err(missing) => {
            let required = std::env::var_os("MXCERT_GPU").is_some_and(|v| v == "required");
            assert!(!required, "{missing}");
            println!("skipped: {missing}");
            None
        }
    }
}

/// Numbers that look random (Marsaglia, "Xorshift RNGs", J. Stat. Softw. 8(14), 2003).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// Which scales, and whether elements may be NaN or infinite.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A few octaves: the fast way.
    Near,
    /// Every byte but NaN.
    Any,
    /// A few octaves, and special elements and scales here and there.
    Special,
    /// A few octaves, and blocks of nothing but zeros under any scale.
    Sparse,
}

struct Side {
    element: Element,
    rows: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Side {
    fn new(element: Element, (rows, k): (usize, usize), kind: Kind, noise: &mut Noise) -> Self {
        let format = element.format();
        let mut code = || {
            loop {
                let code = noise.below(format.codes() as usize) as u32;
                let special = format.is_nan(code) || format.decode(code).exponent().is_none();
                let zero = format.decode(code).is_zero();
                if zero || !special || matches!(kind, Kind::Special) && noise.below(16) == 0 {
                    return code as u8;
                }
            }
        };
        let mut codes: Vec<u8> = (0..rows * k).map(|_| code()).collect();
        let mut scale = || match kind {
            Kind::Any => noise.below(255),
            Kind::Special if noise.below(500) == 0 => 255,
            Kind::Near | Kind::Special | Kind::Sparse => 122 + noise.below(11),
        };
        let mut scales: Vec<u8> = (0..rows * k / 32).map(|_| scale() as u8).collect();
        if matches!(kind, Kind::Sparse) {
            let sign = (format.sign_bit() as u8) * u8::from(element != Element::Int8);
            for (block, scale) in codes.chunks_exact_mut(32).zip(&mut scales) {
                if noise.below(3) == 0 {
                    block.fill_with(|| sign * noise.below(2) as u8);
                    *scale = [0, 1, 127, 254][noise.below(4)];
                }
            }
        }
        Self { element, rows, codes, scales }
    }

    fn terms(&self) -> Terms<'_> {
        let scales = Some(BlockScales { format: &E8M0, bytes: &self.scales, block: 32 });
        Terms { format: self.element.format(), codes: Codes::Bytes(&self.codes), scales }
    }
}

/// A product of groups, or of one group that is everything.
struct Case {
    shape: GemmShape,
    groups: Option<(GroupAxis, Vec<i32>)>,
    a: Side,
    b: Side,
}

impl Case {
    fn new(
        [a, b]: [Element; 2],
        shape: GemmShape,
        groups: Option<(GroupAxis, &[i32])>,
        kind: Kind,
        seed: u64,
    ) -> Self {
        let GemmShape { m, n, k } = shape;
        let noise = &mut Noise(seed * 0x9e3779b97f4a7c15 + 1);
        let experts = match groups {
            Some((GroupAxis::M, ends)) => ends.len(),
            _ => 1,
        };
        Self {
            shape,
            groups: groups.map(|(axis, ends)| (axis, ends.to_vec())),
            a: Side::new(a, (m, k), kind, noise),
            b: Side::new(b, (n * experts, k), kind, noise),
        }
    }

    /// What the model says; `None` for rows beyond the last group, which are left alone.
    fn expected(&self, output: &Format) -> Vec<Option<u32>> {
        let GemmShape { m, n, k } = self.shape;
        let (axis, ends) = match &self.groups {
            Some((axis, ends)) => (*axis, ends.clone()),
            None => (GroupAxis::M, vec![m as i32]),
        };
        // The reference counts elements along K, the device blocks.
        let unit = if axis == GroupAxis::K { 32 } else { 1 };
        let in_elements: Vec<i32> = ends.iter().map(|&end| end * unit).collect();
        let (a, b) = (self.a.terms(), self.b.terms());
        let shape = GemmShape { m, n, k };
        let gemm = GroupedGemm::new(shape, axis, &in_elements, a, b).unwrap();
        let mut d = Vec::new();
        gemm.try_each(|_, group| {
            let accumulation = Model::MxBlockF16Pair.accumulation();
            d.extend(group.accumulate(&accumulation, output)?.into_iter().map(Some));
            Ok::<(), mx_reference::gemm::ModelError>(())
        })
        .unwrap();
        let outputs = if axis == GroupAxis::K { ends.len() * m * n } else { m * n };
        d.resize(outputs, None);
        d
    }

    /// Scales of a side as they lie on the device.
    fn scales(&self, side: &Side, blocked: bool) -> Vec<u8> {
        let cols = self.shape.k / 32;
        let is_b = std::ptr::eq(side, &raw const self.b);
        match &self.groups {
            _ if !blocked => side.scales.clone(),
            None => ScaleLayout::Blocked.arrange((side.rows, cols), &side.scales).unwrap(),
            Some((GroupAxis::M, ends)) if is_b => {
                arrange_experts(ends.len(), (self.shape.n, cols), &side.scales).unwrap()
            }
            Some((axis, ends)) => {
                let layout = GroupedLayout::new(*axis, (side.rows, cols), ends).unwrap();
                layout.arrange(&side.scales).unwrap()
            }
        }
    }

    fn check(&self, gpu: &Gpu, blocked: bool, output: &'static Format) {
        let width = output.bits as usize / 8;
        let expected = self.expected(output);
        let upload = |bytes: &[u8]| gpu.upload(bytes).unwrap();
        let [a, b] = [&self.a, &self.b].map(|side| upload(&side.codes));
        let scales = [&self.a, &self.b].map(|side| self.scales(side, blocked));
        let [a_scales, b_scales] = scales.each_ref().map(|bytes| upload(bytes));
        let groups = self.groups.as_ref().map(|(axis, ends)| gpu.groups(*axis, ends).unwrap());
        let bytes = expected.len() * width;
        let mut d = upload(&vec![0xa5; bytes]);
        let elements = [a.slice(..self.a.codes.len()), b.slice(..self.b.codes.len())];
        let scales = [a_scales.slice(..scales[0].len()), b_scales.slice(..scales[1].len())];
        let operand = |side: &Side, i: usize| Operand {
            element: side.element,
            elements: &elements[i],
            scales: &scales[i],
            blocked,
        };
        let code = |bytes: &[u8]| bytes.iter().rev().fold(0, |code, &byte| code << 8 | byte as u32);
        let poison = code(&[0xa5, 0xa5, 0xa5, 0xa5][..width]);
        for by in [By::Halves, By::Warps, By::Warpgroups] {
            gpu.write(&vec![0xa5; bytes], &mut d.slice_mut(..bytes)).unwrap();
            let product = Product {
                shape: self.shape,
                a: operand(&self.a, 0),
                b: operand(&self.b, 1),
                groups: groups.as_ref(),
                output,
                by,
            };
            match gpu.multiply(&product, &mut d.slice_mut(..bytes)) {
                Err(GpuError::Unsupported(_)) if by == By::Warpgroups => {
                    let takes = groups.is_none() && self.b.element != Element::E5m2;
                    assert!(!takes || gpu.arch() != Arch::Sm90a);
                    continue;
                }
                other => other.unwrap(),
            }
            let got = gpu.download(&d.slice(..bytes)).unwrap();
            for (i, (bytes, &expected)) in got.chunks(width).zip(&expected).enumerate() {
                let expected = expected.unwrap_or(poison);
                let what = (output.name, by, self.shape);
                assert_eq!(code(bytes), expected, "at {i} of {what:?}");
            }
        }
    }
}

#[rstest]
fn every_pair_is_its_model(
    #[values(Kind::Near, Kind::Any, Kind::Special, Kind::Sparse)] kind: Kind,
    #[values(false, true)] blocked: bool,
) {
    let Some(gpu) = device() else { return };
    let shapes = [(130, 17, 160), (1, 129, 32), (64, 200, 96), (129, 1, 1184)];
    for (i, a) in Element::ALL.into_iter().enumerate() {
        for (j, b) in Element::ALL.into_iter().enumerate() {
            let (m, n, k) = shapes[(i + j) % shapes.len()];
            let shape = GemmShape { m, n, k };
            let case = Case::new([a, b], shape, None, kind, (7 * i + j) as u64);
            case.check(&gpu, blocked, [&F32, &BF16, &F16][(i + 2 * j) % 3]);
        }
    }
}

/// More steps than a kernel has stages, and panels of which some take the fast way and others do not.
#[rstest]
fn long_products(#[values(Element::E4m3, Element::E2m1, Element::Int8)] b: Element) {
    let Some(gpu) = device() else { return };
    let shape = GemmShape { m: 136, n: 140, k: 1120 };
    for (seed, a) in [Element::E4m3, Element::E5m2].into_iter().enumerate() {
        let mut case = Case::new([a, b], shape, None, Kind::Sparse, seed as u64);
        case.check(&gpu, false, &F32);
        // A scale far from those of the other rows of its panel.
        case.b.scales[130 * shape.k / 32 + 7] = 3;
        case.check(&gpu, true, &BF16);
        case.a.scales[10 * shape.k / 32 + 40] = 255;
        case.check(&gpu, false, &F32);
    }
}

#[rstest]
#[case::tokens(GroupAxis::M, &[0, 130, 131, 300, 300], (320, 40, 160))]
#[case::many_experts(GroupAxis::M, &[2; 40], (2, 20, 64))]
#[case::no_tokens(GroupAxis::M, &[0, 0], (10, 20, 64))]
#[case::weight_gradients(GroupAxis::K, &[0, 3, 4, 4, 12], (130, 70, 416))]
#[case::nothing_but_empty_groups(GroupAxis::K, &[0, 0], (20, 30, 0))]
fn groups_are_their_models(
    #[case] axis: GroupAxis,
    #[case] ends: &[i32],
    #[case] (m, n, k): (usize, usize, usize),
    #[values(false, true)] blocked: bool,
) {
    let Some(gpu) = device() else { return };
    let pair = [Element::E4m3, Element::E5m2];
    let shape = GemmShape { m, n, k };
    for (kind, output) in [(Kind::Near, &BF16), (Kind::Any, &F32)] {
        Case::new(pair, shape, Some((axis, ends)), kind, 3).check(&gpu, blocked, output);
    }
}

#[test]
fn what_a_device_does_not_have_is_refused() {
    let Some(gpu) = device() else { return };
    let buffer = gpu.upload(&[0; 64]).unwrap();
    let mut d = gpu.upload(&[0; 4]).unwrap();
    let operand = |from: usize| (buffer.slice(from..from + 32), buffer.slice(..1));
    let (aligned, odd) = (operand(0), operand(8));
    let mut refused = |(elements, scales): &(mx_gpu::View<'_>, mx_gpu::View<'_>), by| {
        let side = Operand { element: Element::Int8, elements, scales, blocked: false };
        let shape = GemmShape { m: 1, n: 1, k: 32 };
        let product = Product { shape, a: side, b: side, groups: None, output: &F32, by };
        gpu.multiply(&product, &mut d.as_view_mut())
    };
    assert!(refused(&aligned, By::Halves).is_ok());
    assert!(matches!(refused(&odd, By::Halves), Err(GpuError::Unsupported(_))));
    assert!(matches!(refused(&aligned, By::BlockScales), Err(GpuError::Unsupported(_))));
}
