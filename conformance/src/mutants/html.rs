//! The kill matrix as one HTML page without scripts or network.

use super::record::{LevelRecord, ModelRecord, MutantsRecord};
use maud::{DOCTYPE, Markup, html};

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;margin:2rem}\
table{border-collapse:collapse}td,th{padding:.1rem .4rem;text-align:left;vertical-align:top}\
th.v{writing-mode:vertical-rl;font-weight:normal;font-size:12px}\
td.n{text-align:right;font:12px ui-monospace,monospace}td.k{background:#d7ead9}td.a{background:#8fce9b}\
code{font:12px ui-monospace,monospace}.bad{color:#a51d1d}tr:hover td{outline:1px solid #bbb}";

/// The page.
pub fn render(record: &MutantsRecord) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "mxcert: kill matrix" }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { "Kill matrix" }
                p { "Fault models against vector classes, convention " code { (record.convention) } ", mxcert " (record.mxcert) ". A number is the profiles in which a class detects a model; dark where no other class does." }
                @if record.holds() { p { "The gate holds." } } @else {
                    p.bad { "The gate does not hold:" }
                    ul { @for objection in &record.objections { li.bad { (objection) } } }
                }
                @for level in &record.levels { (section(level)) }
            }
        }
    }
    .into_string()
}

fn section(level: &LevelRecord) -> Markup {
    let (pairs, killed) = level.pairs();
    let classes: Vec<_> = level.classes.iter().filter(|class| class.cases > 0).collect();
    html! {
        h2 { "Level " (level.level) }
        p {
            (level.detected()) " of " (level.counted().count()) " models detected, " (level.killed()) " in every profile; "
            (killed) " of " (pairs) " pairs of model and profile; " (level.cases) " cases, " (level.asked)
            " asked of all models together, in " (format!("{:.1}", level.seconds)) " s."
        }
        table {
            tr {
                th { "model" } th { "area" } th { "profiles" } th { "killed" } th { "equivalent" }
                @for class in &classes { th.v title=(class.aim) { (class.name) } }
                th { "stands for" }
            }
            @for model in &level.models { (row(model, &classes)) }
        }
        details {
            summary { "Classes" }
            table {
                tr { th { "class" } th { "cases" } th { "detects" } th { "pairs alone" } th { "models alone" } th { "reason to stay" } }
                @for class in &level.classes {
                    tr {
                        td { code { (class.name) } }
                        td.n { (class.cases) }
                        td.n { (class.detects) }
                        td.n { (class.alone_in) }
                        td { (class.alone.join(", ")) }
                        td { (class.reason.as_deref().unwrap_or("")) }
                    }
                }
            }
        }
        @if level.models.iter().any(|model| !model.equivalent.is_empty()) {
            details {
                summary { "Equivalent pairs" }
                table {
                    tr { th { "model" } th { "profile" } th { "shown over" } }
                    @for model in &level.models {
                        @for pair in &model.equivalent {
                            tr { td { (model.name) } td { code { (pair.profile) } } td { (pair.domain) } }
                        }
                    }
                }
            }
        }
    }
}

fn row(model: &ModelRecord, classes: &[&super::record::ClassRecord]) -> Markup {
    let alone = model.by_class.len() == 1;
    html! {
        tr {
            td title=(model.summary) { code { (model.name) } }
            td { (model.area) }
            td.n { (model.profiles) }
            td.n.bad[!model.is_killed()] { (model.killed) }
            td.n { (model.equivalent.len()) }
            @for class in classes {
                @match model.by_class.get(&class.name) {
                    Some(kills) if alone => td.n.a { (kills.profiles) },
                    Some(kills) => td.n.k { (kills.profiles) },
                    None => td {},
                }
            }
            td { (model.source) }
        }
    }
}
