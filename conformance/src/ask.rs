//! One question to a backend: poisoned buffers, hashed inputs, a second call, and what differs.

use crate::accuracy::Accuracy;
use crate::algorithm::{Algorithm, shape};
use crate::backend::{Backend, Fault, Refusal};
use crate::compare::{Comparison, Site};
use crate::digest;
use crate::judge::Judge;
use crate::outputs::Outputs;
use crate::record::{Failure, FailureKind, SiteRecord};
use crate::runner::{InternalError, Options};
use crate::selection::Work;
use mx_reference::{Rule, ScaleLayout};
use mx_vectors::op::Split;
use mx_vectors::pad::padded;
use mx_vectors::{Block, Call, Data, Op, Quantize, Source, Tensors};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;

/// What fresh output buffers hold in the first and in the second call.
const POISON: [u8; 2] = [0xa5, 0x5a];
/// Wrong elements kept of a failing case.
const SITES: usize = 4;
/// Wrong elements shown of one case that is looked at alone.
const MANY: usize = 64;

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
    /// How accurate products were, of backends that others judge.
    pub accuracy: Option<Accuracy>,
}

impl Asked {
    fn whole(kind: FailureKind, message: String) -> Self {
        Self { elements: 0, by_case: BTreeMap::new(), whole: Some((kind, message)), accuracy: None }
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

    /// The first failure of each class, each with its case's ordinal.
    pub fn failures(&self, asked: Asked) -> Vec<(u64, Failure)> {
        if let Some((kind, message)) = asked.whole {
            let failure = Failure { id: self.id(0), kind, message, sites: Vec::new(), wrong: 0 };
            return vec![(0, failure)];
        }
        let mut seen = BTreeSet::new();
        asked
            .by_case
            .into_iter()
            .filter(|(ordinal, _)| seen.insert(self.work.class(*ordinal)))
            .map(|(ordinal, (kind, sites))| (ordinal, self.failure(ordinal, kind, &sites, SITES)))
            .collect()
    }

    /// The first failing case with its wrong elements: all of a block's, the first 64 of a tensor's.
    pub fn first_failure(&self, asked: Asked) -> Option<Failure> {
        if asked.whole.is_some() {
            return self.failures(asked).pop().map(|(_, failure)| failure);
        }
        let (ordinal, (kind, sites)) = asked.by_case.into_iter().next()?;
        Some(self.failure(ordinal, kind, &sites, MANY))
    }

    fn failure(&self, ordinal: u64, kind: FailureKind, sites: &[Site], limit: usize) -> Failure {
        let wrong = sites.len() as u64;
        let message = match (kind, wrong) {
            (FailureKind::Unstable, _) => {
                "the same call gave another answer, or elements were never written".to_owned()
            }
            (_, 1) => "1 wrong element".to_owned(),
            _ => format!("{wrong} wrong elements"),
        };
        let record = |site: &Site| {
            let digits = 2 * self.expected[&site.tensor].data.width();
            SiteRecord {
                tensor: site.tensor.clone(),
                at: self.place(site).1,
                place: self.describe(site),
                expected: match site.rule {
                    Rule::AnyNan => "nan".to_owned(),
                    Rule::Between { low, high } => format!("{low:0digits$x}..={high:0digits$x}"),
                    _ => format!("{:0digits$x}", site.expected),
                },
                got: format!("{:0digits$x}", site.got),
            }
        };
        // The scale comes first: its error explains those of the elements.
        let mut shown: Vec<&Site> = sites.iter().collect();
        shown.sort_by_key(|site| (site.tensor != "scales", site.index));
        let sites = shown.into_iter().take(limit).map(record).collect();
        Failure { id: self.id(ordinal), kind, message, sites, wrong }
    }

    /// Where a wrong element is, in words.
    fn describe(&self, site: &Site) -> String {
        let shape = &self.expected[&site.tensor].shape;
        match (self.work, &shape[..]) {
            (Work::Blocks(_), _) if site.tensor == "scales" => "scale".to_owned(),
            (Work::Blocks(_), _) => format!("lane {}", self.place(site).1),
            (_, [_, cols]) if *cols > 0 => {
                format!("row {}, column {}", site.index / cols, site.index % cols)
            }
            _ => match self.blocked_shape().map(|s| ScaleLayout::Blocked.place(s, site.index)) {
                Some(Some((r, c))) => {
                    format!("byte {}, the scale of row {r}, block {c}", site.index)
                }
                Some(None) => format!("byte {}, padding", site.index),
                None => format!("index {}", site.index),
            },
        }
    }

    /// Rows and columns of the scales of a call whose output is blocked.
    fn blocked_shape(&self) -> Option<(usize, usize)> {
        match self.call.op {
            Op::Swizzle => match self.call.inputs.get("scales")?.shape[..] {
                [rows, cols] => Some((rows, cols)),
                _ => None,
            },
            Op::Quantize(q) if q.layout == ScaleLayout::Blocked => {
                match self.expected.get("elements")?.shape[..] {
                    [rows, cols] => Some((rows, cols / q.block.cols())),
                    _ => None,
                }
            }
            _ => None,
        }
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
    let mut asked = Asked { elements, by_case: BTreeMap::new(), whole: None, accuracy };
    let mut add = |kind, sites: &[Site]| {
        for site in sites {
            let entry = asked.by_case.entry(question.place(site).0);
            entry.or_insert((kind, Vec::new())).1.push(site.clone());
        }
    };
    let sites = wrong(&first);
    if !repeat {
        add(FailureKind::Mismatch, &sites);
        return Ok(asked);
    }
    let second = match once(backend, question, POISON[1])? {
        Ok(outputs) => outputs,
        Err(asked) => return Ok(asked),
    };
    if first == second {
        add(FailureKind::Mismatch, &sites);
    } else {
        let again = wrong(&second);
        let (stable, gone): (Vec<_>, Vec<_>) =
            sites.into_iter().partition(|site| again.contains(site));
        let new: Vec<_> = again.into_iter().filter(|site| !stable.contains(site)).collect();
        add(FailureKind::Unstable, &gone);
        add(FailureKind::Unstable, &new);
        add(FailureKind::Mismatch, &stable);
    }
    Ok(asked)
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
    let before = digest::of_tensors(&question.call.inputs);
    let answer = backend.execute(&question.call, question.options.convention, &mut outputs);
    let whole = |kind, message| Ok(Err(Asked::whole(kind, message)));
    if let Err(refusal) = answer {
        return refused(refusal).map(Err);
    }
    if let Err(error) = outputs.check_guards() {
        return whole(FailureKind::OutOfBounds, error.to_string());
    }
    if before != digest::of_tensors(&question.call.inputs) {
        let message = Refusal::InputsChanged("input".to_owned()).to_string();
        return whole(FailureKind::InputsChanged, message);
    }
    Ok(Ok(outputs.into_tensors()))
}
