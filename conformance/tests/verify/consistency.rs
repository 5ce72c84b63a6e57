//! Statements that were changed, and statements that contradict themselves.

use crate::common::mxcert;
use crate::{CELLS, changed, real, rewritten, verify};
use mx_conformance::progress::Quiet;
use mx_conformance::report::certificate::Certificate;
use mx_conformance::verdict::Exit;
use mx_conformance::verify::{Freshness, Options, verify as check};
use rstest::rstest;
use serde_json::{Value, json};

fn flip(text: &mut Value) {
    let mut digits = text.as_str().unwrap().to_owned();
    let last = if digits.pop() == Some('0') { '1' } else { '0' };
    digits.push(last);
    *text = digits.into();
}

#[rstest]
#[case::digest(|c: &mut Value| flip(&mut c["digest"]))]
#[case::count(|c: &mut Value| c["statement"]["cells"][0]["passed"] = 1.into())]
#[case::suite(|c: &mut Value| flip(&mut c["statement"]["cells"][0]["suite"]))]
#[case::artifact(|c: &mut Value| c["statement"]["backend"]["artifact"] = "sha256:00".into())]
#[case::device(|c: &mut Value| c["statement"]["backend"]["device"] = "B200".into())]
#[case::claims(|c: &mut Value| c["statement"]["claims"]["conventions"] = json!(["propagate"]))]
#[case::convention(|c: &mut Value| c["statement"]["convention"] = "te".into())]
#[case::level(|c: &mut Value| c["statement"]["level"] = "exhaustive".into())]
#[case::fewer_cells(|c: &mut Value| drop(c["statement"]["cells"].as_array_mut().unwrap().pop()))]
fn a_changed_statement_has_another_digest(#[case] change: fn(&mut Value)) {
    let (code, stdout, _) = verify(&changed(change), &[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("does not hold"), "{stdout}");
    assert!(stdout.contains("the statement hashes to"), "{stdout}");
    assert!(stdout.contains("suites not recomputed"), "{stdout}");
}

fn cell(statement: &mut Value) -> &mut Value {
    &mut statement["cells"][0]
}

#[rstest]
#[case::verdict(
    |s: &mut Value| s["verdict"] = "non-conformant".into(),
    "it says non-conformant, but its cells make that conformant"
)]
#[case::cell_verdict(
    |s: &mut Value| cell(s)["verdict"] = "non-conformant".into(),
    "says non-conformant, but its counts make that conformant"
)]
#[case::failed(
    |s: &mut Value| cell(s)["failed"] = 1.into(),
    "says conformant, but its counts make that non-conformant"
)]
#[case::failed_alone(|s: &mut Value| cell(s)["failed"] = 1.into(), "its cells make that non-conformant")]
#[case::faulted(
    |s: &mut Value| cell(s)["faulted"] = 2.into(),
    "says conformant, but its counts make that not established"
)]
#[case::nothing_passed(
    |s: &mut Value| cell(s)["passed"] = 0.into(),
    "says conformant, but its counts make that not established: 0 passed"
)]
#[case::one_case_more(
    |s: &mut Value| cell(s)["passed"] = (cell(s)["passed"].as_u64().unwrap() + 1).into(),
    "0 of them outside the claim; its suite has"
)]
#[case::one_outside(|s: &mut Value| cell(s)["outside"] = 1.into(), "1 of them outside the claim; its suite has")]
#[case::endless(|s: &mut Value| {
    for count in ["passed", "outside"] {
        cell(s)[count] = u64::MAX.into();
    }
}, "counts 36893488147419103230 cases")]
#[case::no_cells(|s: &mut Value| s["cells"] = json!([]), "its cells make that not established")]
#[case::in_part(|s: &mut Value| cell(s)["complete"] = false.into(), "was asked in part")]
#[case::unknown(
    |s: &mut Value| cell(s)["id"] = "quantize/e2m1/flor/bf16/row".into(),
    "is no cell of mxcert 0.1.0 (did you mean `quantize/e2m1/floor/bf16/row`?)"
)]
#[case::twice(|s: &mut Value| s["cells"][1] = cell(s).clone(), "stands there twice")]
#[case::outside_the_claims(|s: &mut Value| s["claims"]["inputs"] = json!(["f32"]), "lies outside the claims")]
#[case::another_convention(
    |s: &mut Value| s["claims"]["conventions"] = json!(["te"]),
    "outside the convention claims"
)]
#[case::smoke(|s: &mut Value| s["level"] = "smoke".into(), "level smoke certifies nothing")]
#[case::nobody(|s: &mut Value| s["backend"] = Value::Null, "names no backend")]
#[case::no_claims(|s: &mut Value| s["claims"] = Value::Null, "states no claims")]
fn a_contradiction_is_found(#[case] change: fn(&mut Value), #[case] message: &str) {
    let (code, stdout, stderr) = verify(&rewritten(change), &[]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stdout.contains("does not hold"), "{stdout}");
    assert!(stdout.contains(message), "{message} in {stdout}");
    assert!(stdout.contains("is the statement's"), "{stdout}");
}

#[test]
fn a_weaker_verdict_than_the_counts_is_no_contradiction() {
    // A cell whose outputs have no elements is not established though all its cases pass.
    let weaker = rewritten(|s| cell(s)["verdict"] = "not-established".into());
    assert_eq!(verify(&weaker, &[]).0, 0);
}

#[rstest]
#[case::this_build("cuda", json!("sha256:aa"), Freshness::Current, Exit::Conformant)]
#[case::another_build("cuda", json!("sha256:bb"), Freshness::Stale, Exit::Stale)]
#[case::no_build("cuda", Value::Null, Freshness::Stale, Exit::Stale)]
#[case::a_strangers("mine", json!("sha256:bb"), Freshness::Unchecked, Exit::Conformant)]
fn the_projects_own_kernels_are_those_of_this_build(
    #[case] name: &str,
    #[case] artifact: Value,
    #[case] expected: Freshness,
    #[case] exit: Exit,
) {
    let value = rewritten(|s| {
        s["backend"]["name"] = name.into();
        s["backend"]["artifact"] = artifact;
    });
    let certificate: Certificate = serde_json::from_value(value).unwrap();
    let own = |name: &str| (name == "cuda").then(|| "sha256:aa".to_owned());
    let options = Options { suites: false, own_artifact: own };
    let found = check(&certificate, options, &Quiet).unwrap();
    assert_eq!((found.problems.len(), found.artifact, found.exit), (0, expected, exit));
}

#[test]
fn a_fingerprint_that_contradicts_the_declared_model_is_said_and_not_judged() {
    let value = rewritten(|s| {
        s["fingerprint"] = json!([{
            "operands": "mx-e4m3", "adds": true, "order": "in order of k", "group": "32 products, contiguous",
            "fraction_bits": "13", "accumulator_bits": "14", "rounding": "toward zero", "promotion": "none",
            "split": "none", "subnormal_results": "kept", "subnormal_operands": ["kept", "kept"],
            "reproduced": true, "models": ["hopper-fp8"]
        }]);
    });
    let (code, stdout, _) = verify(&value, &["--no-suites"]);
    assert_eq!(code, 0);
    let words =
        "accumulation of mx-e4m3: hopper-fp8; declared is exact, which these answers contradict";
    assert!(stdout.contains(words), "{stdout}");
}

#[test]
fn words_cannot_write_to_the_terminal() {
    let value = rewritten(|s| {
        s["backend"]["name"] = "\u{1b}[2Jnative\nverified".into();
        cell(s)["id"] = "x\u{1b}[2J\n/".into();
    });
    let (code, stdout, _) = verify(&value, &[]);
    assert_eq!(code, 1);
    assert!(!stdout.contains('\u{1b}') && !stdout.contains("\nverified"), "{stdout:?}");
}

#[test]
fn verify_needs_a_certificate() {
    assert_eq!(mxcert(&["verify"]).0, 2);
    assert_eq!(real()["statement"]["cells"][0]["id"], CELLS[0]);
}
