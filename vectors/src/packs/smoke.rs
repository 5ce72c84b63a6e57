//! The smoke pack: blocks that a human reads, as JSON Lines.

use super::error::PackError;
use super::standard::{Solved, batch};
use crate::class::{LANES, Level};
use crate::op::{Float, Op, Quantize};
use crate::plan::Batch;
use mx_reference::Convention;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One quantised block. Hexadecimal is as wide as its type; zeros at the end of a list are left out, so a list is filled up
/// with zeros to 32 lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmokeLine {
    /// The case.
    #[schemars(regex(pattern = r"^quantize/[^/]+/[^/]+/[^/]+/row/[^/#]+#\d+$"))]
    pub id: String,
    /// Input bits: 8 digits for f32, 4 for bf16 and f16.
    #[schemars(length(max = LANES), inner(regex(pattern = "^([0-9a-f]{4}|[0-9a-f]{8})$")))]
    pub input: Vec<String>,
    /// The scale byte.
    #[schemars(regex(pattern = "^[0-9a-f]{2}$"))]
    pub scale: String,
    /// Element codes, one a byte.
    #[schemars(length(max = LANES), inner(regex(pattern = "^[0-9a-f]{2}$")))]
    pub elements: Vec<String>,
    /// How each code is compared: 0 equal bits, 1 any NaN code, 2 free. Left out where every code is exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = LANES), inner(range(max = 2)))]
    pub care: Vec<u8>,
    /// What the case aims at.
    pub why: String,
}

/// The file that an op has lines in, if any.
pub(super) fn path(op: &Op) -> Option<String> {
    match op {
        Op::Quantize(q) => Some(format!("quantize-{}.jsonl", q.element.name())),
        _ => None,
    }
}

/// The lines of some ops, and how many there are.
pub(super) fn lines(
    ops: &[Op],
    convention: &'static Convention,
) -> Result<(String, u64), PackError> {
    let (mut text, mut count) = (String::new(), 0);
    for op in ops {
        let Op::Quantize(q) = op else { continue };
        let batch = batch(*q, Level::Smoke);
        for line in blocks(*q, &batch, convention)? {
            text.push_str(&serde_json::to_string(&line)?);
            text.push('\n');
            count += 1;
        }
    }
    Ok((text, count))
}

fn blocks(
    q: Quantize,
    batch: &Batch,
    convention: &'static Convention,
) -> Result<Vec<SmokeLine>, PackError> {
    let prefix = Op::Quantize(q).prefix();
    let digits = match q.input {
        Float::F32 => 8,
        Float::Bf16 | Float::F16 => 4,
    };
    let hex = |bits: u32, digits: usize| format!("{bits:0digits$x}");
    let case = Solved::new(batch.call(), convention, || prefix.clone())?;
    let care = case.care("elements");
    let (input, outputs) = (&case.call.inputs["input"].data, &case.outputs);
    let cases = (0..batch.len()).filter_map(|ordinal| batch.case(ordinal));
    let line = |(row, (class, n)): (usize, (&crate::Class, u64))| {
        let lanes = row * LANES..(row + 1) * LANES;
        let code = |i| outputs["elements"].data.get(i);
        SmokeLine {
            id: format!("{prefix}/{}#{n}", class.name),
            input: trimmed(lanes.clone().map(|i| input.get(i)), |bits| hex(bits, digits)),
            scale: hex(outputs["scales"].data.get(row), 2),
            elements: trimmed(lanes.clone().map(code), |code| hex(code, 2)),
            care: trimmed(care[lanes].iter().copied(), |care| care),
            why: class.aim.to_owned(),
        }
    };
    Ok(cases.enumerate().map(line).collect())
}

/// A list without the zeros at its end.
fn trimmed<T: PartialEq + Default, U>(
    values: impl Iterator<Item = T>,
    show: impl FnMut(T) -> U,
) -> Vec<U> {
    let mut values: Vec<T> = values.collect();
    let zero = T::default();
    let length = values.iter().rposition(|value| *value != zero).map_or(0, |last| last + 1);
    values.truncate(length);
    values.into_iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::files::planned;

    #[test]
    fn profiles_are_human_sized() {
        for file in planned(Level::Smoke).unwrap() {
            for op in file.ops {
                let Op::Quantize(q) = op else { panic!("{}", op.prefix()) };
                let count = batch(q, Level::Smoke).len();
                assert!((1..=16).contains(&count), "{}: {count}", op.prefix());
            }
        }
    }

    #[test]
    fn zeros_at_the_end_are_left_out() {
        assert_eq!(trimmed([0, 1, 0, 2, 0, 0].into_iter(), |x| x), [0, 1, 0, 2]);
        assert!(trimmed([0u8, 0].into_iter(), |x| x).is_empty());
    }
}
