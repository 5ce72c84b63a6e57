//! Which files a pack has, and from case to bytes for each of them.

use super::container::{ContainerError, TensorRef, to_bytes};
use super::error::PackError;
use super::manifest::{FileRecord, PACK_VERSION, SCHEMA, TensorRecord};
use super::{smoke, standard};
use crate::cells::cells;
use crate::class::{Call, Class, Level, Source};
use crate::classes;
use crate::op::{CastRounding, Factor, Float, Op, Target, Test};
use crate::tensor::{Tensor, Tensors};
use mx_reference::training::{Recipe, TrainingConfig};
use mx_reference::{Axis, BlockShape, Convention, Element, ScaleLayout};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A file of a pack: its path and the ops it has cases of.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) path: String,
    pub(super) level: Level,
    pub(super) ops: Vec<Op>,
}

/// What a file holds.
#[derive(Debug)]
pub(super) enum Content {
    Tensors { tensors: Tensors, metadata: String },
    Lines(String),
}

/// A file's bytes and its entry in the manifest.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) bytes: Vec<u8>,
    pub(super) record: FileRecord,
}

/// Every class, with its position in the manifest's list.
pub(super) fn numbered_classes() -> impl Iterator<Item = (u8, &'static Class)> {
    (0..=u8::MAX).zip(classes::ALL.iter())
}

/// Whether packs hold cases of this class for this op. Shapes and strides of whole tensors are not stored for quantize:
/// its files are lists of blocks.
pub(super) fn holds(op: &Op, class: &Class) -> bool {
    matches!(class.source, Source::Blocks { .. }) == matches!(op, Op::Quantize(_))
}

/// How many cases of an op a pack holds.
fn cases(op: &Op, level: Level) -> u64 {
    classes::ALL.iter().filter(|class| holds(op, class)).map(|class| class.count(op, level)).sum()
}

/// The files of the complete pack of a level, in path order.
pub(super) fn planned(level: Level) -> Result<Vec<Planned>, PackError> {
    let mut files: BTreeMap<String, Vec<Op>> = BTreeMap::new();
    for op in cells().into_iter().filter(stored).filter(|op| cases(op, level) > 0) {
        let path = match level {
            Level::Smoke => smoke::path(&op),
            Level::Standard => Some(standard_path(&op)),
            Level::Exhaustive => {
                return Err(PackError::Level { level: level.name().to_owned() });
            }
        };
        if let Some(path) = path {
            files.entry(path).or_default().push(op);
        }
    }
    Ok(files.into_iter().map(|(path, ops)| Planned { path, level, ops }).collect())
}

/// Multiplications of the largest products that packs keep, and of the largest that are compared by intervals, which take two
/// more tensors of the output's size.
const LARGEST: usize = 1 << 23;
const LARGEST_BOUNDED: usize = 1 << 21;
/// Elements of the largest operands that packs keep.
const LARGEST_OPERAND: usize = 1 << 16;

/// Whether packs keep a whole-tensor case: all but the largest products.
pub(super) fn kept(call: &Call) -> bool {
    let Op::Gemm(g) = &call.op else { return true };
    let elements = |name| call.inputs.get(name).map_or(0, |tensor: &Tensor| tensor.data.len());
    let rows = call.inputs.get("b_elements").and_then(|tensor| tensor.shape.first());
    let [a, b] = ["a_elements", "b_elements"].map(elements);
    let most = if g.test == Test::Bounded { LARGEST_BOUNDED } else { LARGEST };
    a.max(b) <= LARGEST_OPERAND && a * rows.copied().unwrap_or(0) <= most
}

/// Whether packs hold an op. Quantize: plain blocks of 32 along rows. Casts: what conversions to these formats are made of.
/// Products: of one format and of the two FP8 formats to f32, of FP8, FP4 and bf16 to bf16, grouped ones to bf16 alone.
/// Training steps: one of the recipes that have the same answers, and with padding, since whole blocks are not padded.
fn stored(op: &Op) -> bool {
    match op {
        Op::Quantize(q) => {
            (q.axis, q.block, q.layout) == (Axis::Row, BlockShape::MX, ScaleLayout::Plain)
        }
        Op::Cast(c) => {
            c.rounding == CastRounding::Even
                || (c.target, c.rounding) == (Target::E8m0, CastRounding::Up)
        }
        Op::Gemm(g) => match g.output {
            Float::F32 => g.a == g.b || is_fp8(g.a) && is_fp8(g.b),
            Float::Bf16 => g.a == g.b && gives_bf16(g.a),
            Float::F16 => false,
        },
        Op::GroupedGemm(g) => g.gemm.output == Float::Bf16 && gives_bf16(g.gemm.a),
        Op::Linear(l) => {
            let what = |config: TrainingConfig| (config.element, config.mode, config.wgrad_with_hp);
            l.pad == l.grouped && is_first(l.recipe, what)
        }
        Op::AllToAll(a) => is_first(a.recipe, |config| (config.element, config.mode)),
        Op::Dequantize(_) | Op::Pack(_) | Op::Swizzle | Op::GroupSwizzle(_) => true,
    }
}

const fn is_fp8(factor: Factor) -> bool {
    matches!(factor, Factor::Element(Element::E4m3 | Element::E5m2))
}

const fn gives_bf16(factor: Factor) -> bool {
    is_fp8(factor) || matches!(factor, Factor::Element(Element::E2m1) | Factor::Bf16)
}

/// Whether a recipe is the first of those that `what` does not tell apart.
fn is_first<T: PartialEq>(recipe: Recipe, what: impl Fn(TrainingConfig) -> T) -> bool {
    let own = what(recipe.config());
    Recipe::ALL.into_iter().find(|other| what(other.config()) == own) == Some(recipe)
}

fn standard_path(op: &Op) -> String {
    let name = op.name();
    match op {
        Op::Quantize(q) => {
            format!("{name}/{}-{}-{}.safetensors", q.element.name(), q.mode.name(), q.input.name())
        }
        Op::Dequantize(d) => format!("{name}/{}-{}.safetensors", d.element.name(), d.output.name()),
        Op::Cast(c) => {
            let (target, rounding, overflow) =
                (c.target.format().name, c.rounding.name(), c.overflow.name());
            format!("{name}/{target}-{rounding}-{overflow}-{}.safetensors", c.input.name())
        }
        Op::Pack(p) => format!("{name}/{}-{}.safetensors", p.element.name(), p.order.name()),
        Op::Swizzle => format!("{name}/{}.safetensors", ScaleLayout::Blocked.name()),
        Op::Gemm(g) => {
            format!("{name}/{}-{}-{}.safetensors", g.scaling.name(), g.pair(), g.output.name())
        }
        Op::GroupedGemm(g) => {
            let (scaling, pair, output) =
                (g.gemm.scaling.name(), g.gemm.pair(), g.gemm.output.name());
            format!("{name}/{scaling}-{pair}-{output}-{}.safetensors", g.axis.name())
        }
        Op::Linear(l) => {
            let pad = if l.pad { "-pad" } else { "" };
            format!("{name}/{}{pad}.safetensors", l.recipe.name())
        }
        Op::AllToAll(a) => format!("{name}/{}.safetensors", a.recipe.name()),
        Op::GroupSwizzle(g) => format!("{name}/{}.safetensors", g.name()),
    }
}

/// The one metadata entry of a tensor file: enough to know it by when it has lost its folder.
#[derive(Serialize)]
struct Label<'a> {
    cases: u64,
    convention: &'static str,
    op: &'static str,
    pack: &'static str,
    prefix: &'a str,
    schema: &'static str,
}

impl Planned {
    /// The content of the file, and how many cases it has.
    pub(super) fn content(
        &self,
        convention: &'static Convention,
    ) -> Result<(Content, u64), PackError> {
        match (&self.ops[..], self.level) {
            ([op], Level::Standard | Level::Exhaustive) => {
                let (tensors, cases) = standard::tensors(op, convention)?;
                let label = Label {
                    cases,
                    convention: convention.name,
                    op: op.name(),
                    pack: PACK_VERSION,
                    prefix: &op.prefix(),
                    schema: SCHEMA,
                };
                let metadata = serde_json::to_string(&label)?;
                Ok((Content::Tensors { tensors, metadata }, cases))
            }
            (ops, _) => {
                let (lines, cases) = smoke::lines(ops, convention)?;
                Ok((Content::Lines(lines), cases))
            }
        }
    }

    /// The bytes of the file and its record.
    pub(super) fn build(&self, convention: &'static Convention) -> Result<Built, PackError> {
        let (content, cases) = self.content(convention)?;
        let mut tensors = BTreeMap::new();
        let bytes = match content {
            Content::Lines(lines) => lines.into_bytes(),
            Content::Tensors { tensors: all, metadata } => {
                tensors = records(&all);
                to_bytes(&all, Some(&metadata)).map_err(|problem| ContainerError {
                    path: PathBuf::from(&self.path),
                    problem,
                })?
            }
        };
        let record = FileRecord {
            path: self.path.clone(),
            op: self.ops.first().map_or("-", Op::name).to_owned(),
            profile: self.profile(),
            prefix: match &self.ops[..] {
                [op] if self.level != Level::Smoke => Some(op.prefix()),
                _ => None,
            },
            cases,
            bytes: bytes.len() as u64,
            sha256: sha256(&bytes),
            tensors,
        };
        Ok(Built { bytes, record })
    }

    /// The parameters that all ops of the file share.
    fn profile(&self) -> BTreeMap<String, String> {
        let mut fields = self.ops.iter().map(Op::fields);
        let mut shared = fields.next().unwrap_or_default();
        for other in fields {
            shared.retain(|key, value| other.get(key) == Some(value));
        }
        shared.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

fn records(tensors: &Tensors) -> BTreeMap<String, TensorRecord> {
    let record = |(name, tensor): (&String, _)| {
        let TensorRef { dtype, shape, .. } = TensorRef::from(tensor);
        let shape = shape.iter().map(|&length| length as u64).collect();
        (name.clone(), TensorRecord { dtype: dtype.to_string(), shape })
    };
    tensors.iter().map(record).collect()
}

/// SHA-256 in hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(digit).collect()
}

fn digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or('0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{answer, rules};
    use crate::op::{Gemm, Scaling, Split};
    use mx_reference::Rule;
    use mx_reference::convention::PROPAGATE;

    #[test]
    fn classes_fit_the_class_tensor() {
        assert_eq!(numbered_classes().count(), classes::ALL.len());
    }

    #[test]
    fn exhaustive_is_not_stored() {
        assert!(matches!(planned(Level::Exhaustive), Err(PackError::Level { .. })));
    }

    #[test]
    fn digests_are_hexadecimal() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }

    /// The inputs and answers of a case, and how some of these are compared.
    fn solved(op: &Op, class: &Class, n: u64) -> (Tensors, Tensors, Vec<Rule>) {
        let Source::Tensors { call, .. } = class.source else { panic!("{}", class.name) };
        let Call { op, inputs } = call(op, n);
        let outputs = answer(&op, &PROPAGATE, &inputs).unwrap();
        let mut some = Vec::new();
        for (name, output) in &outputs {
            let rule = rules(&op, &PROPAGATE, &inputs, &outputs, name);
            some.extend((0..output.data.len()).step_by(97).map(rule));
        }
        (inputs, outputs, some)
    }

    #[test]
    fn training_steps_that_are_left_out_have_the_cases_of_a_stored_one() {
        // What decides the answers, and a case that is compared by intervals where there is one.
        let decides = |op: &Op| match op {
            Op::Linear(l) => {
                let config = l.config();
                let n = if l.grouped { 2 } else { 5 };
                Some((op.name(), config.element, config.mode, config.wgrad_with_hp, n))
            }
            Op::AllToAll(a) => {
                let config = a.recipe.config();
                Some((op.name(), config.element, config.mode, false, 1))
            }
            _ => None,
        };
        let (inside, outside): (Vec<Op>, Vec<Op>) =
            cells().into_iter().filter(|op| decides(op).is_some()).partition(stored);
        assert_eq!((inside.len(), outside.len()), (4 + 4 + 3, 3 + 10 + 4));
        for op in outside {
            let (name, .., n) = decides(&op).unwrap();
            let class = if name == "all_to_all" { "all-to-all" } else { "linear" };
            let class = classes::ALL.iter().find(|other| other.name == class).unwrap();
            let mut twins = inside.iter().filter(|other| decides(other) == decides(&op));
            let twin = twins.next().unwrap();
            assert!(solved(&op, class, n) == solved(twin, class, n), "{}", op.prefix());
            assert_eq!(twins.next(), None);
        }
    }

    #[test]
    fn the_largest_products_are_left_out() {
        let [bounded, exact] = [Test::Bounded, Test::Exact].map(|test| {
            let (a, b) = (Factor::Element(Element::E2m1), Factor::Element(Element::E2m1));
            let (scaling, output, accumulate, split) = (Scaling::Mx, Float::F32, None, Split::NONE);
            move |m: usize, n: usize, k: usize| {
                let op = Op::Gemm(Gemm { a, b, scaling, output, accumulate, split, test });
                let side = |rows| Tensor::u8([rows, k], vec![0; rows * k]);
                let names = ["a_elements", "b_elements"].map(str::to_owned);
                kept(&Call { op, inputs: names.into_iter().zip([m, n].map(side)).collect() })
            }
        });
        assert!(bounded(128, 128, 128) && !bounded(128, 128, 256));
        assert!(exact(256, 128, 256) && !exact(256, 272, 256));
        assert!(exact(1, 32, 2048) && !exact(1, 257, 2048));
    }
}
