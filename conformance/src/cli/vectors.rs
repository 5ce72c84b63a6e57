//! `mxcert vectors`.

use super::args::{VectorsArgs, VectorsCheck, VectorsGenerate, VectorsOp};
use super::certify::print;
use super::usage;
use anyhow::Context;
use mx_conformance::verdict::Exit;
use mx_vectors::packs;
use std::fmt::Write;
use std::io::IsTerminal;

pub(super) fn run(args: VectorsArgs) -> anyhow::Result<Exit> {
    match args.op {
        VectorsOp::Generate(args) => generate(&args),
        VectorsOp::Check(args) => check(&args),
    }
}

fn generate(args: &VectorsGenerate) -> anyhow::Result<Exit> {
    let foreign = args.out.read_dir().is_ok_and(|mut files| files.next().is_some())
        && !args.out.join(packs::MANIFEST).exists();
    if foreign {
        let dir = args.out.display();
        return Err(usage(format!(
            "{dir} holds other files; name an empty folder or an older pack"
        )));
    }
    let jobs = args.jobs.unwrap_or(0).into();
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(jobs).build().context("starting threads")?;
    let manifest = pool
        .install(|| packs::generate(args.level, args.convention, &args.out, |_| true, say))
        .map_err(|error| usage(error.to_string()))?;
    let cases: u64 = manifest.files.iter().map(|file| file.cases).sum();
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    print(&format!(
        "{}: {} files, {cases} cases, {bytes} bytes, level {}, convention {}\n",
        args.out.display(),
        manifest.files.len(),
        args.level.name(),
        args.convention.name,
    ))?;
    Ok(Exit::Conformant)
}

/// How far generation is, on standard error: one line in place on a terminal, every 50 files elsewhere.
fn say(progress: packs::Progress<'_>) {
    let packs::Progress { done, total, path, .. } = progress;
    if std::io::stderr().is_terminal() {
        let end = if done == total { "\n" } else { "" };
        mx_conformance::progress::say!(@ "\r\x1b[K[{done}/{total}] {path}{end}");
    } else if done.is_multiple_of(50) || done == total {
        mx_conformance::progress::say!("[{done}/{total}] {path}");
    }
}

fn check(args: &VectorsCheck) -> anyhow::Result<Exit> {
    let report = packs::check(&args.out).map_err(|error| usage(error.to_string()))?;
    if let Some(level) = args.level.filter(|&level| level != report.level) {
        return Err(usage(format!(
            "{} holds level {}, expected {}",
            args.out.display(),
            report.level.name(),
            level.name()
        )));
    }
    let mut text = String::new();
    for finding in &report.findings {
        writeln!(text, "DIFFERS {finding}")?;
    }
    let state = if report.is_clean() {
        "every byte as regenerated"
    } else {
        "not what this version writes"
    };
    writeln!(
        text,
        "{}: {} files, {} bytes, level {}, convention {}: {state}",
        args.out.display(),
        report.files,
        report.bytes,
        report.level.name(),
        report.convention,
    )?;
    if !report.absent.is_empty() {
        writeln!(text, "{} files of the complete pack are not in it", report.absent.len())?;
    }
    print(&text)?;
    Ok(if report.is_clean() { Exit::Conformant } else { Exit::NonConformant })
}
