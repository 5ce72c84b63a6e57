//! What a certificate says, held against itself: nothing is computed anew.

use crate::report::certificate::{Cell, Certificate, Statement};
use crate::suggest::nearest;
use crate::verdict::Verdict;
use mx_reference::Convention;
use mx_vectors::cells::cells;
use mx_vectors::{Level, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Why a certificate does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The statement is not the one that was digested.
    #[error(
        "the statement hashes to {computed}, the certificate says {stated}: one of the two was changed; take it from its source again"
    )]
    Digest {
        /// Of the statement as it stands.
        computed: String,
        /// What the file says.
        stated: String,
    },
    /// A level that certifies nothing.
    #[error("level smoke certifies nothing; certify at level standard")]
    Smoke,
    /// A statement about nobody.
    #[error("it names no backend")]
    NoBackend,
    /// Nothing from which the suites could be computed.
    #[error("it states no claims, so what was asked is not known")]
    NoClaims,
    /// A convention that the backend does not claim.
    #[error("it is under `{0}`, which is outside the convention claims it states")]
    Convention(String),
    /// A verdict that the cells do not give.
    #[error("it says {}, but its cells make that {}: {why}", stated.word(), derived.word())]
    Verdict {
        /// What it says.
        stated: Verdict,
        /// What follows from the cells.
        derived: Verdict,
        /// The numbers that decide.
        why: String,
    },
    /// A cell of another mxcert.
    #[error("`{id}` is no cell of mxcert {}{near}", env!("CARGO_PKG_VERSION"))]
    UnknownCell {
        /// Its id.
        id: String,
        /// The nearest id that is one.
        near: String,
    },
    /// A cell that was never asked.
    #[error("`{0}` lies outside the claims it states, so it was never asked")]
    Unclaimed(String),
    /// Two statements about one cell.
    #[error("`{0}` stands there twice")]
    Twice(String),
    /// A selection of cases, which certifies nothing.
    #[error("`{0}` was asked in part, and a selection of cases certifies nothing")]
    Incomplete(String),
    /// A verdict that the counts do not give.
    #[error("`{id}` says {}, but its counts make that {}: {why}", stated.word(), derived.word())]
    CellVerdict {
        /// The cell.
        id: String,
        /// What it says.
        stated: Verdict,
        /// What follows from the counts.
        derived: Verdict,
        /// The numbers that decide.
        why: String,
    },
    /// Counts that do not add up to the cases of the suite.
    #[error(
        "`{id}` counts {counted} cases, {outside} of them outside the claim; its suite has {cases}, {beyond} of them outside"
    )]
    Cases {
        /// The cell.
        id: String,
        /// The sum of its counts.
        counted: u128,
        /// Of these outside the claim.
        outside: u64,
        /// Cases of the suite.
        cases: u64,
        /// Of these outside the claim.
        beyond: u64,
    },
}

/// Everything about a certificate that contradicts itself.
pub(super) fn problems(certificate: &Certificate) -> Vec<Problem> {
    let statement = &certificate.statement;
    let mut problems = Vec::new();
    let (computed, stated) = (statement.digest(), certificate.digest.clone());
    if computed != stated {
        problems.push(Problem::Digest { computed, stated });
    }
    if Level::from_name(&statement.level) == Some(Level::Smoke) {
        problems.push(Problem::Smoke);
    }
    if statement.backend.is_none() {
        problems.push(Problem::NoBackend);
    }
    match &statement.claims {
        None => problems.push(Problem::NoClaims),
        Some(claims) => {
            let convention = Convention::from_name(&statement.convention);
            if !convention.is_some_and(|convention| claims.0.covers_convention(convention)) {
                problems.push(Problem::Convention(statement.convention.clone()));
            }
        }
    }
    let (derived, why) = verdict(&statement.cells);
    if derived != statement.verdict {
        problems.push(Problem::Verdict { stated: statement.verdict, derived, why });
    }
    problems.extend(of_cells(statement));
    problems
}

fn of_cells(statement: &Statement) -> Vec<Problem> {
    let mut problems = Vec::new();
    let known = asked(statement);
    let all: Vec<String> = cells().iter().map(Op::prefix).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut seen = BTreeSet::new();
    for cell in &statement.cells {
        let id = &cell.id;
        if !names.contains(&id.as_str()) {
            // Suggestions are for a few misspelt ids, not for a list of strangers' words.
            let near = if problems.is_empty() && id.len() < 200 {
                nearest(id, &names)
            } else {
                String::new()
            };
            problems.push(Problem::UnknownCell { id: id.clone(), near });
        } else if statement.claims.is_some() && !known.contains_key(id) {
            problems.push(Problem::Unclaimed(id.clone()));
        }
        if !seen.insert(id) {
            problems.push(Problem::Twice(id.clone()));
        }
        if !cell.complete {
            problems.push(Problem::Incomplete(id.clone()));
        }
        let (derived, why) = verdict(std::slice::from_ref(cell));
        // A cell whose outputs had no elements is not established, whatever passed; its counts do not show that.
        let empty = (Verdict::NotEstablished, Verdict::Conformant);
        if cell.verdict != derived && (cell.verdict, derived) != empty {
            let (id, stated) = (id.clone(), cell.verdict);
            problems.push(Problem::CellVerdict { id, stated, derived, why });
        }
    }
    problems
}

/// The ops that a backend of these claims is asked, by cell.
pub(super) fn asked(statement: &Statement) -> BTreeMap<String, Op> {
    let Some(claims) = &statement.claims else { return BTreeMap::new() };
    let declared = cells().into_iter().map(|op| claims.0.declared(op));
    declared.filter(|op| claims.0.covers(op)).map(|op| (op.prefix(), op)).collect()
}

/// The verdict that counts alone support, as [`Counts::verdict`](crate::record::Counts::verdict) has it, and the numbers that
/// decide.
fn verdict(cells: &[Cell]) -> (Verdict, String) {
    let sum = |of: fn(&Cell) -> u64| cells.iter().map(|cell| u128::from(of(cell))).sum::<u128>();
    let (passed, failed) = (sum(|cell| cell.passed), sum(|cell| cell.failed));
    let faulted = sum(|cell| cell.faulted);
    let verdict = if failed > 0 {
        Verdict::NonConformant
    } else if faulted > 0 || passed == 0 {
        Verdict::NotEstablished
    } else {
        Verdict::Conformant
    };
    (verdict, format!("{passed} passed, {failed} failed, {faulted} without an answer"))
}
