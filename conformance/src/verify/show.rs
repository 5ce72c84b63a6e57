//! What checking came to, as text and as JSON.

use super::consistency::asked;
use super::{CellFreshness, CertificateError, Freshness, Verification};
use crate::record::Claims;
use crate::report::certificate::{Certificate, Statement};
use crate::report::text::style;
use crate::report::{count, one_line};
use crate::verdict::{Exit, Verdict};
use serde::Serialize;
use std::fmt::Write;

/// Problems and stale cells shown; `--json` has all.
const SHOWN: usize = 8;

/// A file that was checked.
#[derive(Debug)]
pub struct Checked {
    /// The file, as given.
    pub file: String,
    /// What came of it.
    pub outcome: Result<(Certificate, Verification), CertificateError>,
}

impl Checked {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match &self.outcome {
            Ok((_, verification)) => verification.exit,
            Err(_) => Exit::Usage,
        }
    }

    /// The JSON form.
    pub fn json(&self) -> impl Serialize {
        let (certificate, verification) = match &self.outcome {
            Ok((certificate, verification)) => (Some(certificate), Some(verification)),
            Err(_) => (None, None),
        };
        let statement = certificate.map(|certificate| &certificate.statement);
        Json {
            file: self.file.clone(),
            exit: self.exit(),
            error: self.outcome.as_ref().err().map(ToString::to_string),
            verdict: statement.map(|statement| statement.verdict),
            digest: certificate.map(|certificate| certificate.digest.clone()),
            problems: verification
                .map(|found| found.problems.iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
            artifact: verification.map(|found| found.artifact),
            cells: verification.map(|found| found.cells.clone()).unwrap_or_default(),
        }
    }
}

#[derive(Serialize)]
struct Json {
    file: String,
    exit: Exit,
    error: Option<String>,
    verdict: Option<Verdict>,
    digest: Option<String>,
    problems: Vec<String>,
    artifact: Option<Freshness>,
    cells: Vec<CellFreshness>,
}

/// The text of a file that was checked.
pub fn render(checked: &Checked) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match &checked.outcome {
        Ok((certificate, found)) => write_found(&mut text, &checked.file, certificate, found),
        Err(error) => {
            writeln!(text, "{}: no certificate: {}", checked.file, one_line(&error.to_string()))
        }
    };
    text
}

fn write_found(
    text: &mut String,
    file: &str,
    certificate: &Certificate,
    found: &Verification,
) -> std::fmt::Result {
    let statement = &certificate.statement;
    let style =
        style(if found.problems.is_empty() { statement.verdict } else { Verdict::NonConformant });
    writeln!(text, "{file}: {style}{}{style:#}", headline(statement, found))?;
    write_statement(text, statement)?;
    let few = found.problems.iter().take(SHOWN);
    for problem in few {
        writeln!(text, "  problem: {}", one_line(&problem.to_string()))?;
    }
    let more = found.problems.len().saturating_sub(SHOWN);
    if more > 0 {
        writeln!(text, "  and {} (--json)", count(more as u64, "more problem"))?;
    }
    if !found.problems.iter().any(|problem| matches!(problem, super::Problem::Digest { .. })) {
        writeln!(text, "  digest {} is the statement's", &certificate.digest[..16])?;
    }
    write_suites(text, found)?;
    let own = match found.artifact {
        Freshness::Current => "the artifact is that of this build's kernels",
        Freshness::Stale => {
            "stale: the artifact is not that of this build's kernels, which have changed since; certify again"
        }
        Freshness::Incomparable | Freshness::Unchecked => return Ok(()),
    };
    writeln!(text, "  {own}")
}

/// What it comes to in a few words.
fn headline(statement: &Statement, found: &Verification) -> String {
    if !found.problems.is_empty() {
        return "does not hold".to_owned();
    }
    let word = statement.verdict.word();
    let stale = found.cells.iter().any(|cell| cell.suite == Freshness::Stale);
    if found.artifact == Freshness::Stale || stale {
        format!("verified, {word}, stale")
    } else if found.cells.iter().all(|cell| cell.suite == Freshness::Current) {
        format!("verified, {word} and current")
    } else {
        format!("verified, {word}")
    }
}

fn write_statement(text: &mut String, statement: &Statement) -> std::fmt::Result {
    if let Some(backend) = &statement.backend {
        let artifact = backend.artifact.as_deref().unwrap_or("artifact not stated");
        let device = backend.device.iter().map(|device| format!(" on {device}"));
        let line = format!(
            "{} {} ({artifact}){}",
            backend.name,
            backend.version,
            device.collect::<String>()
        );
        writeln!(text, "  {}", one_line(&line))?;
    }
    let passed: u128 = statement.cells.iter().map(|cell| u128::from(cell.passed)).sum();
    let line = format!(
        "convention {}, level {}, mxcert {}; {passed} {} passed in {} of the {} that it claims",
        statement.convention,
        statement.level,
        statement.mxcert,
        if passed == 1 { "case" } else { "cases" },
        statement.cells.len(),
        count(asked(statement).len() as u64, "cell")
    );
    writeln!(text, "  {}", one_line(&line))?;
    for unasked in statement.unasked.iter().take(SHOWN) {
        writeln!(text, "  {}", one_line(&unasked.to_string()))?;
    }
    let declared = statement.claims.as_ref().and_then(Claims::declared);
    for found in &statement.fingerprint {
        let line = format!("accumulation of {}: {}", found.operands, found.summary(declared));
        writeln!(text, "  {}", one_line(&line))?;
    }
    Ok(())
}

fn write_suites(text: &mut String, found: &Verification) -> std::fmt::Result {
    let of = |freshness| found.cells.iter().filter(|cell| cell.suite == freshness).count();
    if of(Freshness::Unchecked) == found.cells.len() {
        return writeln!(text, "  suites not recomputed");
    }
    let all = count(found.cells.len() as u64, "cell");
    write!(text, "  suites: {} of {all} current", of(Freshness::Current))?;
    match of(Freshness::Incomparable) {
        0 => {}
        n => write!(text, ", {n} not comparable, since some of their cases got no answer")?,
    }
    writeln!(text)?;
    let stale: Vec<&CellFreshness> =
        found.cells.iter().filter(|cell| cell.suite == Freshness::Stale).collect();
    if stale.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = stale.iter().take(SHOWN).map(|cell| cell.id.as_str()).collect();
    let more = stale.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more (--json)") } else { String::new() };
    writeln!(
        text,
        "  stale: {}, which mxcert now asks other questions or holds to other answers; certify again: {}{more}",
        count(stale.len() as u64, "cell"),
        ids.join(", ")
    )
}
