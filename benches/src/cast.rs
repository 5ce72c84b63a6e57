//! Casts, as torchao's `cast_bench` counts them: input bytes read, codes and scales written.

use crate::measure::{Effort, median, sets};
use mx_gpu::quantize::{Arrangement, Blocks, Cast, Target};
use mx_gpu::{Buffer, Gpu, GpuError};
use mx_reference::convention::PROPAGATE;
use mx_reference::pack::packed_len;
use mx_reference::{Element, Format, ScaleLayout, ScaleMode, format};
use serde::Serialize;

/// Which way blocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Along rows: `cast_bench`'s dim0.
    Row,
    /// Along columns: dim1.
    Col,
    /// Both from one pass: `dim0_dim1`.
    Both,
}

/// One measured cast.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Which way blocks run.
    pub direction: Direction,
    /// Element format.
    pub element: &'static str,
    /// Scale mode.
    pub mode: &'static str,
    /// Layout of scales.
    pub layout: &'static str,
    /// Median seconds.
    pub seconds: f64,
    /// Bytes moved, as counted.
    pub bytes: usize,
    /// Bytes a second over those of the copy.
    pub of_copy: f64,
}

impl Measured {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Which way blocks run.
    pub direction: Direction,
    /// Element format.
    pub element: Element,
    /// Scale mode.
    pub mode: ScaleMode,
    /// Whether scales are blocked.
    pub blocked: bool,
}

/// What `cast_bench` asks, and the other formats: e4m3 in every mode, direction and layout, and each other format along rows.
pub fn questions() -> Vec<Question> {
    let mut questions = Vec::new();
    for direction in [Direction::Row, Direction::Col, Direction::Both] {
        for mode in ScaleMode::ALL {
            for blocked in [false, true] {
                questions.push(Question { direction, element: Element::E4m3, mode, blocked });
            }
        }
    }
    for element in Element::ALL.into_iter().filter(|&e| e != Element::E4m3) {
        for direction in [Direction::Row, Direction::Col] {
            let (mode, blocked) = (ScaleMode::Rceil, false);
            questions.push(Question { direction, element, mode, blocked });
        }
    }
    questions
}

/// The input type of every measurement.
const INPUT: &Format = &format::BF16;

/// bf16 bits of a bell-shaped distribution, as `cast_bench` has it (a thousand times a standard normal): data of zeros runs faster
/// than any real one.
pub fn bell(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(count * 2);
    for _ in 0..count {
        // SplitMix64; the sum of four 16-bit numbers is bell-shaped enough for timing.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let sum: i32 = (0..4).map(|i| (z >> (16 * i) & 0xffff) as i32 - 0x8000).sum();
        let value = sum as f32 / 37837.0 * 1000.0;
        bytes.extend_from_slice(&((value.to_bits() >> 16) as u16).to_le_bytes());
    }
    bytes
}

/// A tensor on the device whose rows repeat a random megabyte, each copy shifted by where it begins.
///
/// # Errors
/// What the driver reports.
pub fn random_tensor(gpu: &Gpu, count: usize, seed: u64) -> Result<Buffer, GpuError> {
    let period = bell(((1 << 20) + 32).min(count.max(1)), seed);
    let mut buffer = gpu.allocate(count * 2)?;
    let first = period.len().min(count * 2);
    gpu.write(&period[..first], &mut buffer.slice_mut(..first))?;
    let mut filled = first;
    while filled < count * 2 {
        let more = filled.min(count * 2 - filled);
        let (from, mut to) = buffer.split_at_mut(filled);
        gpu.copy(&from.as_view().slice(..more), &mut to.slice_mut(..more))?;
        filled += more;
    }
    Ok(buffer)
}

struct Outputs {
    elements: Buffer,
    scales: Buffer,
}

/// Measures one cast of a [rows, cols] bf16 tensor beside a copy that reaches `copy` bytes per second.
///
/// # Errors
/// What the device reports, out of memory for one.
pub fn measure(
    gpu: &Gpu,
    effort: Effort,
    (rows, cols): (usize, usize),
    question: Question,
    copy: f64,
) -> Result<Measured, GpuError> {
    let Question { direction, element, mode, blocked } = question;
    // FP4 goes over the wire packed, as cast_bench has it; FP6 as the hardware's conversions give it, one code a byte.
    let packed = element.format().bits == 4;
    let cast = Cast { element, mode, convention: &PROPAGATE, input: INPUT, packed };
    let layout = if blocked { ScaleLayout::Blocked } else { ScaleLayout::Plain };
    let count = rows * cols;
    let codes = if packed { packed_len(element, count)? } else { count };
    let scales = |rows: usize, cols: usize| layout.len(rows, cols / 32).unwrap_or(0);
    let (row_scales, col_scales) = (scales(rows, cols), scales(cols, rows));
    let directions = if direction == Direction::Both { 2 } else { 1 };
    let bytes = 2 * count + directions * (codes + count / 32);

    let sets = sets(bytes);
    let inputs: Vec<Buffer> =
        (0..sets).map(|set| random_tensor(gpu, count, set as u64)).collect::<Result<_, _>>()?;
    let outputs = |len: usize| -> Result<Vec<Outputs>, GpuError> {
        let one = |_| Ok(Outputs { elements: gpu.allocate(codes)?, scales: gpu.allocate(len)? });
        (0..sets).map(one).collect()
    };
    let mut row = if direction == Direction::Col { Vec::new() } else { outputs(row_scales)? };
    let mut col = if direction == Direction::Row { Vec::new() } else { outputs(col_scales)? };
    let layout = if blocked { Arrangement::Blocked } else { Arrangement::Plain };
    let seconds = median(gpu, effort, |run| {
        let set = run % sets;
        let x = inputs[set].slice(..2 * count);
        let mut a = row
            .get_mut(set)
            .map(|o| (o.elements.slice_mut(..codes), o.scales.slice_mut(..row_scales)));
        let mut b = col
            .get_mut(set)
            .map(|o| (o.elements.slice_mut(..codes), o.scales.slice_mut(..col_scales)));
        let a = a.as_mut().map(|(elements, scales)| Target { elements, scales, layout });
        let b = b.as_mut().map(|(elements, scales)| Target { elements, scales, layout });
        let blocks = match (a, b) {
            (Some(a), Some(b)) => Blocks::Both(a, b),
            (Some(a), None) => Blocks::Row(a),
            (None, Some(b)) => Blocks::Col(b),
            (None, None) => return Ok(()),
        };
        gpu.quantize(cast, (rows, cols), &x, blocks)
    })?;
    Ok(Measured {
        direction,
        element: element.name(),
        mode: mode.name(),
        layout: if blocked { "blocked" } else { "plain" },
        seconds,
        bytes,
        of_copy: bytes as f64 / seconds / copy,
    })
}
