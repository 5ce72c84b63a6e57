//! `mxcert verify`.

use super::certify::{is_stdout, json, print, write};
use super::usage;
use clap::Args;
use mx_conformance::progress::{Meter, Quiet};
use mx_conformance::report::table;
use mx_conformance::verdict::Exit;
use mx_conformance::verify::{Checked, Options, cases, own_artifact, read, render, verify};
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Certificates, as `certify --out DIR` writes them.
    #[arg(value_name = "CERT.json", required_unless_present = "table")]
    certificates: Vec<PathBuf>,
    /// Check each certificate by itself alone: do not compute today's suites, which takes what answering their questions takes.
    #[arg(long)]
    no_suites: bool,
    /// Write what was found as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Print the certificates of a folder as a Markdown table, if each holds by itself; suites are not computed.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["certificates", "no_suites", "json"])]
    table: Option<PathBuf>,
}

pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<Exit> {
    if let Some(dir) = &args.table {
        return as_table(dir);
    }
    let mut all = Vec::new();
    for path in &args.certificates {
        let checked = check(path, !args.no_suites)?;
        if !is_stdout(args.json.as_deref()) {
            print(&render(&checked))?;
        }
        all.push(checked);
    }
    if let Some(path) = &args.json {
        write(path, &json(&all.iter().map(Checked::json).collect::<Vec<_>>())?)?;
    }
    Ok(Exit::of(all.iter().map(Checked::exit)))
}

fn check(path: &Path, suites: bool) -> anyhow::Result<Checked> {
    let file = path.display().to_string();
    let outcome = match read(path) {
        Ok(certificate) => {
            let options = Options { suites, own_artifact };
            let found = if suites {
                let meter = Meter::new(&file, cases(&certificate));
                let found = verify(&certificate, options, &meter)?;
                meter.finish();
                found
            } else {
                verify(&certificate, options, &Quiet)?
            };
            Ok((certificate, found))
        }
        Err(error) => Err(error),
    };
    Ok(Checked { file, outcome })
}

fn as_table(dir: &Path) -> anyhow::Result<Exit> {
    let entries =
        fs::read_dir(dir).map_err(|e| usage(format!("cannot read {}: {e}", dir.display())))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut certificates = Vec::new();
    for path in paths {
        let checked = check(&path, false)?;
        match checked.outcome {
            Ok((certificate, found)) if found.problems.is_empty() => certificates.push(certificate),
            _ => return Err(usage(render(&checked).trim_end().to_owned())),
        }
    }
    print(&table::render(&certificates))?;
    Ok(Exit::Conformant)
}
