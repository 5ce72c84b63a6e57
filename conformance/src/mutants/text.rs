//! A measurement on a terminal.

use super::record::{LevelRecord, ModelRecord, MutantsRecord};
use std::fmt::Write;

/// The report: what survives, what each class is for, and the sums.
pub fn render(record: &MutantsRecord) -> String {
    let mut out = String::new();
    for level in &record.levels {
        // Writing to a String cannot fail.
        let _ = section(&mut out, level, record.complete);
    }
    for objection in &record.objections {
        let _ = writeln!(out, "OBJECTION {objection}");
    }
    let _ = writeln!(
        out,
        "{}",
        if record.holds() { "the gate holds" } else { "the gate does not hold" }
    );
    out
}

fn section(out: &mut String, level: &LevelRecord, complete: bool) -> std::fmt::Result {
    let (pairs, killed) = level.pairs();
    let counted = level.counted().count();
    writeln!(out, "level {}", level.level)?;
    for model in &level.models {
        line(out, model)?;
    }
    if complete {
        writeln!(
            out,
            "  classes: models detected, pairs of model and profile detected by no other, models detected by no other"
        )?;
        for class in level.classes.iter().filter(|class| class.cases > 0) {
            let alone = match (&class.alone[..], &class.reason) {
                ([], Some(reason)) => format!("none; {reason}"),
                ([], None) => "none".to_owned(),
                (alone, _) => alone.join(", "),
            };
            let (name, detects, pairs) = (&class.name, class.detects, class.alone_in);
            writeln!(out, "    {name:<20} {detects:>4} {pairs:>6}  {alone}")?;
        }
    }
    let gaps = level.models.iter().flat_map(|model| &model.survivors);
    let gaps = gaps.filter(|survivor| survivor.gap.is_some()).count();
    if gaps > 0 {
        writeln!(out, "  {gaps} pairs of model and profile are known gaps")?;
    }
    writeln!(
        out,
        "  {} of {counted} models detected, {} in every profile; {killed} of {pairs} pairs of model and profile",
        level.detected(),
        level.killed(),
    )?;
    writeln!(
        out,
        "  {} cases, {} asked of all models together, in {:.1} s",
        level.cases, level.asked, level.seconds
    )
}

fn line(out: &mut String, model: &ModelRecord) -> std::fmt::Result {
    let word = match (model.is_killed(), model.by_class.is_empty()) {
        (true, false) => "killed",
        (true, true) => "equivalent",
        (false, true) => "SURVIVES",
        (false, false) => "in part",
    };
    let equivalent = match model.equivalent.len() {
        0 => String::new(),
        n => format!(", {n} equivalent"),
    };
    let classes = match model.by_class.len() {
        0 => String::new(),
        1 => format!("  by {} alone", model.by_class.keys().next().map_or("", String::as_str)),
        n => format!("  by {n} classes"),
    };
    writeln!(
        out,
        "  {word:<10} {:<34} {:>3} of {} profiles{equivalent}{classes}",
        model.name, model.killed, model.profiles
    )?;
    let mut wanted: Vec<&str> =
        model.survivors.iter().filter_map(|survivor| survivor.gap.as_deref()).collect();
    wanted.dedup();
    for wanted in wanted {
        writeln!(out, "             known gap; it would take {wanted}")?;
    }
    Ok(())
}
