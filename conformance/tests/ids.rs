//! Ids: what `list` prints and `repro` takes, and what is said where there are none.

mod common;

use common::{adapter, mxcert, spec};
use rstest::rstest;
use tempfile::TempDir;

#[rstest]
#[case::modelled("*g4*", "hopper-fp8", "gemm/e4m3-e4m3/unit/f32/-/g4-modelled#0")]
#[case::unit("*/unit/*", "hopper-fp8", "gemm/e4m3-e4m3/unit/f32/-/g0-products#0")]
#[case::without_model("gemm/*g3*", "f32", "gemm/e4m3-e4m3/mx/f32/-/g3-bounded#0")]
fn ids_of_a_declared_accumulation(#[case] filter: &str, #[case] model: &str, #[case] id: &str) {
    let (code, stdout, stderr) = mxcert(&["list", filter, "--accumulate", model]);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(stdout.lines().any(|line| line == id), "{id}");
}

#[test]
fn numbers_of_cases_of_a_declared_accumulation() {
    let (code, stdout, _) = mxcert(&["list", "--accumulate", "hopper-fp8"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("gemm/e4m3-e4m3/unit/f32/-/g4-modelled  42\n"), "{stdout}");
    assert!(!stdout.contains("gemm/e4m3-e4m3/mx/"), "{stdout}");
    let (_, stdout, _) = mxcert(&["list"]);
    assert!(stdout.contains("gemm/e4m3-e4m3/mx/") && !stdout.contains("/unit/"), "{stdout}");
}

#[rstest]
#[case::modelled(&["*g4*"], "the accumulation f32; there are such cases under f32-sequential")]
#[case::unit(&["*/unit/*"], "--accumulate MODEL` prints them")]
#[case::mx(&["gemm/*/mx/*", "--accumulate", "hopper-fp8"], "the accumulation hopper-fp8; there are")]
#[case::level(&["*/pairs"], "no case of level standard; try --level exhaustive")]
#[case::misspelt(&["quantize/e2m1/flor/bf16/row/ties#1"], "did you mean `quantize/e2m1/floor/bf16/row/ties`?")]
#[case::json(&["no/such", "--json"], "`no/such` names no case")]
fn no_id_is_said_and_not_silent(#[case] args: &[&str], #[case] why: &str) {
    let args: Vec<&str> = std::iter::once("list").chain(args.iter().copied()).collect();
    let (code, stdout, stderr) = mxcert(&args);
    // As `certify` with such a filter.
    assert_eq!(code, 4, "{stderr}");
    assert!(stderr.contains(why), "{why} in {stderr}");
    assert!(stdout.is_empty() || stdout == "[]\n", "{stdout}");
}

#[test]
fn accumulations_have_names() {
    let (code, _, stderr) = mxcert(&["list", "--accumulate", "hoper-fp8"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("did you mean `hopper-fp8`?"), "{stderr}");
    assert_eq!(mxcert(&["list", "--modes", "--accumulate", "f32"]).0, 2);
}

const HELLO: &str =
    r#"{"name":"t","version":"1","ops":["gemm"],"profiles":["e4m3-e4m3/mx"],"inputs":["f32"]}"#;

/// Answers every product of 128 x 128 with zeros.
const ZEROS: &str = r#"    header='{"output":{"dtype":"U32","shape":[128,128],"data_offsets":[0,65536]}}   '
    n=$(printf "$header" | wc -c)
    { printf "\\$(printf %03o $n)\0\0\0\0\0\0\0"; printf "$header"; head -c 65536 /dev/zero; } > "$out"
    echo "{\"id\":$id,\"status\":\"ok\"}""#;

#[test]
fn repro_prints_the_terms_of_the_first_wrong_output() {
    let dir = TempDir::new().unwrap();
    let backend = spec(&adapter(dir.path(), HELLO, ZEROS));
    let id = "gemm/e4m3-e4m3/mx/f32/-/g0-scale-pairs#0";
    let (code, stdout, stderr) = mxcert(&["repro", id, "--backend", &backend]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    for part in [
        "output: row 0, column 7  want 00200000 got 00000000",
        "output [0, 7] = sum over k of A[0, k] x B[7, k]: 1 term that is not zero of 128",
        "       5  0x38 = 1, scale 0x00 = 2^-127 ",
        " 0x38 = 1, scale 0x7e = 2^-1 ",
        " = 1 x 2^-128, rounded once 0x00200000 (f32)",
    ] {
        assert!(stdout.contains(part), "{part} in\n{stdout}");
    }
}

#[test]
fn repro_says_that_the_accumulation_decides_which_ids_there_are() {
    let dir = TempDir::new().unwrap();
    let backend = spec(&adapter(dir.path(), HELLO, ZEROS));
    let id = "gemm/e4m3-e4m3/unit/f32/-/g4-modelled#0";
    let (code, _, stderr) = mxcert(&["repro", id, "--backend", &backend]);
    assert_eq!(code, 2);
    let why = "names no case of a backend that declares the accumulation f32; there are such cases under ada-fp8, hopper-fp8";
    assert!(stderr.contains(why), "{stderr}");
}
