//! The public faults that are not block cases: casts, decodes, packing, layouts, strides, types.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_reference::convention::PROPAGATE;
use mx_reference::format::{E4M3, E5M2, E8M0, F32};
use mx_reference::pack::{PackOrder, pack};
use mx_reference::{
    Axis, BlockShape, Blocking, Element, MatrixView, Number, Overflow, Profile, Rounding,
    ScaleLayout, ScaleMode, dequantize_code, layout::blocked_offset, quantize,
};
use mx_vectors::Float;
use mx_vectors::op::{CastOverflow, CastRounding, Target};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "schema")]
    _schema: String,
    #[serde(rename = "note")]
    _note: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    #[serde(rename = "what")]
    _what: String,
    #[serde(rename = "refs")]
    _refs: String,
    op: String,
    element: Option<String>,
    output: Option<String>,
    scale: Option<String>,
    rounding: Option<String>,
    overflow: Option<String>,
    dtype: Option<String>,
    input: Vec<String>,
    expected: Vec<String>,
}

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap()
}

fn answer(case: &Case) -> Vec<(u32, bool)> {
    let element = || Element::from_name(case.element.as_ref().unwrap()).unwrap();
    let output = || *Float::from_name(case.output.as_ref().unwrap()).unwrap().format();
    let input: Vec<u32> = case.input.iter().map(|text| hex(text)).collect();
    let rounded = |number: Number| {
        let bits = output().encode(number, Rounding::NearestEven, Overflow::Propagate);
        (bits, output().is_nan(bits))
    };
    match case.op.as_str() {
        "pack" => {
            let codes: Vec<u8> = input.iter().map(|&code| code as u8).collect();
            let packed = pack(element(), PackOrder::LittleEndian, &codes).unwrap();
            packed.into_iter().map(|byte| (byte.into(), false)).collect()
        }
        "scale" => input.iter().map(|&byte| rounded(E8M0.decode(byte))).collect(),
        "dequantize" => {
            let scale = hex(case.scale.as_ref().unwrap()) as u8;
            let value = |code: u32| dequantize_code(element().format(), code as u8, &E8M0, scale);
            input.iter().map(|&code| rounded(value(code))).collect()
        }
        "cast" => {
            let target = Target::from_name(case.element.as_ref().unwrap()).unwrap().format();
            let from = Float::from_name(case.dtype.as_ref().unwrap()).unwrap().format();
            let rounding = CastRounding::from_name(case.rounding.as_ref().unwrap()).unwrap();
            let overflow = CastOverflow::from_name(case.overflow.as_ref().unwrap()).unwrap();
            let cast = |&bits| {
                let code =
                    target.encode(from.decode(bits), rounding.rounding(), overflow.overflow());
                (code, target.is_nan(code))
            };
            input.iter().map(cast).collect()
        }
        other => panic!("unknown op {other}"),
    }
}

#[test]
fn every_case_of_the_file_has_its_right_answer() {
    let file: File = serde_json::from_str(include_str!("../data/bug_cases.json")).unwrap();
    assert_eq!(file.cases.len(), 14);
    for case in &file.cases {
        let answers = answer(case);
        assert_eq!(answers.len(), case.expected.len(), "{}", case.id);
        for (i, ((bits, is_nan), expected)) in answers.iter().zip(&case.expected).enumerate() {
            match expected.as_str() {
                "nan" => assert!(is_nan, "{} [{i}]: {bits:x} is no NaN", case.id),
                text => assert_eq!(*bits, hex(text), "{} [{i}]: {bits:x}", case.id),
            }
        }
    }
}

fn profile(element: Element, mode: ScaleMode) -> Profile {
    Profile { element, mode, convention: &PROPAGATE }
}

#[test]
fn a30_padding_of_blocked_scales_is_zero() {
    for rows in [1, 20, 129] {
        for blocks in [1, 3, 5] {
            let plain = vec![0x7f; rows * blocks];
            let blocked = ScaleLayout::Blocked.arrange((rows, blocks), &plain).unwrap();
            let used: Vec<usize> = (0..rows)
                .flat_map(|r| (0..blocks).map(move |c| blocked_offset(blocks, r, c)))
                .collect();
            for (i, &byte) in blocked.iter().enumerate() {
                assert_eq!(byte, if used.contains(&i) { 0x7f } else { 0 });
            }
        }
    }
}

#[test]
fn a31_blocked_layout_fingerprint() {
    for (rows, cols) in [(256usize, 16usize), (130, 5)] {
        let scale = |r: usize, c: usize| ((r * 7 + c * 3) % 251) as u8;
        let plain: Vec<u8> = (0..rows * cols).map(|i| scale(i / cols, i % cols)).collect();
        let blocked = ScaleLayout::Blocked.arrange((rows, cols), &plain).unwrap();
        let tiles = cols.div_ceil(4);
        for r in 0..rows {
            for c in 0..cols {
                let tile = (r / 128) * tiles + c / 4;
                let offset = tile * 512 + (r % 32) * 16 + ((r % 128) / 32) * 4 + c % 4;
                assert_eq!(blocked[offset], scale(r, c));
            }
        }
        assert_eq!(ScaleLayout::Blocked.restore((rows, cols), &blocked).unwrap(), plain);
    }
}

#[test]
fn a33_tail_of_three_blocks_and_no_rows() {
    let x = vec![1.0f32; 96];
    let p = profile(Element::E4m3, ScaleMode::Rceil);
    let q = quantize(MatrixView::contiguous(&x, 1, 96).unwrap(), p, Blocking::MX_ROW).unwrap();
    assert_eq!(q.scales, [0x77; 3]);
    let empty: [f32; 0] = [];
    let q = quantize(MatrixView::contiguous(&empty, 0, 96).unwrap(), p, Blocking::MX_ROW).unwrap();
    assert_eq!((q.rows, q.cols, q.scales.len()), (0, 96, 0));
}

#[test]
fn a39_strided_views_equal_their_contiguous_copies() {
    let x: Vec<f32> = (0..64 * 64).map(|i| (i % 97) as f32 - 48.0).collect();
    let p = profile(Element::E4m3, ScaleMode::Floor);
    let run = |view: MatrixView<'_, f32>| quantize(view, p, Blocking::MX_ROW).unwrap();
    let copy = |at: &dyn Fn(usize, usize) -> f32, rows: usize, cols: usize| {
        let data: Vec<f32> = (0..rows * cols).map(|i| at(i / cols, i % cols)).collect();
        run(MatrixView::contiguous(&data, rows, cols).unwrap())
    };
    let whole = MatrixView::contiguous(&x, 64, 64).unwrap();
    assert_eq!(run(whole.transposed()), copy(&|r, c| x[c * 64 + r], 64, 64));
    let second = MatrixView::new(&x, 0, 64, 32, 64, 2).unwrap();
    assert_eq!(run(second), copy(&|r, c| x[r * 64 + 2 * c], 64, 32));
    let offset = MatrixView::new(&x, 64, 63, 64, 64, 1).unwrap();
    assert_eq!(run(offset), copy(&|r, c| x[(r + 1) * 64 + c], 63, 64));
}

#[test]
fn a40_the_same_values_in_three_types_give_the_same_bytes() {
    let values: Vec<f32> = (0..64).map(|i| (i - 20) as f32 / 8.0).collect();
    let bf16: Vec<half::bf16> = values.iter().map(|&x| half::bf16::from_f32(x)).collect();
    let f16: Vec<half::f16> = values.iter().map(|&x| half::f16::from_f32(x)).collect();
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            let p = profile(element, mode);
            let blocking = Blocking::MX_ROW;
            let a = quantize(MatrixView::contiguous(&values, 2, 32).unwrap(), p, blocking);
            let b = quantize(MatrixView::contiguous(&bf16, 2, 32).unwrap(), p, blocking);
            let c = quantize(MatrixView::contiguous(&f16, 2, 32).unwrap(), p, blocking);
            assert!(a == b && b == c);
        }
    }
}

#[test]
fn a42_values_between_f32_neighbours_round_once() {
    // -431.99999999999994 and 0.25 + 2^-40 lie beside ties that their f32 neighbours sit on.
    let x = Number::finite(true, (432 << 44) - 1, -44);
    assert_eq!(E4M3.encode(x, Rounding::NearestEven, Overflow::Saturate), 0xfd);
    let y = Number::finite(false, (1 << 38) + 1, -40);
    let e2m1 = Element::E2m1.format();
    assert_eq!(e2m1.encode(y, Rounding::NearestEven, Overflow::Saturate), 0x1);
}

#[test]
fn a43_predicates_of_fp8_codes() {
    for code in 0..=0xff {
        let nan = [0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff].contains(&code);
        assert_eq!(E5M2.is_nan(code), nan);
        let magnitude = E5M2.decode(code).magnitude;
        assert_eq!(magnitude == mx_reference::Magnitude::Infinite, code & 0x7f == 0x7c);
        assert_eq!(E4M3.is_nan(code), code & 0x7f == 0x7f);
    }
    assert_eq!(E5M2.decode(0).magnitude, mx_reference::Magnitude::Zero);
}

#[test]
fn a46_amax_of_the_precision_that_is_quantised() {
    // 448.9 in f32 takes the next scale; what a bf16 kernel quantises is 448.
    let scale = |x: f32| profile(Element::E4m3, ScaleMode::Rceil).scale(F32.decode(x.to_bits()));
    assert_eq!(scale(448.9), 0x80);
    assert_eq!(scale(half::bf16::from_f32(448.9).to_f32()), 0x7f);
}

#[test]
fn a47_row_and_col_give_the_same_bytes_transposed() {
    let x: Vec<f32> = (0..32 * 64).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
    let t: Vec<f32> = (0..64 * 32).map(|i| x[i % 32 * 64 + i / 32]).collect();
    let p = profile(Element::E4m3, ScaleMode::Rceil);
    let col = Blocking { axis: Axis::Col, shape: BlockShape::MX, pad: false };
    let a = quantize(MatrixView::contiguous(&x, 32, 64).unwrap(), p, col).unwrap();
    let b = quantize(MatrixView::contiguous(&t, 64, 32).unwrap(), p, Blocking::MX_ROW).unwrap();
    assert_eq!(a, b);
}
