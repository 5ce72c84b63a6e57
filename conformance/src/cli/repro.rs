//! `mxcert repro`.

use super::args::ReproArgs;
use super::certify::print;
use super::usage;
use mx_conformance::ask::{Question, ask, refused};
use mx_conformance::backend::Backend;
use mx_conformance::backends::Opened;
use mx_conformance::capabilities::Capabilities;
use mx_conformance::explain::{explain, explain_output};
use mx_conformance::record::Failure;
use mx_conformance::report::count;
use mx_conformance::report::text::{render_failure, style};
use mx_conformance::runner::Options;
use mx_conformance::selection::{CellPlan, Filter, Work, plan};
use mx_conformance::unmatched::unmatched;
use mx_conformance::verdict::{Exit, Verdict};
use mx_reference::Profile;
use mx_vectors::{Level, cells::cells, classes};
use std::fmt::Write;

pub(super) fn run(args: &ReproArgs) -> anyhow::Result<Exit> {
    let mut backend = match args.backend.open(args.timeout) {
        Ok(Opened::Ready(backend)) => backend,
        Ok(Opened::Absent(reason)) => {
            print(&format!("{}: {reason}\n", args.backend))?;
            return Ok(Exit::NothingEstablished);
        }
        Err(fault) => {
            mx_conformance::progress::say!("error: {}: {fault}", args.backend);
            return Ok(Exit::Fault);
        }
    };
    let cell = find(&args.case, backend.capabilities())?;
    let options = Options {
        convention: args.convention,
        judge: args.backend.judge(),
        repeat_every: 1,
        jobs: 1,
        bisect_for: args.timeout,
    };
    let mut text = String::new();
    let (question, algorithm) =
        Question::to(backend.as_mut(), &cell.works[0], &cell.prefix, options)?;
    writeln!(text, "{}", question.id(0))?;
    if let Work::Blocks(batch) = &cell.works[0] {
        let q = batch.op;
        let block = question.blocks()[0];
        let profile = Profile { element: q.element, mode: q.mode, convention: args.convention };
        text += &explain(profile, q.input, &block);
    } else {
        for (name, tensor) in &question.call().inputs {
            writeln!(text, "  {name}: shape {:?}", tensor.shape)?;
        }
    }
    let outside = !backend.capabilities().covers_call(question.call())
        || !backend.capabilities().covers_convention(args.convention);
    let (verdict, exit) = if outside {
        writeln!(text, "outside what {} claims", args.backend)?;
        (Verdict::NotEstablished, Exit::NothingEstablished)
    } else {
        let answer = match algorithm {
            Ok(algorithm) => {
                if let Some(name) = &algorithm.name {
                    writeln!(text, "  {name}")?;
                }
                ask(backend.as_mut(), &question, true)
            }
            Err(refusal) => refused(refusal),
        };
        match answer {
            Ok(asked) if asked.is_clean() => {
                if asked.unsteady > 0 {
                    let elements = count(asked.unsteady, "element");
                    writeln!(
                        text,
                        "nondeterministic: two calls differ in {elements}, each within what it is held to"
                    )?;
                }
                match wide(backend.as_mut(), &question)? {
                    None => (Verdict::Conformant, Exit::Conformant),
                    Some(failure) => {
                        writeln!(text, "right alone, wrong with several blocks side by side:")?;
                        render_failure(&mut text, &failure)?;
                        (Verdict::NonConformant, Exit::NonConformant)
                    }
                }
            }
            Ok(asked) => {
                if let Some(failure) = question.first_failure(asked) {
                    render_failure(&mut text, &failure)?;
                    let site = failure.sites.first();
                    let terms =
                        site.and_then(|site| explain_output(question.call(), site.at as usize));
                    text += &terms.unwrap_or_default();
                }
                (Verdict::NonConformant, Exit::NonConformant)
            }
            Err(fault) => {
                writeln!(text, "{fault}")?;
                (Verdict::NotEstablished, Exit::Fault)
            }
        }
    };
    let style = style(verdict);
    writeln!(text, "{}: {style}{}{style:#} on this case", args.backend, verdict.word())?;
    print(&text)?;
    Ok(exit)
}

/// The first failure of the case where its block fills a wide tensor.
fn wide(backend: &mut dyn Backend, question: &Question<'_>) -> anyhow::Result<Option<Failure>> {
    let Some(work) = question.wide_work() else { return Ok(None) };
    let wide = question.widened(&work)?;
    Ok(match ask(backend, &wide, false) {
        Ok(asked) if !asked.is_clean() => wide.first_failure(asked),
        // A fault here is one of the tensor and not of the case; certify reports it.
        _ => None,
    })
}

/// The one case of that id.
fn find(id: &str, claims: &Capabilities) -> anyhow::Result<CellPlan> {
    let filter = Filter::parse(id).map_err(|error| usage(error.to_string()))?;
    let cells = cells().into_iter().map(|op| claims.declared(op));
    let multiple = claims.multiple();
    let filters = [filter];
    let mut plans = plan(cells, &classes::ALL, Level::Exhaustive, &filters, multiple);
    let cases: u64 = plans.iter().flat_map(|plan| &plan.works).map(Work::cases).sum();
    match (cases, plans.pop()) {
        (1, Some(cell)) => Ok(cell),
        (0, _) => {
            let why = unmatched(&filters, Level::Exhaustive, claims.accumulate);
            Err(usage(why.unwrap_or_else(|| format!("`{id}` names no case"))))
        }
        _ => Err(usage(format!("`{id}` names {cases} cases; give one, with its #number"))),
    }
}
