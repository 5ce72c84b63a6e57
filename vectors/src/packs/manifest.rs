//! `manifest.json`: what a pack holds, under which convention, and what each vector class aims at.

use crate::class::Class;
use mx_reference::Convention;
use mx_reference::convention::{AmaxNan, ByteZero, Edges, InfinityScale, NanScale, RceilRule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name and version of the manifest's form.
pub const SCHEMA: &str = "mxcert-pack/1";

/// The version of the vectors. Major: an expected value changed; minor: something was added; patch: texts changed.
pub const PACK_VERSION: &str = "1.1.0";

/// The manifest's name in a pack folder.
pub const MANIFEST: &str = "manifest.json";

/// The index of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The form of this file.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    /// The version of the vectors.
    #[schemars(regex(pattern = r"^\d+\.\d+\.\d+$"))]
    pub pack: String,
    /// How much is in it: `smoke` (JSON Lines) or `standard` (safetensors).
    #[schemars(extend("enum" = ["smoke", "standard"]))]
    pub level: String,
    /// What made it.
    pub generator: Generator,
    /// The choices that the OCP text leaves open, as made here.
    pub convention: ConventionRecord,
    /// Every vector class; `class` tensors hold positions in this list.
    pub classes: Vec<ClassRecord>,
    /// The files, in path order.
    pub files: Vec<FileRecord>,
}

/// The crate that made a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generator {
    /// Its name.
    #[serde(rename = "crate")]
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A convention, field by field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConventionRecord {
    /// The name that `--convention` takes.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Whose behaviour it is, and where that was read.
    pub source: String,
    /// What a NaN among the inputs does to the amax.
    #[schemars(extend("enum" = ["propagate", "drop"]))]
    pub amax_nan: String,
    /// How RCEIL finds its exponent.
    #[schemars(extend("enum" = ["product", "ceil-log2"]))]
    pub rceil_rule: String,
    /// The edges of FLOOR, CEIL and EVEN.
    pub exponent_modes: EdgesRecord,
    /// The edges of RCEIL.
    pub rceil: EdgesRecord,
}

/// What a convention does at the edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EdgesRecord {
    /// The scale byte of an infinite amax: 0xFF, 0xFE, or 255 − p.
    #[schemars(extend("enum" = ["nan", "largest", "exponent-field"]))]
    pub infinity_scale: String,
    /// What elements are multiplied by under scale byte 0: 2^127, 2^126 or 1.
    #[schemars(extend("enum" = ["exact", "smallest-normal", "one"]))]
    pub byte_zero: String,
    /// The elements under scale byte 0xFF.
    #[schemars(extend("enum" = ["all-nan", "divide-by-infinity"]))]
    pub nan_scale: String,
}

/// A vector class: why its vectors are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassRecord {
    /// The last segment of its ids, before `#n`.
    pub name: String,
    /// What it aims at.
    pub aim: String,
    /// Public faults it would have caught.
    pub faults: Vec<String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// The path in the pack, with `/`.
    pub path: String,
    /// The op.
    #[schemars(extend("enum" = [
        "quantize", "dequantize", "cast", "pack", "swizzle", "gemm", "grouped_gemm", "linear", "grouped_linear",
        "all_to_all", "group_swizzle"
    ]))]
    pub op: String,
    /// The op's parameters that all of the file shares, by the names of the adapter protocol.
    pub profile: BTreeMap<String, String>,
    /// The ids of its cases up to the class; JSON Lines name each id in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// How many cases it has.
    pub cases: u64,
    /// Its length.
    pub bytes: u64,
    /// The SHA-256 of its bytes.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// Its tensors by name; none in JSON Lines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = {
        "pattern": r"^([a-z]+|[a-z0-9-]+#\d+\.(in|out|care|low|high)\.[a-z_]+)$"
    }))]
    pub tensors: BTreeMap<String, TensorRecord>,
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TensorRecord {
    /// The stored type.
    #[schemars(extend("enum" = ["U8", "U16", "U32", "I32"]))]
    pub dtype: String,
    /// Lengths of the dimensions, outermost first.
    pub shape: Vec<u64>,
}

impl From<&Class> for ClassRecord {
    fn from(class: &Class) -> Self {
        Self {
            name: class.name.to_owned(),
            aim: class.aim.to_owned(),
            faults: class.faults.iter().map(|&fault| fault.to_owned()).collect(),
        }
    }
}

impl From<&Convention> for ConventionRecord {
    fn from(convention: &Convention) -> Self {
        let amax_nan = match convention.amax_nan {
            AmaxNan::Propagate => "propagate",
            AmaxNan::Drop => "drop",
        };
        let rceil_rule = match convention.rceil_rule {
            RceilRule::Product => "product",
            RceilRule::CeilLog2 => "ceil-log2",
        };
        Self {
            name: convention.name.to_owned(),
            summary: convention.summary.to_owned(),
            source: convention.source.to_owned(),
            amax_nan: amax_nan.to_owned(),
            rceil_rule: rceil_rule.to_owned(),
            exponent_modes: (&convention.exponent_modes).into(),
            rceil: (&convention.rceil).into(),
        }
    }
}

impl From<&Edges> for EdgesRecord {
    fn from(edges: &Edges) -> Self {
        let infinity_scale = match edges.infinity_scale {
            InfinityScale::Nan => "nan",
            InfinityScale::Largest => "largest",
            InfinityScale::ExponentField => "exponent-field",
        };
        let byte_zero = match edges.byte_zero {
            ByteZero::Exact => "exact",
            ByteZero::SmallestNormal => "smallest-normal",
            ByteZero::One => "one",
        };
        let nan_scale = match edges.nan_scale {
            NanScale::AllNan => "all-nan",
            NanScale::DivideByInfinity => "divide-by-infinity",
        };
        Self {
            infinity_scale: infinity_scale.to_owned(),
            byte_zero: byte_zero.to_owned(),
            nan_scale: nan_scale.to_owned(),
        }
    }
}

/// Canonical JSON: keys sorted, two spaces of indentation, a newline at the end.
///
/// # Errors
/// Those of `serde_json`, for values that JSON cannot hold.
pub fn canonical(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
