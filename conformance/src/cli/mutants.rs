//! `mxcert mutants`.

use super::certify::{is_stdout, json, print, write};
use super::usage;
use anyhow::Context;
use clap::Args;
use globset::Glob;
use mx_conformance::fault_models::{self, FaultModel};
use mx_conformance::mutants::record::{MutantsRecord, SCHEMA};
use mx_conformance::mutants::{cases, gate, html, measure, text};
use mx_conformance::progress::Meter;
use mx_conformance::verdict::Exit;
use mx_reference::convention::PROPAGATE;
use mx_vectors::Level;
use std::path::PathBuf;

/// Arguments of `mutants`.
#[derive(Debug, Args)]
pub(crate) struct MutantsArgs {
    /// Which models: names or globs over them (`mxcert list --faults`) [default: every one]
    #[arg(value_name = "FAULT")]
    faults: Vec<String>,
    /// smoke, standard or exhaustive [default: smoke and standard]
    #[arg(long, value_name = "L", value_parser = super::args::level)]
    level: Option<Level>,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Write the matrix as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Write it as an HTML page.
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &MutantsArgs) -> anyhow::Result<Exit> {
    let models = selected(&args.faults)?;
    let jobs = match args.jobs {
        Some(jobs) => jobs.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    rayon::ThreadPoolBuilder::new().num_threads(jobs).build_global().context("starting threads")?;
    let complete = models.len() == fault_models::all().count();
    let mut record = MutantsRecord {
        schema: SCHEMA.to_owned(),
        mxcert: env!("CARGO_PKG_VERSION").to_owned(),
        convention: PROPAGATE.name.to_owned(),
        complete,
        levels: Vec::new(),
        objections: Vec::new(),
    };
    let levels =
        args.level.map_or_else(|| vec![Level::Smoke, Level::Standard], |level| vec![level]);
    for level in levels {
        let meter = Meter::new(level.name(), cases(level));
        let measured = measure(&models, level, &meter);
        meter.finish();
        let measured = measured?;
        record.objections.extend(gate(&measured, complete));
        record.levels.push(measured);
    }
    if !is_stdout(args.json.as_deref()) && !is_stdout(args.html.as_deref()) {
        print(&text::render(&record))?;
    }
    if let Some(path) = &args.json {
        write(path, &json(&record)?)?;
    }
    if let Some(path) = &args.html {
        write(path, &html::render(&record))?;
    }
    Ok(if record.holds() { Exit::Conformant } else { Exit::NonConformant })
}

fn selected(patterns: &[String]) -> anyhow::Result<Vec<&'static FaultModel>> {
    if patterns.is_empty() {
        return Ok(fault_models::all().collect());
    }
    let mut globs = Vec::new();
    for pattern in patterns {
        let name = pattern.strip_prefix("fault:").unwrap_or(pattern);
        let glob = Glob::new(name).map_err(|e| usage(format!("`{pattern}` is no glob: {e}")))?;
        let glob = glob.compile_matcher();
        if !fault_models::all().any(|model| glob.is_match(model.name)) {
            let names: Vec<&str> = fault_models::all().map(|model| model.name).collect();
            let near = mx_conformance::suggest::nearest(name, &names);
            return Err(usage(format!(
                "no fault model is called `{name}`{near}; mxcert list --faults prints them"
            )));
        }
        globs.push(glob);
    }
    let wanted = |model: &&FaultModel| globs.iter().any(|glob| glob.is_match(model.name));
    Ok(fault_models::all().filter(wanted).collect())
}
