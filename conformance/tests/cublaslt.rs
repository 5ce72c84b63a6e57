//! How cuBLASLt is named, and what is said where it is not.

mod common;

use common::mxcert;
use mx_conformance::backends::{Opened, Spec};
use mx_conformance::judge::Judge;
use mx_gpu::Probe;
use mx_gpu::cublaslt::Mode;
use rstest::rstest;
use std::time::Duration;

#[test]
fn modes_are_named_and_stand_for_all_without_one() {
    let all: Spec = "cublaslt".parse().unwrap();
    let each = all.clone().each();
    assert_eq!(each.len(), Mode::ALL.len());
    for (spec, mode) in each.iter().zip(Mode::ALL) {
        assert_eq!(spec.to_string(), format!("cublaslt:{}", mode.name));
        assert_eq!(spec.to_string().parse::<Spec>().unwrap(), *spec);
        assert_eq!(spec.judge(), Judge::Native);
        assert_eq!(spec.clone().each(), std::slice::from_ref(spec));
    }
    match all.open(Duration::from_secs(1)) {
        Ok(Opened::Absent(reason)) => assert!(reason.contains("cublaslt:fp8"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case("cublaslt:fp8-fats", "cublaslt:fp8-fast")]
#[case("cublaslt:vec128", "cublaslt:fp8-vec128")]
#[case("cublasLt", "cublaslt")]
fn near_names_are_suggested(#[case] given: &str, #[case] meant: &str) {
    let (code, _, stderr) = mxcert(&["certify", "--level", "smoke", "--backend", given]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains(&format!("did you mean `{meant}`?")), "{stderr}");
}

/// Nothing established is exit 4, each mode saying what is missing; a backend that is here is judged beside them.
#[test]
fn what_is_missing_is_said() {
    let probe = Probe::new();
    let Some(missing) = probe.products() else {
        println!("skipped: nothing is missing here");
        return;
    };
    let args = ["certify", "--level", "smoke", "gemm/*", "--backend", "cublaslt"];
    let (code, stdout, _) = mxcert(&args);
    assert_eq!(code, 4, "{stdout}");
    for mode in Mode::ALL {
        let line = format!("cublaslt:{mode}: not established: {missing}");
        assert!(stdout.contains(&line), "{stdout}");
    }
    let (code, stdout, _) = mxcert(&[&args[..], &["--backend", "native"]].concat());
    assert_eq!(code, 0, "{stdout}");
}
