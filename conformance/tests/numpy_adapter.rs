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
