//! The run record: everything a run found out. Every report is a projection of it.

use crate::accuracy::Accuracy;
use crate::algorithm::AlgorithmRecord;
use crate::backend::{Fault, Identity};
use crate::capabilities::{Accumulate, Capabilities, Claim};
use crate::fingerprint::{Fingerprint, Match};
use crate::judge::Judge;
use crate::report::count;
use crate::unasked::Unasked;
use crate::verdict::{Exit, Verdict};
use mx_reference::gemm::Model;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name and version of this format.
pub const SCHEMA: &str = "mxcert-run/1";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of mxcert.
    pub mxcert: String,
    /// The convention.
    pub convention: String,
    /// The level.
    pub level: String,
    /// Whether this level certifies at all.
    pub certifies: bool,
    /// The filters, as given.
    pub filters: Vec<String>,
    /// One entry per backend that was asked for.
    pub backends: Vec<BackendRecord>,
    /// The exit code.
    pub exit: Exit,
    /// What the run took; not part of any digest.
    pub seconds: f64,
}

/// What a run found out about one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendRecord {
    /// As on the command line.
    pub spec: String,
    /// Who it says it is; absent if it never said.
    pub identity: Option<Identity>,
    /// What it claims; absent if it never said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<Claims>,
    /// The profiles among its claims that no case is asked of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unasked: Vec<Unasked>,
    /// Whose answers it was compared with.
    pub judge: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub reason: String,
    /// The digest of the statement that a certificate of this backend makes: nothing of time, host or thread count.
    pub digest: String,
    /// Cases in all.
    pub counts: Counts,
    /// One entry per op with its parameters.
    pub cells: Vec<CellRecord>,
    /// Failed cases by class.
    pub failed_by_class: BTreeMap<String, u64>,
    /// The first failure of each class in each cell.
    pub failures: Vec<Failure>,
    /// What went wrong without an answer.
    pub faults: Vec<FaultRecord>,
    /// How its products accumulate, one entry per kind of operands: reported, never judged by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprint: Vec<FingerprintRecord>,
    /// Why a fingerprint of products that it answered is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint_note: Option<String>,
    /// Seconds this backend took; not part of any digest.
    pub seconds: f64,
}

impl BackendRecord {
    /// Of a backend about which nothing is known yet.
    pub fn new(spec: String, judge: Judge) -> Self {
        Self {
            spec,
            identity: None,
            claims: None,
            unasked: Vec::new(),
            judge: judge.name().to_owned(),
            verdict: Verdict::NotEstablished,
            reason: String::new(),
            digest: String::new(),
            counts: Counts::default(),
            cells: Vec::new(),
            failed_by_class: BTreeMap::new(),
            failures: Vec::new(),
            faults: Vec::new(),
            fingerprint: Vec::new(),
            fingerprint_note: None,
            seconds: 0.0,
        }
    }

    /// Cases whose two answers differ, each within what it is held to.
    pub fn nondeterministic(&self) -> u64 {
        self.cells.iter().map(|cell| cell.nondeterministic).sum()
    }

    /// What is reported and not judged, in a line each: claims of which nothing is asked, answers that change from call to call, and
    /// how products accumulate.
    pub fn notes(&self) -> Vec<String> {
        let unasked = self.unasked.iter().map(Unasked::to_string);
        let nondeterministic = Some(self.nondeterministic()).filter(|&cases| cases > 0).map(|cases| {
            format!(
                "nondeterministic: two calls differ in {}, each answer within what it is held to",
                count(cases, "case")
            )
        });
        unasked.chain(nondeterministic).chain(self.accumulations()).collect()
    }

    /// How its products accumulate, in a line each; none where nothing is known.
    pub fn accumulations(&self) -> Vec<String> {
        let declared = self.claims.as_ref().and_then(Claims::declared);
        let of = |found: &FingerprintRecord| {
            format!("accumulation of {}: {}", found.operands, found.summary(declared))
        };
        let note = self.fingerprint_note.iter().map(|note| format!("accumulation: {note}"));
        self.fingerprint.iter().map(of).chain(note).collect()
    }
}

/// What a backend claims, as records hold it: unlike an adapter's own words, with whether strided views are taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Claims(#[serde(with = "ClaimFields")] pub Capabilities);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Capabilities", deny_unknown_fields)]
struct ClaimFields {
    ops: Claim,
    profiles: Claim,
    inputs: Claim,
    axes: Claim,
    layouts: Claim,
    blocks: Claim,
    conventions: Claim,
    roundings: Claim,
    overflows: Claim,
    orders: Claim,
    recipes: Claim,
    accumulate: Option<Accumulate>,
    multiple: Option<(usize, usize)>,
    strided: bool,
}

impl Claims {
    /// The accumulation that is declared by name.
    pub fn declared(&self) -> Option<Model> {
        self.0.accumulate.and_then(|accumulate| accumulate.0)
    }
}

/// How products of one kind of operands accumulate, in the words of `mxcert fingerprint`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FingerprintRecord {
    /// The kind of operands.
    pub operands: String,
    /// True if sums that no accumulation rounds came out right; otherwise nothing else is told.
    pub adds: bool,
    /// The order of partial sums.
    pub order: String,
    /// Products summed in one step.
    pub group: String,
    /// Bits kept below the largest exponent of a step.
    pub fraction_bits: String,
    /// Significant bits of the accumulator.
    pub accumulator_bits: String,
    /// How the sum of a step is rounded.
    pub rounding: String,
    /// Where chains end and are added to another accumulator.
    pub promotion: String,
    /// Parts of a split K.
    pub split: String,
    /// What becomes of subnormal results.
    pub subnormal_results: String,
    /// What becomes of subnormal operands.
    pub subnormal_operands: [String; 2],
    /// Whether a model made of these parameters alone gives every answer; absent if they do not make one.
    pub reproduced: Option<bool>,
    /// The named models that give every answer, bit for bit.
    pub models: Vec<String>,
}

impl FingerprintRecord {
    /// Of a fingerprint: all of it but the number of questions.
    pub fn of(found: &Fingerprint) -> Self {
        let subnormals = found.subnormals;
        Self {
            operands: found.operands.to_owned(),
            adds: found.adds,
            order: found.order.to_string(),
            group: found.group.to_string(),
            fraction_bits: found.fraction_bits.to_string(),
            accumulator_bits: found.accumulator_bits.to_string(),
            rounding: found.rounding.to_string(),
            promotion: found.promotion.to_string(),
            split: found.split.to_string(),
            subnormal_results: subnormals.results.name().to_owned(),
            subnormal_operands: [subnormals.a, subnormals.b].map(|s| s.name().to_owned()),
            reproduced: found.reproduced,
            models: found.matches.iter().map(Match::to_string).collect(),
        }
    }

    /// What it comes to, in words; `declared` is the model that the backend declares.
    pub fn summary(&self, declared: Option<Model>) -> String {
        let found = if !self.adds {
            "sums wrong where no accumulation rounds".to_owned()
        } else if self.models.is_empty() {
            format!(
                "no known model: {}; {}; fraction bits {}; accumulator bits {}",
                self.order, self.group, self.fraction_bits, self.accumulator_bits
            )
        } else {
            self.models.join(", ")
        };
        // However K was split: the model is of the rest.
        let is = |found: &String, model: &Model| found.split(" (").next() == Some(model.name());
        match declared.filter(|model| !self.models.iter().any(|found| is(found, model))) {
            Some(model) => {
                format!("{found}; declared is {}, which these answers contradict", model.name())
            }
            None => found,
        }
    }
}

/// Numbers of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Right.
    pub passed: u64,
    /// Wrong bits in one of two calls or in both, changed inputs, or claims that were refused.
    pub failed: u64,
    /// Asked, but no proper answer came.
    pub faulted: u64,
    /// Outside what the backend claims, so never asked.
    pub outside: u64,
    /// Not asked because the backend was given up after faults.
    pub not_run: u64,
    /// Output elements compared.
    pub elements: u64,
}

impl Counts {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.faulted += other.faulted;
        self.outside += other.outside;
        self.not_run += other.not_run;
        self.elements += other.elements;
    }

    /// The verdict that these numbers alone support.
    pub const fn verdict(&self) -> Verdict {
        if self.failed > 0 {
            Verdict::NonConformant
        } else if self.faulted > 0 || self.not_run > 0 || self.passed == 0 || self.elements == 0 {
            Verdict::NotEstablished
        } else {
            Verdict::Conformant
        }
    }
}

/// What a run found out about one op with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// `op/element/mode/input/axis`.
    pub id: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether every case of the level was selected; filters may leave some out, and what is incomplete is not certified.
    /// Cases whose shapes are no multiple of what the backend claims count as `outside`.
    pub complete: bool,
    /// SHA-256 of the questions and right answers, in order.
    pub suite: String,
    /// Cases.
    pub counts: Counts,
    /// Cases whose two answers differ though each is within what it is held to: reported, never judged by, since additions in any
    /// order may have another order in each call.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nondeterministic: u64,
    /// How accurate products were, for matrix products of backends that others judge: reported, never judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// The algorithms that the backend had for its products, by shape, if it said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub algorithms: Vec<AlgorithmRecord>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// One failing case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The case.
    pub id: String,
    /// What kind of failure.
    pub kind: FailureKind,
    /// A sentence.
    pub message: String,
    /// The first wrong elements.
    pub sites: Vec<SiteRecord>,
    /// Wrong elements in all.
    pub wrong: u64,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Wrong bits.
    Mismatch,
    /// Another answer to the same question, and one of the two wrong.
    Nondeterministic,
    /// An element that was never written.
    Unwritten,
    /// The inputs were changed.
    InputsChanged,
    /// A write beside the output buffer.
    OutOfBounds,
    /// `unsupported` for something inside the claim.
    ClaimRefused,
}

/// One wrong element, as bits in hexadecimal; intervals and what came instead also in decimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRecord {
    /// Output tensor.
    pub tensor: String,
    /// Lane of the block, or flat index.
    pub at: u64,
    /// The same in words: lane; row and column; or whose scale a byte of the blocked layout is.
    pub place: String,
    /// The right bits, `nan` where any NaN code is right, or both ends of an interval, the lower first.
    pub expected: String,
    /// The bits that came; `x, then y` where two calls gave others.
    pub got: String,
}

/// A fault and where it struck.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRecord {
    /// A case that it strikes by itself, or the first of those that were asked together where none does; absent if the
    /// backend never started.
    pub id: Option<String>,
    /// What happened.
    pub fault: Fault,
    /// How many cases it took with it.
    pub cases: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_model_stands_however_k_is_split() {
        let mut found = FingerprintRecord {
            operands: "fp8".to_owned(),
            adds: true,
            order: String::new(),
            group: String::new(),
            fraction_bits: String::new(),
            accumulator_bits: String::new(),
            rounding: String::new(),
            promotion: String::new(),
            split: String::new(),
            subnormal_results: String::new(),
            subnormal_operands: [String::new(), String::new()],
            reproduced: None,
            models: vec!["hopper-fp8 (split in 2)".to_owned()],
        };
        let declared = Some(Model::HopperFp8);
        assert_eq!(found.summary(declared), "hopper-fp8 (split in 2)");
        found.models = vec!["hopper-fp8-promote128".to_owned()];
        let words = "hopper-fp8-promote128; declared is hopper-fp8, which these answers contradict";
        assert_eq!(found.summary(declared), words);
    }
}
