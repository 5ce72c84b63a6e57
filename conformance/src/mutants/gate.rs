//! What must hold of a measurement.

use super::record::{ClassRecord, LevelRecord, ModelRecord};
use mx_vectors::Level;

/// The share of models of which smoke must detect something, in percent.
const SMOKE: usize = 90;
/// Names that an objection lists.
const NAMED: usize = 4;

/// Why a level does not hold; nothing if it does. What classes and levels as a whole must do is asked only where every model was.
pub fn gate(record: &LevelRecord, complete: bool) -> Vec<String> {
    match Level::from_name(&record.level) {
        Some(Level::Smoke) if complete => smoke(record).into_iter().collect(),
        Some(Level::Smoke) | None => broken(record).collect(),
        Some(Level::Standard | Level::Exhaustive) => {
            let models = record.models.iter().filter_map(survivor);
            let classes = record.classes.iter().filter(|_| complete).filter_map(without_reason);
            let closed =
                super::GAPS.iter().filter(|_| complete).filter_map(|gap| closed(record, gap));
            broken(record).chain(models).chain(classes).chain(closed).collect()
        }
    }
}

fn broken(record: &LevelRecord) -> impl Iterator<Item = String> {
    record.models.iter().filter_map(|model| {
        let first = model.faults.first()?;
        Some(format!("fault:{} has no answer to some calls: {first}", model.name))
    })
}

fn smoke(record: &LevelRecord) -> Option<String> {
    let (detected, all) = (record.detected(), record.counted().count());
    (detected * 100 < all * SMOKE)
        .then(|| format!("smoke detects {detected} of {all} models, fewer than {SMOKE} %"))
}

fn survivor(model: &ModelRecord) -> Option<String> {
    if let Some(profile) = model.contradicted.first() {
        return Some(format!(
            "fault:{} is claimed to compute the same in {profile} and does not",
            model.name
        ));
    }
    let unknown: Vec<_> = model.unknown().collect();
    let named: Vec<String> = unknown
        .iter()
        .take(NAMED)
        .map(|survivor| format!("{} ({} cases)", survivor.profile, survivor.failed))
        .collect();
    let more = unknown.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty())
        .then(|| format!("fault:{} survives in {}{rest}", model.name, named.join(", ")))
}

/// A gap that is written down and no longer there.
fn closed(record: &LevelRecord, [name, profiles, wanted]: &[&str; 3]) -> Option<String> {
    let open = record.models.iter().filter(|model| model.name == *name).any(|model| {
        model.survivors.iter().any(|survivor| survivor.gap.as_deref() == Some(*wanted))
    });
    (!open).then(|| format!("the gap of fault:{name} in {profiles} is closed: delete its entry"))
}

fn without_reason(class: &ClassRecord) -> Option<String> {
    (class.alone.is_empty() && class.reason.is_none()).then(|| {
        format!(
            "class {} alone detects nothing, and no reason to keep it is written down",
            class.name
        )
    })
}
