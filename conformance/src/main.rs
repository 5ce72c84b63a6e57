//! `mxcert`: the command line of the MX reference and certifier.

#![forbid(unsafe_code)]

mod cli;
mod usage_error;

use clap::Parser;
use mx_conformance::verdict::Exit;
use std::process::ExitCode;
use usage_error::UsageError;

fn main() -> ExitCode {
    let cli = cli::args::Cli::parse();
    let exit = match cli::run(cli) {
        Ok(exit) => exit,
        Err(error) => {
            mx_conformance::progress::say!("error: {error:#}");
            if error.is::<UsageError>() { Exit::Usage } else { Exit::Internal }
        }
    };
    ExitCode::from(u8::from(exit))
}
