//! Certificates: JSON statements with a deterministic body, from which any machine computes the same digest.
//!
//! A digest finds what was changed; it is no signature, and whoever changes a statement can compute another.

use crate::algorithm::AlgorithmRecord;
use crate::backend::Identity;
use crate::digest;
use crate::record::{BackendRecord, CellRecord, Claims, FingerprintRecord};
use crate::unasked::Unasked;
use crate::verdict::Verdict;
use mx_reference::Convention;
use mx_vectors::Level;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The name and version of this format.
pub const SCHEMA: &str = "mxcert-certificate/2";

/// A certificate: a statement and its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`SCHEMA`].
    pub schema: String,
    /// What is certified: no time and no host in it.
    pub statement: Statement,
    /// SHA-256 of the statement as compact JSON.
    pub digest: String,
}

/// Which build computes which cells right, under which convention, proven to which level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The version of mxcert.
    pub mxcert: String,
    /// The backend, its artifact digest included; absent if it never said who it is.
    pub backend: Option<Identity>,
    /// What it claims, which decides what it is asked; absent if it never said.
    pub claims: Option<Claims>,
    /// The profiles among its claims that no case is asked of, so that nothing here is about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unasked: Vec<Unasked>,
    /// The convention.
    pub convention: String,
    /// The level.
    pub level: String,
    /// The verdict over all cells.
    pub verdict: Verdict,
    /// Every cell with its own suite digest, so that a new vector class makes stale only what it touches.
    pub cells: Vec<Cell>,
    /// How products accumulate, for backends whose products were asked and answered: reported, no part of the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprint: Vec<FingerprintRecord>,
}

/// One certified cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// `op/element/mode/input/axis`.
    pub id: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether every case of the level was asked.
    pub complete: bool,
    /// SHA-256 of questions and right answers.
    pub suite: String,
    /// Cases that passed.
    pub passed: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Cases without a proper answer.
    pub faulted: u64,
    /// Cases whose shapes lie outside what the backend claims.
    pub outside: u64,
    /// The shapes whose K the backend split, on which right answers of declared models depend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<AlgorithmRecord>,
}

impl Statement {
    /// The statement of a backend.
    pub fn of(convention: &Convention, level: Level, backend: &BackendRecord) -> Self {
        let cell = |cell: &CellRecord| Cell {
            id: cell.id.clone(),
            verdict: cell.verdict,
            complete: cell.complete,
            suite: cell.suite.clone(),
            passed: cell.counts.passed,
            failed: cell.counts.failed,
            faulted: cell.counts.faulted + cell.counts.not_run,
            outside: cell.counts.outside,
            splits: cell.algorithms.iter().filter_map(AlgorithmRecord::split).collect(),
        };
        Self {
            mxcert: env!("CARGO_PKG_VERSION").to_owned(),
            backend: backend.identity.clone(),
            claims: backend.claims.clone(),
            unasked: backend.unasked.clone(),
            convention: convention.name.to_owned(),
            level: level.name().to_owned(),
            verdict: backend.verdict,
            cells: backend.cells.iter().map(cell).collect(),
            fingerprint: backend.fingerprint.clone(),
        }
    }

    /// SHA-256 of the statement as compact JSON.
    pub fn digest(&self) -> String {
        // Plain data structs always serialise.
        let body = serde_json::to_vec(self).unwrap_or_default();
        digest::hex(&Sha256::digest(&body))
    }
}

impl Certificate {
    /// The certificate of a backend; `None` where the level does not certify, a filter left cases of a cell out, or nothing
    /// was established.
    pub fn of(convention: &Convention, level: Level, backend: &BackendRecord) -> Option<Self> {
        let whole = backend.cells.iter().all(|cell| cell.complete);
        if level == Level::Smoke || !whole || backend.verdict == Verdict::NotEstablished {
            return None;
        }
        let statement = Statement::of(convention, level, backend);
        let digest = statement.digest();
        Some(Self { schema: SCHEMA.to_owned(), statement, digest })
    }
}
