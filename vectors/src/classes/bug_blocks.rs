//! Blocks that published faults get wrong, each with its reference and the right bytes.
//!
//! The data are `data/bug_blocks.json`: f32 bits in, scale byte and codes out, by element format and mode. Every profile is
//! asked all of them; bf16 and f16 those whose values they hold. The zero block leads, since the smoke level asks the first.

use super::build::sized;
use crate::bits;
use crate::class::{Block, Class, LANES, Level, Source};
use crate::op::{Float, Quantize};
use mx_reference::{Element, ScaleMode};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(super) const CLASS: Class = Class {
    name: "bug-blocks",
    aim: "the block of each public fault that has one",
    faults: &[
        "torchao 4201, 4725, 3686, 3123, 1912 and releases up to 0.18",
        "TransformerEngine 2408, 2647, 3550; ROCm TransformerEngine 737",
        "triton 5925, 5197, 11753; pytorch 125557, 178817",
        "flashinfer 4023, 4167; aiter 974, 3992; mlx 4353",
        "compressed-tensors 551; vLLM 43557; DeepGEMM",
        "microxcaling 3; tt-metal 42106, 51971, 56526",
        "torch-xpu-ops 2951; llm-scaler 569",
    ],
    source: Source::Blocks { count, block },
};

/// One block and its answers.
#[derive(Clone, Debug, Deserialize)]
pub struct BugBlock {
    /// The case's name.
    pub id: String,
    /// What goes wrong, in a line.
    pub fault: String,
    /// Where it was reported.
    pub references: Vec<String>,
    input: Lanes,
    expected: Vec<Answer>,
}

/// The right bytes for one element format and mode, under the `propagate` convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The element format.
    pub element: Element,
    /// The scale mode.
    pub mode: ScaleMode,
    /// The scale byte.
    pub scale: u8,
    /// The codes.
    pub codes: [u8; LANES],
}

/// One value for all lanes, and exceptions.
#[derive(Clone, Debug, Deserialize)]
struct Lanes {
    fill: String,
    at: BTreeMap<usize, String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Answer {
    element: String,
    mode: String,
    scale: String,
    codes: Lanes,
}

static BLOCKS: LazyLock<Vec<BugBlock>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../data/bug_blocks.json"))
        .expect("the file is part of the crate, and a test reads it")
});

/// Every block, in the order of the file.
pub fn all() -> &'static [BugBlock] {
    &BLOCKS
}

impl BugBlock {
    /// The f32 bits of the lanes.
    pub fn input(&self) -> Block {
        self.input.bits()
    }

    /// The answers the file gives.
    ///
    /// # Panics
    /// If the file names an unknown element format or mode.
    pub fn expected(&self) -> Vec<Expected> {
        let answer = |answer: &Answer| Expected {
            element: Element::from_name(&answer.element).expect("an element format"),
            mode: ScaleMode::from_name(&answer.mode).expect("a scale mode"),
            scale: hex(&answer.scale) as u8,
            codes: answer.codes.bits().map(|code| code as u8),
        };
        self.expected.iter().map(answer).collect()
    }

    /// The lanes as bits of another input type; `None` where it does not hold them. NaNs become the quiet one.
    fn narrowed(&self, float: Float) -> Option<Block> {
        let wide = self.input();
        if float == Float::F32 {
            return Some(wide);
        }
        let mut block = [0; LANES];
        for (lane, bits) in block.iter_mut().zip(wide) {
            let x = Float::F32.format().decode(bits);
            *lane = match bits {
                _ if x.is_nan() => float.format().nan_code,
                _ if bits::magnitude(Float::F32, bits) == bits::infinity(Float::F32) => {
                    bits::signed(float, bits::infinity(float), x.negative)
                }
                _ => bits::exact(float, x)?,
            };
        }
        Some(block)
    }
}

impl Lanes {
    fn bits(&self) -> Block {
        let mut bits = [hex(&self.fill); LANES];
        for (&lane, value) in &self.at {
            bits[lane] = hex(value);
        }
        bits
    }
}

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number")
}

fn count(q: &Quantize, level: Level) -> u64 {
    let blocks = all().iter().filter(|block| block.narrowed(q.input).is_some());
    sized(q, level, 1, blocks.count() as u64)
}

fn block(q: &Quantize, n: u64) -> Block {
    let mut blocks = all().iter().filter_map(|block| block.narrowed(q.input));
    blocks.nth(n as usize).expect("n is below the class's count")
}
