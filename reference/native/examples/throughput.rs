//! How fast each entry point is on this machine: the best of several runs, on the current rayon pool unless it says one core.
//! With `gemm` as an argument only the matrix products.

use std::hint::black_box;
use std::time::Instant;

use half::{bf16, f16};
use mx_native::{
    ScaleRule, dequantize_f32, dequantize_f32_into, dequantize_u16_into, encode_slice, gemm,
    gemm_with_magnitude, quantize_into, quantize_row,
};
use mx_reference::format::{BF16, E2M1, E4M3, E5M2, E8M0, F32, UE4M3};
use mx_reference::gemm::{BlockScales, Codes, Gemm, GemmShape, Operand};
use mx_reference::{
    Axis, BlockShape, Blocking, Convention, Element, Input, MatrixView, Overflow, Profile,
    Rounding, ScaleMode, convention,
};

const SIDE: usize = 4096;
const N: usize = SIDE * SIDE;

fn main() {
    products();
    if std::env::args().any(|arg| arg == "gemm") {
        return;
    }
    let bits: Vec<u32> = (0..N as u32).map(|i| i.wrapping_mul(0x9e37_79b9)).map(spread).collect();
    let f32s: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b)).collect();
    let bf16s: Vec<bf16> = f32s.iter().map(|&x| bf16::from_f32(x)).collect();
    let f16s: Vec<f16> = f32s.iter().map(|&x| f16::from_f32(x)).collect();
    for mode in ScaleMode::ALL {
        tensor("f32", Element::E4m3, mode, &convention::PROPAGATE, &f32s);
    }
    tensor("f32", Element::E4m3, ScaleMode::Rceil, &convention::TE, &f32s);
    tensor("f32", Element::E4m3, ScaleMode::Rceil, &convention::TORCHAO_0_18, &f32s);
    for element in [Element::E4m3, Element::E2m1, Element::Int8] {
        tensor("bf16", element, ScaleMode::Rceil, &convention::PROPAGATE, &bf16s);
        tensor("f16", element, ScaleMode::Rceil, &convention::PROPAGATE, &f16s);
    }
    one_core("bf16", &bf16s);
    one_core("f16", &f16s);
    one_core("f32", &f32s);
    casts(&f32s);
    scales();
    dequantized();
}

/// Bits spread over 16 binades around 1, both signs.
fn spread(hash: u32) -> u32 {
    (hash & 0x807f_ffff) | (119 + (hash >> 27 & 15)) << 23
}

fn best(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..12).map(time).fold(f64::INFINITY, f64::min)
}

#[allow(clippy::cast_precision_loss, reason = "two digits are printed")]
fn report(what: &str, elements: usize, bytes: usize, seconds: f64) {
    let giga = |n: usize| n as f64 / seconds / 1e9;
    println!("{what:44} {:7.2} G elements/s {:7.2} GB/s", giga(elements), giga(bytes));
}

fn tensor<T: Input + Sync>(
    input: &str,
    element: Element,
    mode: ScaleMode,
    convention: &'static Convention,
    data: &[T],
) {
    let profile = Profile { element, mode, convention };
    let x = MatrixView::contiguous(data, SIDE, SIDE).expect("square");
    let mut elements = vec![0; N];
    for (axis, shape) in [
        (Axis::Row, BlockShape::MX),
        (Axis::Col, BlockShape::MX),
        (Axis::Row, BlockShape::TILE),
        (Axis::Col, BlockShape::TILE),
    ] {
        let blocking = Blocking { axis, shape, pad: false };
        let mut scales = vec![0; N / 32 / shape.rows()];
        let seconds = best(|| {
            quantize_into(x, profile, blocking, &mut elements, &mut scales).expect("fits");
        });
        black_box((&elements, &scales));
        let tile = if shape == BlockShape::TILE { "32x32" } else { "32" };
        let what = format!(
            "{input} {}/{} {} {} {tile}",
            element.name(),
            mode.name(),
            convention.name,
            axis.name()
        );
        report(&what, N, size_of_val(data), seconds);
    }
}

fn one_core<T: Input>(input: &str, data: &[T]) {
    let profile = Profile {
        element: Element::E4m3,
        mode: ScaleMode::Rceil,
        convention: &convention::PROPAGATE,
    };
    let data = &data[..1 << 16];
    for block in [8, 16, 32, 128] {
        let (mut codes, mut scales) = (vec![0; data.len()], vec![0; data.len() / block]);
        let seconds = best(|| {
            for _ in 0..64 {
                quantize_row(profile, block, black_box(data), &mut codes, &mut scales)
                    .expect("fits");
            }
        });
        black_box((&codes, &scales));
        let what = format!("{input} quantize_row e4m3/rceil {block}, one core");
        report(&what, 64 * data.len(), 64 * size_of_val(data), seconds);
    }
}

fn casts(data: &[f32]) {
    let mut codes = vec![0; N];
    for element in Element::ALL {
        for overflow in [Overflow::Saturate, Overflow::Propagate] {
            let seconds = best(|| {
                let rounding = Rounding::NearestEven;
                encode_slice(element.format(), rounding, overflow, data, &mut codes).expect("fits");
            });
            black_box(&codes);
            let what = format!("f32 cast {} {overflow:?}", element.name());
            report(&what, N, size_of_val(data), seconds);
        }
    }
}

fn scales() {
    for convention in Convention::ALL {
        for mode in ScaleMode::ALL {
            let rule = ScaleRule::new(Element::E4m3, mode, convention);
            let seconds = best(|| {
                let sum = (0..N as u32).fold(0u32, |sum, i| sum + u32::from(rule.byte(i << 7)));
                black_box(sum);
            });
            let what = format!("scale byte {} {}, one core", mode.name(), convention.name);
            report(&what, N, 4 * N, seconds);
        }
    }
}

fn dequantized() {
    let codes: Vec<u8> = (0..N).map(|i| (i * 37 % 251) as u8).collect();
    let scales: Vec<u8> = (0..N / 32).map(|i| (100 + i % 50) as u8).collect();
    let (size, shape) = ((SIDE, SIDE), BlockShape::MX);
    let mut words = vec![0; N];
    let seconds = best(|| {
        dequantize_f32_into(Element::E4m3, size, shape, &codes, &scales, &mut words).expect("fits");
    });
    report("dequantize e4m3 to f32", N, 4 * N, seconds);
    let mut words = vec![0; N];
    let seconds = best(|| {
        dequantize_u16_into(Element::E4m3, size, shape, &codes, &scales, &BF16, &mut words)
            .expect("fits");
    });
    report("dequantize e4m3 to bf16", N, 2 * N, seconds);
    let seconds = best(|| {
        black_box(dequantize_f32(Element::E4m3, size, shape, &codes, &scales).expect("fits"));
    });
    report("dequantize e4m3 to f32 in new memory", N, 4 * N, seconds);
}

/// Products of 1024 × 1024 × 1024.
fn products() {
    let mixed = Mixed::new(|hash| 119 + (hash % 17) as u8);
    let wide = Mixed::new(|hash| (hash % 255) as u8);
    let mx = |format, data: &'static Mixed| Operand {
        format,
        codes: Codes::Bytes(&data.codes),
        scales: Some(BlockScales {
            format: &E8M0,
            bytes: &data.scales[..data.codes.len() / 32],
            block: 32,
        }),
    };
    let unscaled = Operand { scales: None, ..mx(&E4M3, mixed) };
    let nvfp4 = Operand {
        format: &E2M1,
        codes: Codes::Bytes(&mixed.codes),
        scales: Some(BlockScales { format: &UE4M3, bytes: &mixed.scales, block: 16 }),
    };
    let bf16 = Operand { format: &BF16, codes: Codes::Halves(&mixed.halves), scales: None };
    for (what, a, b) in [
        ("e4m3", mx(&E4M3, mixed), mx(&E4M3, mixed)),
        ("e4m3 without scales", unscaled, unscaled),
        ("e4m3 under wide scales", mx(&E4M3, wide), mx(&E4M3, wide)),
        ("e4m3 e5m2", mx(&E4M3, mixed), mx(&E5M2, mixed)),
        ("e5m2", mx(&E5M2, mixed), mx(&E5M2, mixed)),
        ("nvfp4", nvfp4, nvfp4),
        ("bf16", bf16, bf16),
    ] {
        let product = Gemm::new(Mixed::SHAPE, a, b, None, None).expect("fits");
        let seconds = best(|| drop(black_box(gemm(&product, &F32))));
        println!("gemm {what:39} {:7.2} GMAC/s", Mixed::MACS / seconds / 1e9);
    }
    let product = Gemm::new(Mixed::SHAPE, mx(&E4M3, mixed), mx(&E4M3, mixed), None, None);
    let product = product.expect("fits");
    let seconds = best(|| drop(black_box(gemm_with_magnitude(&product, &F32))));
    println!("gemm e4m3 with magnitudes {:25.2} GMAC/s", Mixed::MACS / seconds / 1e9);
}

/// A square operand in every form.
struct Mixed {
    codes: Vec<u8>,
    halves: Vec<u16>,
    scales: Vec<u8>,
}

impl Mixed {
    const SIDE: usize = 1024;
    const SHAPE: GemmShape = GemmShape { m: Self::SIDE, n: Self::SIDE, k: Self::SIDE };
    const MACS: f64 = (Self::SIDE * Self::SIDE * Self::SIDE) as f64;

    fn new(scale: impl Fn(u32) -> u8) -> &'static Self {
        let hash = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) >> 7;
        let elements = 0..Self::SIDE * Self::SIDE;
        let number = |i| hash(i) as u8 & 0xfb;
        Box::leak(Box::new(Self {
            codes: elements.clone().map(number).collect(),
            halves: elements.clone().map(|i| (spread(hash(i) << 9) >> 16) as u16).collect(),
            scales: elements.step_by(16).map(|i| scale(hash(i / 16))).collect(),
        }))
    }
}
