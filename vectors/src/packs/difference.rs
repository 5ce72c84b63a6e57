//! Where a file on disk departs from what it should hold, said so that a human can look there.

use super::container::{self, Loaded, TensorRef};
use super::files::{Content, Planned};
use crate::op::Op;
use crate::tensor::{Tensor, Tensors};
use std::fs;
use std::path::Path;

/// How a file departs from what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// Listed, but not there.
    #[error("is listed in the manifest and missing")]
    Missing,
    /// There, but not listed.
    #[error("is not listed in the manifest")]
    Extra,
    /// Listed, but no file of such a pack.
    #[error("no pack of this level and version has such a file")]
    Unknown,
    /// A folder, a link or a device.
    #[error("expected a regular file")]
    NoFile,
    /// A file that cannot be parsed.
    #[error("{0}")]
    Unreadable(String),
    /// Another element.
    #[error(
        "tensor `{tensor}` at {index:?}{}: expected 0x{expected:02x}, got 0x{got:02x}",
        id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default()
    )]
    Element {
        /// The tensor.
        tensor: String,
        /// Where in it.
        index: Vec<usize>,
        /// The case.
        id: Option<String>,
        /// What it should be.
        expected: u32,
        /// What it is.
        got: u32,
    },
    /// Tensors of other names, types or shapes.
    #[error("tensor `{tensor}`: expected {expected}, got {got}")]
    Tensor {
        /// The tensor.
        tensor: String,
        /// Type and shape, or `nothing`.
        expected: String,
        /// Type and shape, or `nothing`.
        got: String,
    },
    /// Another metadata entry.
    #[error("metadata: expected {expected}, got {}", got.as_deref().unwrap_or("nothing"))]
    Metadata {
        /// What it should be.
        expected: String,
        /// What it is.
        got: Option<String>,
    },
    /// The same tensors in another order or with another header.
    #[error("holds the right tensors in other bytes: another header or order")]
    Form,
    /// Another line of text.
    #[error("line {line}, column {column}: expected ..{expected:?}.., got ..{got:?}..")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The first character that differs, from 1.
        column: usize,
        /// What should be there and just before; empty past the end.
        expected: String,
        /// What is there.
        got: String,
    },
    /// The file is right, the manifest's size is not.
    #[error("has {expected} bytes as it should, the manifest says {claimed}")]
    Size {
        /// What it is.
        expected: u64,
        /// What the manifest says.
        claimed: u64,
    },
    /// The file is right, the manifest's digest is not.
    #[error("has sha256 {expected} as it should, the manifest says {claimed}")]
    Digest {
        /// What it is.
        expected: String,
        /// What the manifest says.
        claimed: String,
    },
    /// The file is right, another field of its record is not.
    #[error("is right, its record in the manifest is not")]
    Record,
}

impl Difference {
    /// The first place in which two texts differ; the first line past both for equal ones.
    pub(super) fn line(expected: &str, got: &str) -> Self {
        let (mut want, mut have) = (expected.split('\n'), got.split('\n'));
        let mut line = 0;
        loop {
            line += 1;
            let pair = (want.next(), have.next());
            if pair.0 != pair.1 || pair == (None, None) {
                let [expected, got] = [pair.0, pair.1].map(Option::unwrap_or_default);
                let same = expected.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
                let [expected, got] = [expected, got].map(|text| around(text, same));
                return Self::Line { line, column: same + 1, expected, got };
            }
        }
    }
}

/// The part of a line that tells it from another, which begins with the same `same` characters.
fn around(line: &str, same: usize) -> String {
    const BEFORE: usize = 24;
    const LONGEST: usize = 64;
    line.chars().skip(same.saturating_sub(BEFORE)).take(LONGEST).collect()
}

/// The first difference between the right content and the file at `path`, which has other bytes.
pub(super) fn between(file: &Planned, content: &Content, path: &Path) -> Difference {
    match content {
        Content::Lines(expected) => match fs::read(path) {
            Ok(got) => Difference::line(expected, &String::from_utf8_lossy(&got)),
            Err(error) => Difference::Unreadable(error.to_string()),
        },
        Content::Tensors { tensors, metadata } => match container::read(path) {
            Ok(got) => in_tensors(file, tensors, &got).unwrap_or_else(|| match got.metadata {
                Some(got) if got == *metadata => Difference::Form,
                got => Difference::Metadata { expected: metadata.clone(), got },
            }),
            Err(error) => Difference::Unreadable(error.problem.to_string()),
        },
    }
}

fn in_tensors(file: &Planned, right: &Tensors, got: &Loaded) -> Option<Difference> {
    let kind = |tensor: &Tensor| {
        let of = TensorRef::from(tensor);
        format!("{} {:?}", of.dtype, of.shape)
    };
    for (name, want) in right {
        let (tensor, expected) = (name.clone(), kind(want));
        let (Some(have), Some(dtype)) = (got.tensors.get(name), got.dtypes.get(name)) else {
            return Some(Difference::Tensor { tensor, expected, got: "nothing".to_owned() });
        };
        let stored = format!("{dtype} {:?}", have.shape);
        if stored != expected {
            return Some(Difference::Tensor { tensor, expected, got: stored });
        }
        let other = |&i: &usize| want.data.get(i) != have.data.get(i);
        if let Some(i) = (0..want.data.len()).find(other) {
            let index = unravelled(&want.shape, i);
            let id = case_id(file, right, name, index.first().copied());
            let (expected, got) = (want.data.get(i), have.data.get(i));
            return Some(Difference::Element { tensor, index, id, expected, got });
        }
    }
    let extra = got.tensors.iter().find(|(name, _)| !right.contains_key(*name))?;
    Some(Difference::Tensor {
        tensor: extra.0.clone(),
        expected: "nothing".to_owned(),
        got: kind(extra.1),
    })
}

fn unravelled(shape: &[usize], mut i: usize) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&length| {
            let at = i % length.max(1);
            i /= length.max(1);
            at
        })
        .collect();
    index.reverse();
    index
}

/// The case that an element is of: the one that its tensor is named for, or that of its row.
fn case_id(file: &Planned, tensors: &Tensors, name: &str, row: Option<usize>) -> Option<String> {
    let prefix = file.ops.first().map(Op::prefix)?;
    if let Some((case, _)) = name.split_once('.') {
        return Some(format!("{prefix}/{case}"));
    }
    let column = |name: &str| {
        let data = &tensors.get(name)?.data;
        row.filter(|row| *row < data.len()).map(|row| data.get(row))
    };
    let class = crate::classes::ALL.get(column("class")? as usize)?;
    Some(format!("{prefix}/{}#{}", class.name, column("number")?))
}
