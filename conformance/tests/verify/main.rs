//! Certificates checked without their backends: real ones hold, and each planted fault is found, for what it is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod claims;
mod consistency;
mod shape;
mod table;

use common::mxcert;
use mx_conformance::report::certificate::Certificate;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::LazyLock;
use tempfile::TempDir;

/// The cells of [`REAL`]: quick ones, in the order of reports.
const CELLS: [&str; 3] =
    ["quantize/e2m1/floor/bf16/row", "dequantize/e2m1/-/f32/row", "cast/e2m1/even+saturate/bf16/-"];

/// A certificate as `mxcert certify --out` writes it.
static REAL: LazyLock<String> = LazyLock::new(|| {
    let dir = TempDir::new().unwrap();
    let mut args = vec!["certify", "--backend", "native", "--out", dir.path().to_str().unwrap()];
    args.extend(CELLS);
    let (code, stdout, stderr) = mxcert(&args);
    assert_eq!(code, 0, "{stdout}{stderr}");
    std::fs::read_to_string(dir.path().join("certificate-native.json")).unwrap()
});

fn real() -> Value {
    serde_json::from_str(&REAL).unwrap()
}

/// The real certificate with a change, and the digest that it had before.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut value = real();
    change(&mut value);
    value
}

/// The real certificate with a change to its statement, and the digest that belongs to it.
fn rewritten(change: impl FnOnce(&mut Value)) -> Value {
    let mut certificate: Certificate =
        serde_json::from_value(changed(|value| change(&mut value["statement"]))).unwrap();
    certificate.digest = certificate.statement.digest();
    serde_json::to_value(certificate).unwrap()
}

fn write(dir: &Path, name: &str, value: &Value) -> String {
    let path = dir.join(name);
    std::fs::write(&path, serde_json::to_string_pretty(value).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Exit code, standard output and standard error of `mxcert verify` of one certificate.
fn verify(value: &Value, more: &[&str]) -> (i32, String, String) {
    let dir = TempDir::new().unwrap();
    let path = write(dir.path(), "certificate.json", value);
    let mut args = vec!["verify", &path];
    args.extend(more);
    mxcert(&args)
}

/// True words about a backend that failed a case.
fn non_conformant(statement: &mut Value) {
    let cell = &mut statement["cells"][0];
    cell["passed"] = (cell["passed"].as_u64().unwrap() - 1).into();
    cell["failed"] = 1.into();
    cell["verdict"] = "non-conformant".into();
    statement["verdict"] = "non-conformant".into();
}

/// True words about a backend that was asked nothing.
fn nothing(statement: &mut Value) {
    statement["cells"] = json!([]);
    statement["verdict"] = "not-established".into();
}

/// A suite of another mxcert.
fn stale(statement: &mut Value) {
    let suite = statement["cells"][1]["suite"].as_str().unwrap();
    let other = if suite.starts_with('0') { "1" } else { "0" };
    statement["cells"][1]["suite"] = format!("{other}{}", &suite[1..]).into();
}

#[test]
fn a_real_one_is_verified_conformant_and_current() {
    let (code, stdout, stderr) = verify(&real(), &[]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("verified, conformant and current"), "{stdout}");
    assert!(stdout.contains("suites: 3 of 3 cells current"), "{stdout}");
}

#[test]
fn without_suites_it_says_so() {
    let (code, stdout, _) = verify(&real(), &["--no-suites"]);
    assert_eq!(code, 0);
    assert!(stdout.contains("suites not recomputed") && !stdout.contains("current"), "{stdout}");
    // What only the suites tell is not seen.
    assert_eq!(verify(&rewritten(stale), &["--no-suites"]).0, 0);
}

#[test]
fn what_was_established_is_in_the_exit_code() {
    let (code, stdout, _) = verify(&rewritten(non_conformant), &[]);
    assert_eq!(code, 1);
    assert!(stdout.contains("verified, non-conformant and current"), "{stdout}");
    let (code, stdout, _) = verify(&rewritten(nothing), &[]);
    assert_eq!(code, 4);
    assert!(stdout.contains("verified, not established"), "{stdout}");
}

#[test]
fn a_suite_that_has_changed_is_stale() {
    let (code, stdout, _) = verify(&rewritten(stale), &[]);
    assert_eq!(code, 5, "{stdout}");
    assert!(stdout.contains("verified, conformant, stale"), "{stdout}");
    assert!(stdout.contains("suites: 2 of 3 cells current"), "{stdout}");
    assert!(stdout.contains(CELLS[1]) && !stdout.contains(CELLS[0]), "{stdout}");
}

/// A backend that is given up is not asked the rest of a cell, whose suite is then not whole.
#[test]
fn a_cell_that_was_given_up_is_not_stale() {
    let given_up = rewritten(|statement| {
        non_conformant(statement);
        stale(statement);
        statement["cells"][1]["faulted"] = 1.into();
        statement["cells"][1]["verdict"] = "not-established".into();
    });
    let (code, stdout, _) = verify(&given_up, &[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("2 of 3 cells current, 1 not comparable"), "{stdout}");
    assert!(!stdout.contains("stale"), "{stdout}");
}

#[test]
fn of_several_files_the_worst_counts() {
    let dir = TempDir::new().unwrap();
    let certificate = |name: &str, value: &Value| write(dir.path(), name, value);
    let good = certificate("good", &real());
    let stale = certificate("stale", &rewritten(stale));
    let nothing = certificate("nothing", &rewritten(nothing));
    let failed = certificate("failed", &rewritten(non_conformant));
    let none = certificate("none", &json!({}));
    for (files, expected) in [
        (vec![&good, &good], 0),
        (vec![&good, &nothing], 4),
        (vec![&nothing, &stale, &good], 5),
        (vec![&stale, &failed], 1),
        (vec![&failed, &none, &good], 2),
    ] {
        let mut args = vec!["verify"];
        args.extend(files.iter().map(|path| path.as_str()));
        assert_eq!(mxcert(&args).0, expected, "{files:?}");
    }
}

#[test]
fn as_json() {
    let dir = TempDir::new().unwrap();
    let stale = write(dir.path(), "stale", &rewritten(stale));
    let wrong =
        write(dir.path(), "wrong", &changed(|c| c["statement"]["level"] = "exhaustive".into()));
    let none = write(dir.path(), "none", &json!([]));
    let (code, stdout, _) = mxcert(&["verify", &stale, &wrong, &none, "--json", "-"]);
    assert_eq!(code, 2);
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(found[0]["exit"], 5);
    assert_eq!(found[0]["cells"][0], json!({"id": CELLS[0], "suite": "current"}));
    assert_eq!(found[0]["cells"][1]["suite"], "stale");
    assert_eq!(
        (&found[1]["exit"], &found[1]["cells"][0]["suite"]),
        (&1.into(), &"unchecked".into())
    );
    assert_eq!(found[1]["problems"].as_array().unwrap().len(), 1);
    assert_eq!(found[2]["exit"], 2);
    assert!(found[2]["error"].as_str().unwrap().contains("schema"), "{stdout}");
}
