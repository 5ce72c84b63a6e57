//! The report for people: what stands, what was asked, and what to do next.

use crate::record::{BackendRecord, Failure, RunRecord};
use crate::verdict::Verdict;
use anstyle::{AnsiColor, Style};
use std::fmt::Write;

/// Failures shown of a backend; the record has more.
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
    let scope = if run.certifies { "" } else { " at smoke, which does not certify" };
    let word = backend.verdict.word();
    writeln!(text, "{}: {style}{word}{style:#}{scope}: {}", backend.spec, backend.reason)?;
    let Some(identity) = &backend.identity else { return Ok(()) };
    let artifact = identity.artifact.as_deref().unwrap_or("artifact not stated");
    writeln!(text, "  {} {} ({artifact})", identity.name, identity.version)?;
    let counts = backend.counts;
    writeln!(
        text,
        "  convention {}, level {}; {} passed, {} failed, {} faulted, {} not run, {} outside its claim; {} elements in {:.1} s",
        run.convention,
        run.level,
        counts.passed,
        counts.failed,
        counts.faulted,
        counts.not_run,
        counts.outside,
        counts.elements,
        backend.seconds,
    )?;
    let partial = backend.cells.iter().filter(|cell| !cell.complete).count();
    if partial > 0 {
        writeln!(text, "  {partial} of {} cells were asked only in part", backend.cells.len())?;
    }
    writeln!(text, "  judged by {}, verdict digest {}", backend.judge, &backend.digest[..16])?;
    for fault in &backend.faults {
        let id = fault.id.as_deref().unwrap_or("start");
        writeln!(text, "  fault at {id} ({} cases): {}", fault.cases, fault.fault)?;
    }
    for failure in backend.failures.iter().take(SHOWN) {
        render_failure(text, failure)?;
    }
    if let Some(first) = backend.failures.first() {
        let more = backend.failures.len().saturating_sub(SHOWN);
        if more > 0 {
            writeln!(text, "  and {more} more in the run record (--json)")?;
        }
        let quoted = shell_words::quote(&backend.spec);
        writeln!(
            text,
            "  reproduce: mxcert repro '{}' --backend {quoted} --convention {}",
            first.id, run.convention
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
        let what = match site.tensor.as_str() {
            "scales" => format!("scale [{}]", site.at),
            other => format!("{other} [{}]", site.at),
        };
        writeln!(text, "       {what:<16} want {:<8} got {}", site.expected, site.got)?;
    }
    Ok(())
}
