//! Everything a measurement found out; reports are projections of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`MutantsRecord`].
pub const SCHEMA: &str = "mxcert-mutants/1";

/// A measurement of the vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MutantsRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of mxcert.
    pub mxcert: String,
    /// The convention that models were held to.
    pub convention: String,
    /// Whether every model was asked; what classes are for can be told from nothing less.
    pub complete: bool,
    /// One entry per level.
    pub levels: Vec<LevelRecord>,
    /// Why the gate does not hold; empty if it does.
    pub objections: Vec<String>,
}

/// A level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelRecord {
    /// Its name.
    pub level: String,
    /// Its cases in the cells of the models that were asked, for each declared accumulation.
    pub cases: u64,
    /// Cases asked, of all models together.
    pub asked: u64,
    /// How long it took.
    pub seconds: f64,
    /// One entry per model.
    pub models: Vec<ModelRecord>,
    /// One entry per vector class.
    pub classes: Vec<ClassRecord>,
}

/// A fault model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Its name.
    pub name: String,
    /// Where in an implementation it sits.
    pub area: String,
    /// What it does wrong.
    pub summary: String,
    /// The public report that it stands for.
    pub source: String,
    /// Profiles (`op/element/mode/input`) that it is a fault of.
    pub profiles: u64,
    /// Those of them in which at least two cases fail.
    pub killed: u64,
    /// Those in which it is proven to compute the same.
    pub equivalent: Vec<EquivalentRecord>,
    /// Those in which fewer than two cases fail.
    pub survivors: Vec<SurvivorRecord>,
    /// Those in which it is claimed to compute the same and does not.
    pub contradicted: Vec<String>,
    /// Cells in which no case fails; a profile may be detected in another of its cells.
    pub silent_cells: Vec<String>,
    /// Calls that had no answer: a defect of the model.
    pub faults: Vec<String>,
    /// The first case that fails.
    pub first: Option<String>,
    /// What each class detects, by its name. Counting stops at two cases in each cell.
    pub by_class: BTreeMap<String, ClassKills>,
}

/// What a class detects of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassKills {
    /// Profiles in which a case of the class fails.
    pub profiles: u64,
    /// Failed cases, at most some in each cell.
    pub cases: u64,
}

/// A profile in which a model computes the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EquivalentRecord {
    /// The profile.
    pub profile: String,
    /// The domain over which that is shown.
    pub domain: String,
}

/// A profile in which a model is not found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivorRecord {
    /// The profile.
    pub profile: String,
    /// How many cases failed.
    pub failed: u64,
    /// What would detect it, where that is known and waits.
    pub gap: Option<String>,
}

/// A vector class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassRecord {
    /// Its name.
    pub name: String,
    /// What it aims at.
    pub aim: String,
    /// Its cases at this level.
    pub cases: u64,
    /// Models of which it detects something.
    pub detects: u64,
    /// Models that no other class detects.
    pub alone: Vec<String>,
    /// Pairs of model and profile that no other class detects.
    pub alone_in: u64,
    /// Why it is there although others detect all that it does.
    pub reason: Option<String>,
}

impl LevelRecord {
    /// Models that compute another thing in some profile.
    pub fn counted(&self) -> impl Iterator<Item = &ModelRecord> {
        self.models.iter().filter(|model| (model.equivalent.len() as u64) < model.profiles)
    }

    /// Models that are found in every profile in which they compute another thing.
    pub fn killed(&self) -> usize {
        self.counted().filter(|model| model.is_killed()).count()
    }

    /// Models of which at least one case fails.
    pub fn detected(&self) -> usize {
        self.counted().filter(|model| !model.by_class.is_empty()).count()
    }

    /// Pairs of model and profile, without those that are equivalent, and how many of them are found.
    pub fn pairs(&self) -> (u64, u64) {
        let all = self.models.iter().map(|m| m.profiles - m.equivalent.len() as u64).sum();
        (all, self.models.iter().map(|model| model.killed).sum())
    }
}

impl ModelRecord {
    /// Profiles in which it survives and nobody knew.
    pub fn unknown(&self) -> impl Iterator<Item = &SurvivorRecord> {
        self.survivors.iter().filter(|survivor| survivor.gap.is_none())
    }

    /// Whether it is found in every profile in which it computes another thing.
    pub fn is_killed(&self) -> bool {
        self.survivors.is_empty() && self.contradicted.is_empty() && self.faults.is_empty()
    }
}

impl MutantsRecord {
    /// Whether the gate holds.
    pub fn holds(&self) -> bool {
        self.objections.is_empty()
    }
}
