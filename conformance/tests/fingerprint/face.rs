//! Errors, shapes, names, text and JSON.

use crate::boxes::{Closed, Function, OPTIONS, names};
use mx_conformance::fingerprint::{Bits, Operands, Options, PlainGemm, fingerprint};
use mx_reference::format::{E4M3, F32};
use mx_reference::gemm::{Gemm, Model};
use rstest::rstest;

#[test]
fn errors_come_through() {
    struct Broken;
    impl PlainGemm for Broken {
        type Error = &'static str;
        fn multiply(&mut self, _: &Gemm<'_>) -> Result<Vec<u32>, Self::Error> {
            Err("no device")
        }
    }
    assert_eq!(fingerprint(&mut Broken, Operands::Fp8, OPTIONS), Err("no device"));
}

#[rstest]
#[case((16, 16, 32))]
#[case((1, 8, 64))]
#[case((128, 128, 128))]
#[case((0, 0, 0))]
#[case((3, 5, 48))]
fn shapes_are_legal_and_change_nothing(#[case] multiple: (usize, usize, usize)) {
    let legal = |shape: usize, multiple: usize| shape.is_multiple_of(multiple.max(1));
    for (operands, model) in
        [(Operands::Fp8, Model::HopperFp8), (Operands::Nvfp4, Model::BlackwellMxf4nvf4)]
    {
        let mut shapes = Vec::new();
        let mut gemm = Function(|gemm: &Gemm<'_>| {
            shapes.push(gemm.shape());
            let accumulation = model.accumulation();
            // Few outputs are looked at, so the rest of large shapes stays undone.
            let n = gemm.shape().n;
            let rows = gemm.accumulated(&accumulation, &F32, 0..n.min(20)).expect("its operands");
            let row = |i| {
                let mut row = rows.row(i);
                row.resize(n, 0);
                row
            };
            (0..gemm.shape().m).flat_map(row).collect()
        });
        let options = Options { k: 512, multiple };
        let mut found = fingerprint(&mut gemm, operands, options).unwrap();
        assert!(shapes.len() < 40);
        assert!(shapes.iter().all(|shape| {
            legal(shape.m, multiple.0) && legal(shape.n, multiple.1) && legal(shape.k, multiple.2)
        }));
        assert_eq!(names(&found), [model.name()]);
        let plain = Options { k: found.k, ..OPTIONS };
        let mut expected = fingerprint(&mut Closed(model.accumulation()), operands, plain).unwrap();
        for found in [&mut found, &mut expected] {
            (found.products, found.probes) = (0, 0);
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn extreme_options() {
    for k in [0, 1, 200, 300] {
        let options = Options { k, multiple: (1, 1, 1) };
        let closed = &mut Closed(Model::HopperFp8.accumulation());
        let found = fingerprint(closed, Operands::Fp8, options).unwrap();
        assert_eq!(found.fraction_bits, Bits::Exactly(13));
        assert_eq!(names(&found)[0], "hopper-fp8");
    }
}

#[test]
fn names_of_operands() {
    for operands in Operands::ALL {
        assert_eq!(Operands::from_name(operands.name()), Some(operands));
    }
    assert_eq!(Operands::from_name("fp16"), None);
    assert_eq!(Operands::Fp8.element(), &E4M3);
}

#[test]
fn as_text() {
    let closed = &mut Closed(Model::HopperFp8Promote128.accumulation());
    let found = fingerprint(closed, Operands::Fp8, OPTIONS).unwrap();
    let text = found.to_string();
    let (asked, rest): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("asked"));
    assert!(asked[0].ends_with("k up to 1024"), "{text}");
    assert_eq!(
        rest.join("\n"),
        "\
operands          fp8
order             in order of k
group             32 products, contiguous
fraction bits     13
accumulator bits  14
rounding          toward zero
promotion         every 128 k, to an accumulator of 24 bits, to nearest, ties to even
split             none
subnormals        results not seen, A kept, B kept
these parameters  give every answer when replayed
matches           hopper-fp8-promote128"
    );
}

#[test]
fn as_json() {
    let closed = &mut Closed(Model::BlackwellMxf4nvf4.accumulation());
    let mut found = fingerprint(closed, Operands::Nvfp4, OPTIONS).unwrap();
    (found.probes, found.products) = (7, 3);
    let expected = serde_json::json!({
        "schema": "mxcert-fingerprint/1",
        "operands": "nvfp4",
        "k": 1024,
        "probes": 7,
        "products": 3,
        "adds": true,
        "order": "in-order",
        "group": { "fused": { "length": 64, "layout": "contiguous", "exact": 16 } },
        "fraction_bits": { "exactly": 35 },
        "accumulator_bits": { "exactly": 24 },
        "rounding": "toward-zero",
        "promotion": "none",
        "split": "none",
        "subnormals": { "results": "not-seen", "a": "kept", "b": "kept" },
        "reproduced": true,
        "matches": [{ "model": "blackwell-mxf4nvf4", "split": 1 }],
    });
    assert_eq!(serde_json::to_value(&found).unwrap(), expected);
}
