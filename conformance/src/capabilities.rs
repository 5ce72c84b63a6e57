//! What a backend claims. Nothing outside a claim is sent, and refusing inside it is a failure.

use crate::suggest::{near_miss, nearest};
use mx_reference::gemm::{Accepts, Model};
use mx_reference::pack::PackOrder;
use mx_reference::training::Recipe;
use mx_reference::{BlockShape, Convention, ScaleMode};
use mx_vectors::answer::product;
use mx_vectors::op::{
    ANY_ORDER_NAME, CastOverflow, CastRounding, Factor, Gemm, GroupedGemm, Linear, Scaling, Target,
};
use mx_vectors::{Call, Float, Op, Tensors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A claim, as adapters declare it in their answer to `hello`. A field that is left out claims every value, and so does
/// `"*"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Op names.
    pub ops: Claim,
    /// `element/mode`; for ops without a mode the part before the slash counts.
    pub profiles: Claim,
    /// Input types (output types of dequantize and of matrix products).
    pub inputs: Claim,
    /// `row`, `col`, `32x32`; `m`, `k` and `experts` of grouped ops.
    pub axes: Claim,
    /// Scale layouts.
    pub layouts: Claim,
    /// `32`, `32x32`.
    pub blocks: Claim,
    /// Conventions.
    pub conventions: Claim,
    /// Roundings of casts.
    pub roundings: Claim,
    /// Overflow rules of casts.
    pub overflows: Claim,
    /// Orders of packing.
    pub orders: Claim,
    /// Recipes of training steps and exchanges.
    pub recipes: Claim,
    /// The accumulation of matrix products: a model by name, or `f32` for f32 additions in any order.
    pub accumulate: Option<Accumulate>,
    /// Rows and columns that every tensor must be a multiple of.
    pub multiple: Option<(usize, usize)>,
    /// Whether strided views are taken; adapters get contiguous tensors.
    #[serde(skip_deserializing)]
    pub strided: bool,
}

/// An accumulation by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Accumulate(pub Option<Model>);

impl TryFrom<String> for Accumulate {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if name == ANY_ORDER_NAME {
            return Ok(Self(None));
        }
        let known = || std::iter::once(ANY_ORDER_NAME).chain(Model::ALL.map(Model::name));
        Model::from_name(&name).map(|model| Self(Some(model))).ok_or_else(|| {
            let names: Vec<&str> = known().collect();
            let names = (nearest(&name, &names), names.join(", "));
            format!("unknown accumulation `{name}`{}; known: {}", names.0, names.1)
        })
    }
}

impl From<Accumulate> for String {
    fn from(Accumulate(model): Accumulate) -> Self {
        model.map_or(ANY_ORDER_NAME, Model::name).to_owned()
    }
}

/// A set of values, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Listed", into = "Listed")]
pub enum Claim {
    /// Every value.
    #[default]
    All,
    /// These.
    Only(Vec<String>),
}

/// A claim as adapters write it: a value or a list of values, numbers for strings where that reads better (`[32]`).
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
struct Listed(Vec<String>);

impl TryFrom<Value> for Listed {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let one = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            other => Err(format!("expected a name or a list of names, got {other}")),
        };
        match &value {
            Value::Array(values) => Ok(Self(values.iter().map(one).collect::<Result<_, _>>()?)),
            other => Ok(Self(vec![one(other)?])),
        }
    }
}

impl From<Listed> for Value {
    fn from(Listed(values): Listed) -> Self {
        match &values[..] {
            [all] if all == "*" => all.clone().into(),
            _ => values.into(),
        }
    }
}

impl From<Listed> for Claim {
    fn from(Listed(values): Listed) -> Self {
        if values.iter().any(|value| value == "*") { Self::All } else { Self::Only(values) }
    }
}

impl From<Claim> for Listed {
    fn from(claim: Claim) -> Self {
        match claim {
            Claim::All => Self(vec!["*".to_owned()]),
            Claim::Only(values) => Self(values),
        }
    }
}

impl Claim {
    fn covers(&self, value: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(values) => values.iter().any(|v| v == value),
        }
    }

    fn names(&self, value: &str) -> bool {
        matches!(self, Self::Only(values) if values.iter().any(|v| v == value))
    }
}

/// Every op of the protocol.
const OPS: [&str; 11] = [
    "quantize",
    "dequantize",
    "cast",
    "pack",
    "swizzle",
    "gemm",
    "grouped_gemm",
    "linear",
    "grouped_linear",
    "all_to_all",
    "group_swizzle",
];

impl Capabilities {
    /// A claim that looks like a misspelt one, in words. A typo would otherwise claim everything (a key) or nothing (a value);
    /// names that resemble nothing are left alone, since claims may go beyond this version.
    pub fn misspelt(&self, keys: &[&str]) -> Option<String> {
        const KEYS: [&str; 19] = [
            "name",
            "version",
            "artifact",
            "device",
            "ops",
            "profiles",
            "inputs",
            "axes",
            "layouts",
            "blocks",
            "conventions",
            "roundings",
            "overflows",
            "orders",
            "recipes",
            "multiple",
            "accumulate",
            "op",
            "status",
        ];
        // What others call such claims.
        const SYNONYMS: [(&str, &str); 3] = [
            ("outputs", "`inputs`, in which products claim their outputs"),
            ("output", "`inputs`, in which products claim their outputs"),
            ("accumulation", "`accumulate`"),
        ];
        let synonym = |key: &&str| SYNONYMS.iter().find(|(given, _)| given == key);
        if let Some((given, right)) = keys.iter().find_map(synonym) {
            return Some(format!("unknown key `{given}` (did you mean {right}?)"));
        }
        let typo = |what: &str, given: &str, known: &[&str]| {
            near_miss(given, known)
                .map(|right| format!("unknown {what} `{given}` (did you mean `{right}`?)"))
        };
        let mut profiles = Vec::new();
        for target in Target::ALL {
            profiles
                .extend(ScaleMode::ALL.map(|m| format!("{}/{}", target.format().name, m.name())));
        }
        for (a, b) in Factor::ALL.into_iter().flat_map(|a| Factor::ALL.map(|b| (a, b))) {
            profiles
                .extend(Scaling::ALL.map(|s| format!("{}-{}/{}", a.name(), b.name(), s.name())));
        }
        let profiles: Vec<&str> = profiles.iter().map(String::as_str).collect();
        let checks: [(&str, &Claim, &[&str]); 10] = [
            ("op", &self.ops, &OPS),
            ("profile", &self.profiles, &profiles),
            ("input", &self.inputs, &Float::ALL.map(Float::name)),
            ("axis", &self.axes, &["row", "col", "32x32", "m", "k", "experts"]),
            ("layout", &self.layouts, &["plain", "blocked"]),
            ("convention", &self.conventions, &Convention::ALL.map(|c| c.name)),
            ("rounding", &self.roundings, &CastRounding::ALL.map(CastRounding::name)),
            ("overflow", &self.overflows, &CastOverflow::ALL.map(CastOverflow::name)),
            ("order", &self.orders, &PackOrder::ALL.map(PackOrder::name)),
            ("recipe", &self.recipes, &Recipe::ALL.map(Recipe::name)),
        ];
        let values = checks.into_iter().flat_map(|(what, claim, known)| {
            let values = match claim {
                Claim::All => &[][..],
                Claim::Only(values) => values,
            };
            values.iter().filter_map(move |value| typo(what, value, known))
        });
        keys.iter().filter_map(|key| typo("key", key, &KEYS)).chain(values).next()
    }

    /// Whether a convention is claimed.
    pub fn covers_convention(&self, convention: &Convention) -> bool {
        self.conventions.covers(convention.name)
    }

    /// Whether an op with its parameters is claimed.
    pub fn covers(&self, op: &Op) -> bool {
        if !self.ops.covers(op.name()) {
            return false;
        }
        match op {
            Op::Quantize(q) => {
                let profile = format!("{}/{}", q.element.name(), q.mode.name());
                // Tiles are claimed as an axis, or by naming the block beside the row axis.
                let axis = self.axes.covers(q.axis_name())
                    || q.block == BlockShape::TILE
                        && self.axes.covers("row")
                        && self.blocks.names("32x32");
                self.profiles.covers(&profile)
                    && self.inputs.covers(q.input.name())
                    && axis
                    && self.layouts.covers(q.layout.name())
                    && self.blocks.covers(&q.block_name())
                    && (q.view.is_none() || self.strided)
            }
            Op::Dequantize(d) => {
                self.covers_element(d.element.name()) && self.inputs.covers(d.output.name())
            }
            Op::Cast(c) => {
                self.covers_element(c.target.format().name)
                    && self.inputs.covers(c.input.name())
                    && self.roundings.covers(c.rounding.name())
                    && self.overflows.covers(c.overflow.name())
            }
            Op::Pack(p) => {
                self.covers_element(p.element.name()) && self.orders.covers(p.order.name())
            }
            Op::Swizzle => true,
            Op::Gemm(g) => self.covers_gemm(g),
            Op::GroupedGemm(g) => self.covers_gemm(&g.gemm) && self.axes.covers(g.axis.name()),
            Op::Linear(l) => self.covers_recipe(l.recipe),
            Op::AllToAll(a) => self.covers_recipe(a.recipe),
            Op::GroupSwizzle(g) => self.axes.covers(g.name()),
        }
    }

    /// Products are claimed as `A-B/scaling` (`e4m3-e5m2/mx`), as `A-B`, or by quantisation profiles of both elements; and only
    /// those that the declared accumulation is of.
    fn covers_gemm(&self, g: &Gemm) -> bool {
        let pair = g.pair();
        let profile = format!("{pair}/{}", g.scaling.name());
        let elements = self.covers_element(g.a.name()) && self.covers_element(g.b.name());
        let claimed = self.profiles.covers(&profile)
            || self.profiles.covers(&pair)
            || g.scaling == Scaling::Mx && elements
            || g.scaling == Scaling::Unit
                && (elements || self.profiles.covers(&format!("{pair}/mx")));
        claimed && self.inputs.covers(g.output.name()) && g.is_of_its_model()
    }

    fn covers_recipe(&self, recipe: Recipe) -> bool {
        self.recipes.covers(recipe.name())
            && self.covers_element(recipe.config().element.name())
            && self.inputs.covers(Linear::INPUT.name())
    }

    /// The op as this backend is asked it: with the accumulation that it declares.
    #[must_use]
    pub fn declared(&self, op: Op) -> Op {
        let accumulate = self.accumulate.and_then(|accumulate| accumulate.0);
        match op {
            Op::Gemm(g) => Op::Gemm(Gemm { accumulate, ..g }),
            Op::GroupedGemm(g) => {
                let gemm = Gemm { accumulate, ..g.gemm };
                Op::GroupedGemm(GroupedGemm { gemm, ..g })
            }
            Op::Linear(l) => Op::Linear(Linear { accumulate, ..l }),
            other => other,
        }
    }

    fn covers_element(&self, element: &str) -> bool {
        match &self.profiles {
            Claim::All => true,
            Claim::Only(profiles) => {
                profiles.iter().any(|profile| profile.split('/').next() == Some(element))
            }
        }
    }

    /// Whether a call is claimed: its op, its view, and shapes that are multiples of what the backend needs.
    pub fn covers_call(&self, call: &Call) -> bool {
        let (rows, cols) = self.multiple();
        let fits = |name: &str| match call.inputs.get(name).map(|tensor| &tensor.shape[..]) {
            Some(&[.., r, c]) => r.is_multiple_of(rows) && c.is_multiple_of(cols),
            _ => true,
        };
        self.covers(&call.op)
            && match call.op {
                Op::Quantize(_) | Op::Cast(_) | Op::AllToAll(_) => fits("input"),
                Op::Gemm(g) => {
                    fits("a_elements") && fits("b_elements") && is_dequantized(&g, &call.inputs)
                }
                Op::GroupedGemm(_) => fits("a_elements") && fits("b_elements"),
                Op::Linear(_) => ["x", "w", "grad_output"].into_iter().all(fits),
                Op::Dequantize(_) | Op::Pack(_) | Op::Swizzle | Op::GroupSwizzle(_) => true,
            }
    }

    /// Rows and columns that every tensor must be a multiple of; 1 where nothing was said.
    pub fn multiple(&self) -> (usize, usize) {
        let (rows, cols) = self.multiple.unwrap_or((1, 1));
        (rows.max(1), cols.max(1))
    }
}

/// Who declares an accumulation over dequantised operands declares products whose operands survive that: others are outside.
fn is_dequantized(g: &Gemm, inputs: &Tensors) -> bool {
    let accumulation = g.accumulation();
    accumulation.accepts != Accepts::Dequantized
        || product(g, inputs).is_ok_and(|product| accumulation.check(&product).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_vectors::cells::cells;

    fn parse(json: &str) -> Capabilities {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_left_out_claims_everything() {
        let all = parse("{}");
        // Products with scales of 1 are for who declares hardware that takes no others.
        let unit = |op: &Op| matches!(op, Op::Gemm(g) if g.scaling == Scaling::Unit);
        assert!(cells().iter().all(|op| all.covers(op) != unit(op)));
        let star = parse(r#"{"ops":"*","profiles":["*"]}"#);
        assert_eq!((&star.ops, &star.profiles), (&Claim::All, &Claim::All));
    }

    #[test]
    fn a_narrow_claim_gets_only_what_it_names() {
        let claim = parse(
            r#"{"ops":["quantize"],"profiles":["e4m3/rceil"],"inputs":["bf16","f32"],"axes":["row"],
                "layouts":["plain"],"blocks":["32"]}"#,
        );
        let covered: Vec<_> =
            cells().iter().filter(|op| claim.covers(op)).map(Op::prefix).collect();
        assert_eq!(covered, ["quantize/e4m3/rceil/f32/row", "quantize/e4m3/rceil/bf16/row"]);
    }

    #[test]
    fn misspelt_claims_are_seen_and_unknown_ones_left_alone() {
        let misspelt = |json: &str| parse(json).misspelt(&[]);
        assert!(misspelt(r#"{"profiles":["e2m1/rcei"]}"#).unwrap().contains("`e2m1/rceil`"));
        assert!(misspelt(r#"{"ops":["quantise"]}"#).unwrap().contains("`quantize`"));
        let fine = r#"{"ops":["quantize","gemm"],"blocks":[32],"conventions":["my-own"],"profiles":["nvfp4/two-level"]}"#;
        assert_eq!(misspelt(fine), None);
        assert!(parse("{}").misspelt(&["layout"]).unwrap().contains("`layouts`"));
        assert!(parse("{}").misspelt(&["name", "outputs"]).unwrap().contains("`inputs`"));
        assert!(parse("{}").misspelt(&["accumulation"]).unwrap().contains("`accumulate`"));
        assert_eq!(parse("{}").misspelt(&["mxcert", "homepage"]), None);
    }

    #[test]
    fn tiles_are_an_axis_or_a_named_block() {
        let tiles = |json: &str| {
            let claim = parse(json);
            cells().iter().filter(|op| claim.covers(op) && op.prefix().contains("32x32")).count()
        };
        assert_eq!(tiles(r#"{"axes":["row"]}"#), 0);
        assert!(tiles(r#"{"axes":["row"],"blocks":["32x32"]}"#) > 0);
        assert!(tiles(r#"{"axes":["row","32x32"]}"#) > 0);
    }
}
