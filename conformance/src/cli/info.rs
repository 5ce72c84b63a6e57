//! `mxcert info`.

use super::args::InfoArgs;
use super::certify::print;
use mx_conformance::backends::{Opened, Spec};
use mx_conformance::verdict::Exit;
use mx_gpu::Probe;
use serde_json::json;
use std::fmt::Write;

pub(super) fn run(args: &InfoArgs) -> anyhow::Result<Exit> {
    match &args.backend {
        Some(spec) => backend(args, spec),
        None => build(args),
    }
}

fn backend(args: &InfoArgs, spec: &Spec) -> anyhow::Result<Exit> {
    let backend = match spec.open(args.timeout) {
        Ok(Opened::Ready(backend)) => backend,
        Ok(Opened::Absent(reason)) => {
            print(&format!("{spec}: {reason}\n"))?;
            return Ok(Exit::NothingEstablished);
        }
        Err(fault) => {
            mx_conformance::progress::say!("error: {spec}: {fault}");
            return Ok(Exit::Fault);
        }
    };
    let (identity, claims) = (backend.identity(), backend.capabilities());
    let value = json!({"spec": spec.to_string(), "identity": identity, "claims": claims, "judge": spec.judge().name()});
    if args.json {
        print(&(serde_json::to_string_pretty(&value)? + "\n"))?;
        return Ok(Exit::Conformant);
    }
    let or_not = |text: &Option<String>| text.clone().unwrap_or_else(|| "not stated".to_owned());
    let mut text = format!("{spec}: {} {}\n", identity.name, identity.version);
    writeln!(text, "  artifact    {}", or_not(&identity.artifact))?;
    writeln!(text, "  device      {}", or_not(&identity.device))?;
    writeln!(text, "  judge       {}", spec.judge().name())?;
    if let serde_json::Value::Object(claims) = &value["claims"] {
        for (name, claim) in claims {
            writeln!(text, "  {name:<11} {claim}")?;
        }
    }
    print(&text)?;
    Ok(Exit::Conformant)
}

fn build(args: &InfoArgs) -> anyhow::Result<Exit> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<_> = Spec::found().iter().map(ToString::to_string).collect();
    let probe = Probe::new();
    let device = match &probe.device {
        Ok(found) => {
            let ((major, minor), driver) = (found.capability, found.driver);
            let cuda = (driver / 1000, driver % 1000 / 10);
            format!(
                "{}, compute capability {major}.{minor}, driver for CUDA {}.{}",
                found.name, cuda.0, cuda.1
            )
        }
        Err(missing) => missing.to_string(),
    };
    let nvrtc = match &probe.nvrtc {
        Ok((major, minor)) => format!("{major}.{minor}"),
        Err(missing) => missing.to_string(),
    };
    let cublaslt = match &probe.cublaslt {
        Ok(version) => mx_gpu::probe::version_of(*version),
        Err(missing) => missing.to_string(),
    };
    let value = json!({
        "mxcert": env!("CARGO_PKG_VERSION"),
        "target": std::env::consts::ARCH,
        "threads": threads,
        "backends": found,
        "external": "cmd:COMMAND",
        "gpu": {
            "device": {"present": probe.device.is_ok(), "text": device},
            "nvrtc": {"present": probe.nvrtc.is_ok(), "text": nvrtc},
            "cublaslt": {"present": probe.cublaslt.is_ok(), "text": cublaslt},
            "kernels": mx_gpu::program::digest(),
        },
    });
    if args.json {
        print(&(serde_json::to_string_pretty(&value)? + "\n"))?;
        return Ok(Exit::Conformant);
    }
    print(&format!(
        "mxcert {} on {}, {threads} threads\n\
         backends here: {}\n\
         external:      cmd:COMMAND, any program that speaks the adapter protocol\n\
         GPU:           {device}\n\
         NVRTC:         {nvrtc}\n\
         cuBLASLt:      {cublaslt}\n\
         kernels:       {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        found.join(", "),
        mx_gpu::program::digest(),
    ))?;
    Ok(Exit::Conformant)
}
