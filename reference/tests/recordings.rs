//! Replays recorded hardware outputs, where a folder of them is named by `MXCERT_RECORDINGS`: `manifest.json` and, for each set in
//! it, `a` and `b` codes `[n][k]`, then `c` and `d` f32 bits `[n]`, little endian.

use mx_reference::format::{BF16, E4M3, E5M2, F16, F32};
use mx_reference::gemm::{Codes, Gemm, GemmShape, Model, Operand};
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
