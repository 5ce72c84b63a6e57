//! One question to a backend: poisoned buffers, guarded inputs, a second call, and what differs.

mod failure;

use crate::accuracy::Accuracy;
use crate::algorithm::{Algorithm, shape};
use crate::backend::{Backend, Fault, Refusal};
use crate::compare::{Comparison, Site, unsteady};
use crate::digest;
use crate::judge::Judge;
use crate::outputs::Outputs;
use crate::record::FailureKind;
use crate::runner::{InternalError, Options};
use crate::selection::Work;
use mx_vectors::op::Split;
use mx_vectors::pad::padded;
use mx_vectors::{Block, Call, Data, Op, Quantize, Source, Tensors};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// What fresh output buffers hold in the first and in the second call.
const POISON: [u8; 2] = [0xa5, 0x5a];

/// A call with its right answer and the cases it stands for.
#[derive(Debug)]
pub struct Question<'a> {
    work: &'a Work,
    prefix: &'a str,
    options: Options,
    blocks: Vec<Block>,
    call: Call,
    expected: Tensors,
}

/// What a backend's answers came to.
#[derive(Debug)]
pub struct Asked {
    /// Output elements compared.
    pub elements: u64,
    /// Wrong elements by case ordinal, and in which way.
    by_case: BTreeMap<u64, (FailureKind, Vec<Site>)>,
    /// A failure of the whole call.
    whole: Option<(FailureKind, String)>,
    /// Elements that came otherwise when the same was asked again, both times within the interval that they are held to.
    pub unsteady: u64,
    /// How accurate products were, of backends that others judge.
    pub accuracy: Option<Accuracy>,
}

impl Asked {
    fn whole(kind: FailureKind, message: String) -> Self {
        let (whole, by_case) = (Some((kind, message)), BTreeMap::new());
        Self { elements: 0, by_case, whole, unsteady: 0, accuracy: None }
    }

    /// Adds wrong elements; a case fails in the way of its first one.
    fn add(&mut self, question: &Question<'_>, sites: Vec<(FailureKind, Site)>) {
        for (kind, site) in sites {
            let entry = self.by_case.entry(question.place(&site).0);
            entry.or_insert((kind, Vec::new())).1.push(site);
        }
    }

    /// Which of `cases` cases failed.
    pub fn failed_cases(&self, cases: u64) -> BTreeSet<u64> {
        match self.whole {
            Some(_) => (0..cases).collect(),
            None => self.by_case.keys().copied().collect(),
        }
    }

    /// True if everything was right.
    pub fn is_clean(&self) -> bool {
        self.whole.is_none() && self.by_case.is_empty()
    }
}

impl<'a> Question<'a> {
    /// Builds the call and its right answer.
    ///
    /// # Errors
    /// [`InternalError::NoAnswer`] if the judge cannot answer: a defect of the suite.
    pub fn new(work: &'a Work, prefix: &'a str, options: Options) -> Result<Self, InternalError> {
        Self::with_algorithm(work, prefix, options, |_| Algorithm::default())
    }

    /// The same, of a product whose right answer depends on how K is split: `algorithm` is asked of every product.
    ///
    /// # Errors
    /// As [`Question::new`].
    pub fn with_algorithm(
        work: &'a Work,
        prefix: &'a str,
        options: Options,
        algorithm: impl FnOnce(&Call) -> Algorithm,
    ) -> Result<Self, InternalError> {
        let blocks = match work {
            Work::Blocks(batch) => batch.blocks(),
            Work::Single { .. } => Vec::new(),
        };
        Self::with_blocks(work, prefix, options, blocks, algorithm)
    }

    /// The question as a backend is asked it, and what it says of its algorithm.
    ///
    /// # Errors
    /// As [`Question::new`].
    pub fn to(
        backend: &mut dyn Backend,
        work: &'a Work,
        prefix: &'a str,
        options: Options,
    ) -> Result<(Self, Result<Algorithm, Refusal>), InternalError> {
        let mut said = Ok(Algorithm::default());
        let question = Self::with_algorithm(work, prefix, options, |call| {
            if backend.capabilities().covers_call(call) {
                said = backend.algorithm(call);
            }
            said.as_ref().map(Algorithm::clone).unwrap_or_default()
        })?;
        Ok((question, said))
    }

    fn with_blocks(
        work: &'a Work,
        prefix: &'a str,
        options: Options,
        blocks: Vec<Block>,
        algorithm: impl FnOnce(&Call) -> Algorithm,
    ) -> Result<Self, InternalError> {
        let mut call = match work {
            Work::Blocks(batch) => batch.lay(&blocks),
            Work::Single { op, class, n, multiple } => match class.source {
                Source::Tensors { call, .. } => padded(call(op, *n), *multiple),
                Source::Blocks { .. } => Call { op: *op, inputs: Tensors::new() },
            },
        };
        if let Some([.., k]) = shape(&call) {
            let algorithm = algorithm(&call).within(k);
            if let Op::Gemm(g) = &mut call.op {
                g.split = algorithm.split;
            }
        }
        let expected = options.judge.answer(&call, options.convention).map_err(|error| {
            InternalError::NoAnswer {
                judge: options.judge.name(),
                id: work.id(prefix, 0),
                reason: error.to_string(),
            }
        })?;
        Ok(Self { work, prefix, options, blocks, call, expected })
    }

    /// The blocks of block cases, in order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The call.
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// The right outputs.
    pub const fn expected(&self) -> &Tensors {
        &self.expected
    }

    /// How answers are compared.
    pub fn comparison(&self) -> Comparison<'_> {
        Comparison::new(&self.call, self.options.convention, &self.expected)
    }

    /// The same cases laid several side by side, where they can be.
    pub fn wide_work(&self) -> Option<Work> {
        match self.work {
            Work::Blocks(batch) => batch.widened().map(Work::Blocks),
            Work::Single { .. } => None,
        }
    }

    /// The question that such a work asks.
    ///
    /// # Errors
    /// As [`Question::new`].
    pub fn widened<'b>(&self, work: &'b Work) -> Result<Question<'b>, InternalError>
    where
        'a: 'b,
    {
        Question::with_blocks(work, self.prefix, self.options, self.blocks.clone(), |_| {
            Algorithm::default()
        })
    }

    /// Whether the input is a strided view.
    pub const fn is_strided(&self) -> bool {
        matches!(self.call.op, Op::Quantize(Quantize { view: Some(_), .. }))
    }

    /// How the K of its right answer is split.
    pub const fn split(&self) -> Split {
        match self.call.op {
            Op::Gemm(g) => g.split,
            _ => Split::NONE,
        }
    }

    /// Number of cases it stands for.
    pub fn cases(&self) -> u64 {
        self.work.cases()
    }

    /// The id of a case.
    pub fn id(&self, ordinal: u64) -> String {
        self.work.id(self.prefix, ordinal)
    }

    /// SHA-256 of the questions and right answers, case by case, however they were laid into a tensor.
    pub fn suite(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        match self.work {
            Work::Blocks(batch) => {
                for run in &batch.runs {
                    hash.update(format!("{}#{}+{}\n", run.class.name, run.first, run.count));
                }
                hash.update(self.blocks.as_bytes());
                let Some((scales, elements)) = self.block_answers() else { return Vec::new() };
                for ordinal in 0..batch.len() {
                    hash.update([scales[ordinal as usize]]);
                    for range in batch.code_ranges(ordinal) {
                        hash.update(&elements[range]);
                    }
                }
            }
            Work::Single { class, n, .. } => {
                hash.update(format!("{}#{n}\n", class.name));
                hash.update(digest::of_tensors(&self.call.inputs));
                hash.update(digest::of_tensors(&self.expected));
            }
        }
        hash.finalize().to_vec()
    }

    fn block_answers(&self) -> Option<(&[u8], &[u8])> {
        match (&self.expected.get("scales")?.data, &self.expected.get("elements")?.data) {
            (Data::U8(scales), Data::U8(elements)) => Some((scales, elements)),
            _ => None,
        }
    }

    /// The case that an element of an output belongs to, and its lane or index.
    fn place(&self, site: &Site) -> (u64, u64) {
        match self.work {
            Work::Blocks(batch) => {
                let place = if site.tensor == "scales" {
                    batch.place_of_scale(site.index)
                } else {
                    batch.place_of_code(site.index)
                };
                (place.case, place.lane.unwrap_or(0) as u64)
            }
            Work::Single { .. } => (0, site.index as u64),
        }
    }

    /// How many of these cases belong to which class.
    pub fn by_class(&self, failed: &BTreeSet<u64>) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for &ordinal in failed {
            *counts.entry(self.work.class(ordinal)).or_default() += 1;
        }
        counts
    }

    /// Lets the reference confirm native's answer to one case.
    ///
    /// # Errors
    /// [`InternalError::JudgesDisagree`].
    pub fn confirm(&self, ordinal: u64) -> Result<(), InternalError> {
        let alone = match self.work {
            Work::Blocks(batch) => match batch.only(ordinal) {
                Some(batch) => Work::Blocks(batch),
                None => return Ok(()),
            },
            Work::Single { .. } => self.work.clone(),
        };
        let answer = |options| {
            Question::with_algorithm(&alone, self.prefix, options, |_| self.split().into())
        };
        let native = answer(self.options)?;
        let reference = answer(Options { judge: Judge::Reference, ..self.options })?;
        if native.expected == reference.expected {
            Ok(())
        } else {
            Err(InternalError::JudgesDisagree { id: self.id(ordinal) })
        }
    }
}

/// Asks, and asks again with other poison if `repeat` is set.
///
/// # Errors
/// [`Fault`] if no proper answer came.
pub fn ask(
    backend: &mut dyn Backend,
    question: &Question<'_>,
    repeat: bool,
) -> Result<Asked, Fault> {
    let first = match once(backend, question, POISON[0])? {
        Ok(outputs) => outputs,
        Err(asked) => return Ok(asked),
    };
    let comparison = question.comparison();
    let wrong = |got| comparison.sites(got).collect::<Vec<_>>();
    let elements = first.values().map(|tensor| tensor.data.len() as u64).sum();
    let accuracy = match question.options.judge {
        Judge::Native => Accuracy::of(&question.call, &question.expected, &first),
        Judge::Oracle | Judge::Reference => None,
    };
    let mut asked =
        Asked { elements, by_case: BTreeMap::new(), whole: None, unsteady: 0, accuracy };
    let sites = wrong(&first);
    if !repeat {
        asked.add(question, sites.into_iter().map(|site| (FailureKind::Mismatch, site)).collect());
        return Ok(asked);
    }
    let second = match once(backend, question, POISON[1])? {
        Ok(outputs) => outputs,
        Err(asked) => return Ok(asked),
    };
    if first == second {
        asked.add(question, sites.into_iter().map(|site| (FailureKind::Mismatch, site)).collect());
    } else {
        let convention = question.options.convention;
        asked.unsteady =
            unsteady(&question.call, convention, &question.expected, [&first, &second]);
        asked.add(question, of_both(&sites, wrong(&second), [&first, &second]));
    }
    Ok(asked)
}

/// The wrong elements of two answers, each once, and in which way.
fn of_both(
    sites: &[Site],
    again: Vec<Site>,
    [first, second]: [&Tensors; 2],
) -> Vec<(FailureKind, Site)> {
    let known: BTreeSet<(String, usize)> =
        sites.iter().map(|site| (site.tensor.clone(), site.index)).collect();
    let new = again.into_iter().filter(|site| !known.contains(&(site.tensor.clone(), site.index)));
    let mut both: Vec<(FailureKind, Site)> = sites
        .iter()
        .cloned()
        .chain(new)
        .map(|site| {
            let [got, again] = [first, second].map(|of| of[&site.tensor].data.get(site.index));
            let width = first[&site.tensor].data.width();
            let poison = POISON.map(|byte| u32::from_le_bytes([byte; 4]) >> (32 - 8 * width));
            let kind = match [got, again] {
                _ if got == again => FailureKind::Mismatch,
                bits if bits == poison => FailureKind::Unwritten,
                _ => FailureKind::Nondeterministic,
            };
            (kind, Site { got, again: (got != again).then_some(again), ..site })
        })
        .collect();
    // A case fails in the way of its first site, and what changes between calls explains the rest.
    both.sort_by_key(|(kind, _)| match kind {
        FailureKind::Nondeterministic => 0,
        FailureKind::Unwritten => 1,
        _ => 2,
    });
    both
}

/// The first failed cases, at most `enough`: what [`ask`] finds, of a backend in this process, which cannot change its inputs unnoticed.
///
/// # Errors
/// [`Fault`] if no proper answer came.
pub fn detect(
    backend: &mut dyn Backend,
    question: &Question<'_>,
    comparison: &Comparison<'_>,
    repeat: bool,
    enough: usize,
) -> Result<BTreeSet<u64>, Fault> {
    let all = |asked: Asked| Ok(asked.failed_cases(question.cases()));
    let enough = enough.min(question.cases() as usize);
    let mut failed = BTreeSet::new();
    for &poison in if repeat { &POISON[..] } else { &POISON[..1] } {
        let mut outputs = Outputs::poisoned(&question.expected, poison);
        match backend.execute(&question.call, question.options.convention, &mut outputs) {
            Ok(()) => {}
            Err(refusal) => return refused(refusal).and_then(all),
        }
        if outputs.check_guards().is_err() {
            return Ok((0..question.cases()).collect());
        }
        let got = outputs.into_tensors();
        for site in comparison.sites(&got) {
            failed.insert(question.place(&site).0);
            if failed.len() >= enough {
                return Ok(failed);
            }
        }
    }
    Ok(failed)
}

/// What a refusal inside the claim comes to.
///
/// # Errors
/// Its [`Fault`], if it is one.
pub fn refused(refusal: Refusal) -> Result<Asked, Fault> {
    match refusal {
        Refusal::Fault(fault) => Err(fault),
        Refusal::Unsupported(reason) => {
            let message = format!("answered unsupported inside its own claim: {reason}");
            Ok(Asked::whole(FailureKind::ClaimRefused, message))
        }
        Refusal::InputsChanged(_) => {
            Ok(Asked::whole(FailureKind::InputsChanged, refusal.to_string()))
        }
    }
}

/// One call: its outputs, or a failure of the whole call.
fn once(
    backend: &mut dyn Backend,
    question: &Question<'_>,
    poison: u8,
) -> Result<Result<Tensors, Asked>, Fault> {
    let mut outputs = Outputs::poisoned(&question.expected, poison);
    // A copy costs a tenth of a digest before and after.
    let before = question.call.inputs.clone();
    let answer = backend.execute(&question.call, question.options.convention, &mut outputs);
    let whole = |kind, message| Ok(Err(Asked::whole(kind, message)));
    if let Err(refusal) = answer {
        return refused(refusal).map(Err);
    }
    if let Err(error) = outputs.check_guards() {
        return whole(FailureKind::OutOfBounds, error.to_string());
    }
    if before != question.call.inputs {
        let message = Refusal::InputsChanged("input".to_owned()).to_string();
        return whole(FailureKind::InputsChanged, message);
    }
    Ok(Ok(outputs.into_tensors()))
}
