//! `mxcert list`.

use super::args::ListArgs;
use super::certify::print;
use super::usage;
use mx_conformance::fault_models::{self, FaultModel};
use mx_conformance::progress::say;
use mx_conformance::selection::Work;
use mx_conformance::unmatched::{declared, matched, unmatched};
use mx_conformance::verdict::Exit;
use mx_reference::gemm::Model;
use mx_reference::{Convention, ScaleMode};
use mx_vectors::classes;
use serde_json::{Value, json};
use std::fmt::Write;

/// Ids that are listed at most.
const MOST: u64 = 5_000_000;

pub(super) fn run(args: &ListArgs) -> anyhow::Result<Exit> {
    let (rows, lines): (Vec<Value>, String) = if args.conventions {
        conventions()
    } else if args.modes {
        modes()
    } else if args.models {
        models()
    } else if args.faults {
        faults()
    } else {
        cases(args)?
    };
    if args.json {
        print(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    } else {
        print(&lines)?;
    }
    let why = match &args.filter {
        Some(filter) if lines.is_empty() => {
            unmatched(std::slice::from_ref(filter), args.level, args.accumulate)
        }
        _ => None,
    };
    let Some(why) = why else { return Ok(Exit::Conformant) };
    say!("{why}");
    // As `certify` with such a filter.
    Ok(Exit::NothingEstablished)
}

fn conventions() -> (Vec<Value>, String) {
    let row = |c: &&Convention| json!({"name": c.name, "summary": c.summary, "source": c.source});
    let line = |c: &&Convention| {
        format!("{:<14} {}\n{:<14} source: {}\n", c.name, c.summary, "", c.source)
    };
    (Convention::ALL.iter().map(row).collect(), Convention::ALL.iter().map(line).collect())
}

fn modes() -> (Vec<Value>, String) {
    let row = |m: ScaleMode| json!({"name": m.name(), "exponent": m.formula()});
    let line = |m: ScaleMode| format!("{:<6} 2^({})\n", m.name(), m.formula());
    (ScaleMode::ALL.map(row).into(), ScaleMode::ALL.map(line).concat())
}

fn models() -> (Vec<Value>, String) {
    let row = |m: Model| {
        let (standing, source) = (m.standing().name(), m.source());
        json!({"name": m.name(), "standing": standing, "source": source})
    };
    let line = |m: Model| format!("{:<22} {:<11} {}\n", m.name(), m.standing().name(), m.source());
    (Model::ALL.map(row).into(), Model::ALL.map(line).concat())
}

fn faults() -> (Vec<Value>, String) {
    let row = |m: &FaultModel| json!({"name": m.name, "area": m.area.name(), "summary": m.summary, "source": m.source});
    let line = |m: &FaultModel| {
        format!(
            "{:<34} {}: {}\n{:<34} source: {}\n",
            m.name,
            m.area.name(),
            m.summary,
            "",
            m.source
        )
    };
    (fault_models::all().map(row).collect(), fault_models::all().map(line).collect())
}

fn cases(args: &ListArgs) -> anyhow::Result<(Vec<Value>, String)> {
    let (mut rows, mut lines) = (Vec::new(), String::new());
    match &args.filter {
        None => {
            for op in declared(args.accumulate) {
                for class in &classes::ALL {
                    let cases = class.count(&op, args.level);
                    if cases > 0 {
                        let id = format!("{}/{}", op.prefix(), class.name);
                        writeln!(lines, "{id}  {cases}")?;
                        rows.push(json!({"id": id, "cases": cases, "aim": class.aim}));
                    }
                }
            }
        }
        Some(filter) => {
            let filters = std::slice::from_ref(filter);
            let plans = matched(filters, args.level, args.accumulate);
            let cases: u64 = plans.iter().flat_map(|cell| &cell.works).map(Work::cases).sum();
            if cases > MOST {
                let text = filter.text();
                return Err(usage(format!(
                    "`{text}` names {cases} cases, more than the {MOST} that are listed; narrow it"
                )));
            }
            for cell in plans {
                for work in &cell.works {
                    for ordinal in 0..work.cases() {
                        let id = work.id(&cell.prefix, ordinal);
                        writeln!(lines, "{id}")?;
                        if args.json {
                            rows.push(id.into());
                        }
                    }
                }
            }
        }
    }
    Ok((rows, lines))
}
