//! Comparison as bits: what differs, and where. NaN is never a wildcard; what may vary is named by a rule.

use mx_reference::{Convention, Rule};
use mx_vectors::answer::rule;
use mx_vectors::{Call, Data, Op, Tensors};

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
}

/// Every element of `got` that breaks its rule, in order.
pub fn differences(
    call: &Call,
    convention: &'static Convention,
    expected: &Tensors,
    got: &Tensors,
) -> Vec<Site> {
    let mut sites = Vec::new();
    for (name, right) in expected {
        let came = &got[name].data;
        for index in unequal(&right.data, came) {
            let (want, have) = (right.data.get(index), came.get(index));
            let how = rule(&call.op, convention, &call.inputs, expected, name, index);
            let holds = match how {
                Rule::Exact => false,
                Rule::AnyNan => is_nan(&call.op, have),
                Rule::Free => true,
            };
            if !holds {
                let tensor = name.clone();
                sites.push(Site { tensor, index, expected: want, rule: how, got: have });
            }
        }
    }
    sites
}

/// Whether bits of the op's output are a NaN.
fn is_nan(op: &Op, bits: u32) -> bool {
    match op {
        Op::Quantize(q) => q.element.format().is_nan(bits),
        Op::Dequantize(d) => d.output.format().is_nan(bits),
        Op::Cast(c) => c.target.format().is_nan(bits),
        Op::Pack(_) | Op::Swizzle => false,
    }
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
