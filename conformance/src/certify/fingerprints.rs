//! Fingerprints of the products that a backend was asked and answered: they go into its record, and no verdict hears of them.

use super::Request;
use crate::backend::Backend;
use crate::backends::Spec;
use crate::fingerprint::{Operands, claimed, fingerprint_of};
use crate::progress::say;
use crate::record::{BackendRecord, Claims, FingerprintRecord};
use crate::selection::CellPlan;
use mx_reference::Element;
use mx_reference::gemm::Model;
use mx_vectors::op::{Factor, Gemm, Scaling};
use mx_vectors::{Float, Op};

/// The longest contraction that is asked for.
const K: usize = 4096;

/// Takes the fingerprint of each kind of operands, or notes why not.
pub(super) fn take(
    request: &Request,
    spec: &Spec,
    backend: &mut dyn Backend,
    plans: &[CellPlan],
    record: &mut BackendRecord,
) {
    let kinds = answered(backend, plans, record);
    if kinds.is_empty() {
        return;
    }
    let declared = record.claims.as_ref().and_then(Claims::declared);
    if matches!(spec, Spec::Reference | Spec::Native) && declared == Some(Model::Exact) {
        let note = "exact by construction, in integers: no fingerprint taken";
        record.fingerprint_note = Some(note.to_owned());
        return;
    }
    if !record.faults.is_empty() {
        let note = "not taken of a backend that faulted; see `mxcert fingerprint`";
        record.fingerprint_note = Some(note.to_owned());
        return;
    }
    for kind in kinds {
        if request.progress {
            say!("asking {} how products of {} accumulate ...", record.spec, kind.name());
        }
        match fingerprint_of(backend, kind, K) {
            Ok(found) => record.fingerprint.push(FingerprintRecord::of(&found)),
            Err(refusal) => {
                record.fingerprint_note = Some(format!("{}: not taken: {refusal}", kind.name()));
                return;
            }
        }
    }
}

/// The kinds of operands whose products to f32 were asked and answered.
fn answered(backend: &dyn Backend, plans: &[CellPlan], record: &BackendRecord) -> Vec<Operands> {
    let asked: Vec<Operands> = plans
        .iter()
        .zip(&record.cells)
        .filter(|(_, cell)| cell.counts.passed + cell.counts.failed > 0)
        .filter_map(|(plan, _)| operands(&plan.op))
        .collect();
    let mut kinds = claimed(backend.capabilities());
    kinds.retain(|kind| asked.contains(kind));
    kinds
}

/// The kind of operands that a product asks for as a fingerprint does.
fn operands(op: &Op) -> Option<Operands> {
    let Op::Gemm(Gemm { a, b, scaling, output: Float::F32, .. }) = *op else { return None };
    match (a, scaling) {
        _ if a != b => None,
        (Factor::Element(element), Scaling::Mx) => Some(Operands::Mx(element)),
        (Factor::Element(Element::E4m3), Scaling::Unit) => Some(Operands::Fp8),
        (_, Scaling::Nvfp4) => Some(Operands::Nvfp4),
        (Factor::Bf16, Scaling::Plain) => Some(Operands::Bf16),
        (Factor::F16, Scaling::Plain) => Some(Operands::F16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::in_process::InProcess;
    use crate::capabilities::Accumulate;
    use crate::certify::judge;
    use crate::selection::Filter;
    use crate::verdict::Verdict;
    use mx_reference::convention::PROPAGATE;
    use mx_vectors::Level;
    use std::time::Duration;

    /// What exact products that declare a model come to, under a filter and at a level.
    fn judged(filter: &str, level: Level, spec: &Spec, declared: Option<Model>) -> BackendRecord {
        let request = Request {
            backends: Vec::new(),
            convention: &PROPAGATE,
            level,
            filters: vec![Filter::parse(filter).unwrap()],
            timeout: Duration::from_mins(1),
            jobs: 1,
            fingerprint: true,
            progress: false,
        };
        let mut backend = InProcess::new("planted", crate::backends::native::answer);
        backend.claim(|claims| claims.accumulate = Some(Accumulate(declared)));
        let mut record = BackendRecord::new(spec.to_string(), spec.judge());
        judge(&request, spec, &mut backend, &mut record).unwrap();
        record
    }

    #[test]
    fn a_model_that_the_answers_contradict_is_said() {
        let spec = Spec::Command("planted".to_owned());
        let cell = "gemm/e2m1-e2m1/mx/f32/-/g0-*";
        let right = judged(cell, Level::Standard, &spec, Some(Model::Exact));
        assert_eq!(right.accumulations(), ["accumulation of mx-e2m1: exact"]);
        let open = judged(cell, Level::Standard, &spec, None);
        assert_eq!(
            (open.verdict, open.accumulations()),
            (Verdict::Conformant, right.accumulations())
        );
        let wrong = judged(cell, Level::Standard, &spec, Some(Model::F32Sequential));
        let words = "accumulation of mx-e2m1: exact; declared is f32-sequential, which these answers contradict";
        assert_eq!(wrong.accumulations(), [words]);
    }

    #[test]
    fn only_products_that_were_asked_at_a_level_that_certifies() {
        let spec = Spec::Command("planted".to_owned());
        let taken = |filter: &str, level| {
            let record = judged(filter, level, &spec, Some(Model::Exact));
            (record.fingerprint.len(), record.fingerprint_note)
        };
        assert_eq!(taken("gemm/e2m1-e2m1/mx/bf16/-/g0-*", Level::Standard), (0, None));
        assert_eq!(taken("pack/e2m1/*", Level::Standard), (0, None));
        assert_eq!(taken("gemm/e2m1-e2m1/mx/f32/-", Level::Smoke), (0, None));
        assert_eq!(taken("gemm/e2m1-e2m1/*/f32/-/g0-*", Level::Standard), (2, None));
    }

    #[test]
    fn the_projects_own_exact_products_are_not_asked() {
        let record = judged(
            "gemm/e2m1-e2m1/mx/f32/-/g0-*",
            Level::Standard,
            &Spec::Native,
            Some(Model::Exact),
        );
        assert_eq!(
            record.accumulations(),
            ["accumulation: exact by construction, in integers: no fingerprint taken"]
        );
    }
}
