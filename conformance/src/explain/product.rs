//! One output of a matrix product, term by term.

use super::decimal;
use mx_reference::format::{E8M0, F32};
use mx_reference::gemm::{Codes, ExactSum, Gemm, GroupAxis, Operand, Total};
use mx_reference::{Format, Magnitude, Number};
use mx_vectors::answer::{grouped_product, product};
use mx_vectors::{Call, Op};
use std::fmt::Write;

/// Terms shown; a count stands for the rest.
const TERMS: usize = 16;

/// The terms that are not zero of the element at a flat index of a product's output, and their exact sum. `None` for other ops, for
/// tensors that make no product, and for rows of no group.
pub fn explain_output(call: &Call, index: usize) -> Option<String> {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match &call.op {
        Op::Gemm(g) => {
            let product = product(g, &call.inputs).ok()?;
            let n = product.shape().n;
            let place = (index.checked_div(n)?, index % n);
            let (i, j) = place;
            let equation = format!("output [{i}, {j}] = sum over k of A[{i}, k] x B[{j}, k]");
            write_output(&mut text, &product, place, 0, &equation, g.output.format())
        }
        Op::GroupedGemm(g) => {
            let (grouped, shape) = grouped_product(g, &call.inputs).ok()?;
            let (n, groups) = (*shape.last()?, grouped.groups());
            let (row, j) = (index.checked_div(n)?, index % n);
            let (group, i, first, equation) = match g.axis {
                GroupAxis::M => {
                    let group = groups.iter().position(|group| group.contains(&row))?;
                    let b = format!("B[{group}, {j}, k]");
                    let equation = format!("output [{row}, {j}] = sum over k of A[{row}, k] x {b}");
                    (group, row - groups[group].start, 0, equation)
                }
                GroupAxis::K => {
                    let m = shape[1];
                    let (group, i) = (row.checked_div(m)?, row % m);
                    let output = format!("output [{group}, {i}, {j}]");
                    let equation = format!("{output} = sum over k of A[{i}, k] x B[{j}, k]");
                    (group, i, groups.get(group)?.start, equation)
                }
            };
            let format = g.gemm.output.format();
            grouped
                .group(group, |one| write_output(&mut text, &one, (i, j), first, &equation, format))
        }
        _ => return None,
    };
    Some(text)
}

/// `first` is the k of the product's first column in the tensors.
fn write_output(
    text: &mut String,
    product: &Gemm<'_>,
    (i, j): (usize, usize),
    first: usize,
    equation: &str,
    output: &Format,
) -> std::fmt::Result {
    let [a, b] = product.operands();
    let length = product.shape().k;
    let terms: Vec<(usize, Side, Side)> = (0..length)
        .map(|k| (k, Side::of(a, length, i, k), Side::of(b, length, j, k)))
        .filter(|(_, a, b)| !a.value().times(b.value()).is_zero())
        .collect();
    let of = match terms.len() {
        1 => "1 term that is not zero".to_owned(),
        n => format!("{n} terms that are not zero"),
    };
    writeln!(text, "  {equation}: {of} of {length}")?;
    if !terms.is_empty() {
        writeln!(text, "       k  {:<40} {:<40} product", "A", "B")?;
    }
    for (k, a, b) in terms.iter().take(TERMS) {
        let product = decimal(a.value().times(b.value()));
        writeln!(text, "  {:>6}  {:<40} {:<40} {product}", first + k, a.words(), b.words())?;
    }
    if let Some(more @ 1..) = terms.len().checked_sub(TERMS) {
        writeln!(text, "          and {more} more")?;
    }
    if let Some([a, b]) = product.tensor_scales() {
        let [x, y] = [a, b].map(|bits| decimal(F32.decode(bits)));
        writeln!(text, "  tensor scales 0x{a:08x} = {x} and 0x{b:08x} = {y}")?;
    }
    if let Some(&c) = product.c().and_then(|c| c.get(i * product.shape().n + j)) {
        writeln!(text, "  plus c = 0x{c:08x} = {}", decimal(F32.decode(c)))?;
    }
    let total = product.dot(i, j).total;
    let digits = output.bits as usize / 4;
    let rounded = total.round(output);
    let name = output.name;
    writeln!(text, "  exact sum {}, rounded once 0x{rounded:0digits$x} ({name})", exactly(&total))
}

/// An element of a row, with its scale where there is one.
struct Side {
    format: &'static Format,
    code: u32,
    scale: Option<(&'static Format, u8)>,
}

impl Side {
    fn of(operand: &Operand<'_>, length: usize, row: usize, k: usize) -> Self {
        let at = row * length + k;
        let code = match operand.codes {
            Codes::Bytes(codes) => codes[at].into(),
            Codes::Halves(codes) => codes[at].into(),
        };
        let scale = operand.scales.map(|scales| {
            (scales.format, scales.bytes[row * (length / scales.block) + k / scales.block])
        });
        Self { format: operand.format, code, scale }
    }

    fn element(&self) -> Number {
        self.format.decode(self.code)
    }

    fn value(&self) -> Number {
        match self.scale {
            Some((format, byte)) => self.element().times(format.decode(byte.into())),
            None => self.element(),
        }
    }

    fn words(&self) -> String {
        let digits = self.format.bits.div_ceil(4) as usize;
        let element = format!("0x{:0digits$x} = {}", self.code, decimal(self.element()));
        match self.scale {
            None => element,
            Some((format, byte)) => {
                let value = format.decode(byte.into());
                let value = match (*format == E8M0, value.exponent()) {
                    (true, Some(exponent)) => format!("2^{exponent}"),
                    _ => decimal(value),
                };
                format!("{element}, scale 0x{byte:02x} = {value}")
            }
        }
    }
}

/// A sum in decimal, and as an integer times a power of two where 63 bits hold it.
fn exactly(total: &Total) -> String {
    let Some(sum) = total.finite() else { return decimal(total.number()) };
    let number = sum.number();
    let Magnitude::Finite { significand, exponent } = number.magnitude else {
        return "0".to_owned();
    };
    let zeros = significand.trailing_zeros();
    let (odd, power) = (significand >> zeros, exponent + zeros as i32);
    let sign = if number.negative { "-" } else { "" };
    if is_whole(sum, Number::finite(!number.negative, odd, power)) {
        format!("{} = {sign}{odd} x 2^{power}", decimal(number))
    } else {
        format!("about {}, of more than 63 bits", decimal(number))
    }
}

/// Whether a sum is what `negated` is the negative of.
fn is_whole(sum: &ExactSum, negated: Number) -> bool {
    let mut rest = *sum;
    rest.add(negated);
    rest.is_zero()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::Element;
    use mx_vectors::op::{Factor, Gemm as GemmOp, GroupedGemm, Scaling, Split, Test};
    use mx_vectors::{Data, Float, Tensor, Tensors};

    fn op(scaling: Scaling) -> GemmOp {
        let a = match scaling {
            Scaling::Plain => Factor::Bf16,
            _ => Factor::Element(Element::E4m3),
        };
        let (output, accumulate) = (Float::F32, None);
        GemmOp { a, b: a, scaling, output, accumulate, split: Split::NONE, test: Test::Exact }
    }

    fn u8s(shape: &[usize], set: &[(usize, u8)], rest: u8) -> Tensor {
        let mut data = vec![rest; shape.iter().product()];
        for &(at, byte) in set {
            data[at] = byte;
        }
        Tensor { shape: shape.to_vec(), data: Data::U8(data) }
    }

    fn tensors(list: [(&str, Tensor); 4]) -> Tensors {
        list.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
    }

    #[test]
    fn terms_with_their_scales_and_the_sum() {
        let inputs = tensors([
            // 1 and -1.5 meet 2 and 1; the scale of the second block is 2^-126.
            ("a_elements", u8s(&[2, 64], &[(64 + 5, 0x38), (64 + 40, 0xbc), (64 + 41, 1)], 0)),
            ("a_scales", u8s(&[2, 2], &[(3, 1)], 127)),
            ("b_elements", u8s(&[3, 64], &[(2 * 64 + 5, 0x40), (2 * 64 + 40, 0x38)], 0)),
            ("b_scales", u8s(&[3, 2], &[(4, 128)], 127)),
        ]);
        let call = Call { op: Op::Gemm(op(Scaling::Mx)), inputs };
        let text = explain_output(&call, 5).unwrap();
        for part in [
            "output [1, 2] = sum over k of A[1, k] x B[2, k]: 2 terms that are not zero of 64",
            "       5  0x38 = 1, scale 0x7f = 2^0 ",
            " 0x40 = 2, scale 0x80 = 2^1 ",
            "      40  0xbc = -1.5, scale 0x01 = 2^-126 ",
            "exact sum about 4, of more than 63 bits, rounded once 0x40800000 (f32)",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(explain_output(&call, 0).unwrap().contains("exact sum 0, rounded"));
    }

    #[test]
    fn many_terms_are_counted() {
        let ones = Tensor { shape: vec![1, 40], data: Data::U16(vec![0xbf80; 40]) };
        let twos = Tensor { shape: vec![1, 40], data: Data::U16(vec![0x4000; 40]) };
        let inputs =
            Tensors::from([("a_elements".to_owned(), ones), ("b_elements".to_owned(), twos)]);
        let call = Call { op: Op::Gemm(op(Scaling::Plain)), inputs };
        let text = explain_output(&call, 0).unwrap();
        assert_eq!(text.lines().count(), 1 + 1 + TERMS + 1 + 1, "{text}");
        assert!(text.contains("0xbf80 = -1 ") && text.contains("and 24 more"), "{text}");
        assert!(text.contains("exact sum -80 = -5 x 2^4, rounded once 0xc2a00000 (f32)"), "{text}");
    }

    #[test]
    fn groups_along_k_count_k_as_the_tensors_do() {
        let inputs = tensors([
            ("a_elements", u8s(&[1, 64], &[(33, 0x38)], 0)),
            ("a_scales", u8s(&[1, 2], &[], 127)),
            ("b_elements", u8s(&[2, 64], &[(64 + 33, 0x7f)], 0)),
            ("b_scales", u8s(&[2, 2], &[], 127)),
        ]);
        let gemm = op(Scaling::Mx);
        let along = |axis, mut inputs: Tensors, ends: &[i32]| {
            let offsets = Tensor { shape: vec![ends.len()], data: Data::I32(ends.to_vec()) };
            inputs.insert("offsets".to_owned(), offsets);
            Call { op: Op::GroupedGemm(GroupedGemm { gemm, axis }), inputs }
        };
        let call = along(GroupAxis::K, inputs.clone(), &[32, 64]);
        let text = explain_output(&call, 3).unwrap();
        assert!(
            text.contains("output [1, 0, 1] = sum over k of A[0, k] x B[1, k]: 1 term"),
            "{text}"
        );
        assert!(text.contains("      33  0x38 = 1, ") && text.contains("exact sum nan"), "{text}");
        let mut inputs = inputs;
        if let Some(b) = inputs.get_mut("b_elements") {
            b.shape = vec![2, 1, 64];
        }
        if let Some(scales) = inputs.get_mut("b_scales") {
            scales.shape = vec![2, 1, 2];
        }
        let call = along(GroupAxis::M, inputs, &[0, 1]);
        let text = explain_output(&call, 0).unwrap();
        assert!(
            text.contains("output [0, 0] = sum over k of A[0, k] x B[1, 0, k]: 1 term"),
            "{text}"
        );
        assert!(text.contains("0x7f = nan"), "{text}");
    }
}
