//! Comparison as bits: what differs, and where. NaN is never a wildcard; what may vary is named by a rule.

use mx_reference::{Convention, Format, Rule};
use mx_vectors::answer;
use mx_vectors::op::Linear;
use mx_vectors::{Call, Data, Op, Tensor, Tensors};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

/// One wrong element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Output tensor.
    pub tensor: String,
    /// Flat index into it.
    pub index: usize,
    /// The right bits.
    pub expected: u32,
    /// How they were compared.
    pub rule: Rule,
    /// The bits that came.
    pub got: u32,
    /// The bits that came when the same was asked again, if they were others.
    pub again: Option<u32>,
}

/// How the outputs of a call are compared with the right ones; what all elements of an output share is computed once.
pub struct Comparison<'a> {
    call: &'a Call,
    convention: &'static Convention,
    expected: &'a Tensors,
    rules: BTreeMap<&'a str, OnceCell<Rules<'a>>>,
}

type Rules<'a> = Box<dyn Fn(usize) -> Rule + 'a>;

impl fmt::Debug for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparison").field("op", &self.call.op).finish_non_exhaustive()
    }
}

impl<'a> Comparison<'a> {
    /// With the right outputs of `call`.
    pub fn new(call: &'a Call, convention: &'static Convention, expected: &'a Tensors) -> Self {
        let rules = expected.keys().map(|name| (name.as_str(), OnceCell::new())).collect();
        Self { call, convention, expected, rules }
    }

    /// Every element of `got` that breaks its rule, in order.
    pub fn sites<'b>(&'b self, got: &'b Tensors) -> impl Iterator<Item = Site> + 'b {
        self.rules.iter().flat_map(move |(&name, rules)| {
            let (right, came) = (&self.expected[name], &got[name].data);
            let unequal = unequal(&right.data, came);
            unequal.into_iter().filter_map(move |index| {
                let rules = rules.get_or_init(|| {
                    let Call { op, inputs } = self.call;
                    answer::rules(op, self.convention, inputs, self.expected, name)
                });
                let (expected, got) = (right.data.get(index), came.get(index));
                let rule = rules(index);
                let format = || output_format(&self.call.op, right);
                let holds = match rule {
                    Rule::Exact => false,
                    Rule::AnyNan => format().is_some_and(|f| f.is_nan(got)),
                    Rule::Free => true,
                    Rule::AnyZero => format().is_some_and(|f| f.decode(got).is_zero()),
                    Rule::Between { low, high } => {
                        format().is_some_and(|f| lies_between(f, low, got, high))
                    }
                };
                (!holds).then(|| Site {
                    tensor: name.to_owned(),
                    index,
                    expected,
                    rule,
                    got,
                    again: None,
                })
            })
        })
    }
}

/// Every element of `got` that breaks its rule, in order.
pub fn differences(
    call: &Call,
    convention: &'static Convention,
    expected: &Tensors,
    got: &Tensors,
) -> Vec<Site> {
    Comparison::new(call, convention, expected).sites(got).collect()
}

/// How many elements two answers differ in that an interval allows: with one accumulation, in one order, they would not.
pub fn unsteady(
    call: &Call,
    convention: &'static Convention,
    expected: &Tensors,
    [first, second]: [&Tensors; 2],
) -> u64 {
    let of = |(name, right): (&String, &Tensor)| {
        let unequal = unequal(&first[name].data, &second[name].data);
        if unequal.is_empty() {
            return 0;
        }
        let rules = answer::rules(&call.op, convention, &call.inputs, expected, name);
        let Some(format) = output_format(&call.op, right) else { return 0 };
        let within = |&index: &usize| match rules(index) {
            Rule::Between { low, high } => [first, second]
                .iter()
                .all(|answer| lies_between(format, low, answer[name].data.get(index), high)),
            _ => false,
        };
        unequal.iter().filter(|index| within(index)).count() as u64
    };
    expected.iter().map(of).sum()
}

/// The format of an output's elements, where they are numbers.
pub(crate) fn output_format(op: &Op, output: &Tensor) -> Option<&'static Format> {
    let codes = matches!(output.data, Data::U8(_));
    match op {
        Op::Quantize(q) => Some(q.element.format()),
        Op::Dequantize(d) => Some(d.output.format()),
        Op::Cast(c) => Some(c.target.format()),
        Op::Gemm(g) => Some(g.output.format()),
        Op::GroupedGemm(g) => Some(g.gemm.output.format()),
        Op::AllToAll(a) if codes => Some(a.element().format()),
        Op::Linear(_) | Op::AllToAll(_) => Some(Linear::OUTPUT.format()),
        Op::Pack(_) | Op::Swizzle | Op::GroupSwizzle(_) => None,
    }
}

/// Whether a number lies between two others, zeros by value. NaN lies nowhere.
fn lies_between(format: &Format, low: u32, x: u32, high: u32) -> bool {
    // Codes of one sign are in order of their magnitudes.
    let key = |bits: u32| {
        let magnitude = i64::from(bits & !format.sign_bit());
        if bits & format.sign_bit() == 0 { magnitude } else { -magnitude }
    };
    !format.is_nan(x) && (key(low)..=key(high)).contains(&key(x))
}

/// Indices at which two tensors of one shape differ.
fn unequal(a: &Data, b: &Data) -> Vec<usize> {
    fn of<T: PartialEq>(a: &[T], b: &[T]) -> Vec<usize> {
        if a == b {
            return Vec::new();
        }
        a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect()
    }
    match (a, b) {
        (Data::U8(a), Data::U8(b)) => of(a, b),
        (Data::U16(a), Data::U16(b)) => of(a, b),
        (Data::U32(a), Data::U32(b)) => of(a, b),
        (Data::I32(a), Data::I32(b)) => of(a, b),
        _ => (0..a.len()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::convention::{PROPAGATE, TE};
    use mx_reference::{Axis, BlockShape, Element, ScaleLayout, ScaleMode};
    use mx_vectors::answer::answer;
    use mx_vectors::{Float, Quantize, Tensor};
    use rstest::rstest;

    fn call(element: Element, lanes: [f32; 32]) -> Call {
        let q = Quantize {
            element,
            mode: ScaleMode::Rceil,
            input: Float::F32,
            axis: Axis::Row,
            block: BlockShape::MX,
            layout: ScaleLayout::Plain,
            view: None,
        };
        let data = Data::U32(lanes.iter().map(|x| x.to_bits()).collect());
        let input = Tensor { shape: vec![1, 32], data };
        Call { op: Op::Quantize(q), inputs: Tensors::from([("input".to_owned(), input)]) }
    }

    /// Differences after output `tensor[0]` was replaced by `bits`.
    fn with(call: &Call, convention: &'static Convention, tensor: &str, bits: u8) -> usize {
        let expected = answer(&call.op, convention, &call.inputs).unwrap();
        let mut got = expected.clone();
        if let Some(Data::U8(data)) = got.get_mut(tensor).map(|t| &mut t.data) {
            data[0] = bits;
        }
        differences(call, convention, &expected, &got).len()
    }

    #[test]
    fn nan_codes_are_one_class_and_nothing_else_is() {
        let mut lanes = [1.0; 32];
        lanes[0] = f32::NAN;
        let nan = call(Element::E5m2, lanes);
        for code in 0..=255u8 {
            let wrong = with(&nan, &PROPAGATE, "elements", code);
            assert_eq!(wrong == 0, Element::E5m2.format().is_nan(code.into()), "{code:#x}");
        }
        for byte in 0..255 {
            assert_eq!(with(&nan, &PROPAGATE, "scales", byte), 1);
        }
    }

    #[rstest]
    fn codes_are_free_only_where_the_format_cannot_say_nan(
        #[values(Element::E3m2, Element::E2m1, Element::Int8)] element: Element,
    ) {
        let mut lanes = [1.0; 32];
        let finite = call(element, lanes);
        lanes[0] = f32::NAN;
        let nan = call(element, lanes);
        assert_eq!(with(&finite, &PROPAGATE, "elements", 0x15), 1);
        assert_eq!(with(&nan, &PROPAGATE, "elements", 0x15), 0);
        assert_eq!(with(&nan, &TE, "elements", 0x15), 0);
    }

    #[test]
    fn the_sign_of_zero_counts() {
        let mut lanes = [1.0; 32];
        lanes[0] = -0.0;
        assert_eq!(with(&call(Element::E4m3, lanes), &PROPAGATE, "elements", 0x00), 1);
        assert_eq!(with(&call(Element::E4m3, lanes), &PROPAGATE, "elements", 0x80), 0);
    }
}
