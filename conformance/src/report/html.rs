//! One HTML page without scripts or network.

use super::count;
use crate::record::{BackendRecord, RunRecord};
use crate::verdict::Verdict;
use maud::{DOCTYPE, Markup, html};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}\
code{font:13px ui-monospace,monospace}.conformant{color:#176b2c}.non-conformant{color:#a51d1d}\
.not-established{color:#8a5a00}td.n{text-align:right}";

/// The page.
pub fn render(run: &RunRecord) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "mxcert: " (run.convention) ", " (run.level) }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { "mxcert" }
                p { "Convention " code { (run.convention) } ", level " code { (run.level) } ", mxcert " (run.mxcert) "." }
                @if !run.certifies { p { strong { "Level smoke does not certify." } } }
                @for backend in &run.backends { (section(backend)) }
            }
        }
    }
    .into_string()
}

const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Conformant => "conformant",
        Verdict::NonConformant => "non-conformant",
        Verdict::NotEstablished => "not-established",
    }
}

fn section(backend: &BackendRecord) -> Markup {
    html! {
        h2 { code { (backend.spec) } ": " span class=(class(backend.verdict)) { (backend.verdict.word()) } }
        p { (backend.reason) }
        @if let Some(identity) = &backend.identity {
            p { (identity.name) " " (identity.version) ", digest " code { (backend.digest) } }
        }
        @for line in backend.notes() { p { (line) } }
        @for fault in &backend.faults {
            p { "Fault at " code { (fault.id.as_deref().unwrap_or("start")) } ": " (fault.fault) }
        }
        @if !backend.failed_by_class.is_empty() {
            table {
                tr { th { "class" } th { "failed" } }
                @for (class, failed) in &backend.failed_by_class {
                    tr { td { (class) } td.n { (failed) } }
                }
            }
        }
        @for failure in &backend.failures {
            details {
                summary { code { (failure.id) } ": " (failure.message) }
                table {
                    tr { th { "output" } th { "at" } th { "want" } th { "got" } }
                    @for site in &failure.sites {
                        tr {
                            td { (site.tensor) }
                            td { (site.place) }
                            td { code { (site.expected) } }
                            td { code { (site.got) } }
                        }
                    }
                }
            }
        }
        @if !backend.cells.is_empty() {
            details {
                summary { (count(backend.cells.len() as u64, "cell")) }
                table {
                    tr { th { "cell" } th { "verdict" } th { "passed" } th { "failed" } th { "complete" } }
                    @for cell in &backend.cells {
                        tr {
                            td { code { (cell.id) } }
                            td class=(class(cell.verdict)) { (cell.verdict.word()) }
                            td.n { (cell.counts.passed) }
                            td.n { (cell.counts.failed) }
                            td { @if cell.complete { "yes" } @else { "in part" } }
                        }
                    }
                }
            }
        }
    }
}
