//! The report for people: what stands, what was asked, and what to do next.

use super::{count, one_line};
use crate::accuracy::Accuracy;
use crate::record::{BackendRecord, Failure, RunRecord};
use crate::verdict::Verdict;
use anstyle::{AnsiColor, Style};
use mx_vectors::classes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Failures and faults shown of a backend; the record has more.
const SHOWN: usize = 5;

/// The whole report.
pub fn render(run: &RunRecord) -> String {
    let mut text = String::new();
    for backend in &run.backends {
        // Writing to a String cannot fail.
        let _ = render_backend(&mut text, run, backend);
    }
    if !run.certifies {
        text.push_str(
            "level smoke does not certify; run --level standard for a verdict that does\n",
        );
    }
    text
}

/// The style of a verdict's word.
pub const fn style(verdict: Verdict) -> Style {
    let color = match verdict {
        Verdict::Conformant => AnsiColor::Green,
        Verdict::NonConformant => AnsiColor::Red,
        Verdict::NotEstablished => AnsiColor::Yellow,
    };
    Style::new().fg_color(Some(anstyle::Color::Ansi(color))).bold()
}

fn render_backend(text: &mut String, run: &RunRecord, backend: &BackendRecord) -> std::fmt::Result {
    let style = style(backend.verdict);
    let partial = backend.cells.iter().filter(|cell| !cell.complete).count();
    let scope = match (backend.verdict, run.certifies, partial) {
        (Verdict::Conformant, false, _) => " at smoke, which does not certify",
        (Verdict::Conformant, true, 1..) => " in the cases selected, which does not certify",
        _ => "",
    };
    let word = backend.verdict.word();
    writeln!(text, "{}: {style}{word}{style:#}{scope}: {}", backend.spec, backend.reason)?;
    let Some(identity) = &backend.identity else { return Ok(()) };
    let artifact = identity.artifact.as_deref().unwrap_or("artifact not stated");
    writeln!(text, "  {} {} ({artifact})", identity.name, identity.version)?;
    let counts = backend.counts;
    write!(text, "  convention {}, level {}; {} passed", run.convention, run.level, counts.passed)?;
    for (n, what) in [
        (counts.failed, "failed"),
        (counts.faulted, "without an answer"),
        (counts.not_run, "not run"),
        (counts.outside, "of shapes outside its claim"),
    ] {
        if n > 0 {
            write!(text, ", {n} {what}")?;
        }
    }
    writeln!(text, "; {} elements in {:.1} s", counts.elements, backend.seconds)?;
    if partial > 0 {
        writeln!(
            text,
            "  the filters left out cases of {partial} of {}",
            count(backend.cells.len() as u64, "cell")
        )?;
    }
    writeln!(text, "  judged by {}, digest {}", backend.judge, &backend.digest[..16])?;
    render_accuracy(text, backend)?;
    for line in backend.notes() {
        writeln!(text, "  {}", one_line(&line))?;
    }
    for fault in backend.faults.iter().take(SHOWN) {
        let id = fault.id.as_deref().unwrap_or("start");
        let together =
            if fault.cases > 1 { format!(" and {} more", fault.cases - 1) } else { String::new() };
        writeln!(text, "  fault at {id}{together}: {}", fault.fault)?;
    }
    let more = backend.faults.len().saturating_sub(SHOWN);
    if more > 0 {
        let more = count(more as u64, "more fault");
        writeln!(text, "  and {more} in the run record (--json)")?;
    }
    render_failures(text, run, backend)
}

/// How accurate products were, by output type; the record has every cell.
fn render_accuracy(text: &mut String, backend: &BackendRecord) -> std::fmt::Result {
    let mut by_output: BTreeMap<&str, (u64, Accuracy)> = BTreeMap::new();
    for cell in &backend.cells {
        if let (Some(accuracy), Some(output)) = (&cell.accuracy, cell.id.split('/').nth(3)) {
            let (cells, sum) = by_output.entry(output).or_default();
            *cells += 1;
            sum.add(accuracy);
        }
    }
    for (output, (cells, accuracy)) in by_output {
        writeln!(
            text,
            "  products to {output} ({}, level G3 data; reported, not judged): largest error {} ulp, {:.2} % correctly rounded, bias {} ulp, SQNR {:.1} dB",
            count(cells, "cell"),
            ulps(accuracy.max_ulps),
            100.0 * accuracy.share(),
            ulps(accuracy.bias()),
            accuracy.sqnr()
        )?;
    }
    Ok(())
}

/// Cancelled sums have errors of any number of units in the last place.
fn ulps(x: f64) -> String {
    if x.abs() < 1e5 { format!("{x:.4}") } else { format!("{x:.3e}") }
}

/// Which classes failed, and one failure of each.
fn render_failures(
    text: &mut String,
    run: &RunRecord,
    backend: &BackendRecord,
) -> std::fmt::Result {
    if backend.failures.is_empty() {
        return Ok(());
    }
    writeln!(text, "  failed cases by vector class:")?;
    for (name, failed) in &backend.failed_by_class {
        let aim =
            classes::ALL.iter().find(|class| class.name == name).map_or("", |class| class.aim);
        writeln!(text, "    {failed:>7} {name}: {aim}")?;
    }
    let mut seen = BTreeSet::new();
    let class =
        |id: &str| id.rsplit('/').next().and_then(|end| end.split('#').next()).map(str::to_owned);
    let shown: Vec<&Failure> = backend
        .failures
        .iter()
        .filter(|failure| seen.insert(class(&failure.id)))
        .take(SHOWN)
        .collect();
    for failure in &shown {
        render_failure(text, failure)?;
    }
    let more = backend.failures.len() - shown.len();
    if more > 0 {
        writeln!(
            text,
            "  and {more} more, the first of each class in each cell, in the run record (--json)"
        )?;
    }
    if let Some(first) = shown.first() {
        let (id, convention) = (&first.id, &run.convention);
        let spec = shell_words::quote(&backend.spec);
        writeln!(
            text,
            "  reproduce: mxcert repro '{id}' --backend {spec} --convention {convention}"
        )?;
    }
    Ok(())
}

/// A failing case with its first wrong elements.
///
/// # Errors
/// Those of writing to `text`.
pub fn render_failure(text: &mut String, failure: &Failure) -> std::fmt::Result {
    writeln!(text, "  FAIL {}: {}", failure.id, failure.message)?;
    for site in &failure.sites {
        let what = format!("{}: {}", site.tensor, site.place);
        writeln!(text, "       {what:<24} want {:<8} got {}", site.expected, site.got)?;
    }
    Ok(())
}
