//! What every vector class promises: names, faults, counts, purity; and that each holds what its aim says.

use mx_reference::gemm::{GroupAxis, Model};
use mx_reference::pack::PackOrder;
use mx_reference::scale::even_threshold;
use mx_reference::training::Recipe;
use mx_reference::{
    Axis, BlockShape, Element, Magnitude, Number, Profile, ScaleLayout, ScaleMode,
    convention::PROPAGATE,
};
use mx_vectors::classes::ALL;
use mx_vectors::op::{
    AllToAll, Cast, CastOverflow, CastRounding, Dequantize, Factor, Gemm, GroupSwizzle,
    GroupedGemm, Linear, Pack, Scaling, Split, Target, Test,
};
use mx_vectors::{Block, Call, Class, Float, LANES, Level, Op, Quantize, Source, bits};
use rstest::rstest;
use std::collections::BTreeSet;

fn quantize(element: Element, mode: ScaleMode, input: Float) -> Quantize {
    Quantize {
        element,
        mode,
        input,
        axis: Axis::Row,
        block: BlockShape::MX,
        layout: ScaleLayout::Plain,
        view: None,
    }
}

fn profiles() -> impl Iterator<Item = Quantize> {
    Element::ALL.into_iter().flat_map(|element| {
        ScaleMode::ALL.into_iter().flat_map(move |mode| {
            Float::ALL.into_iter().map(move |input| quantize(element, mode, input))
        })
    })
}

fn class(name: &str) -> &'static Class {
    ALL.iter().find(|class| class.name == name).expect("a class of that name")
}

fn blocks(class: &Class, q: &Quantize, level: Level) -> Vec<Block> {
    let Source::Blocks { count, block } = class.source else { return Vec::new() };
    (0..count(q, level)).map(|n| block(q, n)).collect()
}

fn named(name: &str, q: &Quantize) -> Vec<Block> {
    blocks(class(name), q, Level::Standard)
}

fn amax(q: &Quantize, block: &Block) -> u32 {
    block.iter().map(|&x| bits::magnitude(q.input, x)).max().expect("a block has lanes")
}

fn answer(q: &Quantize, block: &Block) -> (u8, [u8; LANES]) {
    let profile = Profile { element: q.element, mode: q.mode, convention: &PROPAGATE };
    let mut codes = [0; LANES];
    let input = block.map(|bits| q.input.format().decode(bits));
    let scale = profile.quantize_block(&input, &mut codes);
    (scale, codes)
}

/// One op of every kind and layout.
fn ops() -> Vec<Op> {
    let q = quantize(Element::E2m1, ScaleMode::Even, Float::Bf16);
    let mut ops = Vec::new();
    for (axis, block) in
        [(Axis::Row, BlockShape::MX), (Axis::Col, BlockShape::MX), (Axis::Row, BlockShape::TILE)]
    {
        for layout in [ScaleLayout::Plain, ScaleLayout::Transposed, ScaleLayout::Blocked] {
            ops.push(Op::Quantize(Quantize { axis, block, layout, ..q }));
        }
    }
    for element in Element::ALL {
        ops.push(Op::Dequantize(Dequantize { element, output: Float::F32 }));
        ops.extend(PackOrder::ALL.map(|order| Op::Pack(Pack { element, order })));
    }
    let (rounding, overflow) = (CastRounding::Even, CastOverflow::Saturate);
    for target in Target::ALL {
        let cast = |input| Op::Cast(Cast { target, rounding, overflow, input });
        ops.extend(Float::ALL.map(cast));
    }
    ops.push(Op::Swizzle);
    ops.extend(products().into_iter().map(Op::Gemm));
    for gemm in products().into_iter().filter(|g| g.scaling == Scaling::Mx) {
        ops.extend(GroupAxis::ALL.map(|axis| Op::GroupedGemm(GroupedGemm { gemm, axis })));
    }
    for recipe in [Recipe::Mxfp8Rceil, Recipe::Mxfp4Emulated] {
        for (grouped, pad) in [(false, false), (true, false), (true, true)] {
            let (accumulate, test) = (None, Test::Bounded);
            ops.push(Op::Linear(Linear { recipe, grouped, pad, accumulate, test }));
        }
        ops.push(Op::AllToAll(AllToAll { recipe }));
    }
    ops.extend(GroupSwizzle::ALL.map(Op::GroupSwizzle));
    ops
}

/// A product of every scaling, with and without a declared accumulation; the first is asked at the smoke level too.
fn products() -> Vec<Gemm> {
    let [fp8, wide, fp4] = [Element::E4m3, Element::E5m2, Element::E2m1].map(Factor::Element);
    let (bf16, f16) = (Factor::Bf16, Factor::F16);
    [
        (fp8, fp8, Scaling::Mx, Float::F32, None),
        (wide, fp4, Scaling::Mx, Float::Bf16, None),
        (fp8, wide, Scaling::Mx, Float::F16, Some(Model::BlackwellMxf8f6f4)),
        (fp8, wide, Scaling::Unit, Float::F32, Some(Model::HopperFp8)),
        (fp4, fp4, Scaling::Nvfp4, Float::Bf16, None),
        (bf16, bf16, Scaling::Plain, Float::Bf16, None),
        (f16, f16, Scaling::Plain, Float::F16, Some(Model::F32Sequential)),
    ]
    .map(|(a, b, scaling, output, accumulate)| Gemm {
        a,
        b,
        scaling,
        output,
        accumulate,
        split: Split::NONE,
        test: Test::Exact,
    })
    .into()
}

fn calls(class: &Class, op: &Op, level: Level) -> Vec<Call> {
    let Source::Tensors { count, call } = class.source else { return Vec::new() };
    (0..count(op, level)).map(|n| call(op, n)).collect()
}

#[test]
fn names_are_unique_kebab_case_and_every_class_names_faults() {
    let names: BTreeSet<&str> = ALL.iter().map(|class| class.name).collect();
    assert_eq!(names.len(), ALL.len());
    for class in &ALL {
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(class.name.chars().all(kebab), "{}", class.name);
        assert!(!class.faults.is_empty() && !class.aim.is_empty(), "{}", class.name);
    }
}

#[test]
fn smoke_is_small_and_standard_in_range() {
    for q in profiles() {
        let total = |level| -> u64 {
            let blocks = ALL.iter().filter(|class| matches!(class.source, Source::Blocks { .. }));
            blocks.map(|class| class.count(&Op::Quantize(q), level)).sum()
        };
        let (smoke, standard) = (total(Level::Smoke), total(Level::Standard));
        assert!((10..=16).contains(&smoke), "{smoke} {}", Op::Quantize(q).prefix());
        let range = match q.input {
            Float::F32 | Float::Bf16 => 24_000..=29_000,
            Float::F16 => 4_500..=6_000,
        };
        assert!(range.contains(&standard), "{standard} {}", Op::Quantize(q).prefix());
        // Whole domains come on top, for 16-bit inputs.
        let pairs = ALL.iter().find(|class| class.name == "pairs").unwrap();
        let pairs = pairs.count(&Op::Quantize(q), Level::Exhaustive);
        assert_eq!(standard + pairs, total(Level::Exhaustive));
        assert_eq!(pairs > 0, q.input != Float::F32);
    }
}

#[test]
fn block_classes_keep_to_plain_unstrided_layouts_and_are_the_same_along_every_axis() {
    let row = quantize(Element::E4m3, ScaleMode::Rceil, Float::F32);
    let col = Quantize { axis: Axis::Col, ..row };
    let tile = Quantize { block: BlockShape::TILE, ..row };
    let blocked = Quantize { layout: ScaleLayout::Blocked, ..row };
    for class in &ALL {
        let Source::Blocks { count, block } = class.source else { continue };
        assert_eq!(count(&blocked, Level::Standard), 0);
        for q in [col, tile] {
            assert_eq!(count(&q, Level::Standard), count(&row, Level::Standard));
            for n in (0..count(&row, Level::Standard)).step_by(17) {
                assert_eq!(block(&q, n), block(&row, n), "{} #{n}", class.name);
            }
        }
    }
}

#[test]
fn blocks_are_pure_and_fit_the_input_type() {
    for q in profiles() {
        for class in &ALL {
            let first = blocks(class, &q, Level::Standard);
            assert_eq!(first, blocks(class, &q, Level::Standard), "{}", class.name);
            let fits = |bits: &u32| u64::from(*bits) < q.input.format().codes();
            assert!(first.iter().flatten().all(fits), "{}", class.name);
        }
    }
}

#[test]
fn calls_are_pure_and_their_tensors_full() {
    for op in ops() {
        for class in &ALL {
            let first = calls(class, &op, Level::Standard);
            assert_eq!(first, calls(class, &op, Level::Standard), "{}", class.name);
            let smoke = calls(class, &op, Level::Smoke);
            assert!(smoke.len() <= 2 && first.starts_with(&smoke), "{}", class.name);
            for tensor in first.iter().flat_map(|call| call.inputs.values()) {
                let elements: usize = tensor.shape.iter().product();
                assert_eq!(elements, tensor.data.len(), "{}", class.name);
            }
        }
    }
}

/// Whether an op has cases, at the smoke level too.
fn has_cases(op: &Op) -> [bool; 2] {
    match op {
        Op::Pack(pack) => [pack.order.applies_to(pack.element); 2],
        // Of products those that get every shape; training steps are no quick look.
        Op::Gemm(g) => [g.output == Float::F32 && g.a == g.b, true],
        Op::GroupedGemm(g) => [g.gemm.output == Float::F32, true],
        Op::Linear(_) => [false, true],
        _ => [true; 2],
    }
}

#[test]
fn every_op_has_a_class() {
    for op in ops() {
        let count = |level| -> u64 { ALL.iter().map(|class| class.count(&op, level)).sum() };
        let counts = [Level::Smoke, Level::Standard].map(|level| count(level) > 0);
        assert_eq!(counts, has_cases(&op), "{}", op.prefix());
    }
}

/// Products of numbers that the declared accumulation is not of, or that no declaration is needed for, are not asked.
#[test]
fn products_are_asked_of_their_model_alone() {
    for g in products() {
        let unit = |accumulate| Op::Gemm(Gemm { scaling: Scaling::Unit, accumulate, ..g });
        let modelled = |op| class("g4-modelled").count(&op, Level::Standard);
        assert_eq!(modelled(unit(None)), 0);
        assert_eq!(modelled(unit(Some(Model::Exact))), 0);
        let op = Op::Gemm(g);
        let has_bits = !matches!(g.accumulate, None | Some(Model::Exact));
        assert_eq!(modelled(op) > 0, has_bits, "{}", op.prefix());
    }
}

#[test]
fn thresholds_meet_each_fraction_in_every_binade() {
    for q in profiles() {
        let blocks = named("thresholds", &q);
        let found: BTreeSet<u32> = blocks.iter().map(|block| amax(&q, block)).collect();
        let mantissa_bits = q.input.format().mantissa_bits;
        let drop = 23 - mantissa_bits;
        let format = q.element.format();
        let max = bits::truncated(q.input, format.decode(format.max_code()));
        let max = max & (bits::min_normal(q.input) - 1);
        for field in 1..bits::infinity(q.input) >> mantissa_bits {
            for threshold in [0, max, even_threshold(q.element) >> drop] {
                let base = field << mantissa_bits | threshold;
                for ulps in -2..=2 {
                    let x = bits::step(q.input, base, ulps);
                    assert!(found.contains(&x), "{x:#x} {}", Op::Quantize(q).prefix());
                }
            }
        }
    }
}

#[rstest]
fn thresholds_of_f32_use_every_offset_to_44_in_every_binade(
    #[values(ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even, ScaleMode::Rceil)] mode: ScaleMode,
) {
    let q = quantize(Element::E4m3, mode, Float::F32);
    let threshold = match mode {
        ScaleMode::Floor | ScaleMode::Ceil => 0,
        ScaleMode::Even => 0x78_0000,
        ScaleMode::Rceil => 0x60_0000,
    };
    let found: BTreeSet<u32> = named("thresholds", &q).iter().map(|b| amax(&q, b)).collect();
    let offset = |x: u32, ulps: i32| (x.wrapping_add_signed(-ulps)) & 0x7f_ffff == threshold;
    for ulps in (-44..=44).filter(|ulps| *ulps != 0) {
        let normal = found.iter().filter(|&&x| x >= 1 << 23 && offset(x, ulps));
        assert_eq!(normal.count(), 254, "{ulps}");
    }
}

#[test]
fn extreme_scales_reach_both_ends() {
    for q in profiles() {
        let scales: BTreeSet<u8> =
            named("extreme-scales", &q).iter().map(|block| answer(&q, block).0).collect();
        let highest = answer(&q, &[bits::max_finite(q.input); LANES]).0;
        let lowest = answer(&q, &[1; LANES]).0;
        for byte in (highest - 6..=highest).chain(lowest..=lowest + 6) {
            assert!(scales.contains(&byte), "{byte} {}", Op::Quantize(q).prefix());
        }
    }
}

#[test]
fn special_lanes_cover_every_special_in_every_lane() {
    for q in profiles() {
        let mut found = BTreeSet::new();
        for block in named("special-lanes", &q) {
            let special = |x: &u32| bits::magnitude(q.input, *x) >= bits::infinity(q.input);
            let lanes: Vec<usize> = (0..LANES).filter(|&i| special(&block[i])).collect();
            assert!(!lanes.is_empty());
            assert_eq!(answer(&q, &block).0, 0xff);
            if let [lane] = lanes[..] {
                found.insert((block[lane], lane));
            }
        }
        // Eight NaNs and two infinities.
        assert_eq!(found.len(), 10 * LANES);
    }
}

/// The scale exponent of a block whose scale no mode bumps.
fn exponent(scale: u8) -> i32 {
    i32::from(scale) - 127
}

#[test]
fn ties_hold_every_tie_and_both_neighbours_with_both_signs() {
    for q in profiles() {
        let format = q.element.format();
        let mut found = BTreeSet::new();
        for block in named("ties", &q) {
            let scale = exponent(answer(&q, &block).0);
            found.extend(block.iter().map(|&x| (scale, x)));
        }
        // Byte 0x7f comes first, for every input type.
        let top = if q.mode == ScaleMode::Ceil {
            let first = |&code: &u32| format.decode(code).exponent() == Some(format.max_exponent());
            (0..format.max_code()).find(first).unwrap()
        } else {
            format.max_code()
        };
        for code in 0..top {
            let tie = bits::exact(q.input, bits::midpoint(format, code)).unwrap();
            for ulps in [-1, 0, 1] {
                for negative in [false, true] {
                    let x = bits::signed(q.input, bits::step(q.input, tie, ulps), negative);
                    assert!(found.contains(&(0, x)), "{x:#x} {}", Op::Quantize(q).prefix());
                }
            }
        }
    }
}

#[test]
fn saturation_reaches_beyond_max_under_floor() {
    for q in profiles().filter(|q| q.mode == ScaleMode::Floor) {
        let format = q.element.format();
        let max = format.decode(format.max_code());
        let blocks = named("saturation", &q);
        let saturated = blocks.iter().filter(|block| {
            answer(&q, block).1.iter().any(|&code| format.decode(code.into()).abs() == max)
        });
        // One of 13 amaxes lies an ulp below max, which in bf16 is half a step of MXINT8.
        assert!(13 * saturated.count() >= 12 * blocks.len(), "{}", Op::Quantize(q).prefix());
    }
}

#[test]
fn subnormals_give_both_kinds() {
    for q in profiles() {
        let blocks = named("subnormals", &q);
        let normal = bits::min_normal(q.input);
        assert!(blocks.iter().filter(|block| amax(&q, block) < normal).count() >= 30);
        let codes: BTreeSet<u8> = blocks.iter().flat_map(|block| answer(&q, block).1).collect();
        // Of the formats, MXINT8 alone has no normal codes; the class goes to 8 there.
        let smallest_normal = 1u8 << q.element.format().mantissa_bits.min(3);
        assert!((0..=smallest_normal).all(|code| codes.contains(&code)), "{codes:?}");
    }
}

#[test]
fn signed_zero_underflows_to_both_zeros() {
    for q in profiles().filter(|q| q.element != Element::Int8) {
        let zero = q.element.format().sign_bit() as u8;
        let blocks = named("signed-zero", &q);
        assert!(blocks.iter().all(|block| {
            let (_, codes) = answer(&q, block);
            codes.contains(&0) || codes.contains(&zero)
        }));
        let lanes = |wanted: u32| {
            (0..LANES).filter(|&i| blocks.iter().any(|block| block[i] == wanted)).count()
        };
        let sign = q.input.format().sign_bit();
        assert_eq!((lanes(sign), lanes(sign | 1)), (LANES, LANES));
        assert_eq!(answer(&q, &blocks[0]).1[..4], [zero, zero, 0, 0]);
    }
}

#[test]
fn own_grid_comes_back_unchanged_under_floor() {
    for q in profiles().filter(|q| q.mode == ScaleMode::Floor) {
        let format = q.element.format();
        let mut codes = BTreeSet::new();
        for block in named("own-grid", &q) {
            let (scale, got) = answer(&q, &block);
            for (&code, bits) in got.iter().zip(block) {
                let back = format.decode(code.into()).scaled(exponent(scale));
                assert_eq!(bits::exact(q.input, back), Some(bits), "{}", Op::Quantize(q).prefix());
            }
            codes.extend(got);
        }
        // NaNs, infinities and MXINT8's -2 are not on the grid.
        let finite = (0..format.codes() as u32).filter(|&code| {
            !matches!(format.decode(code).magnitude, Magnitude::Nan | Magnitude::Infinite)
        });
        let expected = finite.count() - usize::from(q.element == Element::Int8);
        assert_eq!(codes.len(), expected, "{}", Op::Quantize(q).prefix());
    }
}

#[test]
fn lane_roles_put_the_amax_in_every_lane_with_both_signs() {
    for q in profiles() {
        let mut alone = BTreeSet::new();
        for block in &named("lane-roles", &q)[..64] {
            let amax = amax(&q, block);
            let lane = (0..LANES).find(|&i| bits::magnitude(q.input, block[i]) == amax).unwrap();
            alone.insert((lane, block[lane] == amax));
            let mut without = *block;
            without[lane] = 0;
            assert!(answer(&q, &without).0 + 8 < answer(&q, block).0);
        }
        assert_eq!(alone.len(), 64);
    }
}

#[test]
fn modes_tell_every_pair_of_modes_apart() {
    for q in profiles() {
        let bytes: Vec<[u8; 4]> = named("modes", &q)
            .iter()
            .map(|block| ScaleMode::ALL.map(|mode| answer(&Quantize { mode, ..q }, block).0))
            .collect();
        for a in 0..4 {
            for b in 0..a {
                let apart = bytes.iter().filter(|bytes| bytes[a] != bytes[b]).count();
                // In bf16 nothing lies between MXINT8's max and EVEN's threshold.
                let same = q.element == Element::Int8 && q.input == Float::Bf16 && (b, a) == (2, 3);
                assert!(apart >= 25 || same, "{apart} {a} {b} {}", Op::Quantize(q).prefix());
            }
        }
    }
}

#[test]
fn metamorphic_relations_hold_in_the_reference() {
    for q in profiles() {
        let sign = q.element.format().sign_bit() as u8;
        let negated = |code: u8| match q.element {
            Element::Int8 => code.wrapping_neg(),
            _ => code ^ sign,
        };
        for family in named("metamorphic", &q).chunks_exact(8) {
            let answers: Vec<_> = family.iter().map(|block| answer(&q, block)).collect();
            let (scale, codes) = answers[0];
            assert_eq!(answers[1], (scale, codes.map(negated)));
            let moved = |f: fn(usize) -> usize| (scale, std::array::from_fn(|i| codes[f(i)]));
            assert_eq!(answers[2], moved(|i| 31 - i));
            assert_eq!(answers[3], moved(|i| (i + 1) % 32));
            assert_eq!(answers[4], moved(|i| (i + 16) % 32));
            let (up, down) = (answers[5], answers[6]);
            assert_eq!((up.1, down.1), (codes, codes), "{}", Op::Quantize(q).prefix());
            assert!(up.0 > scale && up.0 - scale == scale - down.0);
        }
    }
}

#[test]
fn cross_type_blocks_are_the_same_numbers_and_give_the_same_bytes() {
    for element in Element::ALL {
        for mode in ScaleMode::ALL {
            let of = |input| {
                let q = quantize(element, mode, input);
                let blocks = named("cross-type", &q);
                let values: Vec<Vec<Option<u32>>> = blocks
                    .iter()
                    .map(|block| {
                        let number = |&bits: &u32| input.format().decode(bits);
                        block.iter().map(|x| bits::exact(Float::F32, number(x))).collect()
                    })
                    .collect();
                let answers: Vec<_> = blocks.iter().map(|block| answer(&q, block)).collect();
                (values, answers)
            };
            let wide = of(Float::F32);
            assert_eq!(of(Float::Bf16), wide);
            assert_eq!(of(Float::F16), wide);
        }
    }
}

#[test]
fn an_amax_floor_changes_bytes_of_epsilon() {
    for q in profiles() {
        // 1e-4 lies between 2^-14 and 2^-13.
        let floor = bits::nearest(q.input, Number::finite(false, 0x1a36e3, -34));
        let blocks = named("epsilon", &q);
        let changed = blocks.iter().filter(|block| {
            let mut raised = **block;
            raised[0] = floor;
            amax(&q, block) < floor && answer(&q, &raised).0 != answer(&q, block).0
        });
        assert!(changed.count() >= 10, "{}", Op::Quantize(q).prefix());
    }
}

#[test]
fn double_rounding_blocks_change_through_bf16_and_f16() {
    for q in profiles().filter(|q| q.input == Float::F32) {
        let blocks = named("double-rounding", &q);
        for narrow in [Float::Bf16, Float::F16] {
            let through = |bits: u32| {
                let x = Float::F32.format().decode(bits);
                let back = narrow.format().decode(bits::nearest(narrow, x));
                bits::exact(Float::F32, back).unwrap()
            };
            let changed =
                blocks.iter().filter(|block| answer(&q, &block.map(through)) != answer(&q, block));
            assert!(changed.count() >= 20, "{} {}", narrow.name(), Op::Quantize(q).prefix());
        }
    }
}

#[test]
fn strided_views_see_no_poison() {
    for axis in [Axis::Row, Axis::Col] {
        let q = Quantize { axis, ..quantize(Element::E4m3, ScaleMode::Rceil, Float::Bf16) };
        for call in calls(class("strides"), &Op::Quantize(q), Level::Standard) {
            let Op::Quantize(Quantize { view: Some(view), .. }) = call.op else { panic!("a view") };
            let buffer = &call.inputs["input"].data;
            let nan = |i: usize| q.input.format().is_nan(buffer.get(i));
            let mut seen = BTreeSet::new();
            for (r, c) in (0..view.rows).flat_map(|r| (0..view.cols).map(move |c| (r, c))) {
                seen.insert(view.offset + r * view.row_stride + c * view.col_stride);
            }
            assert_eq!(seen.len(), view.rows * view.cols);
            assert!((0..buffer.len()).all(|i| nan(i) != seen.contains(&i)));
        }
    }
}

#[test]
fn decode_pairs_every_byte_with_every_code() {
    for element in Element::ALL {
        let op = Op::Dequantize(Dequantize { element, output: Float::F32 });
        let case = &calls(class("decode"), &op, Level::Standard)[1];
        let (elements, scales) = (&case.inputs["elements"], &case.inputs["scales"]);
        let pairs: BTreeSet<(u32, u32)> = (0..elements.data.len())
            .map(|i| (scales.data.get(i / LANES), elements.data.get(i)))
            .collect();
        assert_eq!(pairs.len() as u64, 256 * element.format().codes());
    }
}
