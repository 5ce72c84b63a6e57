//! `mxcert bench`.

use super::certify::{is_stdout, json, print, write};
use super::usage;
use clap::Args;
use mx_benches::measure::Effort;
use mx_benches::product::Layer;
use mx_benches::report::{self, Request};
use mx_conformance::roofline::{self, Recipe, Shape, estimate_groups};
use mx_conformance::suggest::nearest;
use mx_conformance::verdict::Exit;
use mx_gpu::layer::Preference;
use mx_gpu::{Gpu, GpuError};
use std::path::PathBuf;

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure [default: all of it]
    #[arg(value_name = "casts|gemms|layers", value_parser = ["casts", "gemms", "layers"])]
    what: Vec<String>,
    /// Rows and columns of the tensor that is cast.
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(32..=65536))]
    size: u32,
    /// The largest square product and layer, from 1024 on.
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1024..=32768))]
    largest: u32,
    /// auto, emulated, mx-blocks or cublaslt-bf16: what multiplies in layers, linear and grouped alike.
    #[arg(long, value_name = "K", default_value = "auto", value_parser = kernel)]
    kernel: &'static str,
    /// Timed runs, of which the median counts.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write everything measured as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Draw the casts against the line of the copy.
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
}

fn kernel(name: &str) -> Result<&'static str, String> {
    let names = Preference::names();
    names.iter().copied().find(|known| *known == name).ok_or_else(|| {
        format!("unknown kernel `{name}`{}; known: {}", nearest(name, &names), names.join(", "))
    })
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<Exit> {
    let gpu = match Gpu::open(0)
        .and_then(|gpu| mx_gpu::probe::compiler().map(|_| gpu).map_err(GpuError::from))
    {
        Ok(gpu) => gpu,
        Err(GpuError::Missing(missing)) => {
            print(&format!("nothing to measure here: {missing}\n"))?;
            return Ok(Exit::NothingEstablished);
        }
        Err(error) => return Ok(fault(&error)),
    };
    let asked = |what: &str| args.what.is_empty() || args.what.iter().any(|given| given == what);
    let size_if = |what: &str, size: u32| if asked(what) { size as usize } else { 0 };
    if !args.size.is_multiple_of(32) {
        return Err(usage(format!("--size must be whole blocks of 32, got {}", args.size)));
    }
    let request = Request {
        casts: size_if("casts", args.size),
        gemms: size_if("gemms", args.largest),
        layers: size_if("layers", args.largest),
        kernel: args.kernel,
        effort: Effort { runs: args.runs as usize, ..Effort::USUAL },
    };
    let say = |what: &str| mx_conformance::progress::say!("measuring {what}");
    let report = match report::run(&gpu, request, &say) {
        Ok(report) => report,
        Err(error) => return Ok(fault(&error)),
    };
    if let Some(path) = &args.json {
        write(path, &json(&report)?)?;
    }
    if let Some(path) = &args.svg {
        write(path, &report.svg())?;
    }
    if !is_stdout(args.json.as_deref()) {
        print(&report.table(&|layer| predicted(gpu.name(), layer)))?;
    }
    Ok(Exit::Conformant)
}

fn fault(error: &GpuError) -> Exit {
    mx_conformance::progress::say!("error: {error}");
    Exit::Fault
}

/// The speed-up that the roofline gives a layer on this device, casts not fused.
fn predicted(device: &str, layer: &Layer) -> Option<f64> {
    let gpu = roofline::Gpu::ALL.into_iter().find(|gpu| device.contains(gpu.name))?;
    let preference = Preference::from_name(layer.kernel)?;
    let recipe = match preference.kernel() {
        mx_gpu::layer::Kernel::Blocks => "mxfp8",
        mx_gpu::layer::Kernel::Bf16 => "mxfp8_emulated",
    };
    let [m, k, n] = layer.shape.map(|length| length as u32);
    let recipe = Recipe::from_name(recipe).ok()?;
    let groups = u32::try_from(layer.groups).ok()?;
    Some(estimate_groups(gpu, recipe, Shape { m, k, n }, groups).ok()?.speedup.unfused)
}
