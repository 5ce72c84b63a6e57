//! Deliberately wrong products: each must be found, at the level it falls at.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_conformance::backends::in_process::InProcess;
use mx_conformance::backends::native;
use mx_conformance::capabilities::{Accumulate, Capabilities};
use mx_conformance::judge::Judge;
use mx_conformance::progress::Quiet;
use mx_conformance::record::{Counts, FailureKind};
use mx_conformance::runner::{Findings, Options, run};
use mx_conformance::selection::{Filter, plan};
use mx_reference::convention::PROPAGATE;
use mx_reference::gemm::{Accepts, Accumulation, E8M13, FusedDot, Model, Scheme};
use mx_reference::{Convention, Overflow, Rounding};
use mx_vectors::answer::{AnswerError, narrow, one, product};
use mx_vectors::op::{Gemm, GroupedGemm, Scaling, Test};
use mx_vectors::{Data, Float, Level, Op, Tensor, Tensors, cells::cells, classes};
use rstest::rstest;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

type Answer = fn(&Op, &'static Convention, &Tensors) -> Result<Tensors, AnswerError>;

/// Failed cases by class, and all counts.
fn judge(
    answer: Answer,
    accumulate: Option<Model>,
    filter: &str,
) -> (BTreeMap<&'static str, u64>, Counts) {
    let findings = found(answer, accumulate, filter, 1000);
    let mut counts = Counts::default();
    for cell in &findings.cells {
        counts.add(&cell.counts);
    }
    (findings.by_class, counts)
}

fn found(answer: Answer, accumulate: Option<Model>, filter: &str, repeat_every: usize) -> Findings {
    let mut backend = InProcess::new("planted", answer);
    backend.claim(|capabilities: &mut Capabilities| {
        capabilities.accumulate = Some(Accumulate(accumulate));
    });
    let options = Options {
        convention: &PROPAGATE,
        judge: Judge::Native,
        repeat_every,
        jobs: 1,
        bisect_for: Duration::from_mins(1),
    };
    let claims =
        Capabilities { accumulate: Some(Accumulate(accumulate)), ..Capabilities::default() };
    let cells = cells().into_iter().map(|op| claims.declared(op)).filter(|op| claims.covers(op));
    let filter = Filter::parse(filter).unwrap();
    let plans = plan(cells, &classes::ALL, Level::Standard, &[filter], (1, 1));
    run(&mut backend, &plans, options, &Quiet).unwrap()
}

/// The answer to changed inputs.
fn with(
    op: &Op,
    inputs: &Tensors,
    change: impl FnOnce(&mut Tensors),
) -> Result<Tensors, AnswerError> {
    let mut inputs = inputs.clone();
    change(&mut inputs);
    native::answer(op, &PROPAGATE, &inputs)
}

fn bytes<'a>(inputs: &'a mut Tensors, name: &str) -> Option<(Vec<usize>, &'a mut Vec<u8>)> {
    let tensor = inputs.get_mut(name)?;
    match &mut tensor.data {
        Data::U8(data) => Some((tensor.shape.clone(), data)),
        _ => None,
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Gemm(_))
}

/// The scales of group g + 1 of 32 rows where those of group g belong.
fn swizzle_off(op: &Op, _: &'static Convention, inputs: &Tensors) -> Result<Tensors, AnswerError> {
    with(op, inputs, |inputs| {
        if let Some((shape, scales)) = bytes(inputs, "b_scales")
            && is_product(op)
            && shape[0] > 32
        {
            scales.rotate_left(32 * shape[1]);
        }
    })
}

fn scales_swapped(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    with(op, inputs, |inputs| {
        let (a, b) = (inputs.get("a_scales").cloned(), inputs.get("b_scales").cloned());
        if let (Some(a), Some(b)) = (a, b)
            && a.shape == b.shape
        {
            inputs.insert("a_scales".to_owned(), b);
            inputs.insert("b_scales".to_owned(), a);
        }
    })
}

fn last_block_dropped(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    with(op, inputs, |inputs| {
        if let Some((shape, codes)) = bytes(inputs, "a_elements") {
            let k = shape[1];
            for row in codes.chunks_exact_mut(k).filter(|row| row.len() > 32) {
                row[k - 32..].fill(0);
            }
        }
    })
}

/// What Hopper's FP8 tensor cores keep, behind block scales, with nothing said about it.
fn fourteen_bits(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    let Op::Gemm(g) = op else { return native::answer(op, &PROPAGATE, inputs) };
    let step = FusedDot { length: 32, fraction: 13, accumulator: &E8M13 };
    let scheme = Scheme::Chain { step, promote: None };
    let (accepts, registers, split, tile) = (Accepts::Any, None, 1, 128);
    let accumulation = Accumulation { accepts, registers, scheme, split, tile };
    let product = product(g, inputs)?;
    let shape = product.shape();
    let bits = mx_native::accumulate(&product, &accumulation, g.output.format())?;
    Ok(one("output", [shape.m, shape.n], narrow(g.output, bits)))
}

/// Exact sums rounded to f32 and then to the output, by a backend that says `exact`.
fn rounded_twice(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    let Op::Gemm(g) = op else { return native::answer(op, &PROPAGATE, inputs) };
    let wide = Op::Gemm(Gemm { output: Float::F32, test: Test::Exact, ..*g });
    let done = native::answer(&wide, &PROPAGATE, inputs)?;
    let (from, to) = (Float::F32.format(), g.output.format());
    let data = &done["output"].data;
    let bits = (0..data.len())
        .map(|i| to.encode(from.decode(data.get(i)), Rounding::NearestEven, Overflow::Propagate))
        .collect();
    Ok(one("output", done["output"].shape.clone(), narrow(g.output, bits)))
}

/// Scale byte 0 as 0.0: what shifting the byte into an exponent field makes of it.
fn byte_zero_is_zero(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    with(op, inputs, |inputs| {
        for side in ["a", "b"] {
            let Some((_, scales)) = bytes(inputs, &format!("{side}_scales")) else { return };
            let scales = scales.clone();
            let Some((shape, codes)) = bytes(inputs, &format!("{side}_elements")) else { return };
            let k = *shape.last().unwrap();
            let nvfp4 = matches!(op, Op::Gemm(Gemm { scaling: Scaling::Nvfp4, .. }));
            for (i, code) in codes.iter_mut().enumerate() {
                let scale = scales[i / k * (k / 32).max(1) + i % k / 32];
                if !nvfp4 && scale == 0 {
                    *code = 0;
                }
            }
        }
    })
}

/// The last group of 32 rows without its scales.
fn last_rows_unscaled(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    with(op, inputs, |inputs| {
        if let Some((shape, scales)) = bytes(inputs, "a_scales")
            && is_product(op)
        {
            let first = (shape[0].saturating_sub(1) / 32 * 32) * shape[1];
            scales[first..].fill(127);
        }
    })
}

/// Experts counted by groups that have rows: an empty first group shifts the rest.
fn empty_groups_skipped(
    op: &Op,
    _: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    let mut inputs = inputs.clone();
    if let (Op::GroupedGemm(GroupedGemm { .. }), Some(Tensor { data: Data::I32(ends), .. })) =
        (op, inputs.get_mut("offsets"))
    {
        let mut kept: Vec<i32> = Vec::new();
        for &end in ends.iter() {
            if end > kept.last().copied().unwrap_or(0) {
                kept.push(end);
            }
        }
        let last = kept.last().copied().unwrap_or(0);
        kept.resize(ends.len(), last);
        *ends = kept;
    }
    native::answer(op, &PROPAGATE, &inputs)
}

const SQUARE: &str = "gemm/e4m3-e4m3/mx/f32/*g[012]-*";

#[rstest]
#[case::swizzle(swizzle_off, None, SQUARE, "g0-one-hot")]
#[case::swapped(scales_swapped, None, SQUARE, "g0-products")]
#[case::swapped_in_pairs(scales_swapped, None, "gemm/e5m2-int8/mx/bf16/*", "g0-products")]
#[case::dropped(last_block_dropped, None, SQUARE, "g0-one-hot")]
// f32 subnormals end below what such accumulators hold.
#[case::fourteen_bits(fourteen_bits, None, SQUARE, "g0-scale-pairs")]
#[case::fourteen_bits_to_bf16(fourteen_bits, None, "gemm/e5m2-e5m2/mx/bf16/*", "g1-x24")]
#[case::rounded_twice(rounded_twice, Some(Model::Exact), "gemm/e4m3-e4m3/mx/bf16/*", "g3-bounded")]
#[case::rounded_twice_f16(
    rounded_twice,
    Some(Model::Exact),
    "gemm/e2m1-e2m1/nvfp4/f16/*",
    "g3-bounded"
)]
#[case::byte_zero(byte_zero_is_zero, None, SQUARE, "g0-scale-pairs")]
#[case::byte_zero_int8(byte_zero_is_zero, None, "gemm/int8-e2m1/mx/f32/*", "g0-scale-pairs")]
#[case::unscaled(last_rows_unscaled, None, SQUARE, "g0-one-hot")]
#[case::empty_first(empty_groups_skipped, None, "grouped_gemm/e4m3-e4m3/*", "grouped")]
fn wrong_products_fall(
    #[case] answer: Answer,
    #[case] accumulate: Option<Model>,
    #[case] filter: &str,
    #[case] first: &str,
) {
    let (failed, counts) = judge(answer, accumulate, filter);
    println!("{failed:?}");
    assert!(counts.failed > 0, "not found");
    assert_eq!(failed.keys().next().copied(), Some(first), "{failed:?}");
}

#[test]
fn an_exact_backend_passes_under_every_claim() {
    for accumulate in [None, Some(Model::Exact)] {
        for filter in [
            SQUARE,
            "gemm/e4m3-e4m3/mx/f32/*g3-*#[1-3]?",
            "gemm/e5m2-e2m1/mx/bf16/*",
            "gemm/e2m1-e2m1/nvfp4/f32/*",
        ] {
            let (failed, counts) = judge(native::answer, accumulate, filter);
            assert!(counts.passed > 0 && counts.failed == 0, "{filter}: {failed:?}");
        }
    }
}

/// A backend that is one of the models passes when it says so: products, bounds and its own bits.
#[rstest]
fn models_conform_to_themselves(
    #[values(
        Model::F32Sequential,
        Model::F32Pairwise,
        Model::AdaFp8,
        Model::HopperFp8,
        Model::HopperFp8Promote128,
        Model::Sm90MmaFp8,
        Model::MxBlockF16Pair,
        Model::AdaBf16,
        Model::HopperBf16,
        Model::HopperF16,
        Model::BlackwellMxf8f6f4,
        Model::BlackwellMxf4,
        Model::BlackwellMxf4nvf4
    )]
    model: Model,
) {
    fn modelled(op: &Op, _: &'static Convention, inputs: &Tensors) -> Result<Tensors, AnswerError> {
        match op {
            Op::Gemm(g) => {
                let op = Op::Gemm(Gemm { test: Test::Modelled, ..*g });
                native::answer(&op, &PROPAGATE, inputs)
            }
            _ => native::answer(op, &PROPAGATE, inputs),
        }
    }
    let filters: &[&str] = match model {
        Model::F32Sequential | Model::F32Pairwise => {
            &["gemm/e4m3-e2m1/mx/f32/*", "gemm/e2m1-e2m1/nvfp4/bf16/*"]
        }
        Model::AdaBf16 | Model::HopperBf16 => {
            &["gemm/bf16-bf16/plain/f32/*g[34]-*#1?", "gemm/e4m3-e2m3/mx/f32/*"]
        }
        Model::MxBlockF16Pair => &["gemm/e5m2-int8/mx/f32/*g[134]-*", "gemm/e2m3-e5m2/mx/bf16/*"],
        Model::HopperF16 => &["gemm/f16-f16/plain/bf16/*"],
        Model::BlackwellMxf8f6f4 => {
            &["gemm/e5m2-e5m2/mx/f32/*g[134]-*#1?", "gemm/e3m2-e2m1/mx/bf16/*"]
        }
        Model::BlackwellMxf4 => &["gemm/e2m1-e2m1/mx/f32/*g[134]-*#1?"],
        Model::BlackwellMxf4nvf4 => &["gemm/e2m1-e2m1/nvfp4/f32/*g[134]-*#1?"],
        _ => &["gemm/e4m3-e5m2/unit/f32/*g[134]-*#1?", "gemm/e5m2-e5m2/unit/bf16/*"],
    };
    for filter in filters {
        let (failed, counts) = judge(modelled, Some(model), filter);
        assert!(counts.passed > 0, "{filter}: nothing asked");
        assert!(failed.is_empty(), "{filter}: {failed:?}");
    }
}

/// Declaring another model than one's own falls at the level of bits.
#[rstest]
#[case(Model::HopperFp8, Model::AdaFp8)]
#[case(Model::HopperFp8Promote128, Model::HopperFp8)]
#[case(Model::Sm90MmaFp8, Model::AdaFp8)]
fn another_model_falls(#[case] declared: Model, #[case] own: Model) {
    fn answer(op: &Op, inputs: &Tensors, own: Model) -> Result<Tensors, AnswerError> {
        match op {
            Op::Gemm(g) => {
                let op = Op::Gemm(Gemm { accumulate: Some(own), test: Test::Modelled, ..*g });
                native::answer(&op, &PROPAGATE, inputs)
            }
            _ => native::answer(op, &PROPAGATE, inputs),
        }
    }
    let as_own: Answer = match own {
        Model::AdaFp8 => |op, _, inputs| answer(op, inputs, Model::AdaFp8),
        _ => |op, _, inputs| answer(op, inputs, Model::HopperFp8),
    };
    let (failed, _) = judge(as_own, Some(declared), "gemm/e4m3-e4m3/unit/f32/*g4-*#1?");
    assert!(failed.contains_key("g4-modelled"), "{failed:?}");
}

/// Whether this call of the thread is a second one.
fn is_second() -> bool {
    thread_local!(static CALLS: Cell<u64> = const { Cell::new(0) });
    CALLS.set(CALLS.get() + 1);
    CALLS.get().is_multiple_of(2)
}

#[test]
fn a_product_that_changes_from_call_to_call_is_called_nondeterministic() {
    fn answer(op: &Op, _: &'static Convention, inputs: &Tensors) -> Result<Tensors, AnswerError> {
        let mut done = native::answer(op, &PROPAGATE, inputs)?;
        if let (true, Some(Tensor { data: Data::U32(bits), .. })) =
            (is_second(), done.get_mut("output"))
        {
            bits[3] ^= 1 << 30;
        }
        Ok(done)
    }
    for class in ["g1-x11", "g3-bounded"] {
        let findings = found(answer, None, &format!("gemm/e4m3-e4m3/mx/f32/-/{class}#1"), 1);
        let failure = &findings.failures[0];
        assert_eq!((failure.kind, failure.wrong), (FailureKind::Nondeterministic, 1));
        assert_eq!(failure.message, "nondeterministic: two calls differ; 1 wrong element");
        assert!(failure.sites[0].got.contains(", then "), "{failure:?}");
    }
}

/// Additions in another order each time, as atomics make them: right where any order is declared, and said.
#[test]
fn two_answers_within_the_bound_are_reported_and_not_judged() {
    fn answer(op: &Op, _: &'static Convention, inputs: &Tensors) -> Result<Tensors, AnswerError> {
        let order = if is_second() { Model::F32Sequential } else { Model::F32Pairwise };
        let Op::Gemm(g) = op else { return native::answer(op, &PROPAGATE, inputs) };
        let op = Op::Gemm(Gemm { accumulate: Some(order), test: Test::Modelled, ..*g });
        native::answer(&op, &PROPAGATE, inputs)
    }
    let cell = |filter| found(answer, None, filter, 1).cells.remove(0);
    let bounded = cell("gemm/e4m3-e4m3/mx/f32/-/g3-bounded#[0-2]");
    assert_eq!((bounded.counts.failed, bounded.nondeterministic), (0, 3), "{bounded:?}");
    let exact = cell("gemm/e4m3-e4m3/mx/f32/-/g1-x11");
    assert_eq!((exact.counts.failed, exact.nondeterministic), (0, 0), "{exact:?}");
}

#[test]
fn intervals_are_said_in_the_order_of_values() {
    fn answer(op: &Op, _: &'static Convention, inputs: &Tensors) -> Result<Tensors, AnswerError> {
        let mut done = native::answer(op, &PROPAGATE, inputs)?;
        if let Some(Tensor { data: Data::U32(bits), .. }) = done.get_mut("output") {
            bits.fill(0x7149_f2ca);
        }
        Ok(done)
    }
    let findings = found(answer, None, "gemm/e4m3-e4m3/mx/f32/-/g3-bounded#[0-5]", 1000);
    let mut negative = 0;
    for site in findings.failures.iter().flat_map(|failure| &failure.sites) {
        assert_eq!(site.got, "7149f2ca (1.0000000150474662e30)");
        let (_, values) = site.expected.split_once(" (").unwrap();
        let (low, high) = values.trim_end_matches(')').split_once(" to ").unwrap();
        let [low, high]: [f64; 2] = [low, high].map(|value| value.parse().unwrap());
        assert!(low <= high, "{site:?}");
        negative += u64::from(high < 0.0);
    }
    assert!(negative > 0);
}

#[test]
fn outputs_of_groups_along_k_have_a_group_a_row_and_a_column() {
    fn answer(op: &Op, _: &'static Convention, inputs: &Tensors) -> Result<Tensors, AnswerError> {
        let mut done = native::answer(op, &PROPAGATE, inputs)?;
        if let Some(Tensor { data: Data::U32(bits), .. }) = done.get_mut("output") {
            *bits.last_mut().unwrap() ^= 1;
        }
        Ok(done)
    }
    let findings = found(answer, None, "grouped_gemm/e4m3-e4m3/mx/f32/k/grouped#0", 1000);
    let place = &findings.failures[0].sites[0].place;
    assert!(place.starts_with("group ") && place.contains(", row "), "{place}");
}
