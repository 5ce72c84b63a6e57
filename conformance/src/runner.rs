//! Runs a plan against a backend and records what comes back.

use crate::accuracy::Accuracy;
use crate::algorithm::AlgorithmRecord;
use crate::ask::{Asked, Question, ask, refused};
use crate::backend::{Backend, Fault};
use crate::judge::Judge;
use crate::progress::Progress;
use crate::record::{CellRecord, Counts, Failure, FailureKind, FaultRecord};
use crate::selection::{CellPlan, Work};
use crate::suite::Part;
use mx_reference::Convention;
use mx_vectors::plan::Batch;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The convention.
    pub convention: &'static Convention,
    /// Whose answers count.
    pub judge: Judge,
    /// Every how many calls a call is repeated with another poison; 1 repeats all.
    pub repeat_every: usize,
    /// Workers for backends that can be duplicated.
    pub jobs: usize,
    /// Time that bisecting one fault may take.
    pub bisect_for: Duration,
}

/// What a run found out about the cells of a plan.
#[derive(Debug, Default)]
pub struct Findings {
    /// One entry per cell.
    pub cells: Vec<CellRecord>,
    /// The first failure of each class in each cell.
    pub failures: Vec<Failure>,
    /// Failed cases by class.
    pub by_class: BTreeMap<&'static str, u64>,
    /// Faults.
    pub faults: Vec<FaultRecord>,
}

/// Calls in a row that may fault before a backend is given up.
const FAULTS_IN_A_ROW: usize = 3;
/// Faults in all before a backend is given up.
const FAULTS: usize = 20;

/// A defect of mxcert itself: its own implementations disagree.
#[derive(Debug, thiserror::Error)]
pub enum InternalError {
    /// A judge could not answer a case of the suite.
    #[error("{judge} has no answer for {id}: {reason}")]
    NoAnswer {
        /// The judge.
        judge: &'static str,
        /// The case.
        id: String,
        /// Why.
        reason: String,
    },
    /// Native and the reference disagree on a case that a backend failed.
    #[error("native and the reference disagree on {id}; no verdict can stand on it")]
    JudgesDisagree {
        /// The case.
        id: String,
    },
}

/// Runs every call of `plans`.
///
/// # Errors
/// [`InternalError`] if the project's own implementations disagree.
pub fn run(
    backend: &mut dyn Backend,
    plans: &[CellPlan],
    options: Options,
    progress: &dyn Progress,
) -> Result<Findings, InternalError> {
    let works: Vec<(usize, &Work)> = plans
        .iter()
        .enumerate()
        .flat_map(|(cell, plan)| plan.works.iter().map(move |work| (cell, work)))
        .collect();
    let queue = Queue {
        works: &works,
        plans,
        options,
        next: AtomicUsize::new(0),
        done: Mutex::new(works.iter().map(|_| None).collect()),
        progress,
    };
    let mut others: Vec<Box<dyn Backend>> =
        (1..options.jobs.max(1)).map_while(|_| backend.duplicate()).collect();
    std::thread::scope(|scope| {
        for other in &mut others {
            scope.spawn(|| queue.drain(other.as_mut()));
        }
        queue.drain(backend);
    });
    let done = queue.done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    collect(plans, &works, done)
}

/// What came of one call's worth of cases.
#[derive(Default)]
struct Outcome {
    counts: Counts,
    suite: Vec<u8>,
    by_class: BTreeMap<&'static str, u64>,
    failed: BTreeSet<u64>,
    failures: Vec<Failure>,
    faults: Vec<FaultRecord>,
    nondeterministic: u64,
    accuracy: Option<Accuracy>,
    algorithm: Option<AlgorithmRecord>,
}

struct Queue<'a> {
    works: &'a [(usize, &'a Work)],
    plans: &'a [CellPlan],
    options: Options,
    next: AtomicUsize,
    done: Mutex<Vec<Option<Result<Outcome, InternalError>>>>,
    progress: &'a dyn Progress,
}

impl Queue<'_> {
    fn drain(&self, backend: &mut dyn Backend) {
        let (mut in_a_row, mut faults, mut given_up) = (0, 0, false);
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&(cell, work)) = self.works.get(index) else { return };
            let plan = &self.plans[cell];
            let outcome =
                if given_up { Ok(not_run(work)) } else { self.one(backend, plan, work, index) };
            if let Ok(outcome) = &outcome {
                faults += outcome.faults.len();
                // What was not asked says nothing about the backend, so it ends no row of faults.
                in_a_row = match outcome.counts {
                    Counts { faulted: 1.., .. } => in_a_row + 1,
                    Counts { passed: 0, failed: 0, .. } => in_a_row,
                    _ => 0,
                };
                given_up |= in_a_row >= FAULTS_IN_A_ROW || faults >= FAULTS;
                self.progress.advance(&plan.prefix, &outcome.counts);
            }
            let stop = outcome.is_err();
            if let Ok(mut done) = self.done.lock() {
                done[index] = Some(outcome);
            }
            if stop {
                self.next.store(self.works.len(), Ordering::Relaxed);
            }
        }
    }

    fn one(
        &self,
        backend: &mut dyn Backend,
        plan: &CellPlan,
        work: &Work,
        index: usize,
    ) -> Result<Outcome, InternalError> {
        let (question, algorithm) = Question::to(backend, work, &plan.prefix, self.options)?;
        let mut outcome = Outcome::default();
        match Part::of(&question, backend.capabilities()) {
            Part::Asked => {}
            Part::Outside => {
                outcome.counts.outside = work.cases();
                return Ok(outcome);
            }
            Part::None => return Ok(outcome),
        }
        outcome.suite = question.suite();
        let repeat = index.is_multiple_of(self.options.repeat_every);
        let answer = match algorithm {
            Ok(algorithm) => {
                outcome.algorithm = AlgorithmRecord::of(question.call(), algorithm);
                ask(backend, &question, repeat)
            }
            Err(refusal) => refused(refusal),
        };
        match answer {
            Ok(asked) => {
                let wide_work = question.wide_work().filter(|_| repeat);
                let wide = match &wide_work {
                    Some(work) => Some(question.widened(work)?),
                    None => None,
                };
                let answers = wide.as_ref().map(|wide| ask(backend, wide, false));
                self.judge(&mut outcome, &question, asked)?;
                if let (Some(wide), Some(answer)) = (&wide, answers) {
                    self.judge_again(&mut outcome, wide, answer)?;
                }
            }
            Err(fault) => match work {
                Work::Blocks(batch) => {
                    let started = Instant::now();
                    self.bisect(backend, plan, batch, fault, started, &mut outcome)?;
                    // One record for the batch: the case that was found, and how many went with it.
                    if let Some(record) = outcome.faults.first_mut() {
                        record.cases = outcome.counts.faulted;
                    }
                }
                Work::Single { .. } => fault_all(&mut outcome, &question, fault),
            },
        }
        Ok(outcome)
    }

    fn judge(
        &self,
        outcome: &mut Outcome,
        question: &Question<'_>,
        asked: Asked,
    ) -> Result<(), InternalError> {
        let failed = asked.failed_cases(question.cases());
        outcome.counts.passed += question.cases() - failed.len() as u64;
        self.record(outcome, question, asked, failed)
    }

    /// Takes the answer to the same cases in a wide tensor: what fails only there has not passed.
    fn judge_again(
        &self,
        outcome: &mut Outcome,
        wide: &Question<'_>,
        answer: Result<Asked, Fault>,
    ) -> Result<(), InternalError> {
        match answer {
            Ok(asked) => {
                let mut failed = asked.failed_cases(wide.cases());
                failed.retain(|ordinal| !outcome.failed.contains(ordinal));
                outcome.counts.passed = outcome.counts.passed.saturating_sub(failed.len() as u64);
                self.record(outcome, wide, asked, failed)
            }
            Err(fault) => {
                // The cases have passed one by one; the call that faulted is one that has not.
                outcome.counts.passed = outcome.counts.passed.saturating_sub(1);
                outcome.counts.faulted += 1;
                outcome.faults.push(FaultRecord {
                    id: Some(wide.id(0)),
                    fault,
                    cases: wide.cases(),
                });
                Ok(())
            }
        }
    }

    fn record(
        &self,
        outcome: &mut Outcome,
        question: &Question<'_>,
        asked: Asked,
        failed: BTreeSet<u64>,
    ) -> Result<(), InternalError> {
        outcome.counts.elements += asked.elements;
        if let Some(accuracy) = &asked.accuracy {
            outcome.accuracy.get_or_insert_default().add(accuracy);
        }
        // Elements with intervals are of cases that are calls of their own.
        outcome.nondeterministic += u64::from(asked.unsteady > 0 && failed.is_empty());
        outcome.counts.failed += failed.len() as u64;
        for (class, failed) in question.by_class(&failed) {
            *outcome.by_class.entry(class).or_default() += failed;
        }
        outcome.failed.extend(failed);
        let failures = question.failures(asked);
        if self.options.judge == Judge::Native {
            for failure in failures.iter().filter(|f| f.1.kind == FailureKind::Mismatch) {
                question.confirm(failure.0)?;
            }
        }
        outcome.failures.extend(failures.into_iter().map(|(_, failure)| failure));
        Ok(())
    }

    /// Halves a faulting batch until a single block is left that kills by itself. Where both halves fault the first is
    /// searched and the other stands as it is.
    fn bisect(
        &self,
        backend: &mut dyn Backend,
        plan: &CellPlan,
        batch: &Batch,
        fault: Fault,
        started: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), InternalError> {
        let whole = Work::Blocks(batch.clone());
        let halves = match batch.halves() {
            Some(halves) if started.elapsed() < self.options.bisect_for => halves,
            _ => {
                let question = Question::new(&whole, &plan.prefix, self.options)?;
                fault_all(outcome, &question, fault);
                return Ok(());
            }
        };
        let mut found = false;
        for half in halves {
            let work = Work::Blocks(half.clone());
            let question = Question::new(&work, &plan.prefix, self.options)?;
            match ask(backend, &question, false) {
                Ok(asked) => self.judge(outcome, &question, asked)?,
                Err(_) if found => outcome.counts.faulted += half.len(),
                Err(fault) => {
                    found = true;
                    self.bisect(backend, plan, &half, fault, started, outcome)?;
                }
            }
        }
        if !found {
            // Only together do they kill: every block alone is right, but the call that was asked got no answer.
            outcome.counts.faulted += 1;
            outcome.counts.passed = outcome.counts.passed.saturating_sub(1);
            let id = Some(whole.id(&plan.prefix, 0));
            outcome.faults.push(FaultRecord { id, fault, cases: whole.cases() });
        }
        Ok(())
    }
}

fn fault_all(outcome: &mut Outcome, question: &Question<'_>, fault: Fault) {
    let cases = question.cases();
    outcome.counts.faulted += cases;
    outcome.faults.push(FaultRecord { id: Some(question.id(0)), fault, cases });
}

fn not_run(work: &Work) -> Outcome {
    let counts = Counts { not_run: work.cases(), ..Counts::default() };
    Outcome { counts, ..Outcome::default() }
}

fn collect(
    plans: &[CellPlan],
    works: &[(usize, &Work)],
    done: Vec<Option<Result<Outcome, InternalError>>>,
) -> Result<Findings, InternalError> {
    let mut findings = Findings::default();
    let mut seen = BTreeSet::new();
    let mut outcomes = works.iter().zip(done).peekable();
    for (cell, plan) in plans.iter().enumerate() {
        let mut counts = Counts::default();
        let mut suite = Sha256::new();
        let mut accuracy: Option<Accuracy> = None;
        let mut nondeterministic = 0;
        let mut algorithms = BTreeSet::new();
        while let Some(((_, work), outcome)) = outcomes.next_if(|((c, _), _)| *c == cell) {
            let outcome = outcome.unwrap_or_else(|| Ok(not_run(work)))?;
            counts.add(&outcome.counts);
            suite.update(&outcome.suite);
            nondeterministic += outcome.nondeterministic;
            if let Some(of) = &outcome.accuracy {
                accuracy.get_or_insert_default().add(of);
            }
            algorithms.extend(outcome.algorithm);
            for (class, failed) in outcome.by_class {
                *findings.by_class.entry(class).or_default() += failed;
            }
            for failure in outcome.failures {
                let class = failure.id.split('#').next().map(str::to_owned).unwrap_or_default();
                if seen.insert(class) {
                    findings.failures.push(failure);
                }
            }
            findings.faults.extend(outcome.faults);
        }
        findings.cells.push(CellRecord {
            id: plan.prefix.clone(),
            verdict: counts.verdict(),
            complete: plan.complete,
            suite: crate::digest::hex(&suite.finalize()),
            counts,
            nondeterministic,
            accuracy,
            algorithms: algorithms.into_iter().collect(),
        });
    }
    Ok(findings)
}
