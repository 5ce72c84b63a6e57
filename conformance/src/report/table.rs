//! Certificates as one Markdown table, a row each.

use super::certificate::{Certificate, Statement};
use super::markdown::cell;
use super::one_line;
use crate::record::FingerprintRecord;
use crate::verdict::Verdict;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Digits of a digest that are shown.
const DIGITS: usize = 12;

/// The table, in an order that does not depend on that of the certificates; nothing at all without any.
pub fn render(certificates: &[Certificate]) -> String {
    let mut rows: Vec<String> = certificates.iter().map(|c| row(&c.statement)).collect();
    rows.sort();
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    text.push_str(
        "| backend | device | artifact | convention | level | verdict | cells | cases | accumulation |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{row}");
    }
    text
}

fn row(statement: &Statement) -> String {
    let (mut name, mut device, mut artifact) = (String::new(), String::new(), String::new());
    if let Some(backend) = &statement.backend {
        name = format!("{} {}", backend.name, backend.version);
        device = backend.device.clone().unwrap_or_default();
        artifact = backend.artifact.as_deref().map_or_else(String::new, short);
    }
    let cells = &statement.cells;
    let established = cells.iter().filter(|cell| cell.verdict != Verdict::NotEstablished).count();
    let cases: u128 =
        cells.iter().map(|cell| u128::from(cell.passed) + u128::from(cell.failed)).sum();
    let columns = [
        name,
        device,
        artifact,
        statement.convention.clone(),
        statement.level.clone(),
        statement.verdict.word().to_owned(),
        established.to_string(),
        cases.to_string(),
        accumulation(statement),
    ];
    format!("| {} |", columns.map(|column| cell(&one_line(column.trim()))).join(" | "))
}

/// `sha256:` and the first digits.
fn short(artifact: &str) -> String {
    let (kind, digest) = artifact.split_once(':').unwrap_or(("", artifact));
    let digits: String = digest.chars().take(DIGITS).collect();
    if kind.is_empty() { digits } else { format!("{kind}:{digits}") }
}

/// Which models give every answer, by operands; what is declared where no fingerprint was taken of products.
fn accumulation(statement: &Statement) -> String {
    let mut by_models: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for found in &statement.fingerprint {
        by_models.entry(models(found)).or_default().push(&found.operands);
    }
    if !by_models.is_empty() {
        let of =
            |(models, operands): (String, Vec<&str>)| format!("{}: {models}", operands.join(", "));
        return by_models.into_iter().map(of).collect::<Vec<_>>().join("; ");
    }
    let declared = statement.claims.as_ref().and_then(|claims| claims.0.accumulate);
    let products = statement.cells.iter().any(|cell| cell.id.starts_with("gemm/"));
    match declared.filter(|_| products) {
        Some(accumulate) => format!("declared: {}", String::from(accumulate)),
        None => String::new(),
    }
}

fn models(found: &FingerprintRecord) -> String {
    if found.models.is_empty() { "no known model".to_owned() } else { found.models.join(" or ") }
}
