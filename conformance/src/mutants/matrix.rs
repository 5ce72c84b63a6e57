//! From what each class detects in each cell to the kill matrix.

use super::ENOUGH;
use super::gaps::gap;
use super::record::{
    ClassKills, ClassRecord, EquivalentRecord, LevelRecord, ModelRecord, SurvivorRecord,
};
use crate::backend::Fault;
use crate::fault_models::{FaultModel, equivalence};
use mx_vectors::{Level, classes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What one cell came to.
#[derive(Debug, Default)]
pub(super) struct Cell {
    /// Its id.
    pub(super) prefix: String,
    /// Its cases.
    pub(super) cases: u64,
    /// Cases asked, of all models together.
    pub(super) asked: u64,
    /// By the model's place in the list.
    pub(super) kills: Vec<(usize, Kills)>,
}

/// Failed cases of one model in one cell, each class stopping when it has enough.
#[derive(Debug, Default)]
pub(super) struct Kills {
    by_class: BTreeMap<&'static str, u64>,
    first: Option<String>,
    faults: Vec<Fault>,
}

impl Kills {
    pub(super) fn of(&self, class: &str) -> u64 {
        self.by_class.get(class).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, class: &'static str, found: Result<(u64, Option<String>), Fault>) {
        match found {
            Ok((0, _)) => {}
            Ok((cases, first)) => {
                *self.by_class.entry(class).or_default() += cases;
                self.first = self.first.take().or(first);
            }
            Err(fault) => self.faults.push(fault),
        }
    }

    fn cases(&self) -> u64 {
        self.by_class.values().sum()
    }
}

/// `op/element/mode/input` of a cell: what a fault must be found in.
fn profile(prefix: &str) -> &str {
    prefix.rsplit_once('/').map_or(prefix, |(profile, _)| profile)
}

pub(super) fn collect(
    models: &[&'static FaultModel],
    level: Level,
    cells: Vec<Cell>,
    took: Duration,
) -> LevelRecord {
    let cases = cells.iter().map(|cell| cell.cases).sum();
    let asked = cells.iter().map(|cell| cell.asked).sum();
    let mut of_model: Vec<Vec<(String, Kills)>> = models.iter().map(|_| Vec::new()).collect();
    for cell in cells {
        for (index, kills) in cell.kills {
            of_model[index].push((cell.prefix.clone(), kills));
        }
    }
    let alone = alone(&of_model);
    let records: Vec<ModelRecord> =
        models.iter().zip(of_model).map(|(model, cells)| one(model, cells)).collect();
    let classes = classes(&records, &alone, level);
    LevelRecord {
        level: level.name().to_owned(),
        cases,
        asked,
        seconds: took.as_secs_f64(),
        models: records,
        classes,
    }
}

/// In how many pairs of model and profile each class is the only one that detects anything.
fn alone(of_model: &[Vec<(String, Kills)>]) -> BTreeMap<&'static str, u64> {
    let mut alone = BTreeMap::new();
    for cells in of_model {
        let mut profiles: BTreeMap<&str, BTreeSet<&'static str>> = BTreeMap::new();
        for (prefix, kills) in cells {
            profiles.entry(profile(prefix)).or_default().extend(kills.by_class.keys());
        }
        for classes in profiles.into_values().filter(|classes| classes.len() == 1) {
            for class in classes {
                *alone.entry(class).or_default() += 1;
            }
        }
    }
    alone
}

fn one(model: &FaultModel, cells: Vec<(String, Kills)>) -> ModelRecord {
    let mut profiles: BTreeMap<String, u64> = BTreeMap::new();
    let mut by_class: BTreeMap<String, (BTreeSet<String>, u64)> = BTreeMap::new();
    let (mut first, mut faults, mut silent) = (None, BTreeSet::new(), Vec::new());
    for (prefix, kills) in cells {
        let of = profile(&prefix);
        let entry = profiles.entry(of.to_owned()).or_default();
        *entry += kills.cases();
        if kills.cases() == 0 {
            silent.push(prefix.clone());
        }
        for (class, cases) in &kills.by_class {
            let entry = by_class.entry((*class).to_owned()).or_default();
            entry.0.insert(of.to_owned());
            entry.1 += cases;
        }
        first = first.or(kills.first);
        faults.extend(kills.faults.iter().map(Fault::to_string));
    }
    let (mut equivalent, mut survivors, mut contradicted) = (Vec::new(), Vec::new(), Vec::new());
    let mut killed = 0;
    for (profile, &cases) in &profiles {
        let claim = equivalence::claim(model.name, profile);
        match claim {
            Some(_) if cases > 0 => contradicted.push(profile.clone()),
            Some(claim) => equivalent.push(EquivalentRecord {
                profile: profile.clone(),
                domain: claim.domain.describe().to_owned(),
            }),
            None if cases >= ENOUGH => killed += 1,
            None => survivors.push(SurvivorRecord {
                profile: profile.clone(),
                failed: cases,
                gap: gap(model.name, profile).map(str::to_owned),
            }),
        }
    }
    ModelRecord {
        name: model.name.to_owned(),
        area: model.area.name().to_owned(),
        summary: model.summary.to_owned(),
        source: model.source.to_owned(),
        profiles: profiles.len() as u64,
        killed,
        equivalent,
        survivors,
        contradicted,
        silent_cells: silent,
        faults: faults.into_iter().collect(),
        first,
        by_class: by_class
            .into_iter()
            .map(|(class, (profiles, cases))| {
                (class, ClassKills { profiles: profiles.len() as u64, cases })
            })
            .collect(),
    }
}

fn classes(
    models: &[ModelRecord],
    pairs: &BTreeMap<&'static str, u64>,
    level: Level,
) -> Vec<ClassRecord> {
    let record = |class: &mx_vectors::Class| {
        let kills = |model: &&ModelRecord| model.by_class.contains_key(class.name);
        let detected: Vec<&ModelRecord> = models.iter().filter(kills).collect();
        let alone = detected.iter().filter(|model| model.by_class.len() == 1);
        let reason = super::REASONS.iter().find(|(name, _)| *name == class.name);
        let cells = mx_vectors::cells::cells();
        ClassRecord {
            name: class.name.to_owned(),
            aim: class.aim.to_owned(),
            cases: cells.iter().map(|op| class.count(op, level)).sum(),
            detects: detected.len() as u64,
            alone: alone.map(|model| model.name.clone()).collect(),
            alone_in: pairs.get(class.name).copied().unwrap_or(0),
            reason: reason.map(|(_, reason)| (*reason).to_owned()),
        }
    };
    classes::ALL.iter().map(record).collect()
}
