//! Replays recorded hardware outputs: our own of an H200 (`recordings/`, whose JSON says how the file lies), and others where a
//! folder of them is named by `MXCERT_RECORDINGS`: `manifest.json` and, for each set in it, `a` and `b` codes `[n][k]`, then `c` and
//! `d` f32 bits `[n]`, little endian.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_reference::format::{BF16, E4M3, E5M2, E8M0, F16, F32};
use mx_reference::gemm::{Accumulation, BlockScales, Codes, Gemm, GemmShape, Model, Operand};
use mx_reference::{Element, Format};
use std::path::Path;

/// Which model a set was recorded from, by GPU and element format.
fn model(gpu: &str, format: &str) -> Model {
    match (gpu, format) {
        ("Ada", "E4M3" | "E5M2") => Model::AdaFp8,
        ("Ada", "bf16") => Model::AdaBf16,
        ("H100" | "H200", "E4M3" | "E5M2") => Model::HopperFp8,
        ("B200", "E4M3" | "E5M2") => Model::Sm90MmaFp8,
        (_, "bf16") => Model::HopperBf16,
        (_, "fp16") => Model::HopperF16,
        _ => panic!("no model for {format} on {gpu}"),
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

#[test]
fn every_recorded_output_is_predicted() {
    let Some(folder) = std::env::var_os("MXCERT_RECORDINGS") else {
        eprintln!("skipped: MXCERT_RECORDINGS names no folder of recordings");
        return;
    };
    let folder = Path::new(&folder);
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let sets = manifest["sets"].as_array().unwrap();
    assert!(!sets.is_empty());
    for set in sets {
        let text = |key: &str| set[key].as_str().unwrap();
        let number = |key: &str| set[key].as_u64().unwrap() as usize;
        let (n, k, width) = (number("n"), number("k"), number("elem_bytes"));
        let Ok(bytes) = std::fs::read(folder.join(text("file"))) else {
            println!("{} is not in the folder", text("file"));
            continue;
        };
        let (a, rest) = bytes.split_at(n * k * width);
        let (b, rest) = rest.split_at(n * k * width);
        let (c, d) = rest.split_at(n * 4);
        let (c, d) = (words(c), words(d));
        let halves = |bytes: &[u8]| -> Vec<u16> {
            bytes.as_chunks().0.iter().map(|&half| u16::from_le_bytes(half)).collect()
        };
        let (a16, b16) = (halves(a), halves(b));
        let format = match text("fmt") {
            "E4M3" => &E4M3,
            "E5M2" => &E5M2,
            "bf16" => &BF16,
            "fp16" => &F16,
            other => panic!("unknown format {other}"),
        };
        let model = model(text("gpu"), text("fmt"));
        let right = (0..n)
            .filter(|&i| {
                let operand = |bytes: &'static str| {
                    let (codes, halves) = if bytes == "a" { (a, &a16) } else { (b, &b16) };
                    let row = i * k..(i + 1) * k;
                    let codes = match width {
                        1 => Codes::Bytes(&codes[row]),
                        _ => Codes::Halves(&halves[row]),
                    };
                    Operand { format, codes, scales: None }
                };
                let shape = GemmShape { m: 1, n: 1, k };
                let gemm =
                    Gemm::new(shape, operand("a"), operand("b"), Some(&c[i..=i]), None).unwrap();
                let got = gemm.accumulate(&model.accumulation(), &F32).unwrap();
                got[0] == d[i]
            })
            .count();
        println!("{} {}: {right} of {n} as {}", text("gpu"), text("fmt"), model.name());
        assert_eq!(right, n, "{} {}", text("gpu"), text("fmt"));
    }
}

fn halves(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|&half| u16::from_le_bytes(half)).collect()
}

/// One recorded product: codes of A and B, and C where the instruction took one.
struct Recorded<'a> {
    format: [&'static Format; 2],
    shape: GemmShape,
    a: &'a [u8],
    b: &'a [u8],
    c: Option<Vec<u32>>,
}

impl Recorded<'_> {
    /// The outputs that an accumulation predicts.
    fn predicted(&self, accumulation: &Accumulation) -> Vec<u32> {
        let (a16, b16) = (halves(self.a), halves(self.b));
        let operand = |format: &'static Format, bytes, halves| {
            let codes = if format.bits == 8 { Codes::Bytes(bytes) } else { Codes::Halves(halves) };
            Operand { format, codes, scales: None }
        };
        let a = operand(self.format[0], self.a, &a16);
        let b = operand(self.format[1], self.b, &b16);
        let gemm = Gemm::new(self.shape, a, b, self.c.as_deref(), None).unwrap();
        gemm.accumulate(accumulation, &F32).unwrap()
    }
}

#[test]
fn our_recordings_of_an_h200_are_predicted() {
    let manifest: serde_json::Value =
        serde_json::from_str(include_str!("recordings/h200.json")).unwrap();
    let data = include_bytes!("recordings/h200.bin");
    let (mut outputs, mut other_splits) = (0, 0);
    for set in manifest["sets"].as_array().unwrap() {
        let number = |key: &str| set[key].as_u64().unwrap() as usize;
        let format = |key: &str| match set[key].as_str().unwrap() {
            "e4m3" => &E4M3,
            "e5m2" => &E5M2,
            "bf16" => &BF16,
            other => panic!("unknown format {other}"),
        };
        let format = [format("a"), format("b")];
        let (m, n, k) = (number("m"), number("n"), number("k"));
        let width = format[0].bits as usize / 8;
        let part = |key: &str, i: usize, size: usize| &data[number(key) + i * size..][..size];
        let model = Model::from_name(set["model"].as_str().unwrap()).unwrap();
        let accumulation = Accumulation { split: number("split"), ..model.accumulation() };
        for i in 0..number("count") {
            let recorded = Recorded {
                format,
                shape: GemmShape { m, n, k },
                a: part("a_at", i, m * k * width),
                b: part("b_at", i, n * k * width),
                c: set["c_at"].is_u64().then(|| words(part("c_at", i, m * n * 4))),
            };
            let right = words(part("d_at", i, m * n * 4));
            assert_eq!(recorded.predicted(&accumulation), right, "{} {set}", model.name());
            outputs += m * n;
            if accumulation.split > 1 {
                // Split-K shows: without it most outputs differ.
                let whole = recorded.predicted(&model.accumulation());
                other_splits += whole.iter().zip(&right).filter(|(a, b)| a != b).count();
            }
        }
    }
    println!("{outputs} outputs of an H200 predicted");
    assert!(outputs > 10_000 && other_splits > 0);
}

/// The products of this project's own kernels, every pair of formats, as `gpu/examples/record.rs` brought them back from the device:
/// ordinary scales, any, special elements and scales, sums that cancel.
#[test]
fn our_products_on_an_h200_are_predicted() {
    let manifest: serde_json::Value =
        serde_json::from_str(include_str!("recordings/h200-mx.json")).unwrap();
    let data = include_bytes!("recordings/h200-mx.bin");
    let accumulation = Model::MxBlockF16Pair.accumulation();
    let (mut outputs, mut inexact) = (0, 0);
    for set in manifest["sets"].as_array().unwrap() {
        let number = |key: &str| set[key].as_u64().unwrap() as usize;
        let (m, n, k) = (number("m"), number("n"), number("k"));
        let part = |key: &str, size: usize| &data[number(key)..][..size];
        let operand = |side: &str, rows: usize| Operand {
            format: Element::from_name(set[side].as_str().unwrap()).unwrap().format(),
            codes: Codes::Bytes(part(&format!("{side}_at"), rows * k)),
            scales: Some(BlockScales {
                format: &E8M0,
                bytes: part(&format!("{side}_scales_at"), rows * k / 32),
                block: 32,
            }),
        };
        let shape = GemmShape { m, n, k };
        let gemm = Gemm::new(shape, operand("a", m), operand("b", n), None, None).unwrap();
        let recorded = words(part("d_at", m * n * 4));
        let predicted = gemm.accumulate(&accumulation, &F32).unwrap();
        for (&recorded, &predicted) in recorded.iter().zip(&predicted) {
            // Any NaN stands for any other.
            let both_nan = F32.is_nan(recorded) && F32.is_nan(predicted);
            assert!(recorded == predicted || both_nan, "{recorded:x} {predicted:x} {set}");
        }
        outputs += recorded.len();
        inexact += gemm.exact(&F32).iter().zip(&recorded).filter(|(a, b)| a != b).count();
    }
    println!("{outputs} outputs of our kernels on an H200 predicted, {inexact} of them not exact");
    assert!(outputs > 5000 && inexact > 1000);
}
