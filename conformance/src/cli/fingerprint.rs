//! `mxcert fingerprint`.

use super::certify::{is_stdout, json, print, write};
use super::usage;
use clap::Args;
use mx_conformance::backend::Refusal;
use mx_conformance::backends::{Opened, Spec};
use mx_conformance::capabilities::Capabilities;
use mx_conformance::fingerprint::{Operands, askable, claimed, fingerprint_of};
use mx_conformance::progress::say;
use mx_conformance::suggest::nearest;
use mx_conformance::verdict::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `fingerprint`.
#[derive(Debug, Args)]
pub(crate) struct FingerprintArgs {
    /// reference, native, cuda, cublaslt:MODE or cmd:COMMAND.
    #[arg(long, value_name = "B")]
    backend: Spec,
    /// Kinds of operands: fp8, bf16, f16, mx-e4m3 ... mx-int8, nvfp4 [default: every kind that the backend claims]
    #[arg(long, value_name = "KIND", num_args = 1.., value_parser = operands)]
    operands: Vec<Operands>,
    /// The longest contraction that is asked for.
    #[arg(long, value_name = "K", default_value = "4096", value_parser = clap::value_parser!(u16).range(128..=16384))]
    k: u16,
    /// Deadline of each request to an external backend, such as 60s, 500ms or 2m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::args::duration)]
    timeout: Duration,
    /// Write the fingerprints as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

fn operands(text: &str) -> Result<Operands, String> {
    let names = Operands::ALL.map(Operands::name);
    Operands::from_name(text).ok_or_else(|| {
        format!("unknown kind `{text}`{}; known: {}", nearest(text, &names), names.join(", "))
    })
}

/// What is claimed; where that is nothing, what can be asked.
fn default_kinds(claims: &Capabilities) -> Vec<Operands> {
    match claimed(claims) {
        none if none.is_empty() => askable(claims),
        kinds => kinds,
    }
}

pub(super) fn run(args: &FingerprintArgs) -> anyhow::Result<Exit> {
    let mut backend = match args.backend.open(args.timeout) {
        Ok(Opened::Ready(backend)) => backend,
        Ok(Opened::Absent(reason)) => {
            print(&format!("{}: {reason}\n", args.backend))?;
            return Ok(Exit::NothingEstablished);
        }
        Err(fault) => {
            say!("error: {}: {fault}", args.backend);
            return Ok(Exit::Fault);
        }
    };
    let askable = askable(backend.capabilities());
    if let Some(other) = args.operands.iter().find(|kind| !askable.contains(kind)) {
        let names: Vec<&str> = askable.iter().map(|kind| kind.name()).collect();
        return Err(usage(format!(
            "{} does not claim products of {} to f32; it claims {}",
            args.backend,
            other.name(),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        )));
    }
    let kinds = match &args.operands[..] {
        [] => default_kinds(backend.capabilities()),
        given => given.to_vec(),
    };
    if kinds.is_empty() {
        print(&format!("{} claims no matrix product to f32\n", args.backend))?;
        return Ok(Exit::NothingEstablished);
    }
    let (mut found, mut exit) = (Vec::new(), Exit::Conformant);
    for kind in kinds {
        say!("asking {} for products of {} ...", args.backend, kind.name());
        match fingerprint_of(backend.as_mut(), kind, args.k.into()) {
            Ok(fingerprint) => {
                if !fingerprint.adds {
                    exit = Exit::NothingEstablished;
                }
                found.push(fingerprint);
            }
            Err(Refusal::Unsupported(reason)) => {
                say!("{}: {}: unsupported: {reason}", args.backend, kind.name());
                exit = Exit::NonConformant;
            }
            Err(refusal) => {
                say!("error: {}: {}: {refusal}", args.backend, kind.name());
                exit = Exit::Fault;
                break;
            }
        }
    }
    if let Some(path) = &args.json {
        write(path, &json(&found)?)?;
    }
    if !is_stdout(args.json.as_deref()) {
        let texts: Vec<String> =
            found.iter().map(|found| format!("{}\n", found.to_string().trim_end())).collect();
        print(&texts.join("\n"))?;
    }
    Ok(exit)
}
