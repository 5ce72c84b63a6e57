//! The tensors of one safetensors file.
//!
//! Quantize and dequantize files are lists of blocks, one a row; cast files are lists of values; the other files hold every
//! case under its own name, since there the shape is the point.

use super::error::PackError;
use super::files::{holds, kept, numbered_classes};
use crate::answer::{answer, narrow, rules};
use crate::class::{Call, Class, LANES, Level, Source};
use crate::op::{Cast, Dequantize, Float, Op, Quantize};
use crate::plan::{Batch, runs};
use crate::tensor::{Data, Tensor, Tensors};
use mx_reference::pack::{PackOrder, pack, packed_len};
use mx_reference::{Convention, Rule, ShapeError};
use rayon::prelude::*;

/// The care code of an interval.
const BETWEEN: u8 = 4;

/// How an element is compared, as `care` tensors and smoke lines say it.
pub(super) const fn care_code(rule: Rule) -> u8 {
    match rule {
        Rule::Exact => 0,
        Rule::AnyNan => 1,
        Rule::Free => 2,
        Rule::AnyZero => 3,
        Rule::Between { .. } => BETWEEN,
    }
}

/// The tensors of the file of `op`, and how many cases it has.
pub(super) fn tensors(
    op: &Op,
    convention: &'static Convention,
) -> Result<(Tensors, u64), PackError> {
    match op {
        Op::Quantize(q) => quantize(*q, convention),
        Op::Dequantize(d) => dequantize(*d, convention),
        Op::Cast(c) => cast(*c, convention),
        _ => by_case(op, convention),
    }
}

/// The block cases of a profile at a level, one block a row.
pub(super) fn batch(q: Quantize, level: Level) -> Batch {
    let op = Op::Quantize(q);
    let classes = numbered_classes().map(|(_, class)| class).filter(|class| holds(&op, class));
    let runs = classes.flat_map(|class| runs(&op, class, level)).collect();
    Batch { op: q, runs, multiple: (1, 1) }
}

fn quantize(q: Quantize, convention: &'static Convention) -> Result<(Tensors, u64), PackError> {
    let op = Op::Quantize(q);
    let batch = batch(q, Level::Standard);
    let case = Solved::new(batch.call(), convention, || op.prefix())?;
    let (mut class, mut number) = (Vec::new(), Vec::new());
    for (index, member) in numbered_classes() {
        for run in batch.runs.iter().filter(|run| run.class.name == member.name) {
            class.extend((0..run.count).map(|_| index));
            number.extend((run.first..run.first + run.count).map(|n| n as u32));
        }
    }
    let rows = class.len();
    let care = case.care("elements");
    let Solved { call, mut outputs, .. } = case;
    let mut tensors = call.inputs;
    if q.element.format().bits < 8 {
        let packed = outputs.get("elements").map(|codes| packed(q, rows, codes)).transpose();
        let packed = packed.map_err(|source| unanswered(op.prefix(), source))?;
        tensors.extend(packed.map(|packed| ("packed".to_owned(), packed)));
    }
    if let Some(scales) = outputs.get_mut("scales") {
        scales.shape = vec![rows];
    }
    tensors.append(&mut outputs);
    tensors.insert("care".to_owned(), Tensor::u8([rows, LANES], care));
    let cases = rows as u64;
    Ok((numbered(tensors, class, number), cases))
}

fn packed(q: Quantize, rows: usize, codes: &Tensor) -> Result<Tensor, ShapeError> {
    let width = packed_len(q.element, LANES)?;
    let wire = pack(q.element, PackOrder::LittleEndian, codes.data.as_bytes())?;
    Ok(Tensor::u8([rows, width], wire))
}

fn dequantize(d: Dequantize, convention: &'static Convention) -> Result<(Tensors, u64), PackError> {
    let mut rows = Rows::default();
    let (mut elements, mut scales, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for_each_case(&Op::Dequantize(d), convention, |class, n, case| {
        elements.extend_from_slice(case.call.inputs["elements"].data.as_bytes());
        scales.extend_from_slice(case.call.inputs["scales"].data.as_bytes());
        output.extend(values(&case.outputs["output"]));
        rows.push(class, n, scales.len(), case.care("output"));
    })?;
    let tensors = Tensors::from([
        ("elements".to_owned(), Tensor::u8([scales.len(), LANES], elements)),
        ("output".to_owned(), typed(d.output, vec![scales.len(), LANES], output)),
        ("care".to_owned(), Tensor::u8([scales.len(), LANES], rows.care)),
        ("scales".to_owned(), Tensor::u8([scales.len()], scales)),
    ]);
    Ok((numbered(tensors, rows.class, rows.number), rows.cases))
}

fn cast(c: Cast, convention: &'static Convention) -> Result<(Tensors, u64), PackError> {
    let mut rows = Rows::default();
    let (mut input, mut elements) = (Vec::new(), Vec::new());
    for_each_case(&Op::Cast(c), convention, |class, n, case| {
        input.extend(values(&case.call.inputs["input"]));
        elements.extend_from_slice(case.outputs["elements"].data.as_bytes());
        rows.push(class, n, input.len(), case.care("elements"));
    })?;
    let tensors = Tensors::from([
        ("input".to_owned(), typed(c.input, vec![input.len()], input)),
        ("care".to_owned(), Tensor::u8([elements.len()], rows.care)),
        ("elements".to_owned(), Tensor::u8([elements.len()], elements)),
    ]);
    Ok((numbered(tensors, rows.class, rows.number), rows.cases))
}

/// Every tensor of every case, as `CLASS#N.in.NAME` and `CLASS#N.out.NAME`, and how each output is compared, as
/// `CLASS#N.care.NAME`, `CLASS#N.low.NAME` and `CLASS#N.high.NAME`.
fn by_case(op: &Op, convention: &'static Convention) -> Result<(Tensors, u64), PackError> {
    let cases: Vec<_> = whole_tensor_cases(op).filter(|case| kept(&case.call)).collect();
    let count = cases.len() as u64;
    // The files of a pack are made on all threads, but the slowest of these would leave all but one idle at the end.
    let named = cases.into_par_iter().map(|case| case.named(op, convention));
    Ok((named.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect(), count))
}

/// Which case each row belongs to, and how its bytes are compared.
#[derive(Default)]
struct Rows {
    class: Vec<u8>,
    number: Vec<u32>,
    care: Vec<u8>,
    cases: u64,
}

impl Rows {
    /// A case whose last row is row `end` - 1.
    fn push(&mut self, class: (u8, &Class), n: u64, end: usize, care: Vec<u8>) {
        self.class.resize(end, class.0);
        self.number.resize(end, n as u32);
        self.care.extend(care);
        self.cases += 1;
    }
}

fn numbered(mut tensors: Tensors, class: Vec<u8>, number: Vec<u32>) -> Tensors {
    let shape = vec![number.len()];
    tensors.insert("class".to_owned(), Tensor::u8([class.len()], class));
    tensors.insert("number".to_owned(), Tensor { shape, data: Data::U32(number) });
    tensors
}

fn typed(float: Float, shape: Vec<usize>, bits: Vec<u32>) -> Tensor {
    Tensor { shape, data: narrow(float, bits) }
}

fn values(tensor: &Tensor) -> impl Iterator<Item = u32> {
    (0..tensor.data.len()).map(|i| tensor.data.get(i))
}

/// A call and the right answer to it.
pub(super) struct Solved {
    pub(super) call: Call,
    pub(super) outputs: Tensors,
    convention: &'static Convention,
}

impl Solved {
    /// Asks the reference.
    pub(super) fn new(
        call: Call,
        convention: &'static Convention,
        id: impl FnOnce() -> String,
    ) -> Result<Self, PackError> {
        match answer(&call.op, convention, &call.inputs) {
            Ok(outputs) => Ok(Self { call, outputs, convention }),
            Err(source) => Err(PackError::Answer { id: id(), source }),
        }
    }

    /// The care codes of an output.
    pub(super) fn care(&self, name: &str) -> Vec<u8> {
        let Some(output) = self.outputs.get(name) else { return Vec::new() };
        let rule = self.rules(name);
        (0..output.data.len()).map(|i| care_code(rule(i))).collect()
    }

    fn rules(&self, name: &str) -> Box<dyn Fn(usize) -> Rule + '_> {
        rules(&self.call.op, self.convention, &self.call.inputs, &self.outputs, name)
    }

    /// What says how an output is compared: `care` unless every code is 0, and `low` and `high` where some code is 4. Outside
    /// of intervals both are the expected bits.
    fn comparison(&self, name: &str, output: &Tensor) -> Vec<(&'static str, Tensor)> {
        let rule = self.rules(name);
        let length = output.data.len();
        let mut care = Vec::with_capacity(length);
        let (mut low, mut high) = (Vec::with_capacity(length), Vec::with_capacity(length));
        for i in 0..length {
            let rule = rule(i);
            care.push(care_code(rule));
            let ends = match rule {
                Rule::Between { low, high } => (low, high),
                _ => (output.data.get(i), output.data.get(i)),
            };
            low.push(ends.0);
            high.push(ends.1);
        }
        let mut beside = Vec::new();
        if care.contains(&BETWEEN) {
            beside.push(("low", like(output, low)));
            beside.push(("high", like(output, high)));
        }
        if care.iter().any(|&code| code != 0) {
            beside.push(("care", Tensor::u8(&output.shape[..], care)));
        }
        beside
    }
}

/// Bits in the type and shape of a tensor that is no list of numbers.
fn like(tensor: &Tensor, bits: Vec<u32>) -> Tensor {
    let data = match tensor.data {
        Data::U8(_) => Data::U8(bits.into_iter().map(|bits| bits as u8).collect()),
        Data::U16(_) => Data::U16(bits.into_iter().map(|bits| bits as u16).collect()),
        Data::U32(_) | Data::I32(_) => Data::U32(bits),
    };
    Tensor { shape: tensor.shape.clone(), data }
}

fn unanswered(id: String, source: ShapeError) -> PackError {
    PackError::Answer { id, source: source.into() }
}

/// A whole-tensor case.
struct Case {
    class: (u8, &'static Class),
    n: u64,
    call: Call,
}

impl Case {
    fn solve(self, op: &Op, convention: &'static Convention) -> Result<Solved, PackError> {
        let id = || format!("{}/{}#{}", op.prefix(), self.class.1.name, self.n);
        Solved::new(self.call, convention, id)
    }

    /// Its tensors under names of their own.
    fn named(self, op: &Op, convention: &'static Convention) -> Result<Tensors, PackError> {
        let case = format!("{}#{}", self.class.1.name, self.n);
        let name = |way: &str, name: &str| format!("{case}.{way}.{name}");
        let solved = self.solve(op, convention)?;
        let mut tensors = Tensors::new();
        for (key, output) in &solved.outputs {
            let beside = solved.comparison(key, output).into_iter();
            tensors.extend(beside.map(|(way, tensor)| (name(way, key), tensor)));
        }
        let inputs = solved.call.inputs.into_iter();
        tensors.extend(inputs.map(|(key, tensor)| (name("in", &key), tensor)));
        let outputs = solved.outputs.into_iter();
        tensors.extend(outputs.map(|(key, tensor)| (name("out", &key), tensor)));
        Ok(tensors)
    }
}

/// The whole-tensor cases of an op, in the order of classes.
fn whole_tensor_cases(op: &Op) -> impl Iterator<Item = Case> {
    let classes = numbered_classes().filter(|(_, class)| holds(op, class));
    classes.flat_map(move |class| {
        let of = move |n| match class.1.source {
            Source::Tensors { call, .. } => Some(Case { class, n, call: call(op, n) }),
            Source::Blocks { .. } => None,
        };
        (0..class.1.count(op, Level::Standard)).filter_map(of)
    })
}

/// Solves every whole-tensor case of an op.
fn for_each_case(
    op: &Op,
    convention: &'static Convention,
    mut visit: impl FnMut((u8, &'static Class), u64, Solved),
) -> Result<(), PackError> {
    for case in whole_tensor_cases(op) {
        let (class, n) = (case.class, case.n);
        visit(class, n, case.solve(op, convention)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Pack, Target};
    use mx_reference::convention::PROPAGATE;
    use mx_reference::{Axis, BlockShape, Element, Profile, ScaleLayout, ScaleMode};

    fn shapes(tensors: &Tensors) -> Vec<(&str, &[usize])> {
        tensors.iter().map(|(name, tensor)| (name.as_str(), &tensor.shape[..])).collect()
    }

    #[test]
    fn rows_of_a_quantize_file_are_their_cases() {
        let q = Quantize {
            element: Element::E2m3,
            mode: ScaleMode::Rceil,
            input: Float::F32,
            axis: Axis::Row,
            block: BlockShape::MX,
            layout: ScaleLayout::Plain,
            view: None,
        };
        let (tensors, cases) = quantize(q, &PROPAGATE).unwrap();
        let n = cases as usize;
        assert!(n > 100);
        assert_eq!(
            shapes(&tensors),
            [
                ("care", &[n, 32][..]),
                ("class", &[n]),
                ("elements", &[n, 32]),
                ("input", &[n, 32]),
                ("number", &[n]),
                ("packed", &[n, 24]),
                ("scales", &[n]),
            ]
        );
        let profile = Profile { element: q.element, mode: q.mode, convention: &PROPAGATE };
        for row in (0..n).step_by(7) {
            let class = &crate::classes::ALL[tensors["class"].data.get(row) as usize];
            let Source::Blocks { block, .. } = class.source else { panic!("{}", class.name) };
            let bits = block(&q, tensors["number"].data.get(row).into());
            let at = |name: &str, lane| tensors[name].data.get(row * LANES + lane);
            let input = bits.map(|bits| q.input.format().decode(bits));
            let mut codes = [0; LANES];
            let scale = profile.quantize_block(&input, &mut codes);
            assert_eq!(tensors["scales"].data.get(row), u32::from(scale));
            for lane in 0..LANES {
                assert_eq!(at("input", lane), bits[lane]);
                assert_eq!(at("elements", lane), u32::from(codes[lane]));
                let rule = profile.rule(scale, codes[lane], input[lane].is_nan());
                assert_eq!(at("care", lane), u32::from(care_code(rule)));
            }
        }
    }

    #[test]
    fn dequantize_files_hold_every_scale_byte_with_every_code() {
        let d = Dequantize { element: Element::E5m2, output: Float::Bf16 };
        let (tensors, _) = dequantize(d, &PROPAGATE).unwrap();
        let mut seen = vec![false; 1 << 16];
        for i in 0..tensors["elements"].data.len() {
            let byte = tensors["scales"].data.get(i / LANES);
            seen[(byte << 8 | tensors["elements"].data.get(i)) as usize] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
        assert_eq!(tensors["output"].data.len(), tensors["care"].data.len());
    }

    #[test]
    fn cast_files_hold_every_narrow_input() {
        let [rounding, overflow] = ["even", "propagate"];
        let c = Cast {
            target: Target::Element(Element::E2m1),
            rounding: crate::op::CastRounding::from_name(rounding).unwrap(),
            overflow: crate::op::CastOverflow::from_name(overflow).unwrap(),
            input: Float::F16,
        };
        let (tensors, cases) = cast(c, &PROPAGATE).unwrap();
        let inputs: std::collections::BTreeSet<_> = values(&tensors["input"]).collect();
        assert_eq!(inputs.len(), 1 << 16);
        assert_eq!(cases, 5);
        // E2M1 cannot say NaN.
        assert!(values(&tensors["care"]).any(|care| care == 2));
    }

    #[test]
    fn whole_tensors_keep_their_shapes() {
        let order = PackOrder::LittleEndian;
        let op = Op::Pack(Pack { element: Element::E2m1, order });
        let (tensors, cases) = by_case(&op, &PROPAGATE).unwrap();
        assert_eq!(tensors.len() as u64, 2 * cases);
        assert_eq!(tensors["pack#0.in.elements"].shape, [16, 32]);
        assert_eq!(tensors["pack#0.out.packed"].shape, [16, 16]);
    }

    /// What packs say about an output, element by element.
    #[test]
    fn care_and_intervals_lie_beside_their_outputs() {
        let op = crate::cells::cells().into_iter().find(|op| op.name() == "linear").unwrap();
        let (tensors, cases) = by_case(&op, &PROPAGATE).unwrap();
        assert_eq!(cases, 12);
        let mut seen = std::collections::BTreeSet::new();
        for (name, output) in tensors.iter().filter(|(name, _)| name.contains(".out.")) {
            let beside = |way: &str| tensors.get(&name.replace(".out.", way));
            let [care, low, high] = [".care.", ".low.", ".high."].map(beside);
            let code = |i| care.map_or(0, |care| care.data.get(i));
            let codes = || (0..output.data.len()).map(code);
            assert_eq!(care.is_some(), codes().any(|code| code != 0), "{name}");
            assert_eq!(low.is_some(), codes().any(|code| code == 4), "{name}");
            assert_eq!(high.is_some(), low.is_some(), "{name}");
            for tensor in [care, low, high].into_iter().flatten() {
                assert_eq!(tensor.shape, output.shape, "{name}");
            }
            let value = |bits: u32| f32::from_bits(bits << 16);
            for i in 0..output.data.len() {
                seen.insert(code(i));
                let bits = output.data.get(i);
                assert_eq!(code(i) == 1, value(bits).is_nan(), "{name} {i}");
                let (Some(low), Some(high)) = (low, high) else { continue };
                let (low, high) = (low.data.get(i), high.data.get(i));
                if code(i) == 4 {
                    assert!(value(low) <= value(bits) && value(bits) <= value(high), "{name} {i}");
                } else {
                    assert_eq!([low, high], [bits, bits], "{name} {i}");
                }
            }
        }
        assert!([0, 1, 4].into_iter().all(|code| seen.contains(&code)), "{seen:?}");
    }

    #[test]
    fn zeros_of_negative_zeros_have_a_free_sign() {
        let op = crate::cells::cells().into_iter().find(|op| match op {
            Op::Gemm(g) => g.output == Float::Bf16 && g.a == g.b,
            _ => false,
        });
        let class = |class: &&Class| class.name == "g2-specials";
        let Some((op, Source::Tensors { call, .. })) =
            op.zip(crate::classes::ALL.iter().find(class).map(|class| class.source))
        else {
            panic!("a class of products")
        };
        let case = Solved::new(call(&op, 0), &PROPAGATE, || op.prefix()).unwrap();
        let beside = case.comparison("output", &case.outputs["output"]);
        let [(way, care)] = &beside[..] else { panic!("care alone, of exact sums") };
        assert_eq!((*way, &care.shape), ("care", &case.outputs["output"].shape));
        let codes: std::collections::BTreeSet<_> = values(care).collect();
        assert_eq!(codes, [0, 1, 3].into());
    }
}
