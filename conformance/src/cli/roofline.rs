//! `mxcert roofline`.

use super::certify::{is_stdout, json, print, write};
use super::usage;
use clap::Args;
use mx_conformance::roofline::{Gpu, Recipe, Shape, render, roofline};
use mx_conformance::verdict::Exit;
use std::path::PathBuf;

/// Arguments of `roofline`.
#[derive(Debug, Args)]
pub(crate) struct RooflineArgs {
    /// The GPU, in letters of either case.
    #[arg(long, value_name = "H100|H200|B200|MI300X", value_parser = Gpu::from_name)]
    gpu: &'static Gpu,
    /// Shapes of layers, `M,K,N` or `MxKxN`: M tokens of K features in, N out [default: squares from 1024 to 16384]
    #[arg(long, value_name = "M,K,N", num_args = 1.., value_parser = Shape::parse)]
    shapes: Vec<Shape>,
    /// mxfp8, `mxfp8_wgrad_with_hp`, `mxfp8_emulated`, mxfp4, `mxfp4_emulated`, or a name of torchao's for one of them.
    #[arg(long, value_name = "R", default_value = "mxfp8", value_parser = Recipe::from_name)]
    recipe: &'static Recipe,
    /// Write every part, in seconds, as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

pub(super) fn run(args: &RooflineArgs) -> anyhow::Result<Exit> {
    let shapes = if args.shapes.is_empty() { &Shape::SQUARES[..] } else { &args.shapes };
    let roofline =
        roofline(args.gpu, args.recipe, shapes).map_err(|error| usage(error.to_string()))?;
    if let Some(path) = &args.json {
        write(path, &json(&roofline)?)?;
    }
    if !is_stdout(args.json.as_deref()) {
        print(&render(&roofline))?;
    }
    Ok(Exit::Conformant)
}
