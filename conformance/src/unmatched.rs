//! Why filters name no case, and what would.

use crate::capabilities::{Accumulate, Capabilities};
use crate::selection::{CellPlan, Filter, plan};
use crate::suggest::nearest;
use mx_reference::gemm::Model;
use mx_vectors::{Level, Op, cells::cells, classes};

/// The cells as a backend that declares this accumulation is asked them; without a declaration, f32 additions in any order.
pub fn declared(accumulate: Option<Accumulate>) -> impl Iterator<Item = Op> {
    let claims = Capabilities { accumulate, ..Capabilities::default() };
    cells().into_iter().map(move |op| claims.declared(op))
}

/// The cases that filters name, as a backend that declares this accumulation is asked them.
pub fn matched(filters: &[Filter], level: Level, accumulate: Option<Accumulate>) -> Vec<CellPlan> {
    plan(declared(accumulate), &classes::ALL, level, filters, (1, 1))
}

/// Why filters name no case of a level and an accumulation, in a sentence; `None` if they name one.
pub fn unmatched(
    filters: &[Filter],
    level: Level,
    accumulate: Option<Accumulate>,
) -> Option<String> {
    let names = |level, accumulate| !matched(filters, level, accumulate).is_empty();
    if names(level, accumulate) {
        return None;
    }
    let texts: Vec<String> = filters.iter().map(|filter| format!("`{}`", filter.text())).collect();
    let (texts, verb) = (texts.join(", "), if texts.len() == 1 { "names" } else { "name" });
    if let Some(other) = Level::ALL.into_iter().find(|&other| names(other, accumulate)) {
        let (level, other) = (level.name(), other.name());
        return Some(format!("{texts} {verb} no case of level {level}; try --level {other}"));
    }
    let products = |model: Option<Model>| {
        let is_product = |op: &Op| matches!(op, Op::Gemm(_) | Op::GroupedGemm(_) | Op::Linear(_));
        let cells = declared(Some(Accumulate(model))).filter(is_product);
        !plan(cells, &classes::ALL, Level::Exhaustive, filters, (1, 1)).is_empty()
    };
    let models = std::iter::once(None).chain(Model::ALL.map(Some));
    let models: Vec<String> = models
        .filter(|&model| products(model))
        .map(|model| String::from(Accumulate(model)))
        .collect();
    if !models.is_empty() {
        let own = String::from(accumulate.unwrap_or(Accumulate(None)));
        return Some(format!(
            "{texts} {verb} no case of a backend that declares the accumulation {own}; there are such cases under {}: \
             `mxcert list FILTER --accumulate MODEL` prints them",
            models.join(", ")
        ));
    }
    let hint = filters.first().map(|filter| near(filter, accumulate)).unwrap_or_default();
    Some(format!("{texts} {verb} no case{hint}; `mxcert list FILTER` prints ids"))
}

/// How many cases there are of the class that an id names, or the nearest id of one.
fn near(filter: &Filter, accumulate: Option<Accumulate>) -> String {
    let path = filter.text().split('#').next().unwrap_or_default();
    if path.contains(['*', '?', '[', '{']) || path.len() > LONGEST {
        return String::new();
    }
    let mut ids = Vec::new();
    for op in declared(accumulate) {
        for class in &classes::ALL {
            match class.count(&op, Level::Exhaustive) {
                0 => {}
                cases => ids.push((format!("{}/{}", op.prefix(), class.name), cases)),
            }
        }
    }
    if let Some((_, cases)) = ids.iter().find(|(id, _)| id == path) {
        return format!(": {path} ends at #{}", cases - 1);
    }
    nearest(path, &ids.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>())
}

/// Characters of the longest text for which a near id is looked for.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn why(filter: &str, level: Level, model: Option<Model>) -> Option<String> {
        unmatched(&[Filter::parse(filter).unwrap()], level, model.map(|m| Accumulate(Some(m))))
    }

    #[rstest]
    #[case::of_models(
        "*g4*",
        Level::Standard,
        None,
        "accumulation f32; there are such cases under f32-sequential"
    )]
    #[case::of_fp8(
        "gemm/*/unit/*",
        Level::Standard,
        Some(Model::Exact),
        "declares the accumulation exact; there are such cases under ada-fp8, hopper-fp8, hopper-fp8-promote128, sm90-mma-fp8:"
    )]
    #[case::of_no_fp8(
        "gemm/e4m3-e4m3/mx/f32/-/g0-products#0",
        Level::Standard,
        Some(Model::AdaFp8),
        "under f32, exact"
    )]
    #[case::of_a_level(
        "quantize/e2m1/floor/bf16/row/pairs",
        Level::Standard,
        None,
        "of level standard; try --level exhaustive"
    )]
    #[case::beyond_the_last(
        "cast/e2m1/even+saturate/bf16/-/cast-codes#99999999",
        Level::Standard,
        None,
        "cast-codes ends at #"
    )]
    #[case::misspelt(
        "quantize/e2m1/flor/bf16/row/ties#1",
        Level::Standard,
        None,
        "(did you mean `quantize/e2m1/floor/bf16/row/ties`?)"
    )]
    #[case::nothing(
        "no/such/*",
        Level::Standard,
        None,
        "`no/such/*` names no case; `mxcert list FILTER` prints ids"
    )]
    fn why_nothing_is_named(
        #[case] filter: &str,
        #[case] level: Level,
        #[case] model: Option<Model>,
        #[case] expected: &str,
    ) {
        let said = why(filter, level, model).unwrap();
        assert!(said.contains(expected), "{expected} in {said}");
    }

    #[test]
    fn what_is_named_needs_no_word() {
        assert_eq!(why("*g4*", Level::Standard, Some(Model::HopperFp8)), None);
        assert_eq!(why("quantize/e2m1/*", Level::Standard, None), None);
    }
}
