//! Which cases a run asks: cells × classes at a level, through filters.

use globset::{GlobBuilder, GlobMatcher};
use mx_vectors::plan::{Batch, Run, runs};
use mx_vectors::{Class, Level, Op, Source};
use std::collections::BTreeSet;

/// A glob over case ids in which `*` crosses `/`. Without a `#` it selects whole classes.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    path: GlobMatcher,
    number: Option<Number>,
}

/// What stands after `#`.
#[derive(Clone, Debug)]
enum Number {
    /// One case: not looked for by walking all, which for whole domains are many.
    Exact(u64),
    /// A glob over the digits.
    Glob(GlobMatcher),
}

/// A filter that is no glob.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{text}` is not a filter: {reason}; filters are globs over ids such as `quantize/e4m3/*/bf16/row/ties#12`"
)]
pub struct FilterError {
    text: String,
    reason: String,
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// [`FilterError`] for a malformed glob.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let glob = |pattern: &str| {
            GlobBuilder::new(pattern)
                .literal_separator(false)
                .build()
                .map(|glob| glob.compile_matcher())
                .map_err(|e| FilterError { text: text.to_owned(), reason: e.kind().to_string() })
        };
        let (path, number) = match text.split_once('#') {
            Some((path, number)) => {
                let exact = number.parse().ok().filter(|n: &u64| n.to_string() == number);
                (
                    path,
                    Some(exact.map_or_else(
                        || glob(number).map(Number::Glob),
                        |n| Ok(Number::Exact(n)),
                    )?),
                )
            }
            None => (text, None),
        };
        Ok(Self { text: text.to_owned(), path: glob(path)?, number })
    }

    /// As given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it selects something of a class, given the id up to `#`; a filter may also name the cell alone.
    pub fn matches_class(&self, prefix: &str, class: &str) -> bool {
        self.path.is_match(format!("{prefix}/{class}"))
            || self.number.is_none() && self.path.is_match(prefix)
    }

    /// The cases of a run that it selects, in order.
    fn within(&self, run: Run) -> Vec<u64> {
        let all = run.first..run.first + run.count;
        match &self.number {
            None => all.collect(),
            Some(Number::Exact(n)) => Some(*n).filter(|n| all.contains(n)).into_iter().collect(),
            Some(Number::Glob(glob)) => all.filter(|n| glob.is_match(n.to_string())).collect(),
        }
    }
}

/// One call's worth of cases.
#[derive(Clone, Debug)]
pub enum Work {
    /// Blocks that share a tensor.
    Blocks(Batch),
    /// A case that is a call of its own.
    Single {
        /// The cell's op.
        op: Op,
        /// The class.
        class: &'static Class,
        /// The case.
        n: u64,
        /// What rows and columns of products are filled up to.
        multiple: (usize, usize),
    },
}

impl Work {
    /// Number of cases.
    pub fn cases(&self) -> u64 {
        match self {
            Self::Blocks(batch) => batch.len(),
            Self::Single { .. } => 1,
        }
    }

    /// The class of the case at an ordinal.
    pub fn class(&self, ordinal: u64) -> &'static str {
        match self {
            Self::Blocks(batch) => batch.case(ordinal).map_or("", |(class, _)| class.name),
            Self::Single { class, .. } => class.name,
        }
    }

    /// The id of the case at an ordinal.
    pub fn id(&self, prefix: &str, ordinal: u64) -> String {
        match self {
            Self::Blocks(batch) => match batch.case(ordinal) {
                Some((class, n)) => format!("{prefix}/{}#{n}", class.name),
                None => prefix.to_owned(),
            },
            Self::Single { class, n, .. } => format!("{prefix}/{}#{n}", class.name),
        }
    }
}

/// One cell with its share of cases.
#[derive(Clone, Debug)]
pub struct CellPlan {
    /// The op with its parameters.
    pub op: Op,
    /// `op/element/mode/input/axis`.
    pub prefix: String,
    /// The calls to make.
    pub works: Vec<Work>,
    /// Whether the filters left any case of the level out.
    pub complete: bool,
}

/// Blocks in one call: enough to amortise a call, few enough to bisect and to bound memory.
const BLOCKS_PER_CALL: u64 = 1 << 14;

/// The cells of a level that have any case left after the filters; no filter selects everything.
pub fn plan(
    cells: impl IntoIterator<Item = Op>,
    classes: &'static [Class],
    level: Level,
    filters: &[Filter],
    multiple: (usize, usize),
) -> Vec<CellPlan> {
    let mut plans = Vec::new();
    for op in cells {
        let prefix = op.prefix();
        let mut plan = CellPlan { op, works: Vec::new(), complete: true, prefix };
        let mut blocks = Vec::new();
        for class in classes {
            let all = runs(&op, class, level);
            let selected = select(&all, &plan.prefix, class, filters);
            let count = |runs: &[Run]| runs.iter().map(|run| run.count).sum::<u64>();
            plan.complete &= count(&selected) == count(&all);
            match class.source {
                Source::Blocks { .. } => blocks.extend(selected),
                Source::Tensors { .. } => plan.works.extend(
                    selected
                        .iter()
                        .flat_map(|run| run.first..run.first + run.count)
                        .map(|n| Work::Single { op, class, n, multiple }),
                ),
            }
        }
        if let Op::Quantize(q) = op {
            let batches = chunks(blocks, BLOCKS_PER_CALL);
            let works =
                batches.into_iter().map(|runs| Work::Blocks(Batch { op: q, runs, multiple }));
            plan.works.splice(0..0, works);
        }
        if !plan.works.is_empty() {
            plans.push(plan);
        }
    }
    plans
}

fn select(all: &[Run], prefix: &str, class: &Class, filters: &[Filter]) -> Vec<Run> {
    let relevant: Vec<_> =
        filters.iter().filter(|filter| filter.matches_class(prefix, class.name)).collect();
    if filters.is_empty() || relevant.iter().any(|filter| filter.number.is_none()) {
        return all.to_vec();
    }
    let mut selected: Vec<Run> = Vec::new();
    for &run in all {
        let numbers: BTreeSet<u64> =
            relevant.iter().flat_map(|filter| filter.within(run)).collect();
        for n in numbers {
            match selected.last_mut() {
                Some(last) if last.first + last.count == n => last.count += 1,
                _ => selected.push(Run { first: n, count: 1, ..run }),
            }
        }
    }
    selected
}

/// Cuts runs into groups of at most `size` cases.
fn chunks(runs: Vec<Run>, size: u64) -> Vec<Vec<Run>> {
    let mut groups: Vec<Vec<Run>> = Vec::new();
    let mut room = 0;
    for mut run in runs {
        while run.count > 0 {
            if room == 0 {
                groups.push(Vec::new());
                room = size;
            }
            let taken = run.count.min(room);
            if let Some(group) = groups.last_mut() {
                group.push(Run { count: taken, ..run });
            }
            run = Run { first: run.first + taken, count: run.count - taken, ..run };
            room -= taken;
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_vectors::cells::cells;
    use mx_vectors::classes;

    fn count(filters: &[&str]) -> (u64, bool) {
        let filters: Vec<_> = filters.iter().map(|text| Filter::parse(text).unwrap()).collect();
        let plans = plan(cells(), &classes::ALL, Level::Standard, &filters, (1, 1));
        let cases = plans.iter().flat_map(|plan| &plan.works).map(Work::cases).sum();
        (cases, plans.iter().all(|plan| plan.complete))
    }

    #[test]
    fn filters_select_cells_classes_and_cases() {
        let (all, complete) = count(&[]);
        assert!(complete && all > 100_000);
        let (cell, complete) = count(&["quantize/e4m3/rceil/bf16/row"]);
        assert!(complete && cell > 0);
        let (class, complete) = count(&["quantize/e4m3/rceil/bf16/row/ties"]);
        assert!(!complete && class > 0 && class < cell);
        assert_eq!(count(&["quantize/e4m3/rceil/bf16/row/ties#1"]), (1, false));
        assert_eq!(count(&["nothing/*"]).0, 0);
        assert_eq!(count(&["*"]), (all, true));
    }

    #[test]
    fn chunks_keep_every_case() {
        let class = &classes::ALL[0];
        let runs = vec![Run { class, first: 3, count: 10 }, Run { class, first: 20, count: 5 }];
        let groups = chunks(runs, 4);
        let sizes: Vec<u64> = groups.iter().map(|g| g.iter().map(|r| r.count).sum()).collect();
        assert_eq!(sizes, [4, 4, 4, 3]);
    }
}
