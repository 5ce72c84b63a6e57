//! Fault models as backends: asked as any other, found for what they are.

mod common;

use common::mxcert;
use mx_conformance::ask::{Question, ask, detect};
use mx_conformance::backend::Backend;
use mx_conformance::backends::fault_model::Faulty;
use mx_conformance::fault_models::{FaultModel, all};
use mx_conformance::judge::Judge;
use mx_conformance::mutants::{gate, measure};
use mx_conformance::progress::Quiet;
use mx_conformance::runner::Options;
use mx_conformance::selection::{Filter, plan};
use mx_reference::convention::PROPAGATE;
use mx_vectors::{Level, cells::cells, classes};
use std::time::Duration;

fn options() -> Options {
    Options {
        convention: &PROPAGATE,
        judge: Judge::Native,
        repeat_every: 1,
        jobs: 1,
        bisect_for: Duration::ZERO,
    }
}

/// What stops at enough failed cases finds the first that asking for all finds.
#[test]
fn detection_agrees_with_asking() {
    let filters: Vec<_> = [
        "quantize/e4m3/floor/bf16/row*/special-lanes",
        "quantize/e2m1/rceil/f32/32x32+blocked/padding",
        "dequantize/e4m3/-/bf16/row/decode",
        "gemm/e4m3-e4m3/mx/f32/-/g0-one-hot",
    ]
    .map(|text| Filter::parse(text).unwrap())
    .into();
    let plans = plan(cells(), &classes::ALL, Level::Standard, &filters, (1, 1));
    assert_eq!(plans.len(), 4);
    for model in all() {
        for cell in plans.iter().filter(|cell| (model.applies)(&cell.op)) {
            let (mut one, mut other) = (Faulty::new(model), Faulty::new(model));
            let op = one.capabilities().declared(cell.op);
            if op != cell.op {
                continue;
            }
            for work in cell.works.iter().take(2) {
                let question = Question::new(work, &cell.prefix, options()).unwrap();
                let asked = ask(&mut one, &question, true).unwrap().failed_cases(question.cases());
                let comparison = question.comparison();
                let found = detect(&mut other, &question, &comparison, true, usize::MAX).unwrap();
                assert_eq!(asked, found, "{} in {}", model.name, cell.prefix);
            }
        }
    }
}

#[test]
fn a_fault_is_non_conformant() {
    let cells = "quantize/e4m3/floor/bf16/row";
    let (exit, out, _) = mxcert(&["certify", "--backend", "fault:amax-drops-nan", cells]);
    assert_eq!(exit, 1, "{out}");
    assert!(out.contains("special-lanes"), "{out}");
    // What it is no fault of is right.
    let (exit, out, _) = mxcert(&["certify", "--backend", "fault:amax-drops-nan", "swizzle/*"]);
    assert_eq!(exit, 0, "{out}");
}

#[test]
fn a_misspelt_fault_is_a_usage_error() {
    let (exit, _, err) = mxcert(&["certify", "--backend", "fault:amax-drops-nam"]);
    assert_eq!(exit, 2);
    assert!(err.contains("fault:amax-drops-nan"), "{err}");
    let (exit, _, err) = mxcert(&["mutants", "amax-drops-nam"]);
    assert_eq!(exit, 2);
    assert!(err.contains("amax-drops-nan"), "{err}");
}

#[test]
fn faults_are_listed_with_what_they_stand_for() {
    let (exit, out, _) = mxcert(&["list", "--faults", "--json"]);
    assert_eq!(exit, 0);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
    assert_eq!(rows.len(), all().count());
    assert!(rows.iter().all(|row| row["source"].as_str().is_some_and(|s| !s.is_empty())));
}

/// Two models that nobody could miss, over every profile and class.
#[test]
fn measurements_hold_and_repeat() {
    let models = ["strides-ignored", "exchange-rows-stay"];
    let models: Vec<_> = models.iter().map(|name| FaultModel::from_name(name).unwrap()).collect();
    let mut first = measure(&models, Level::Standard, &Quiet).unwrap();
    let mut again = measure(&models, Level::Standard, &Quiet).unwrap();
    assert_eq!(gate(&first, false), Vec::<String>::new());
    assert_eq!(first.models[0].by_class.keys().collect::<Vec<_>>(), ["strides"]);
    assert_eq!(first.pairs(), (72 + 7, 72 + 7));
    (first.seconds, again.seconds) = (0.0, 0.0);
    assert_eq!(first, again);
}

/// Without its class a fault survives, and the gate says so.
#[test]
fn what_no_case_detects_is_an_objection() {
    let model = FaultModel::from_name("gemm-promotion-left-out").unwrap();
    let smoke = measure(&[model], Level::Smoke, &Quiet).unwrap();
    let mut record = smoke.clone();
    record.level = Level::Standard.name().to_owned();
    let objections = gate(&record, false);
    assert_eq!(objections.len(), 1, "{objections:?}");
    assert!(objections[0].contains("gemm-promotion-left-out survives"), "{objections:?}");
}
