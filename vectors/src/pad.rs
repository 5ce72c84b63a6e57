//! Products for backends that take whole multiples alone: zeros are added to the right and below, which change no sum.

use crate::class::Call;
use crate::op::{Gemm, Op, Scaling};
use crate::tensor::{Data, Tensor, Tensors};

/// The call with rows of both operands filled up to a multiple of the first number and K to one of the second: zero elements under
/// scales of 1. Calls of other ops stay as they are.
#[must_use]
pub fn padded(call: Call, (rows, cols): (usize, usize)) -> Call {
    let gemm: Gemm = match call.op {
        Op::Gemm(g) => g,
        Op::GroupedGemm(g) => g.gemm,
        _ => return call,
    };
    let block = gemm.scaling.block().map_or(1, |(block, _)| block);
    let one = if gemm.scaling == Scaling::Nvfp4 { 0x38 } else { 0x7f };
    let mut inputs = Tensors::new();
    for (name, tensor) in call.inputs {
        // Elements a column: scales follow their elements, and K stays a whole number of blocks.
        let (each, filling) = match name.as_str() {
            "a_elements" | "b_elements" => (1, 0),
            "a_scales" | "b_scales" => (block, one),
            _ => {
                inputs.insert(name, tensor);
                continue;
            }
        };
        let k = tensor.shape.last().copied().unwrap_or(0) * each;
        let width = k.next_multiple_of(cols.max(1)).next_multiple_of(block) / each;
        inputs.insert(name, fill(&tensor, (rows.max(1), width), filling));
    }
    Call { op: call.op, inputs }
}

/// A matrix, or a stack of them, with rows filled up to a multiple and columns up to a width.
fn fill(tensor: &Tensor, (multiple, width): (usize, usize), filling: u8) -> Tensor {
    let [stack @ .., rows, cols] = &tensor.shape[..] else { return tensor.clone() };
    let (rows, cols) = (*rows, *cols);
    let matrices: usize = stack.iter().product();
    let below = rows.next_multiple_of(multiple);
    let place = |i: usize| {
        let (matrix, r, c) = (i / (below * width), i / width % below, i % width);
        (r < rows && c < cols).then(|| (matrix * rows + r) * cols + c)
    };
    let total = matrices * below * width;
    let data = match &tensor.data {
        Data::U8(data) => {
            Data::U8((0..total).map(|i| place(i).map_or(filling, |at| data[at])).collect())
        }
        Data::U16(data) => {
            Data::U16((0..total).map(|i| place(i).map_or(filling.into(), |at| data[at])).collect())
        }
        other => other.clone(),
    };
    let mut shape = stack.to_vec();
    shape.extend([below, width]);
    Tensor { shape, data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::answer;
    use crate::cells::cells;
    use crate::class::Level;
    use crate::classes;
    use mx_reference::convention::PROPAGATE;
    use rstest::rstest;

    /// What was there before stands where it stood, and the rest is products of zeros.
    #[rstest]
    fn sums_stay_as_they_are(
        #[values((1, 1), (16, 64), (48, 96), (256, 512))] multiple: (usize, usize),
    ) {
        for op in cells().into_iter().filter(|op| matches!(op, Op::Gemm(_))).step_by(7) {
            for class in classes::ALL.iter().filter(|class| class.name.starts_with("g1-x11")) {
                let crate::Source::Tensors { call, .. } = class.source else { continue };
                if class.count(&op, Level::Standard) == 0 {
                    continue;
                }
                let call = call(&op, 0);
                let before = &answer(&call.op, &PROPAGATE, &call.inputs).unwrap()["output"];
                let wide = padded(call.clone(), multiple);
                let after = &answer(&wide.op, &PROPAGATE, &wide.inputs).unwrap()["output"];
                assert!(after.shape.iter().all(|side| side.is_multiple_of(multiple.0)));
                assert!(wide.inputs["a_elements"].shape[1].is_multiple_of(multiple.1));
                let (n, wide_n) = (before.shape[1], after.shape[1]);
                for i in 0..before.data.len() {
                    let at = i / n * wide_n + i % n;
                    assert_eq!(before.data.get(i), after.data.get(at), "{}", op.prefix());
                }
            }
        }
    }
}
