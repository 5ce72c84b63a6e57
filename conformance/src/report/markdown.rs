//! Markdown, for pull requests and step summaries.

use crate::record::RunRecord;
use std::fmt::Write;

/// One table over the backends, and one over the cells of each.
pub fn render(run: &RunRecord) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_run(&mut text, run);
    text
}

/// Text that cannot break out of a table cell.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

fn write_run(text: &mut String, run: &RunRecord) -> std::fmt::Result {
    writeln!(text, "## mxcert: {}, level {}\n", run.convention, run.level)?;
    if !run.certifies {
        writeln!(text, "Level smoke does not certify.\n")?;
    }
    writeln!(text, "| backend | verdict | passed | failed | why |\n|---|---|---|---|---|")?;
    for backend in &run.backends {
        writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            cell(&backend.spec),
            backend.verdict.word(),
            backend.counts.passed,
            backend.counts.failed,
            cell(&backend.reason),
        )?;
    }
    for backend in &run.backends {
        let notes = backend.notes();
        if backend.cells.is_empty() && notes.is_empty() {
            continue;
        }
        writeln!(text, "\n<details><summary>{}</summary>\n", cell(&backend.spec))?;
        for line in notes {
            writeln!(text, "- {}", cell(&line))?;
        }
        writeln!(text, "\n| cell | verdict | passed | failed | complete |\n|---|---|---|---|---|")?;
        for record in &backend.cells {
            let complete = if record.complete { "yes" } else { "in part" };
            writeln!(
                text,
                "| {} | {} | {} | {} | {complete} |",
                record.id,
                record.verdict.word(),
                record.counts.passed,
                record.counts.failed,
            )?;
        }
        writeln!(text, "\n</details>")?;
    }
    Ok(())
}
