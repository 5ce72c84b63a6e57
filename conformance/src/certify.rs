//! The main job: backends × cases → run record.

mod fingerprints;

use crate::backend::Backend;
use crate::backends::{Opened, Spec};
use crate::capabilities::Capabilities;
use crate::judge::Judge;
use crate::progress::{Meter, Progress, Quiet};
use crate::record::{BackendRecord, Claims, FaultRecord, RunRecord, SCHEMA};
use crate::report::certificate::Statement;
use crate::report::count;
use crate::runner::{Findings, InternalError, Options, run};
use crate::selection::{Filter, Work, plan};
use crate::unasked::unasked;
use crate::unmatched::unmatched;
use crate::verdict::{Exit, Verdict};
use mx_reference::Convention;
use mx_vectors::{Level, cells::cells, classes};
use std::time::{Duration, Instant};

/// What to certify.
#[derive(Clone, Debug)]
pub struct Request {
    /// The backends.
    pub backends: Vec<Spec>,
    /// The convention.
    pub convention: &'static Convention,
    /// The level.
    pub level: Level,
    /// Which cases; none means all.
    pub filters: Vec<Filter>,
    /// The deadline of each request to an external backend.
    pub timeout: Duration,
    /// Workers for backends that run in this process.
    pub jobs: usize,
    /// Whether to take fingerprints of the products that were asked.
    pub fingerprint: bool,
    /// Whether to report progress on standard error.
    pub progress: bool,
}

/// Runs the request.
///
/// # Errors
/// [`InternalError`] if the project's own implementations disagree: no verdict can stand on that.
pub fn certify(request: &Request) -> Result<RunRecord, InternalError> {
    let started = Instant::now();
    let mut backends = Vec::new();
    for spec in &request.backends {
        backends.push(one(request, spec)?);
    }
    let exit = Exit::of(backends.iter().flat_map(exits));
    Ok(RunRecord {
        schema: SCHEMA.to_owned(),
        mxcert: env!("CARGO_PKG_VERSION").to_owned(),
        convention: request.convention.name.to_owned(),
        level: request.level.name().to_owned(),
        certifies: request.level > Level::Smoke,
        filters: request.filters.iter().map(|filter| filter.text().to_owned()).collect(),
        backends,
        exit,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// What a backend contributes to the exit code. One that is not present, or was asked nothing, contributes nothing.
fn exits(record: &BackendRecord) -> Vec<Exit> {
    let mut exits = Vec::new();
    if record.counts.failed > 0 {
        exits.push(Exit::NonConformant);
    }
    if !record.faults.is_empty() {
        exits.push(Exit::Fault);
    }
    if record.verdict == Verdict::Conformant {
        exits.push(Exit::Conformant);
    }
    exits
}

fn one(request: &Request, spec: &Spec) -> Result<BackendRecord, InternalError> {
    let started = Instant::now();
    let mut record = BackendRecord::new(spec.to_string(), spec.judge());
    match spec.open(request.timeout) {
        Ok(Opened::Ready(mut backend)) => {
            judge(request, spec, backend.as_mut(), &mut record)?;
        }
        Ok(Opened::Absent(reason)) => record.reason = reason,
        Err(fault) => {
            record.reason = fault.to_string();
            record.faults.push(FaultRecord { id: None, fault, cases: 0 });
        }
    }
    record.digest = Statement::of(request.convention, request.level, &record).digest();
    record.seconds = started.elapsed().as_secs_f64();
    Ok(record)
}

fn judge(
    request: &Request,
    spec: &Spec,
    backend: &mut dyn Backend,
    record: &mut BackendRecord,
) -> Result<(), InternalError> {
    let capabilities = backend.capabilities().clone();
    record.identity = Some(backend.identity().clone());
    record.claims = Some(Claims(capabilities.clone()));
    if !capabilities.covers_convention(request.convention) {
        record.reason = format!(
            "it does not claim the convention `{}`; name one that it claims with --convention",
            request.convention.name
        );
        return Ok(());
    }
    let asked = cells().into_iter().map(|op| capabilities.declared(op));
    let claimed = asked.filter(|op| capabilities.covers(op));
    let plans =
        plan(claimed, &classes::ALL, request.level, &request.filters, capabilities.multiple());
    record.unasked = unasked(&capabilities);
    let total = plans.iter().flat_map(|plan| &plan.works).map(Work::cases).sum();
    let judge = spec.judge();
    let options = Options {
        convention: request.convention,
        judge,
        repeat_every: repeat_every(request.level, judge),
        // While a device works, whoever asked it waits, and another can make the next question.
        jobs: if *spec == Spec::Cuda { 2 * request.jobs } else { request.jobs },
        bisect_for: request.timeout * 4,
    };
    let findings = with_meter(request, &record.spec, total, |progress| {
        run(backend, &plans, options, progress)
    })?;
    settle(record, findings);
    if plans.is_empty() {
        record.reason = nothing_asked(request, &capabilities);
    }
    if request.fingerprint && request.level > Level::Smoke {
        fingerprints::take(request, spec, backend, &plans, record);
    }
    Ok(())
}

/// Every call is repeated, except in whole domains and of mxcert's own implementations, where every so many are.
const fn repeat_every(level: Level, judge: Judge) -> usize {
    match (level, judge) {
        (Level::Exhaustive, _) => 16,
        (_, Judge::Native) => 1,
        (_, Judge::Oracle | Judge::Reference) => 8,
    }
}

fn with_meter<T>(
    request: &Request,
    name: &str,
    total: u64,
    work: impl FnOnce(&dyn Progress) -> T,
) -> T {
    if !request.progress {
        return work(&Quiet);
    }
    let meter = Meter::new(name, total);
    let result = work(&meter);
    meter.finish();
    result
}

/// Why a backend was asked nothing.
fn nothing_asked(request: &Request, claims: &Capabilities) -> String {
    let filters = &request.filters;
    match unmatched(filters, request.level, claims.accumulate) {
        Some(why) => why,
        None if filters.is_empty() => "nothing that it claims is asked".to_owned(),
        None => "what the filters name is not among what the backend claims".to_owned(),
    }
}

fn settle(record: &mut BackendRecord, findings: Findings) {
    for cell in &findings.cells {
        record.counts.add(&cell.counts);
    }
    record.cells = findings.cells;
    let by_class = findings.by_class.into_iter();
    record.failed_by_class = by_class.map(|(class, n)| (class.to_owned(), n)).collect();
    record.failures = findings.failures;
    record.faults = findings.faults;
    record.verdict = record.counts.verdict();
    let counts = record.counts;
    record.reason = match record.verdict {
        Verdict::Conformant => {
            let cells = count(record.cells.len() as u64, "cell");
            format!("{} in {cells}, every output right", count(counts.passed, "case"))
        }
        Verdict::NonConformant => {
            format!("{} of {} failed", counts.failed, count(counts.failed + counts.passed, "case"))
        }
        Verdict::NotEstablished => match record.faults.first() {
            Some(first) => {
                format!(
                    "{}; the first: {}",
                    count(record.faults.len() as u64, "fault"),
                    first.fault
                )
            }
            None => "none of the cases could be asked: all lie outside what the backend claims"
                .to_owned(),
        },
    };
}
