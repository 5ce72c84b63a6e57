//! The arguments, as in `mxcert --help`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use mx_conformance::backends::Spec;
use mx_conformance::capabilities::Accumulate;
use mx_conformance::selection::Filter;
use mx_conformance::suggest::nearest;
use mx_reference::gemm::Model;
use mx_reference::{BlockShape, Convention, Element};
use mx_vectors::op::{CastOverflow, CastRounding, Factor, Target};
use mx_vectors::{Float, Level};
use std::path::PathBuf;
use std::time::Duration;

/// The trusted, bit-exact reference of the OCP Microscaling (MX) formats, and the certifier of everything that
/// claims to implement them.
///
/// Exit codes: 0 conformant, 1 non-conformant, 2 usage, 3 a backend crashed, timed out, answered error or broke the
/// protocol, 4 nothing established, 5 stale certificate, 70 internal.
#[derive(Debug, Parser)]
#[command(name = "mxcert", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judge backends, bit by bit, and end in a verdict for each.
    Certify(CertifyArgs),
    /// Compute the right answer for your own tensors.
    Golden(GoldenArgs),
    /// Write vector packs, or check one.
    Vectors(VectorsArgs),
    /// List cases, conventions or modes.
    List(ListArgs),
    /// Say what this build and this machine can do.
    Info(InfoArgs),
    /// Walk one block through every stage.
    Explain(ExplainArgs),
    /// Tell what accumulates inside a backend's matrix products.
    Fingerprint(super::fingerprint::FingerprintArgs),
    /// Run one case against one backend and show everything.
    Repro(ReproArgs),
    /// Measure what the vectors detect: every fault model against every vector class.
    ///
    /// Every model must fail at level standard in every profile that it is a fault of, in at least two cases, unless it is proven to
    /// compute the same there. Exit codes: 0 it holds, 1 it does not.
    Mutants(super::mutants::MutantsArgs),
    /// Check certificates without their backends: digest, consistency, and whether their suites are those of this mxcert.
    ///
    /// Exit codes: 0 it holds, is conformant and current; 1 it does not hold, or is non-conformant; 2 it cannot be read or is no
    /// certificate; 4 it establishes nothing; 5 it is stale. A digest is no signature: take certificates from whom you trust.
    Verify(super::verify::VerifyArgs),
    /// Measure casts, products and training steps on the first GPU, beside a copy and beside bf16.
    ///
    /// Casts count bytes as torchao's `cast_bench` does, and stand beside a copy of as many bytes measured in the same run; products and
    /// layers (six casts, three products) stand beside cuBLASLt in bf16, layers also beside what the roofline allows.
    Bench(super::bench::BenchArgs),
    /// Estimate the least time of a linear layer's training step on a GPU, in MX and in bf16.
    ///
    /// Three GEMMs, and in MX the casts before them, each at the longest of its arithmetic, its memory traffic and a floor,
    /// as in torchao's `float8_roofline`: nothing is run. The step in MX is given unfused, each cast a kernel of its own, and
    /// fused, the row casts of input and output gradient done by the kernels before them. A GPU whose GEMMs do not apply MX
    /// scales (H100, H200, MI300X) is still given its FP8 peak, which an MX GEMM cannot exceed. An emulated recipe runs its
    /// GEMMs in bf16; dequantising counts as free.
    Roofline(super::roofline::RooflineArgs),
}

/// Arguments of `certify`.
#[derive(Debug, Args)]
pub(crate) struct CertifyArgs {
    /// Which cases: globs over ids such as `quantize/e4m3/*/bf16/row/ties#12`, in which `*` crosses `/`.
    #[arg(value_name = "FILTER", value_parser = filter)]
    pub(crate) filters: Vec<Filter>,
    /// reference, native, cuda, cublaslt (all of its modes), cublaslt:MODE, cmd:COMMAND or fault:NAME; may be given more than once [default: every backend found here]
    #[arg(long = "backend", value_name = "B")]
    pub(crate) backends: Vec<Spec>,
    /// The convention that backends are held to.
    #[arg(long, value_name = "C", default_value = "propagate", value_parser = convention)]
    pub(crate) convention: &'static Convention,
    /// smoke, standard or exhaustive.
    #[arg(long, value_name = "L", default_value = "standard", value_parser = level)]
    pub(crate) level: Level,
    /// Folder for run record, certificates and reports.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Deadline of each request to an external backend, such as 60s, 500ms or 2m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Do not ask how products accumulate (`mxcert fingerprint`); no verdict depends on it.
    #[arg(long)]
    pub(crate) no_fingerprint: bool,
    /// Write the run record as JSON; `-` is standard output.
    #[arg(long, value_name = "PATH")]
    pub(crate) json: Option<PathBuf>,
    /// Write a `JUnit` report.
    #[arg(long, value_name = "PATH")]
    pub(crate) junit: Option<PathBuf>,
    /// Write an HTML report.
    #[arg(long, value_name = "PATH")]
    pub(crate) html: Option<PathBuf>,
    /// Write a Markdown report.
    #[arg(long, value_name = "PATH")]
    pub(crate) markdown: Option<PathBuf>,
}

/// Arguments of `golden`.
#[derive(Debug, Args)]
pub(crate) struct GoldenArgs {
    /// The op.
    #[command(subcommand)]
    pub(crate) op: GoldenOp,
}

/// The ops of `golden`.
#[derive(Debug, Subcommand)]
pub(crate) enum GoldenOp {
    /// `input` [R, C] to `scales`, `elements` and `packed`.
    Quantize(GoldenQuantize),
    /// `elements` and plain `scales` to `output`.
    Dequantize(GoldenDequantize),
    /// `input` of any shape to `elements`, without scales.
    Cast(GoldenCast),
    /// `a_elements`, `a_scales`, `b_elements`, `b_scales` (and `c`) to `output` and `magnitude`.
    Gemm(GoldenGemm),
}

/// Input and output files.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// The safetensors file to read.
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// The safetensors file to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Arguments of `golden quantize`.
#[derive(Debug, Args)]
pub(crate) struct GoldenQuantize {
    /// Files.
    #[command(flatten)]
    pub(crate) files: Files,
    /// ELEMENT/MODE, for example e4m3/rceil.
    #[arg(long, value_name = "P", value_parser = mx_conformance::golden::parse_profile)]
    pub(crate) profile: (Element, mx_reference::ScaleMode),
    /// The convention.
    #[arg(long, value_name = "C", default_value = "propagate", value_parser = convention)]
    pub(crate) convention: &'static Convention,
    /// Which way blocks run: along the last dimension (row) or the first (col, results transposed).
    #[arg(long, value_enum, default_value_t = AxisArg::Row)]
    pub(crate) axis: AxisArg,
    /// 8, 16, 32, 64 or 128 elements, or 32x32 tiles.
    #[arg(long, default_value = "32", value_parser = block)]
    pub(crate) block: BlockShape,
    /// Layout of the scales.
    #[arg(long, value_enum, default_value_t = LayoutArg::Plain)]
    pub(crate) layout: LayoutArg,
    /// Fill a partial last block with zeros instead of refusing it.
    #[arg(long)]
    pub(crate) pad: bool,
    /// What raw U32 or U16 bits are: f32, bf16 or f16.
    #[arg(long, value_parser = float)]
    pub(crate) dtype: Option<Float>,
}

/// Arguments of `golden dequantize`.
#[derive(Debug, Args)]
pub(crate) struct GoldenDequantize {
    /// Files.
    #[command(flatten)]
    pub(crate) files: Files,
    /// The element format.
    #[arg(long, value_parser = element)]
    pub(crate) element: Element,
    /// Type of the output: f32, bf16 or f16.
    #[arg(long, default_value = "f32", value_parser = float)]
    pub(crate) dtype: Float,
    /// 8, 16, 32, 64 or 128 elements, or 32x32 tiles.
    #[arg(long, default_value = "32", value_parser = block)]
    pub(crate) block: BlockShape,
}

/// Arguments of `golden cast`.
#[derive(Debug, Args)]
pub(crate) struct GoldenCast {
    /// Files.
    #[command(flatten)]
    pub(crate) files: Files,
    /// An element format, or e8m0, or ue4m3.
    #[arg(long, value_parser = target)]
    pub(crate) element: Target,
    /// even, away, zero-ties, truncate or up [default: even; e8m0: up]
    #[arg(long, value_parser = rounding)]
    pub(crate) rounding: Option<CastRounding>,
    /// saturate or propagate.
    #[arg(long, default_value = "saturate", value_parser = overflow)]
    pub(crate) overflow: CastOverflow,
    /// What raw U32 or U16 bits are: f32, bf16 or f16.
    #[arg(long, value_parser = float)]
    pub(crate) dtype: Option<Float>,
}

/// Arguments of `golden gemm`.
#[derive(Debug, Args)]
pub(crate) struct GoldenGemm {
    /// Files.
    #[command(flatten)]
    pub(crate) files: Files,
    /// Elements of A: an element format, bf16 or f16.
    #[arg(long, value_name = "E", value_parser = factor)]
    pub(crate) a_element: Factor,
    /// Elements of B.
    #[arg(long, value_name = "E", value_parser = factor)]
    pub(crate) b_element: Factor,
    /// Type of the output: f32, bf16 or f16.
    #[arg(long, default_value = "f32", value_parser = float)]
    pub(crate) dtype: Float,
    /// The accumulation: exact, or a model by name (`mxcert list --models`).
    #[arg(long, value_name = "MODEL", default_value = "exact", value_parser = model)]
    pub(crate) accumulate: Model,
    /// Elements a scale: 32 (E8M0), or 16 for NVFP4 (UE4M3).
    #[arg(long, default_value = "32", value_parser = gemm_block)]
    pub(crate) block: usize,
}

/// `--axis`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AxisArg {
    /// Along the last dimension.
    Row,
    /// Along the first dimension.
    Col,
}

/// `--layout`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LayoutArg {
    /// Row major.
    Plain,
    /// Blocked 128x4, zero padded.
    Blocked,
}

/// Arguments of `vectors`.
#[derive(Debug, Args)]
pub(crate) struct VectorsArgs {
    /// generate or check.
    #[command(subcommand)]
    pub(crate) op: VectorsOp,
}

/// What to do with vector packs.
#[derive(Debug, Subcommand)]
pub(crate) enum VectorsOp {
    /// Write a pack.
    Generate(VectorsGenerate),
    /// Check a pack: schema, digests, and every byte against regeneration.
    Check(VectorsCheck),
}

/// Arguments of `vectors generate`.
#[derive(Debug, Args)]
pub(crate) struct VectorsGenerate {
    /// smoke or standard.
    #[arg(long, default_value = "standard", value_parser = level)]
    pub(crate) level: Level,
    /// The convention.
    #[arg(long, value_name = "C", default_value = "propagate", value_parser = convention)]
    pub(crate) convention: &'static Convention,
    /// Where to write; must be empty or absent.
    #[arg(long, value_name = "DIR", default_value = "mxvec")]
    pub(crate) out: PathBuf,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

/// Arguments of `vectors check`.
#[derive(Debug, Args)]
pub(crate) struct VectorsCheck {
    /// The pack's folder.
    #[arg(long, value_name = "DIR", default_value = "mxvec")]
    pub(crate) out: PathBuf,
    /// The level that the pack must have.
    #[arg(long, value_parser = level)]
    pub(crate) level: Option<Level>,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct ListArgs {
    /// Print the case ids that a filter selects, one per line. Without one, classes and their numbers of cases.
    #[arg(value_name = "FILTER", value_parser = filter)]
    pub(crate) filter: Option<Filter>,
    /// smoke, standard or exhaustive.
    #[arg(long, value_name = "L", default_value = "standard", value_parser = level)]
    pub(crate) level: Level,
    /// The accumulation whose cases of products are listed: those that a backend is asked that declares this one. f32 (additions in
    /// any order), or a model by name (`mxcert list --models`).
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["conventions", "modes", "models"], value_parser = accumulate)]
    pub(crate) accumulate: Option<Accumulate>,
    /// List conventions.
    #[arg(long, conflicts_with_all = ["filter", "modes"])]
    pub(crate) conventions: bool,
    /// List scale modes.
    #[arg(long, conflicts_with = "filter")]
    pub(crate) modes: bool,
    /// List accumulation models of matrix products, with their sources and how well they are known.
    #[arg(long, conflicts_with_all = ["filter", "modes", "conventions"])]
    pub(crate) models: bool,
    /// List fault models: the deliberately wrong backends `fault:NAME`, with what each stands for.
    #[arg(long, conflicts_with_all = ["filter", "modes", "conventions", "models"])]
    pub(crate) faults: bool,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Identity and claims of one backend.
    #[arg(long, value_name = "B")]
    pub(crate) backend: Option<Spec>,
    /// How long it may take to answer.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// As JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// ELEMENT/MODE, for example e4m3/rceil.
    #[arg(long, value_name = "P", value_parser = mx_conformance::golden::parse_profile)]
    pub(crate) profile: (Element, mx_reference::ScaleMode),
    /// The convention.
    #[arg(long, value_name = "C", default_value = "propagate", value_parser = convention)]
    pub(crate) convention: &'static Convention,
    /// Raw bits of up to 128 elements in hexadecimal; a block of 32 is filled up with zeros.
    #[arg(long, value_name = "HEX", num_args = 1..=128, required = true)]
    pub(crate) block: Vec<String>,
    /// What the bits are: f32, bf16 or f16 [default: f32 for 8 digits, bf16 for 4]
    #[arg(long, value_parser = float)]
    pub(crate) dtype: Option<Float>,
}

/// Arguments of `repro`.
#[derive(Debug, Args)]
pub(crate) struct ReproArgs {
    /// A case id, as reports print it.
    pub(crate) case: String,
    /// The backend.
    #[arg(long, value_name = "B")]
    pub(crate) backend: Spec,
    /// The convention.
    #[arg(long, value_name = "C", default_value = "propagate", value_parser = convention)]
    pub(crate) convention: &'static Convention,
    /// Deadline of the request.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

fn named<T>(
    what: &str,
    given: &str,
    names: &[&str],
    find: impl Fn(&str) -> Option<T>,
) -> Result<T, String> {
    find(given).ok_or_else(|| {
        format!("unknown {what} `{given}`{}; known: {}", nearest(given, names), names.join(", "))
    })
}

fn convention(text: &str) -> Result<&'static Convention, String> {
    let names = Convention::ALL.map(|convention| convention.name);
    named("convention", text, &names, Convention::from_name)
}

pub(super) fn level(text: &str) -> Result<Level, String> {
    named("level", text, &Level::ALL.map(Level::name), Level::from_name)
}

fn float(text: &str) -> Result<Float, String> {
    named("type", text, &Float::ALL.map(Float::name), Float::from_name)
}

fn element(text: &str) -> Result<Element, String> {
    named("element format", text, &Element::ALL.map(Element::name), Element::from_name)
}

fn factor(text: &str) -> Result<Factor, String> {
    named("element format", text, &Factor::ALL.map(Factor::name), Factor::from_name)
}

fn model(text: &str) -> Result<Model, String> {
    named("accumulation", text, &Model::ALL.map(Model::name), Model::from_name)
}

fn accumulate(text: &str) -> Result<Accumulate, String> {
    text.to_owned().try_into()
}

fn gemm_block(text: &str) -> Result<usize, String> {
    match text {
        "32" => Ok(32),
        "16" => Ok(16),
        _ => Err(format!("block `{text}` of a product is neither 32 (MX) nor 16 (NVFP4)")),
    }
}

fn target(text: &str) -> Result<Target, String> {
    let names = Target::ALL.map(|target| target.format().name);
    named("format", text, &names, Target::from_name)
}

fn rounding(text: &str) -> Result<CastRounding, String> {
    let names = CastRounding::ALL.map(CastRounding::name);
    named("rounding", text, &names, CastRounding::from_name)
}

fn overflow(text: &str) -> Result<CastOverflow, String> {
    let names = CastOverflow::ALL.map(CastOverflow::name);
    named("overflow rule", text, &names, CastOverflow::from_name)
}

fn filter(text: &str) -> Result<Filter, String> {
    Filter::parse(text).map_err(|error| error.to_string())
}

fn block(text: &str) -> Result<BlockShape, String> {
    if text == "32x32" {
        return Ok(BlockShape::TILE);
    }
    let size = text
        .parse()
        .map_err(|_| format!("block `{text}` is not one of 8, 16, 32, 64, 128 or 32x32"))?;
    BlockShape::line(size).map_err(|error| error.to_string())
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time such as 60s, 500ms or 2m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(bad()),
    };
    let number: f64 = digits.parse().map_err(|_| bad())?;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(duration) if !duration.is_zero() && duration < Duration::from_hours(24 * 30) => {
            Ok(duration)
        }
        _ => Err(bad()),
    }
}
