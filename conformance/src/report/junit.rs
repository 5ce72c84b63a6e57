//! `JUnit` XML: a suite a backend, a test a cell.

use crate::record::{BackendRecord, CellRecord, RunRecord};
use crate::verdict::Verdict;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

/// The XML text.
///
/// # Errors
/// If the text cannot be serialised.
pub fn render(run: &RunRecord) -> Result<String, quick_junit::SerializeError> {
    let mut report = Report::new("mxcert");
    for backend in &run.backends {
        let mut suite = TestSuite::new(&backend.spec);
        suite.add_property(("convention", run.convention.as_str()));
        suite.add_property(("level", run.level.as_str()));
        suite.add_property(("verdict", backend.verdict.word()));
        suite.add_property(("digest", backend.digest.as_str()));
        for note in backend.notes() {
            suite.add_property(("note", note.as_str()));
        }
        if backend.cells.is_empty() {
            let mut case = TestCase::new("verdict", status(backend.verdict, &backend.reason));
            case.set_classname("mxcert");
            suite.add_test_case(case);
        }
        for cell in &backend.cells {
            let mut case = TestCase::new(&cell.id, status(cell.verdict, &why(backend, cell)));
            case.set_classname(cell.id.split('/').next().unwrap_or("mxcert"));
            suite.add_test_case(case);
        }
        report.add_test_suite(suite);
    }
    report.to_string()
}

fn status(verdict: Verdict, why: &str) -> TestCaseStatus {
    let kind = match verdict {
        Verdict::Conformant => return TestCaseStatus::success(),
        Verdict::NonConformant => NonSuccessKind::Failure,
        Verdict::NotEstablished => NonSuccessKind::Error,
    };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(why);
    status
}

fn why(backend: &BackendRecord, cell: &CellRecord) -> String {
    let first = backend.failures.iter().find(|failure| failure.id.starts_with(&cell.id));
    match first {
        Some(failure) => {
            let counts = cell.counts;
            format!(
                "{} of {} cases failed; the first: {}",
                counts.failed,
                counts.failed + counts.passed,
                failure.id
            )
        }
        None => match backend.faults.first() {
            Some(fault) => format!("{}: {}", cell.verdict.word(), fault.fault),
            None => format!("{}: {}", cell.verdict.word(), backend.reason),
        },
    }
}
