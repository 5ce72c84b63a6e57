//! What was wrong with an answer, in words: which case, where, what was expected and what came.

use super::{Asked, Question};
use crate::compare::{Site, output_format};
use crate::explain::decimal;
use crate::record::{Failure, FailureKind, SiteRecord};
use crate::report::count;
use crate::selection::Work;
use mx_reference::{Rule, ScaleLayout};
use mx_vectors::Op;
use std::collections::BTreeSet;

/// Wrong elements kept of a failing case.
const SITES: usize = 4;
/// Wrong elements shown of one case that is looked at alone.
const MANY: usize = 64;

impl Question<'_> {
    /// The first failure of each class, each with its case's ordinal.
    pub fn failures(&self, asked: Asked) -> Vec<(u64, Failure)> {
        if let Some((kind, message)) = asked.whole {
            let failure = Failure { id: self.id(0), kind, message, sites: Vec::new(), wrong: 0 };
            return vec![(0, failure)];
        }
        let mut seen = BTreeSet::new();
        asked
            .by_case
            .into_iter()
            .filter(|(ordinal, _)| seen.insert(self.work.class(*ordinal)))
            .map(|(ordinal, (kind, sites))| (ordinal, self.failure(ordinal, kind, &sites, SITES)))
            .collect()
    }

    /// The first failing case with its wrong elements: all of a block's, the first 64 of a tensor's.
    pub fn first_failure(&self, asked: Asked) -> Option<Failure> {
        if asked.whole.is_some() {
            return self.failures(asked).pop().map(|(_, failure)| failure);
        }
        let (ordinal, (kind, sites)) = asked.by_case.into_iter().next()?;
        Some(self.failure(ordinal, kind, &sites, MANY))
    }

    fn failure(&self, ordinal: u64, kind: FailureKind, sites: &[Site], limit: usize) -> Failure {
        let wrong = sites.len() as u64;
        let elements = count(wrong, "wrong element");
        let message = match kind {
            FailureKind::Nondeterministic => {
                format!("nondeterministic: two calls differ; {elements}")
            }
            FailureKind::Unwritten => format!("{elements}, some never written"),
            _ => elements,
        };
        // The scale comes first: its error explains those of the elements.
        let mut shown: Vec<&Site> = sites.iter().collect();
        shown.sort_by_key(|site| (site.tensor != "scales", site.index));
        let sites = shown.into_iter().take(limit).map(|site| self.record(site)).collect();
        Failure { id: self.id(ordinal), kind, message, sites, wrong }
    }

    fn record(&self, site: &Site) -> SiteRecord {
        let output = &self.expected[&site.tensor];
        let digits = 2 * output.data.width();
        let hex = |bits: u32| format!("{bits:0digits$x}");
        let value = |bits: u32| match output_format(&self.call.op, output) {
            Some(format) => decimal(format.decode(bits)),
            None => hex(bits),
        };
        let got = |bits: u32| match site.rule {
            Rule::Between { .. } => format!("{} ({})", hex(bits), value(bits)),
            _ => hex(bits),
        };
        let expected = match site.rule {
            Rule::AnyNan => "nan".to_owned(),
            // The bits of negative numbers fall where their values rise.
            Rule::Between { low, high } => {
                format!("{}..={} ({} to {})", hex(low), hex(high), value(low), value(high))
            }
            _ => hex(site.expected),
        };
        SiteRecord {
            tensor: site.tensor.clone(),
            at: self.place(site).1,
            place: self.describe(site),
            expected,
            got: match site.again {
                None => got(site.got),
                Some(again) => format!("{}, then {}", got(site.got), got(again)),
            },
        }
    }

    /// Where a wrong element is, in words.
    fn describe(&self, site: &Site) -> String {
        let shape = &self.expected[&site.tensor].shape;
        match (self.work, &shape[..]) {
            (Work::Blocks(_), _) if site.tensor == "scales" => "scale".to_owned(),
            (Work::Blocks(_), _) => format!("lane {}", self.place(site).1),
            (_, [_, cols]) if *cols > 0 => {
                format!("row {}, column {}", site.index / cols, site.index % cols)
            }
            (_, &[_, rows, cols]) if rows * cols > 0 => {
                let (group, at) = (site.index / (rows * cols), site.index % (rows * cols));
                format!("group {group}, row {}, column {}", at / cols, at % cols)
            }
            _ => match self.blocked_shape().map(|s| ScaleLayout::Blocked.place(s, site.index)) {
                Some(Some((r, c))) => {
                    format!("byte {}, the scale of row {r}, block {c}", site.index)
                }
                Some(None) => format!("byte {}, padding", site.index),
                None => format!("index {}", site.index),
            },
        }
    }

    /// Rows and columns of the scales of a call whose output is blocked.
    fn blocked_shape(&self) -> Option<(usize, usize)> {
        match self.call.op {
            Op::Swizzle => match self.call.inputs.get("scales")?.shape[..] {
                [rows, cols] => Some((rows, cols)),
                _ => None,
            },
            Op::Quantize(q) if q.layout == ScaleLayout::Blocked => {
                match self.expected.get("elements")?.shape[..] {
                    [rows, cols] => Some((rows, cols / q.block.cols())),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
