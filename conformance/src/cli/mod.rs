//! The command line: what was asked, carried out by the library, and an exit code.

pub(crate) mod args;
mod bench;
mod certify;
mod explain;
mod fingerprint;
mod golden;
mod info;
mod list;
mod mutants;
mod repro;
mod roofline;
mod vectors;
mod verify;

use crate::usage_error::UsageError;
use args::{Cli, Command};
use mx_conformance::verdict::Exit;

/// Runs a command.
///
/// # Errors
/// [`UsageError`] within for what the user can mend; anything else is a defect.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Certify(args) => certify::run(args),
        Command::Golden(args) => golden::run(args),
        Command::Vectors(args) => vectors::run(args),
        Command::List(args) => list::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Repro(args) => repro::run(&args),
        Command::Fingerprint(args) => fingerprint::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Roofline(args) => roofline::run(&args),
    }
}

fn usage(message: impl Into<String>) -> anyhow::Error {
    UsageError(message.into()).into()
}
