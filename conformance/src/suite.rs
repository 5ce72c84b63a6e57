//! What a cell asks of a backend: its questions and right answers as one digest, which needs no backend.

use crate::algorithm::AlgorithmRecord;
use crate::ask::Question;
use crate::capabilities::Capabilities;
use crate::digest;
use crate::judge::Judge;
use crate::progress::Progress;
use crate::record::Counts;
use crate::runner::{InternalError, Options};
use crate::selection::{CellPlan, Work};
use mx_reference::Convention;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Whether a backend is asked a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is.
    Asked,
    /// Its shapes or operands lie outside the claim: counted, and not asked.
    Outside,
    /// Not part of this backend's suite: its interface has no way to say strides.
    None,
}

impl Part {
    /// Whether a backend of these claims is asked a question.
    pub fn of(question: &Question<'_>, claims: &Capabilities) -> Self {
        if question.is_strided() && !claims.strided {
            Self::None
        } else if claims.covers_call(question.call()) {
            Self::Asked
        } else {
            Self::Outside
        }
    }
}

/// The questions and right answers of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suite {
    /// SHA-256 of the questions and right answers, in order.
    pub digest: String,
    /// Cases that are asked.
    pub asked: u64,
    /// Cases outside the claim.
    pub outside: u64,
}

/// The suite that a backend of these claims is asked in a cell, its answers by native; `splits` are the shapes whose K it split.
///
/// # Errors
/// [`InternalError::NoAnswer`]: a defect of the suite.
pub fn suite(
    plan: &CellPlan,
    convention: &'static Convention,
    claims: &Capabilities,
    splits: &[AlgorithmRecord],
    progress: &dyn Progress,
) -> Result<Suite, InternalError> {
    let options = Options {
        convention,
        judge: Judge::Native,
        repeat_every: 1,
        jobs: 1,
        bisect_for: Duration::ZERO,
    };
    let one = |work: &Work| {
        let question = Question::with_algorithm(work, &plan.prefix, options, |call| {
            AlgorithmRecord::find(splits, call)
        })?;
        let mut counts = Counts::default();
        let mut body = Vec::new();
        match Part::of(&question, claims) {
            Part::Asked => {
                counts.passed = question.cases();
                counts.elements = question.expected().values().map(|t| t.data.len() as u64).sum();
                body = question.suite();
            }
            Part::Outside => counts.outside = question.cases(),
            Part::None => {}
        }
        progress.advance(&plan.prefix, &counts);
        Ok((body, counts))
    };
    let parts: Vec<_> = plan.works.par_iter().map(one).collect::<Result<_, InternalError>>()?;
    let (mut hash, mut counts) = (Sha256::new(), Counts::default());
    for (body, of) in &parts {
        hash.update(body);
        counts.add(of);
    }
    Ok(Suite {
        digest: digest::hex(&hash.finalize()),
        asked: counts.passed,
        outside: counts.outside,
    })
}
