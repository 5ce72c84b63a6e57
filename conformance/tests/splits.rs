//! Backends whose algorithm depends on the shape: judged by what they say of it, and found out where they do otherwise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_conformance::algorithm::{Algorithm, AlgorithmRecord, shape};
use mx_conformance::backend::{Backend, Fault, Identity, Refusal};
use mx_conformance::backends::in_process::InProcess;
use mx_conformance::backends::native;
use mx_conformance::capabilities::{Accumulate, Capabilities};
use mx_conformance::fingerprint::{self, Operands, fingerprint_of};
use mx_conformance::judge::Judge;
use mx_conformance::outputs::Outputs;
use mx_conformance::progress::Quiet;
use mx_conformance::record::{CellRecord, FailureKind};
use mx_conformance::runner::{Findings, Options, run};
use mx_conformance::selection::{CellPlan, Filter, plan};
use mx_conformance::suite::suite;
use mx_reference::Convention;
use mx_reference::convention::PROPAGATE;
use mx_reference::gemm::Model;
use mx_vectors::op::{Gemm, Split, Test};
use mx_vectors::{Call, Level, Op, cells::cells, classes};
use rstest::rstest;
use std::time::Duration;

/// The k of a tile: with another, parts end elsewhere.
const TILE: u32 = 64;

type Said = fn([usize; 3]) -> Result<u32, Refusal>;

/// FP8 tensor cores that split K as [`heuristic`] has it, and say what `said` says.
struct Splitting {
    claims: InProcess,
    said: Said,
}

/// A split that depends on M, N and K, as those of real libraries do.
fn heuristic([m, n, k]: [usize; 3]) -> u32 {
    match (m * n, k) {
        (0..1024, 4096..) => 5,
        (0..1024, 1024..) => 3,
        (_, 192..) => 2,
        _ => 1,
    }
}

impl Backend for Splitting {
    fn identity(&self) -> &Identity {
        self.claims.identity()
    }

    fn capabilities(&self) -> &Capabilities {
        self.claims.capabilities()
    }

    fn algorithm(&mut self, call: &Call) -> Result<Algorithm, Refusal> {
        let parts = (self.said)(shape(call).unwrap())?;
        Ok(Algorithm {
            split: Split { parts, tile: TILE },
            name: Some(format!("algorithm {parts}")),
        })
    }

    fn execute(
        &mut self,
        call: &Call,
        _: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        let Op::Gemm(g) = call.op else { return Err(Refusal::Unsupported("no product".into())) };
        let split = Split { parts: heuristic(shape(call).unwrap()), tile: TILE };
        let op = Op::Gemm(Gemm { split, test: Test::Modelled, ..g });
        outputs.fill(&native::answer(&op, &PROPAGATE, &call.inputs).unwrap()).unwrap();
        Ok(())
    }
}

const FILTER: &str = "gemm/e4m3-e5m2/unit/f32/*g4-*#[1-4]?";

fn claims() -> Capabilities {
    let accumulate = Some(Accumulate(Some(Model::HopperFp8)));
    Capabilities { accumulate, multiple: Some((16, 16)), ..Capabilities::default() }
}

fn plans() -> Vec<CellPlan> {
    let claims = claims();
    let cells = cells().into_iter().map(|op| claims.declared(op)).filter(|op| claims.covers(op));
    let filter = Filter::parse(FILTER).unwrap();
    plan(cells, &classes::ALL, Level::Standard, &[filter], claims.multiple())
}

fn backend(said: Said) -> Splitting {
    let mut inner = InProcess::reference();
    inner.claim(|capabilities| *capabilities = claims());
    Splitting { claims: inner, said }
}

fn judge(said: Said) -> Findings {
    let options = Options {
        convention: &PROPAGATE,
        judge: Judge::Native,
        repeat_every: 1000,
        jobs: 1,
        bisect_for: Duration::from_mins(1),
    };
    run(&mut backend(said), &plans(), options, &Quiet).unwrap()
}

fn splits(cell: &CellRecord) -> Vec<AlgorithmRecord> {
    cell.algorithms.iter().filter_map(AlgorithmRecord::split).collect()
}

#[test]
fn what_is_said_of_each_shape_is_what_right_answers_are_of() {
    let findings = judge(|shape| Ok(heuristic(shape)));
    let [cell] = &findings.cells[..] else { panic!("{:?}", findings.cells) };
    assert_eq!((cell.counts.failed, findings.failures.len()), (0, 0), "{:?}", findings.failures);
    assert_eq!(cell.counts.passed, 32);
    // Several splits, each by its shape and its name; and shapes whose K is whole are recorded by name alone.
    let told: Vec<_> = cell.algorithms.iter().map(|a| (a.shape, a.parts)).collect();
    assert!(told.iter().all(|&(shape, split)| split == heuristic(shape)), "{told:?}");
    assert!(told.iter().any(|&(_, split)| split == 1));
    assert!(cell.algorithms.iter().all(|a| a.name == Some(format!("algorithm {}", a.parts))));
    let mut parts: Vec<u32> = splits(cell).iter().map(|split| split.parts).collect();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts, [2, 3, 5]);
}

/// The digest of a suite is computed anew from the splits that a certificate lists, and from no others.
#[test]
fn suites_are_computed_from_splits() {
    let findings = judge(|shape| Ok(heuristic(shape)));
    let (cell, plans) = (&findings.cells[0], plans());
    let digest = |splits: &[AlgorithmRecord]| {
        suite(&plans[0], &PROPAGATE, &claims(), splits, &Quiet).unwrap().digest
    };
    let told = splits(cell);
    assert_eq!(digest(&told), cell.suite);
    assert_ne!(digest(&[]), cell.suite);
    assert_ne!(digest(&told[1..]), cell.suite);
    let wider: Vec<_> = told.iter().map(|s| AlgorithmRecord { tile: 512, ..s.clone() }).collect();
    assert_ne!(digest(&wider), cell.suite);
}

#[rstest]
#[case::nothing_is_split(|_| Ok(1))]
#[case::everything_is(|_| Ok(2))]
#[case::one_shape_aside(|shape: [usize; 3]| Ok(if shape[2] > 8192 { 4 } else { heuristic(shape) }))]
#[case::beyond_reason(|_| Ok(u32::MAX))]
fn who_splits_otherwise_is_found(#[case] said: Said) {
    let findings = judge(said);
    assert!(findings.by_class.contains_key("g4-modelled"), "{:?}", findings.by_class);
    // More parts than tiles would widen the bound, and are not counted.
    let told = splits(&findings.cells[0]);
    assert!(told.iter().all(|s| s.parts as usize <= s.shape[2].div_ceil(TILE as usize)));
}

#[test]
fn who_has_no_algorithm_inside_the_claim_has_failed() {
    let findings = judge(|_| Err(Refusal::Unsupported("no algorithm (status 15)".to_owned())));
    let counts = findings.cells[0].counts;
    assert_eq!((counts.passed, counts.faulted), (0, 0));
    assert_eq!(findings.failures[0].kind, FailureKind::ClaimRefused);
    assert!(findings.failures[0].message.contains("status 15"));
}

#[test]
fn a_fault_before_the_product_is_a_fault() {
    let findings = judge(|_| Err(Fault::Raised { reason: "the device is gone".to_owned() }.into()));
    let counts = findings.cells[0].counts;
    assert_eq!((counts.passed, counts.failed), (0, 0));
    assert!(counts.faulted > 0 && findings.faults.len() as u64 == counts.faulted);
}

/// Models are replayed with K split as each product has it; what is said wrongly gives no model.
#[test]
fn fingerprints_hear_of_splits() {
    let models = |said| {
        let found = fingerprint_of(&mut backend(said), Operands::Fp8, 1024).unwrap();
        assert!(matches!(found.split, fingerprint::Split::Parts(_)), "{:?}", found.split);
        found.matches.iter().map(|found| found.model).collect::<Vec<_>>()
    };
    assert_eq!(models(|shape| Ok(heuristic(shape))), ["hopper-fp8"]);
    assert_eq!(models(|_| Ok(4)), [""; 0]);
}
