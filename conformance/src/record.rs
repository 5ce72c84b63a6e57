//! The run record: everything a run found out. Every report is a projection of it.

use crate::accuracy::Accuracy;
use crate::backend::{Fault, Identity};
use crate::verdict::{Exit, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name and version of this format.
pub const SCHEMA: &str = "mxcert-run/1";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of mxcert.
    pub mxcert: String,
    /// The convention.
    pub convention: String,
    /// The level.
    pub level: String,
    /// Whether this level certifies at all.
    pub certifies: bool,
    /// The filters, as given.
    pub filters: Vec<String>,
    /// One entry per backend that was asked for.
    pub backends: Vec<BackendRecord>,
    /// The exit code.
    pub exit: Exit,
    /// What the run took; not part of any digest.
    pub seconds: f64,
}

/// What a run found out about one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendRecord {
    /// As on the command line.
    pub spec: String,
    /// Who it says it is; absent if it never said.
    pub identity: Option<Identity>,
    /// Whose answers it was compared with.
    pub judge: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub reason: String,
    /// The digest of the statement that a certificate of this backend makes: nothing of time, host or thread count.
    pub digest: String,
    /// Cases in all.
    pub counts: Counts,
    /// One entry per op with its parameters.
    pub cells: Vec<CellRecord>,
    /// Failed cases by class.
    pub failed_by_class: BTreeMap<String, u64>,
    /// The first failure of each class in each cell.
    pub failures: Vec<Failure>,
    /// What went wrong without an answer.
    pub faults: Vec<FaultRecord>,
    /// Seconds this backend took; not part of any digest.
    pub seconds: f64,
}

/// Numbers of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Right.
    pub passed: u64,
    /// Wrong bits, changed inputs, answers that changed from call to call, or claims that were refused.
    pub failed: u64,
    /// Asked, but no proper answer came.
    pub faulted: u64,
    /// Outside what the backend claims, so never asked.
    pub outside: u64,
    /// Not asked because the backend was given up after faults.
    pub not_run: u64,
    /// Output elements compared.
    pub elements: u64,
}

impl Counts {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.faulted += other.faulted;
        self.outside += other.outside;
        self.not_run += other.not_run;
        self.elements += other.elements;
    }

    /// The verdict that these numbers alone support.
    pub const fn verdict(&self) -> Verdict {
        if self.failed > 0 {
            Verdict::NonConformant
        } else if self.faulted > 0 || self.not_run > 0 || self.passed == 0 || self.elements == 0 {
            Verdict::NotEstablished
        } else {
            Verdict::Conformant
        }
    }
}

/// What a run found out about one op with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// `op/element/mode/input/axis`.
    pub id: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether every case of the level was selected; filters may leave some out, and what is incomplete is not certified.
    /// Cases whose shapes are no multiple of what the backend claims count as `outside`.
    pub complete: bool,
    /// SHA-256 of the questions and right answers, in order.
    pub suite: String,
    /// Cases.
    pub counts: Counts,
    /// How accurate products were, for matrix products of backends that others judge: reported, never judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
}

/// One failing case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The case.
    pub id: String,
    /// What kind of failure.
    pub kind: FailureKind,
    /// A sentence.
    pub message: String,
    /// The first wrong elements.
    pub sites: Vec<SiteRecord>,
    /// Wrong elements in all.
    pub wrong: u64,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Wrong bits.
    Mismatch,
    /// Another answer to the same question, or an element that was never written.
    Unstable,
    /// The inputs were changed.
    InputsChanged,
    /// A write beside the output buffer.
    OutOfBounds,
    /// `unsupported` for something inside the claim.
    ClaimRefused,
}

/// One wrong element, as bits in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRecord {
    /// Output tensor.
    pub tensor: String,
    /// Lane of the block, or flat index.
    pub at: u64,
    /// The same in words: lane; row and column; or whose scale a byte of the blocked layout is.
    pub place: String,
    /// The right bits, or `nan` where any NaN code is right.
    pub expected: String,
    /// The bits that came.
    pub got: String,
}

/// A fault and where it struck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRecord {
    /// A case that it strikes by itself, or the first of those that were asked together where none does; absent if the
    /// backend never started.
    pub id: Option<String>,
    /// What happened.
    pub fault: Fault,
    /// How many cases it took with it.
    pub cases: u64,
}
