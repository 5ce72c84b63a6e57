//! What is asked follows from what is claimed: the suite that the runner asks is the one that verification computes.

use mx_conformance::backend::Backend;
use mx_conformance::backends::in_process::InProcess;
use mx_conformance::backends::native;
use mx_conformance::capabilities::{Accumulate, Capabilities};
use mx_conformance::judge::Judge;
use mx_conformance::progress::Quiet;
use mx_conformance::record::{BackendRecord, Claims, Counts};
use mx_conformance::report::certificate::Certificate;
use mx_conformance::runner::{Options, run};
use mx_conformance::selection::{Filter, plan};
use mx_conformance::verdict::{Exit, Verdict};
use mx_conformance::verify::{Freshness, own_artifact, parse, verify};
use mx_reference::convention::PROPAGATE;
use mx_reference::gemm::Model;
use mx_vectors::{Level, cells::cells, classes};
use rstest::rstest;
use std::time::Duration;

/// The certificate of native under other claims.
fn certificate(filter: &str, claim: fn(&mut Capabilities)) -> Certificate {
    let mut backend = InProcess::new("native", native::answer);
    backend.claim(claim);
    let claims = backend.capabilities().clone();
    let filter = Filter::parse(filter).unwrap();
    let asked = cells().into_iter().map(|op| claims.declared(op)).filter(|op| claims.covers(op));
    let plans = plan(asked, &classes::ALL, Level::Standard, &[filter], claims.multiple());
    let options = Options {
        convention: &PROPAGATE,
        judge: Judge::Reference,
        repeat_every: 1000,
        jobs: 1,
        bisect_for: Duration::ZERO,
    };
    let cells = run(&mut backend, &plans, options, &Quiet).unwrap().cells;
    // Where every shape but those without rows lies outside the claim, a cell is not established.
    assert!(cells.iter().any(|cell| cell.verdict == Verdict::Conformant), "{cells:?}");
    assert!(cells.iter().all(|cell| cell.verdict != Verdict::NonConformant), "{cells:?}");
    let mut counts = Counts::default();
    for cell in &cells {
        counts.add(&cell.counts);
    }
    let record = BackendRecord {
        identity: Some(backend.identity().clone()),
        claims: Some(Claims(claims)),
        verdict: counts.verdict(),
        counts,
        cells,
        ..BackendRecord::new("native".to_owned(), Judge::Reference)
    };
    Certificate::of(&PROPAGATE, Level::Standard, &record).unwrap()
}

#[rstest]
#[case::strided("quantize/e2m1/floor/f16/*", |claim: &mut Capabilities| claim.strided = true)]
#[case::contiguous("quantize/e2m1/floor/f16/*", |claim: &mut Capabilities| claim.strided = false)]
#[case::multiple("quantize/e2m1/floor/f16/*", |claim: &mut Capabilities| claim.multiple = Some((16, 96)))]
#[case::modelled("gemm/e2m1-e2m1/mx/bf16/-", |claim: &mut Capabilities| {
    claim.accumulate = Some(Accumulate(Some(Model::BlackwellMxf8f6f4)));
})]
#[case::exact_multiple("gemm/e2m1-e2m1/mx/bf16/-", |claim: &mut Capabilities| {
    claim.accumulate = Some(Accumulate(Some(Model::Exact)));
    claim.multiple = Some((48, 96));
})]
#[case::any_order("gemm/e2m1-e2m1/mx/bf16/-", |claim: &mut Capabilities| {
    claim.accumulate = Some(Accumulate(None));
})]
fn the_suite_of_other_claims(#[case] filter: &str, #[case] claim: fn(&mut Capabilities)) {
    let certificate = certificate(filter, claim);
    let read = parse(&serde_json::to_vec(&certificate).unwrap()).unwrap();
    assert_eq!(read, certificate);
    let options = mx_conformance::verify::Options { suites: true, own_artifact };
    let found = verify(&read, options, &Quiet).unwrap();
    assert_eq!((&found.problems[..], found.exit), (&[][..], Exit::Conformant));
    assert!(found.cells.iter().all(|cell| cell.suite == Freshness::Current));
}

/// Under other claims something else is asked, so a certificate without its claims could not be checked.
#[test]
fn other_claims_other_suites() {
    let mut certificate = certificate("quantize/e2m1/floor/f16/row", |claim| claim.strided = true);
    if let Some(claims) = &mut certificate.statement.claims {
        claims.0.strided = false;
    }
    certificate.digest = certificate.statement.digest();
    let options = mx_conformance::verify::Options { suites: true, own_artifact };
    assert_eq!(verify(&certificate, options, &Quiet).unwrap().exit, Exit::Stale);
}
