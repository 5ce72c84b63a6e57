//! The oracle as an answering function: the judge of the reference, and not a backend itself.

use mx_oracle::{Axis, Blocking, Profile};
use mx_reference as reference;
use mx_reference::pack::PackOrder;
use mx_reference::{Convention, Element, ScaleLayout};
use mx_vectors::answer::{AnswerError, bytes, check_dequantize, matrix_shape, narrow, one, tensor};
use mx_vectors::op::{CastOverflow, CastRounding, Target};
use mx_vectors::{Data, Float, Op, Quantize, Tensors};

/// The outputs of a call by the oracle. Names are translated; nothing is computed outside it.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit the op.
pub fn answer(
    op: &Op,
    convention: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    match op {
        Op::Gemm(_) | Op::GroupedGemm(_) => super::oracle_gemm::answer(op, inputs),
        Op::Linear(_) | Op::AllToAll(_) | Op::GroupSwizzle(_) => {
            super::oracle_training::answer(op, convention, inputs)
        }
        Op::Quantize(q) => quantize(q, convention, inputs),
        Op::Dequantize(d) => {
            let (rows, cols) = check_dequantize(inputs)?;
            let codes = bytes("elements", &inputs["elements"])?;
            let scales = bytes("scales", &inputs["scales"])?;
            let blocking = Blocking { axis: Axis::Row, rows: 1, cols: 32 };
            let (format, output) = (element(d.element), float(d.output));
            let bits = mx_oracle::dequantize(format, output, blocking, rows, cols, codes, scales);
            Ok(one("output", [rows, cols], narrow(d.output, bits)))
        }
        Op::Cast(c) => {
            let input = tensor(inputs, "input", "input")?;
            let codes = mx_oracle::cast(
                target(c.target),
                rounding(c.rounding),
                overflow(c.overflow),
                float(c.input),
                input.data.len(),
                |i| input.data.get(i),
            );
            Ok(one("elements", input.shape.clone(), Data::U8(codes)))
        }
        Op::Pack(p) => {
            let elements = tensor(inputs, "elements", "elements")?;
            let (rows, _) = matrix_shape("elements", elements)?;
            let order = match p.order {
                PackOrder::LittleEndian => mx_oracle::PackOrder::LittleEndian,
                PackOrder::HighNibbleFirst => mx_oracle::PackOrder::HighNibbleFirst,
                PackOrder::TorchaoFp6 => mx_oracle::PackOrder::TorchaoFp6,
            };
            let packed = mx_oracle::pack(element(p.element), order, bytes("elements", elements)?);
            let width = packed.len().checked_div(rows).unwrap_or(0);
            Ok(one("packed", [rows, width], Data::U8(packed)))
        }
        Op::Swizzle => {
            let scales = tensor(inputs, "scales", "scales")?;
            let (rows, cols) = matrix_shape("scales", scales)?;
            let blocked = mx_oracle::arrange_blocked(rows, cols, bytes("scales", scales)?);
            Ok(one("scales", [blocked.len()], Data::U8(blocked)))
        }
    }
}

pub(super) fn quantize(
    q: &Quantize,
    convention: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    let input = tensor(inputs, "input", "input")?;
    let (rows, cols) = match q.view {
        Some(view) => (view.rows, view.cols),
        None => matrix_shape("input", input)?,
    };
    q.blocking().code_shape(rows, cols)?;
    let at = |i: usize| match q.view {
        Some(v) => input.data.get(v.offset + i / cols * v.row_stride + i % cols * v.col_stride),
        None => input.data.get(i),
    };
    let axis = match q.axis {
        reference::Axis::Row => Axis::Row,
        reference::Axis::Col => Axis::Col,
    };
    let blocking = Blocking { axis, rows: q.block.rows(), cols: q.block.cols() };
    let profile = Profile {
        element: element(q.element),
        mode: match q.mode {
            reference::ScaleMode::Floor => mx_oracle::Mode::Floor,
            reference::ScaleMode::Ceil => mx_oracle::Mode::Ceil,
            reference::ScaleMode::Even => mx_oracle::Mode::Even,
            reference::ScaleMode::Rceil => mx_oracle::Mode::Rceil,
        },
        convention: self::convention(convention)?,
        input: float(q.input),
    };
    let done = mx_oracle::quantize(profile, blocking, rows, cols, at);
    let scale_cols = done.cols / q.block.cols();
    let scale_rows = done.rows / q.block.rows();
    let (scales, shape) = match q.layout {
        ScaleLayout::Plain => (done.scales, vec![scale_rows, scale_cols]),
        ScaleLayout::Transposed => {
            let at = |i: usize| done.scales[i % scale_rows * scale_cols + i / scale_rows];
            ((0..done.scales.len()).map(at).collect(), vec![scale_cols, scale_rows])
        }
        ScaleLayout::Blocked => {
            // The scale of a tile stands once for each of its rows.
            let at = |i: usize| {
                done.scales[i / scale_cols / q.block.rows() * scale_cols + i % scale_cols]
            };
            let plain: Vec<u8> = (0..done.rows * scale_cols).map(at).collect();
            let blocked = mx_oracle::arrange_blocked(done.rows, scale_cols, &plain);
            let length = blocked.len();
            (blocked, vec![length])
        }
    };
    let mut outputs = one("elements", [done.rows, done.cols], Data::U8(done.elements));
    outputs.extend(one("scales", shape, Data::U8(scales)));
    Ok(outputs)
}

fn convention(convention: &'static Convention) -> Result<mx_oracle::Convention, AnswerError> {
    match convention.name {
        "propagate" => Ok(mx_oracle::Convention::Propagate),
        "te" => Ok(mx_oracle::Convention::Te),
        "torchao-0.18" => Ok(mx_oracle::Convention::Torchao018),
        name => Err(AnswerError::Convention(name)),
    }
}

pub(super) const fn element(element: Element) -> mx_oracle::Format {
    match element {
        Element::E4m3 => mx_oracle::Format::E4m3,
        Element::E5m2 => mx_oracle::Format::E5m2,
        Element::E3m2 => mx_oracle::Format::E3m2,
        Element::E2m3 => mx_oracle::Format::E2m3,
        Element::E2m1 => mx_oracle::Format::E2m1,
        Element::Int8 => mx_oracle::Format::Int8,
    }
}

const fn target(target: Target) -> mx_oracle::Format {
    match target {
        Target::Element(e) => element(e),
        Target::E8m0 => mx_oracle::Format::E8m0,
        Target::Ue4m3 => mx_oracle::Format::Ue4m3,
    }
}

pub(super) const fn float(float: Float) -> mx_oracle::Float {
    match float {
        Float::F32 => mx_oracle::Float::F32,
        Float::Bf16 => mx_oracle::Float::Bf16,
        Float::F16 => mx_oracle::Float::F16,
    }
}

const fn rounding(rounding: CastRounding) -> mx_oracle::Rounding {
    match rounding {
        CastRounding::Even => mx_oracle::Rounding::NearestEven,
        CastRounding::Away => mx_oracle::Rounding::TiesAway,
        CastRounding::ZeroTies => mx_oracle::Rounding::TiesTowardZero,
        CastRounding::Truncate => mx_oracle::Rounding::TowardZero,
        CastRounding::Up => mx_oracle::Rounding::Up,
    }
}

const fn overflow(overflow: CastOverflow) -> mx_oracle::Overflow {
    match overflow {
        CastOverflow::Saturate => mx_oracle::Overflow::Saturate,
        CastOverflow::Propagate => mx_oracle::Overflow::Propagate,
    }
}
