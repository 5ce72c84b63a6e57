//! `mxcert certify`.

use super::args::CertifyArgs;
use super::usage;
use anyhow::Context;
use mx_conformance::backends::Spec;
use mx_conformance::certify::{Request, certify};
use mx_conformance::record::RunRecord;
use mx_conformance::report::{certificate::Certificate, html, junit, markdown, text};
use mx_conformance::verdict::Exit;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) fn run(args: CertifyArgs) -> anyhow::Result<Exit> {
    let targets = [&args.json, &args.junit, &args.html, &args.markdown];
    let to_stdout = targets.iter().filter(|path| is_stdout(path.as_deref())).count();
    if to_stdout > 1 {
        return Err(usage("only one report can go to standard output"));
    }
    if let Some(dir) = &args.out {
        forget_certificates(dir);
    }
    for path in targets.into_iter().flatten().filter(|path| !is_stdout(Some(path))) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            return Err(usage(format!(
                "cannot write {}: {} is no folder",
                path.display(),
                folder.display()
            )));
        }
    }
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir)
            .map_err(|e| usage(format!("cannot create {}: {e}", dir.display())))?;
    }
    let jobs = match args.jobs {
        Some(jobs) => jobs.into(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    rayon::ThreadPoolBuilder::new().num_threads(jobs).build_global().context("starting threads")?;
    let request = Request {
        backends: if args.backends.is_empty() { Spec::found() } else { args.backends }
            .into_iter()
            .flat_map(Spec::each)
            .collect(),
        convention: args.convention,
        level: args.level,
        filters: args.filters,
        timeout: args.timeout,
        jobs,
        fingerprint: !args.no_fingerprint,
        progress: true,
    };
    let run = certify(&request)?;
    if to_stdout == 0 {
        print(&text::render(&run))?;
    }
    let out = |name: &str| args.out.as_ref().map(|dir| dir.join(name));
    let reports: [(Option<PathBuf>, Option<PathBuf>, Render); 4] = [
        (args.json, out("run.json"), |run| Ok(json(run)?)),
        (args.junit, out("junit.xml"), |run| Ok(junit::render(run)?)),
        (args.html, out("report.html"), |run| Ok(html::render(run))),
        (args.markdown, out("report.md"), |run| Ok(markdown::render(run))),
    ];
    for (asked, own, render) in reports {
        for path in asked.into_iter().chain(own) {
            write(&path, &render(&run)?)?;
        }
    }
    if let Some(dir) = &args.out {
        for (i, backend) in run.backends.iter().enumerate() {
            if let Some(certificate) = Certificate::of(request.convention, request.level, backend) {
                let name = file_name(
                    i,
                    certificate.statement.backend.as_ref().map_or("backend", |b| &b.name),
                );
                let path = dir.join(format!("certificate-{name}.json"));
                write(&path, &json(&certificate)?)?;
            }
        }
    }
    Ok(run.exit)
}

type Render = fn(&RunRecord) -> anyhow::Result<String>;

pub(super) fn json(value: &impl serde::Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

pub(super) fn is_stdout(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Removes what an earlier run certified into the same folder, so that none of it stands beside this run's record.
fn forget_certificates(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("certificate-") && name.ends_with(".json") {
            // What cannot be removed is overwritten or reported when this run's files are written.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A backend's name as part of a file name that no other backend of the run has.
fn file_name(index: usize, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.chars().take(64).map(plain).collect();
    if index == 0 { name } else { format!("{name}.{index}") }
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if is_stdout(Some(path)) {
        return print(text);
    }
    fs::write(path, text).map_err(|e| usage(format!("cannot write {}: {e}", path.display())))
}

/// Prints to standard output; a reader that has gone away is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(usage(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
