//! Checks certificates without the backends they are about: the file, the digest, what it says against itself, and whether its
//! suites and artifact are those of today.

mod consistency;
mod read;
mod show;

pub use consistency::Problem;
pub use read::{CertificateError, LARGEST, LARGEST_MULTIPLE, parse, read};
pub use show::{Checked, render};

use crate::progress::Progress;
use crate::report::certificate::{Cell, Certificate};
use crate::runner::InternalError;
use crate::selection::plan;
use crate::suite::suite;
use crate::verdict::{Exit, Verdict};
use mx_reference::Convention;
use mx_vectors::{Level, Op, classes};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// What to check beyond the certificate itself.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to compute each cell's suite anew, which takes what answering its questions takes.
    pub suites: bool,
    /// The digest that a backend of the project's own has in this build; [`own_artifact`] outside tests.
    pub own_artifact: fn(&str) -> Option<String>,
}

/// How what a certificate rests on relates to what this mxcert has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Freshness {
    /// The same.
    Current,
    /// It has changed since.
    Stale,
    /// Some of the cases never got to be asked, so that the suite is not whole.
    Incomparable,
    /// Not looked at, or nothing here to compare it with.
    Unchecked,
}

/// A cell and whether its suite is that of today.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellFreshness {
    /// `op/element/mode/input/axis`.
    pub id: String,
    /// Of its suite.
    pub suite: Freshness,
}

impl CellFreshness {
    fn of(cell: &Cell, suite: Freshness) -> Self {
        Self { id: cell.id.clone(), suite }
    }
}

/// What checking a certificate came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Why it does not hold; empty if it does.
    pub problems: Vec<Problem>,
    /// One entry per cell.
    pub cells: Vec<CellFreshness>,
    /// Of the artifact, for the project's own kernels.
    pub artifact: Freshness,
    /// The exit code.
    pub exit: Exit,
}

/// The digest that a backend of the project's own has in this build; `None` for strangers, whose builds are not here.
pub fn own_artifact(backend_name: &str) -> Option<String> {
    (backend_name == "cuda").then(mx_gpu::program::digest)
}

/// The cases that a certificate speaks of.
pub fn cases(certificate: &Certificate) -> u64 {
    certificate.statement.cells.iter().fold(0, |sum: u64, cell| {
        let counts = [cell.passed, cell.failed, cell.faulted, cell.outside];
        counts.into_iter().fold(sum, u64::saturating_add)
    })
}

/// Checks a certificate. Suites of one that does not hold are not computed.
///
/// # Errors
/// [`InternalError`] if native has no answer to a question: a defect of the suite.
pub fn verify(
    certificate: &Certificate,
    options: Options,
    progress: &dyn Progress,
) -> Result<Verification, InternalError> {
    let statement = &certificate.statement;
    let mut problems = consistency::problems(certificate);
    let cells = if options.suites && problems.is_empty() {
        let asked = consistency::asked(statement);
        let one = |cell| of_cell(certificate, cell, &asked, progress);
        let all: Vec<_> =
            statement.cells.par_iter().map(one).collect::<Result<_, InternalError>>()?;
        let (cells, found): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        problems.extend(found.into_iter().flatten());
        cells
    } else {
        statement.cells.iter().map(|cell| CellFreshness::of(cell, Freshness::Unchecked)).collect()
    };
    let artifact = artifact(certificate, options);
    let stale =
        artifact == Freshness::Stale || cells.iter().any(|cell| cell.suite == Freshness::Stale);
    let said = match statement.verdict {
        _ if !problems.is_empty() => Exit::NonConformant,
        Verdict::Conformant => Exit::Conformant,
        Verdict::NonConformant => Exit::NonConformant,
        Verdict::NotEstablished => Exit::NothingEstablished,
    };
    let exit = Exit::of(std::iter::once(said).chain(stale.then_some(Exit::Stale)));
    Ok(Verification { problems, cells, artifact, exit })
}

/// The artifact against that of this build.
fn artifact(certificate: &Certificate, options: Options) -> Freshness {
    let Some(backend) = &certificate.statement.backend else { return Freshness::Unchecked };
    match (options.own_artifact)(&backend.name) {
        None => Freshness::Unchecked,
        own if own == backend.artifact => Freshness::Current,
        Some(_) => Freshness::Stale,
    }
}

/// A cell's suite against that of today, and its counts against the number of cases.
fn of_cell(
    certificate: &Certificate,
    cell: &Cell,
    asked: &BTreeMap<String, Op>,
    progress: &dyn Progress,
) -> Result<(CellFreshness, Option<Problem>), InternalError> {
    let statement = &certificate.statement;
    let is = |suite| CellFreshness::of(cell, suite);
    let (Some(claims), Some(level), Some(convention), Some(&op)) = (
        &statement.claims,
        Level::from_name(&statement.level),
        Convention::from_name(&statement.convention),
        asked.get(&cell.id),
    ) else {
        return Ok((is(Freshness::Unchecked), None));
    };
    let plans = plan([op], &classes::ALL, level, &[], claims.0.multiple());
    let Some(plan) = plans.first() else { return Ok((is(Freshness::Stale), None)) };
    let today = suite(plan, convention, &claims.0, &cell.splits, progress)?;
    if today.digest != cell.suite {
        // What was given up after faults was never asked, and is not in the digest.
        let faulted = cell.faulted > 0;
        return Ok((is(if faulted { Freshness::Incomparable } else { Freshness::Stale }), None));
    }
    let counts = [cell.passed, cell.failed, cell.faulted, cell.outside];
    let counted = counts.into_iter().map(u128::from).sum::<u128>();
    let (cases, outside, beyond) = (today.asked + today.outside, cell.outside, today.outside);
    // A call that faults beside cases that passed is counted with them.
    let fits = counted == u128::from(cases) && outside == beyond || cell.faulted > 0;
    let id = cell.id.clone();
    let problem = (!fits).then_some(Problem::Cases { id, counted, outside, cases, beyond });
    Ok((is(Freshness::Current), problem))
}
