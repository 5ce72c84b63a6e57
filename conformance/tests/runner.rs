//! The runner against backends with planted faults: each must be found, and for what it is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_conformance::backend::{Backend, Fault, Identity, Refusal};
use mx_conformance::backends::in_process::InProcess;
use mx_conformance::capabilities::Capabilities;
use mx_conformance::judge::Judge;
use mx_conformance::outputs::Outputs;
use mx_conformance::progress::Quiet;
use mx_conformance::record::{Counts, FailureKind};
use mx_conformance::runner::{Findings, Options, run};
use mx_conformance::selection::{CellPlan, Filter, plan};
use mx_reference::Convention;
use mx_reference::convention::PROPAGATE;
use mx_vectors::{Call, Data, Level, cells::cells, classes};
use std::time::Duration;

type Fault2 = fn(&mut Planted, &Call, &mut Outputs) -> Result<(), Refusal>;

/// The reference with a fault planted after, or in place of, its answer.
struct Planted {
    inner: InProcess,
    calls: usize,
    fault: Fault2,
}

impl Planted {
    fn new(fault: Fault2) -> Self {
        Self { inner: InProcess::reference(), calls: 0, fault }
    }

    fn answer(&mut self, call: &Call, outputs: &mut Outputs) -> Result<(), Refusal> {
        self.inner.execute(call, &PROPAGATE, outputs)
    }
}

impl Backend for Planted {
    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(
        &mut self,
        call: &Call,
        _: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        self.calls += 1;
        (self.fault)(self, call, outputs)
    }
}

fn plans(filter: &str) -> Vec<CellPlan> {
    let filter = Filter::parse(filter).unwrap();
    plan(cells(), &classes::ALL, Level::Standard, &[filter], (1, 1))
}

const OPTIONS: Options = Options {
    convention: &PROPAGATE,
    judge: Judge::Native,
    repeat_every: 1,
    jobs: 1,
    bisect_for: Duration::from_mins(1),
};

fn judge(filter: &str, fault: Fault2) -> (Counts, Findings) {
    let findings = run(&mut Planted::new(fault), &plans(filter), OPTIONS, &Quiet).unwrap();
    let mut counts = Counts::default();
    for cell in &findings.cells {
        counts.add(&cell.counts);
    }
    (counts, findings)
}

const CELL: &str = "quantize/e4m3/rceil/f32/row/lane-roles";

#[test]
fn the_reference_passes() {
    let (counts, findings) = judge(CELL, Planted::answer);
    assert!(counts.passed > 0 && counts.failed == 0 && findings.failures.is_empty());
}

#[test]
fn one_wrong_bit_fails_one_case() {
    let (counts, findings) = judge(CELL, |this, call, outputs| {
        this.answer(call, outputs)?;
        if let Some(bytes) = outputs.bytes_mut("elements") {
            bytes[5 * 32 + 7] ^= 1;
        }
        Ok(())
    });
    assert_eq!(counts.failed, 1);
    let failure = &findings.failures[0];
    assert_eq!(failure.id, format!("{CELL}#5"));
    assert_eq!((failure.kind, failure.sites[0].at), (FailureKind::Mismatch, 7));
}

#[test]
fn an_element_that_is_never_written_is_found() {
    let (counts, findings) = judge(CELL, |this, call, outputs| {
        let poisoned = outputs.clone().into_tensors();
        this.answer(call, outputs)?;
        if let (Some(bytes), Data::U8(poison)) =
            (outputs.bytes_mut("scales"), &poisoned["scales"].data)
        {
            bytes[3] = poison[3];
        }
        Ok(())
    });
    assert_eq!(counts.failed, 1);
    let failure = &findings.failures[0];
    assert_eq!((failure.kind, failure.wrong), (FailureKind::Unwritten, 1));
    assert_eq!(failure.sites[0].got, "a5, then 5a");
    assert!(failure.message.contains("never written"), "{}", failure.message);
}

#[test]
fn an_answer_that_changes_from_call_to_call_is_found() {
    let (counts, findings) = judge(CELL, |this, call, outputs| {
        this.answer(call, outputs)?;
        if this.calls.is_multiple_of(2)
            && let Some(bytes) = outputs.bytes_mut("elements")
        {
            bytes[0] ^= 1;
        }
        Ok(())
    });
    assert_eq!(counts.failed, 1);
    let failure = &findings.failures[0];
    assert_eq!((failure.kind, failure.wrong), (FailureKind::Nondeterministic, 1));
    assert!(failure.message.contains("nondeterministic: two calls differ"), "{}", failure.message);
}

#[test]
fn outputs_left_from_the_call_before_are_found() {
    // Two cells in turn: the second call of each answers with what the cell before it got.
    let (counts, _) = judge("quantize/e4m3/*/f32/row/lane-roles", |this, call, outputs| {
        if this.calls > 2 { Ok(()) } else { this.answer(call, outputs) }
    });
    assert!(counts.failed > 0);
}

#[test]
fn nan_is_no_wildcard() {
    let (counts, _) = judge("dequantize/e4m3/-/f32/row/*", |this, call, outputs| {
        this.answer(call, outputs)?;
        if let Some(bytes) = outputs.bytes_mut("output") {
            for word in bytes.chunks_exact_mut(4) {
                word.copy_from_slice(&0x7fc0_0000u32.to_le_bytes());
            }
        }
        Ok(())
    });
    assert!(counts.failed > 0);
}

#[test]
fn a_refused_claim_is_a_failure() {
    let (counts, findings) =
        judge(CELL, |_, _, _| Err(Refusal::Unsupported("too small".to_owned())));
    assert!(counts.failed > 0 && counts.passed == 0);
    assert_eq!(findings.failures[0].kind, FailureKind::ClaimRefused);
}

/// Whether any block of the input is all minus zeros.
fn has_minus_zeros(call: &Call) -> bool {
    match &call.inputs["input"].data {
        Data::U32(bits) => {
            bits.chunks_exact(32).any(|block| block.iter().all(|&b| b == 0x8000_0000))
        }
        _ => false,
    }
}

fn crash() -> Refusal {
    let (status, stderr) = ("killed by signal 11".to_owned(), String::new());
    Fault::Crashed { status, stderr }.into()
}

#[test]
fn a_crash_is_bisected_to_the_block_that_kills() {
    let (counts, findings) =
        judge("quantize/e4m3/rceil/f32/row/signed-zero", |this, call, outputs| {
            if has_minus_zeros(call) { Err(crash()) } else { this.answer(call, outputs) }
        });
    let killers: Vec<_> = findings.faults.iter().filter(|fault| fault.cases == 1).collect();
    assert_eq!((killers.len() as u64, counts.failed), (counts.faulted, 0), "{findings:?}");
    assert!(counts.passed > 0 && counts.faulted > 0, "{counts:?}");
}

#[test]
fn a_backend_that_only_crashes_is_given_up() {
    let (counts, findings) = judge("quantize/*/f32/row/signed-zero", |_, _, _| Err(crash()));
    assert_eq!(counts.passed + counts.failed, 0);
    assert!(counts.not_run > 0);
    // Three faults in a row and never asked again, although there are 24 cells.
    assert_eq!(findings.faults.len(), 3);
}

#[test]
fn cases_outside_the_claim_end_no_row_of_faults() {
    let mut backend = Planted::new(|_, _, _| Err(crash()));
    backend.inner.claim(|claims| claims.multiple = Some((32, 64)));
    // Of the shapes around tile sizes some are such multiples, and between them are others.
    let filter = Filter::parse("quantize/*/*/f32/row/shapes").unwrap();
    let plans = plan(cells(), &classes::ALL, Level::Standard, &[filter], (1, 1));
    let findings = run(&mut backend, &plans, OPTIONS, &Quiet).unwrap();
    let outside: u64 = findings.cells.iter().map(|cell| cell.counts.outside).sum();
    assert!(outside > 0);
    assert_eq!(findings.faults.len(), 3);
}
