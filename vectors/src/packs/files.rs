//! Which files a pack has, and from case to bytes for each of them.

use super::container::{ContainerError, TensorRef, to_bytes};
use super::error::PackError;
use super::manifest::{FileRecord, PACK_VERSION, SCHEMA, TensorRecord};
use super::{smoke, standard};
use crate::cells::cells;
use crate::class::{Class, Level, Source};
use crate::classes;
use crate::op::{CastRounding, Op, Target};
use crate::tensor::Tensors;
use mx_reference::{Axis, BlockShape, Convention, ScaleLayout};
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

/// Whether packs hold an op: plain blocks of 32 along rows, and the casts that conversions to these formats are made of.
fn stored(op: &Op) -> bool {
    match op {
        Op::Quantize(q) => {
            (q.axis, q.block, q.layout) == (Axis::Row, BlockShape::MX, ScaleLayout::Plain)
        }
        Op::Cast(c) => {
            c.rounding == CastRounding::Even
                || (c.target, c.rounding) == (Target::E8m0, CastRounding::Up)
        }
        _ => true,
    }
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
}
