//! Files that are no certificates: what was expected, what came, and what to do.

use crate::common::mxcert;
use crate::{REAL, changed, verify};
use mx_conformance::verify::{CertificateError, LARGEST, parse};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

#[rstest]
#[case::unknown_schema(
    |c: &mut Value| c["schema"] = "mxcert-certificate/9".into(),
    "expected the schema `mxcert-certificate/2`, got `mxcert-certificate/9`; certify again"
)]
#[case::first_schema(|c: &mut Value| c["schema"] = "mxcert-certificate/1".into(), "certify again")]
#[case::run_record(|c: &mut Value| c["schema"] = "mxcert-run/1".into(), "got `mxcert-run/1`; give a certificate")]
#[case::schema_of_another_type(|c: &mut Value| c["schema"] = 2.into(), "got a number under that key")]
#[case::no_schema(|c: &mut Value| *c = json!({"a": 1}), "the key `schema`, got an object without it")]
#[case::a_list(|c: &mut Value| *c = json!([1, 2]), "got a list")]
#[case::missing(
    |c: &mut Value| drop(c["statement"].as_object_mut().unwrap().remove("verdict")),
    "missing field `verdict`"
)]
#[case::missing_digest(|c: &mut Value| drop(c.as_object_mut().unwrap().remove("digest")), "missing field `digest`")]
#[case::missing_count(
    |c: &mut Value| drop(c["statement"]["cells"][0].as_object_mut().unwrap().remove("failed")),
    "missing field `failed`"
)]
#[case::wrong_type(
    |c: &mut Value| c["statement"]["cells"][0]["passed"] = "many".into(),
    "invalid type: string \"many\", expected u64"
)]
#[case::negative(|c: &mut Value| c["statement"]["cells"][0]["failed"] = (-1).into(), "expected u64")]
#[case::unknown_field(|c: &mut Value| c["statement"]["time"] = 7.into(), "unknown field `time`")]
#[case::unknown_claim(|c: &mut Value| c["statement"]["claims"]["colour"] = 7.into(), "unknown field `colour`")]
#[case::unknown_verdict(|c: &mut Value| c["statement"]["verdict"] = "fine".into(), "unknown variant `fine`")]
#[case::short_digest(|c: &mut Value| c["digest"] = "abc".into(), "expected 64 hexadecimal digits as the digest, got `abc`")]
#[case::no_digits(
    |c: &mut Value| c["statement"]["cells"][1]["suite"] = "x".repeat(64).into(),
    "as the suite of dequantize/e2m1/-/f32/row"
)]
#[case::unknown_level(
    |c: &mut Value| c["statement"]["level"] = "standart".into(),
    "expected a level of smoke, standard, exhaustive, got `standart` (did you mean `standard`?)"
)]
#[case::unknown_convention(|c: &mut Value| c["statement"]["convention"] = "mine".into(), "expected a convention of propagate")]
#[case::unknown_model(
    |c: &mut Value| c["statement"]["claims"]["accumulate"] = "hoper-fp8".into(),
    "did you mean `hopper-fp8`?"
)]
#[case::huge_multiple(
    |c: &mut Value| c["statement"]["claims"]["multiple"] = json!([1, 1u64 << 60]),
    "expected a `multiple` between 1 and 4096"
)]
#[case::zero_multiple(|c: &mut Value| c["statement"]["claims"]["multiple"] = json!([0, 32]), "got [0, 32]")]
fn another_shape_is_said(#[case] change: fn(&mut Value), #[case] message: &str) {
    let (code, stdout, stderr) = verify(&changed(change), &[]);
    assert_eq!(code, 2, "{stdout}{stderr}");
    assert!(stdout.contains("no certificate: "), "{stdout}");
    assert!(stdout.contains(message), "{message} in {stdout}");
}

/// Of what is cut short, changed in one byte or nested without end nothing panics, and nothing is taken for the real one.
#[test]
fn broken_bytes_are_errors() {
    let bytes = REAL.trim_end().as_bytes();
    for length in 0..bytes.len() {
        let error = parse(&bytes[..length]).unwrap_err();
        assert!(matches!(error, CertificateError::Truncated(_)), "{length}: {error}");
    }
    let real = parse(bytes).unwrap();
    for (at, change) in (0..bytes.len()).flat_map(|at| [0x01, 0x20, 0x80].map(|c| (at, c))) {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= change;
        if let Ok(other) = parse(&bytes) {
            let holds = other.statement.digest() == other.digest;
            assert!(other == real || !holds, "byte {at}, {change:#x}");
        }
    }
    let nested = "[".repeat(100_000);
    assert!(matches!(parse(nested.as_bytes()), Err(CertificateError::Syntax(_))));
    let twice = REAL.replacen("\"schema\"", "\"digest\": \"\",\n  \"schema\"", 1);
    assert!(matches!(parse(twice.as_bytes()), Err(CertificateError::Shape(_))));
    let large = vec![b' '; LARGEST as usize + 1];
    assert!(matches!(parse(&large), Err(CertificateError::TooLarge { .. })));
}

#[test]
fn files_that_cannot_be_read() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let sparse = at("gigabyte.json");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 30).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("text"), "verified").unwrap();
    for (path, message) in [
        (sparse, "expected at most 4194304 bytes, got 1073741824"),
        ("/dev/zero".to_owned(), "expected at most 4194304 bytes, got more than"),
        (at("empty"), "the file ends at line 1; it was cut short"),
        (at("text"), "expected JSON, got expected value at line 1"),
        (at("absent"), "cannot be read: No such file"),
        (at(""), "cannot be read: Is a directory"),
    ] {
        let (code, stdout, stderr) = mxcert(&["verify", &path]);
        assert_eq!(code, 2, "{stdout}{stderr}");
        assert!(stdout.contains(message), "{message} in {stdout}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}
