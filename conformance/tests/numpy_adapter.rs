//! The adapter template, as users meet it. Needs Python with numpy: `MXCERT_PYTHON`, or `python3`; skipped without.

mod common;

use common::mxcert;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A Python that has numpy. `MXCERT_PYTHON` must be one; `python3` may be one.
fn python() -> Option<String> {
    let named = std::env::var("MXCERT_PYTHON").ok();
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let imported = Command::new(&python).args(["-c", "import numpy"]).output();
    let works = imported.is_ok_and(|output| output.status.success());
    assert!(works || named.is_none(), "MXCERT_PYTHON has no numpy");
    if !works {
        eprintln!("skipped: python3 has no numpy; name one that has with MXCERT_PYTHON");
    }
    works.then_some(python)
}

fn template() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters/numpy_adapter.py")
}

fn certify(python: &str, adapter: &Path, filter: &str) -> (i32, String, String) {
    let backend = format!("cmd:{python} {}", adapter.display());
    mxcert(&["certify", filter, "--backend", &backend])
}

#[test]
fn the_template_is_conformant() {
    let Some(python) = python() else { return };
    for filter in
        ["quantize/e4m3/*/f32/row", "quantize/e2m1/rceil/bf16/col", "quantize/e3m2/even/f16/row"]
    {
        let (code, stdout, stderr) = certify(&python, &template(), filter);
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.contains(": conformant: "), "{stdout}");
    }
}

#[test]
fn faults_planted_in_it_are_found() {
    let Some(python) = python() else { return };
    let right = std::fs::read_to_string(template()).unwrap();
    for (from, to) in [
        ("\"rceil\": fraction > max_fraction", "\"rceil\": fraction >= max_fraction"),
        ("np.abs(blocks).max(axis=2)", "np.nan_to_num(np.abs(blocks)).max(axis=2)"),
        ("tie & (codes & 1 == 1)", "tie"),
        ("np.signbit(blocks)", "blocks < 0"),
        ("max_fraction) + 1", "max_fraction)"),
        ("amax >= 0x7F800000, 255", "amax >= 0x7F800000, 254"),
    ] {
        assert!(right.contains(from), "{from}");
        let dir = TempDir::new().unwrap();
        let adapter = dir.path().join("adapter.py");
        std::fs::write(&adapter, right.replace(from, to)).unwrap();
        let (code, stdout, stderr) = certify(&python, &adapter, "quantize/e4m3/rceil/f32/row");
        assert_eq!(code, 1, "{to}: {stdout}{stderr}");
    }
}

fn gemm_template() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("adapters/numpy_gemm.py")
}

#[test]
fn the_gemm_template_is_conformant_and_has_a_fingerprint() {
    let Some(python) = python() else { return };
    let (code, stdout, stderr) = certify(&python, &gemm_template(), "gemm/*/f32/*");
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("% correctly rounded"), "{stdout}");
    let backend = format!("cmd:{python} {}", gemm_template().display());
    let args = ["fingerprint", "--backend", &backend, "--operands", "mx-e4m3", "--json", "-"];
    let (code, stdout, stderr) = mxcert(&args);
    assert_eq!(code, 0, "{stderr}");
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(found[0]["operands"], "mx-e4m3");
    assert_eq!(found[0]["adds"], true);
    let other = ["fingerprint", "--backend", &backend, "--operands", "bf16"];
    assert_eq!(mxcert(&other).0, 2);
}

#[test]
fn the_certificate_of_the_gemm_template_has_its_fingerprint_and_is_verified() {
    let Some(python) = python() else { return };
    let backend = format!("cmd:{python} {}", gemm_template().display());
    for (flag, kinds) in [(None, Some(1)), (Some("--no-fingerprint"), None)] {
        let dir = TempDir::new().unwrap();
        let out = dir.path().to_str().unwrap();
        let cell = "gemm/e2m1-e2m1/mx/f32/-";
        let mut args = vec!["certify", cell, "--backend", &backend, "--out", out];
        args.extend(flag);
        let (code, stdout, stderr) = mxcert(&args);
        assert_eq!(code, 0, "{stdout}{stderr}");
        let path = dir.path().join("certificate-numpy-gemm-example.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let certificate: serde_json::Value = serde_json::from_str(&text).unwrap();
        let found = certificate["statement"]["fingerprint"].as_array();
        assert_eq!(found.map(Vec::len), kinds, "{text}");
        assert_eq!(stdout.contains("accumulation of mx-e2m1: "), kinds.is_some(), "{stdout}");
        assert_eq!(mxcert(&["verify", path.to_str().unwrap()]).0, 0);
    }
}

#[test]
fn faults_planted_in_the_gemm_template_are_found() {
    let Some(python) = python() else { return };
    let right = std::fs::read_to_string(gemm_template()).unwrap();
    for (from, to, class) in [
        ("scales == 255, np.nan", "scales == 255, np.inf", "g0-scale-pairs"),
        (
            "np.outer(scale_values(a_scales[:, block])",
            "np.outer(scale_values(a_scales[:, 0])",
            "g0-one-hot",
        ),
        ("range(k // 32)", "range(max(k // 32 - 1, 1))", "g0-one-hot"),
        ("magnitude == 0x7F", "magnitude == 0x80", "g0-products"),
        (
            "scales.astype(np.int32) - 127",
            "np.maximum(scales.astype(np.int32), 1) - 127",
            "g0-scale-pairs",
        ),
        ("np.zeros((m, n))", "np.zeros((m, n), np.float16)", "g0-one-hot"),
    ] {
        assert!(right.contains(from), "{from}");
        let dir = TempDir::new().unwrap();
        let adapter = dir.path().join("adapter.py");
        std::fs::write(&adapter, right.replace(from, to)).unwrap();
        std::fs::copy(template(), dir.path().join("numpy_adapter.py")).unwrap();
        let (code, stdout, stderr) = certify(&python, &adapter, "gemm/e4m3-e4m3/mx/f32/*");
        assert_eq!(code, 1, "{to}: {stdout}{stderr}");
        assert!(stdout.contains(class), "{to}: {stdout}");
    }
}
