//! What the vectors detect: every fault model against every vector class.
//!
//! Each model is asked as any external backend is: poisoned buffers, hashed inputs, repeated calls where a model remembers, and the
//! judge of external backends. Classes are asked one by one, so that what each detects by itself is known, and a model is asked no more
//! of a class in a cell once two of its cases failed.

mod gaps;
mod gate;
pub mod html;
mod matrix;
mod reasons;
pub mod record;
pub mod text;

pub use gaps::GAPS;
pub use gate::gate;
pub use reasons::REASONS;

use crate::ask::{Question, detect};
use crate::backend::{Backend, Fault};
use crate::backends::fault_model::{Faulty, Knowing};
use crate::capabilities::{Accumulate, Capabilities};
use crate::compare::Comparison;
use crate::fault_models::FaultModel;
use crate::judge::Judge;
use crate::progress::Progress;
use crate::record::Counts;
use crate::runner::{InternalError, Options};
use crate::selection::{Work, plan};
use crate::suite::Part;
use matrix::{Cell, Kills};
use mx_reference::convention::PROPAGATE;
use mx_reference::{Axis, ScaleLayout};
use mx_vectors::plan::Batch;
use mx_vectors::{Level, Op, cells::cells, classes};
use rayon::prelude::*;
use record::LevelRecord;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Failed cases that a model is asked for in each class of a cell, and that must come together in each profile.
pub const ENOUGH: u64 = 2;
/// Blocks of one call: few, so that a model which fails soon costs little.
const BLOCKS: u64 = 1 << 12;

/// Asks every model every case of a level, or as many as it takes.
///
/// # Errors
/// [`InternalError`] if the project's own implementations have no answer to a case.
pub fn measure(
    models: &[&'static FaultModel],
    level: Level,
    progress: &dyn Progress,
) -> Result<LevelRecord, InternalError> {
    let started = Instant::now();
    let work = |op: &Op| one_cell(models, *op, level, progress);
    let done: Vec<Cell> = cells().par_iter().map(work).collect::<Result<_, _>>()?;
    Ok(matrix::collect(models, level, done, started.elapsed()))
}

/// Number of cases of a level, for progress: each once, whoever is asked.
pub fn cases(level: Level) -> u64 {
    let of = |op: &Op| classes::ALL.iter().map(|class| class.count(op, level)).sum::<u64>();
    cells().iter().map(of).sum()
}

fn options() -> Options {
    Options {
        convention: &PROPAGATE,
        judge: Judge::Native,
        repeat_every: 1,
        jobs: 1,
        bisect_for: Duration::ZERO,
    }
}

/// Whether a model is asked in a cell. Classes have the same blocks for rows and for columns, and what is computed of one block does not
/// depend on where its scale is stored, so that of such models rows and tiles with plain scales say all.
fn asks(model: &FaultModel, op: &Op) -> bool {
    let elsewhere = match op {
        Op::Quantize(q) => q.layout != ScaleLayout::Plain || q.axis == Axis::Col,
        _ => false,
    };
    (model.applies)(op) && !(elsewhere && model.delta.is_of_blocks())
}

/// One model in one cell.
struct Subject {
    index: usize,
    backend: Faulty,
    kills: Kills,
}

fn one_cell(
    models: &[&'static FaultModel],
    op: Op,
    level: Level,
    progress: &dyn Progress,
) -> Result<Cell, InternalError> {
    let mut cell = Cell { prefix: op.prefix(), ..Cell::default() };
    let applying = models.iter().enumerate().filter(|(_, model)| asks(model, &op));
    // Questions depend on what is declared, so that models with one declaration share theirs.
    let mut groups: BTreeMap<String, (Accumulate, Vec<Subject>)> = BTreeMap::new();
    for (index, &model) in applying {
        let declared = model.accumulation();
        let group = groups.entry(declared.into()).or_insert_with(|| (declared, Vec::new()));
        group.1.push(Subject { index, backend: Faulty::new(model), kills: Kills::default() });
    }
    for (declared, mut subjects) in groups.into_values() {
        let claims = Capabilities { accumulate: Some(declared), ..Capabilities::default() };
        let op = claims.declared(op);
        if !claims.covers(&op) {
            continue;
        }
        for class in 0..classes::ALL.len() {
            let plans = plan([op], &classes::ALL[class..=class], level, &[], (1, 1));
            for work in plans.into_iter().flat_map(|plan| plan.works).flat_map(parts) {
                cell.cases += work.cases();
                cell.asked +=
                    one_work(&work, &cell.prefix, classes::ALL[class].name, &mut subjects)?;
                let counts = Counts { passed: work.cases(), ..Counts::default() };
                progress.advance(&cell.prefix, &counts);
            }
        }
        cell.kills.extend(subjects.into_iter().map(|subject| (subject.index, subject.kills)));
    }
    Ok(cell)
}

/// A work in calls of at most [`BLOCKS`] blocks.
fn parts(work: Work) -> Vec<Work> {
    fn cut(batch: Batch, into: &mut Vec<Work>) {
        match batch.halves() {
            Some(halves) if batch.len() > BLOCKS => {
                for half in halves {
                    cut(half, into);
                }
            }
            _ => into.push(Work::Blocks(batch)),
        }
    }
    match work {
        Work::Blocks(batch) => {
            let mut works = Vec::new();
            cut(batch, &mut works);
            works
        }
        single @ Work::Single { .. } => vec![single],
    }
}

/// Asks one work of every subject that its class has not detected enough of; how many cases were asked.
fn one_work(
    work: &Work,
    prefix: &str,
    class: &'static str,
    subjects: &mut [Subject],
) -> Result<u64, InternalError> {
    if subjects.iter().all(|subject| subject.kills.of(class) >= ENOUGH) {
        return Ok(0);
    }
    let question = Question::new(work, prefix, options())?;
    let comparison = question.comparison();
    let wide_work = question.wide_work();
    let mut wide = None;
    let mut asked = 0;
    for subject in subjects.iter_mut().filter(|subject| subject.kills.of(class) < ENOUGH) {
        if Part::of(&question, subject.backend.capabilities()) != Part::Asked {
            continue;
        }
        let delta = subject.backend.model().delta;
        asked += question.cases();
        let found = failed(&mut subject.backend, &question, &comparison, !delta.is_pure());
        subject.kills.add(class, found);
        if subject.kills.of(class) < ENOUGH
            && delta.sees_shapes()
            && let Some(work) = &wide_work
        {
            if wide.is_none() {
                wide = Some(question.widened(work)?);
            }
            let Some(wide) = &wide else { continue };
            let found = failed(&mut subject.backend, wide, &wide.comparison(), false);
            subject.kills.add(class, found);
        }
    }
    Ok(asked)
}

/// How many cases failed, and the id of the first.
fn failed(
    backend: &mut Faulty,
    question: &Question<'_>,
    comparison: &Comparison<'_>,
    repeat: bool,
) -> Result<(u64, Option<String>), Fault> {
    let right = question.expected();
    let mut knowing = Knowing { faulty: backend, right };
    let cases = detect(&mut knowing, question, comparison, repeat, ENOUGH as usize)?;
    Ok((cases.len() as u64, cases.first().map(|&first| question.id(first))))
}
