//! `mxcert golden`: right answers for good files, exit 2 and nothing written for bad ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{f32s, mxcert, safetensors, tensor};
use rstest::rstest;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Files {
    dir: TempDir,
}

impl Files {
    fn new(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Self {
        let files = Self { dir: TempDir::new().unwrap() };
        safetensors(&files.input(), tensors);
        files
    }

    fn input(&self) -> PathBuf {
        self.dir.path().join("x.safetensors")
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join("y.safetensors")
    }

    fn run(&self, op: &[&str]) -> (i32, String) {
        let (input, output) = (self.input(), self.output());
        let mut args = vec!["golden"];
        args.extend(op);
        args.extend(["--input", text(&input), "--output", text(&output)]);
        let (code, _, stderr) = mxcert(&args);
        (code, stderr)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ones(rows: usize, cols: usize) -> Files {
    Files::new(&[("input", "F32", &[rows, cols], f32s(vec![1.0; rows * cols]))])
}

#[test]
fn quantize_writes_scales_elements_and_packed() {
    let files = Files::new(&[("input", "F32", &[2, 32], f32s((0..64).map(|i| i as f32)))]);
    assert_eq!(files.run(&["quantize", "--profile", "e2m1/floor"]).0, 0);
    let output = files.output();
    // 31 = 1.94 × 2^4 and 63 = 1.97 × 2^5 over 2^2.
    assert_eq!(tensor(&output, "scales"), ("U8".to_owned(), vec![2, 1], vec![129, 130]));
    let (dtype, shape, codes) = tensor(&output, "elements");
    assert_eq!((dtype.as_str(), shape), ("U8", vec![2, 32]));
    assert_eq!(codes[..5], [0x0, 0x0, 0x1, 0x2, 0x2]);
    let (_, shape, packed) = tensor(&output, "packed");
    assert_eq!((shape, packed[1]), (vec![2, 16], 0x21));
}

#[test]
fn col_gives_the_transpose_and_blocked_is_flat() {
    let files = Files::new(&[("input", "F32", &[32, 3], f32s(vec![1.0; 96]))]);
    let args = ["quantize", "--profile", "e4m3/rceil", "--axis", "col", "--layout", "blocked"];
    assert_eq!(files.run(&args).0, 0);
    assert_eq!(tensor(&files.output(), "elements").1, [3, 32]);
    let (_, shape, scales) = tensor(&files.output(), "scales");
    assert_eq!((shape, scales[0], scales[16], scales[48]), (vec![512], 0x77, 0x77, 0));
}

#[rstest]
#[case("U16", "bf16", 0x3f80u16)]
#[case("U16", "f16", 0x3c00)]
#[case("BF16", "bf16", 0x3f80)]
#[case("F16", "f16", 0x3c00)]
fn sixteen_bit_inputs_raw_and_typed(#[case] dtype: &str, #[case] kind: &str, #[case] one: u16) {
    let bytes: Vec<u8> = [one; 32].into_iter().flat_map(u16::to_le_bytes).collect();
    let files = Files::new(&[("input", dtype, &[1, 32], bytes)]);
    let mut args = vec!["quantize", "--profile", "e4m3/rceil"];
    if dtype == "U16" {
        args.extend(["--dtype", kind]);
    }
    let (code, stderr) = files.run(&args);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(tensor(&files.output(), "elements").2, [0x78; 32]);
}

#[test]
fn tiles_share_one_scale() {
    let mut values = vec![0.5; 32 * 64];
    values[5 * 64 + 40] = -448.0;
    let files = Files::new(&[("input", "F32", &[32, 64], f32s(values))]);
    assert_eq!(files.run(&["quantize", "--profile", "e4m3/floor", "--block", "32x32"]).0, 0);
    assert_eq!(tensor(&files.output(), "scales").1, [1, 2]);
    assert_eq!(tensor(&files.output(), "scales").2, [0x76, 0x7f]);
}

#[test]
fn padding_is_an_option() {
    let files = ones(1, 40);
    assert_eq!(files.run(&["quantize", "--profile", "e4m3/floor", "--pad"]).0, 0);
    let (_, shape, codes) = tensor(&files.output(), "elements");
    assert_eq!((shape, codes[39], codes[40]), (vec![1, 64], 0x78, 0x00));
}

#[test]
fn dequantize_undoes_quantize_of_its_own_grid() {
    let files = ones(2, 32);
    files.run(&["quantize", "--profile", "e4m3/rceil"]);
    std::fs::rename(files.output(), files.input()).unwrap();
    assert_eq!(files.run(&["dequantize", "--element", "e4m3"]).0, 0);
    let (dtype, shape, bytes) = tensor(&files.output(), "output");
    assert_eq!((dtype.as_str(), shape, bytes), ("F32", vec![2, 32], f32s([1.0; 64])));
}

#[rstest]
#[case("e4m3", "saturate", &[448.0, 465.0, f32::INFINITY, -0.0], &[0x7e, 0x7e, 0x7e, 0x80])]
#[case("e4m3", "propagate", &[464.0, 465.0, f32::INFINITY, -f32::INFINITY], &[0x7e, 0x7f, 0x7f, 0xff])]
#[case("e8m0", "saturate", &[0.0, 1.0, 1.0000001, f32::MAX, 1.125, 5.0], &[0, 0x7f, 0x80, 0xfe, 0x80, 0x82])]
#[case("e8m0", "propagate", &[f32::MAX, f32::INFINITY], &[0xff, 0xff])]
fn cast(
    #[case] element: &str,
    #[case] overflow: &str,
    #[case] input: &[f32],
    #[case] codes: &[u8],
) {
    let files = Files::new(&[("input", "F32", &[input.len()], f32s(input.to_vec()))]);
    let (code, stderr) = files.run(&["cast", "--element", element, "--overflow", overflow]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(tensor(&files.output(), "elements").2, codes);
}

/// A of `rows` x K and B of 1 x K ones, in the types given, with scales of 1 under the names given.
fn product(k: usize, [elements, scales]: [&str; 2], scaled: &[&str]) -> Files {
    let codes = vec![0x38; k];
    let ones = vec![0x7f; k / 32];
    let (element_shape, scale_shape) = ([1, k], [1, k / 32]);
    let mut tensors = vec![
        ("a_elements", elements, &element_shape[..], codes.clone()),
        ("b_elements", elements, &element_shape[..], codes),
    ];
    for &name in scaled {
        tensors.push((name, scales, &scale_shape[..], ones.clone()));
    }
    Files::new(&tensors)
}

const BOTH: [&str; 2] = ["a_scales", "b_scales"];
const GEMM: [&str; 5] = ["gemm", "--a-element", "e4m3", "--b-element", "e4m3"];

#[rstest]
#[case::raw(["U8", "U8"])]
#[case::typed(["F8_E4M3", "F8_E8M0"])]
#[case::mixed(["F8_E4M3", "U8"])]
fn gemm_takes_codes_raw_and_typed(#[case] dtypes: [&str; 2]) {
    let files = product(64, dtypes, &BOTH);
    let (code, stderr) = files.run(&GEMM);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(tensor(&files.output(), "output").2, f32s([64.0]));
}

#[test]
fn dequantize_takes_typed_codes() {
    let files = Files::new(&[
        ("elements", "F8_E5M2", &[1, 32], vec![0x3c; 32]),
        ("scales", "F8_E8M0", &[1, 1], vec![0x80]),
    ]);
    let (code, stderr) = files.run(&["dequantize", "--element", "e5m2"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(tensor(&files.output(), "output").2, f32s([2.0; 32]));
}

#[rstest]
#[case::missing_tensor(&["quantize", "--profile", "e4m3/floor"], Files::new(&[("x", "F32", &[1, 32], f32s([0.0; 32]))]), "input")]
#[case::wrong_dtype(&["quantize", "--profile", "e4m3/floor"], Files::new(&[("input", "I32", &[1, 32], f32s([0.0; 32]))]), "I32")]
#[case::raw_without_dtype(&["quantize", "--profile", "e4m3/floor"], Files::new(&[("input", "U16", &[1, 32], vec![0; 64])]), "--dtype bf16|f16")]
#[case::dtype_contradicts(&["quantize", "--profile", "e4m3/floor", "--dtype", "bf16"], ones(1, 32), "bf16")]
#[case::wrong_rank(&["quantize", "--profile", "e4m3/floor"], Files::new(&[("input", "F32", &[32], f32s([0.0; 32]))]), "two dimensions")]
#[case::partial_block(&["quantize", "--profile", "e4m3/floor"], ones(1, 40), "axis row has length 40, which is not a multiple of the block size 32")]
#[case::partial_block_col(&["quantize", "--profile", "e4m3/floor", "--axis", "col"], ones(40, 32), "axis col has length 40")]
#[case::partial_tile(&["quantize", "--profile", "e4m3/floor", "--block", "32x32"], ones(33, 32), "axis col has length 33")]
#[case::unknown_element(&["quantize", "--profile", "e4m4/floor"], ones(1, 32), "did you mean `e4m3`?")]
#[case::unknown_mode(&["quantize", "--profile", "e4m3/flor"], ones(1, 32), "did you mean `floor`?")]
#[case::unknown_convention(&["quantize", "--profile", "e4m3/floor", "--convention", "propogate"], ones(1, 32), "did you mean `propagate`?")]
#[case::odd_block(&["quantize", "--profile", "e4m3/floor", "--block", "24"], ones(1, 48), "block size 24")]
#[case::scales_do_not_fit(&["dequantize", "--element", "e4m3"], Files::new(&[("elements", "U8", &[1, 64], vec![0; 64]), ("scales", "U8", &[1, 1], vec![0])]), "[1, 2]")]
#[case::wide_elements(&["dequantize", "--element", "e4m3"], Files::new(&[("elements", "U16", &[1, 32], vec![0; 64]), ("scales", "U8", &[1, 1], vec![0])]), "U16")]
#[case::partial_k(&GEMM, product(40, ["U8", "U8"], &BOTH), "K is 40, which is not a multiple of the 32 elements that share a scale; fill A and B up")]
#[case::no_scales(&GEMM, product(64, ["U8", "U8"], &["b_scales"]), "`a_scales` is missing; operands without scales of their own have scales of 1, bytes of 0x7F and shape [1, 2]")]
#[case::other_fp8(&GEMM, product(64, ["F8_E5M2", "U8"], &BOTH), "expected F8_E4M3 or U8, one code a byte (bytes as they are: `tensor.view(torch.uint8)`)")]
#[case::fp8_of_another_kind(&GEMM, product(64, ["F8_E4M3FNUZ", "U8"], &BOTH), "holds F8_E4M3FNUZ; expected F8_E4M3 or U8")]
#[case::fp8_as_fp6(&["gemm", "--a-element", "e3m2", "--b-element", "e4m3"], product(64, ["F8_E4M3", "U8"], &BOTH), "expected U8, one code a byte (bytes")]
#[case::unknown_cast(&["cast", "--element", "e4m4"], ones(1, 32), "did you mean `e4m3`?")]
fn bad_input_exits_2_and_writes_nothing(
    #[case] args: &[&str],
    #[case] files: Files,
    #[case] message: &str,
) {
    let (code, stderr) = files.run(args);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains(message), "`{message}` in {stderr}");
    assert!(!files.output().exists());
    let left: Vec<_> = std::fs::read_dir(files.dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the input is there");
}

#[test]
fn corrupt_files_exit_2_and_write_nothing() {
    let whole = std::fs::read(ones(4, 32).input()).unwrap();
    let mut cases = vec![Vec::new(), b"not a safetensors file".to_vec(), vec![0xff; 64]];
    for length in [1, 7, 8, 9, 40, whole.len() - 1] {
        cases.push(whole[..length].to_vec());
    }
    for at in [0, 1, 3, 7, 12, 30] {
        let mut bent = whole.clone();
        bent[at] ^= 0x41;
        cases.push(bent);
    }
    for bytes in cases {
        let files = ones(1, 32);
        std::fs::write(files.input(), &bytes).unwrap();
        let (code, stderr) = files.run(&["quantize", "--profile", "e4m3/floor"]);
        assert_eq!(code, 2, "{stderr} for {} bytes", bytes.len());
        assert!(!files.output().exists());
    }
}

#[test]
fn a_file_that_is_not_there_exits_2() {
    let files = ones(1, 32);
    std::fs::remove_file(files.input()).unwrap();
    assert_eq!(files.run(&["quantize", "--profile", "e4m3/floor"]).0, 2);
}
