//! The second opinion: the OCP Microscaling formats restated from their tables, by exact rationals and search.
//!
//! Nothing here is clever. A code is decoded by the textbook formula ([`Format::value`], [`Float::value`]); a value is
//! encoded by looking for the nearest decoded one ([`encode`]); a scale is looked for among the powers of two
//! ([`scale_byte`]). What is asked often is tabulated by running that search once ([`Steps`]).
//!
//! Numbers travel as raw bits in a `u32`, with a [`Float`] to say whose bits they are.

#![forbid(unsafe_code)]

mod big;
mod block;
mod dequantize;
mod encode;
mod exact;
mod extended;
mod float;
mod format;
mod gemm;
mod layout;
mod log2;
mod operand;
mod pack;
mod scale;
mod steps;
mod tensor;

pub use big::Big;
pub use block::{Multiplier, Profile};
pub use dequantize::{dequantize, dequantize_code};
pub use encode::{Overflow, Rounding, cast, cast_steps, encode};
pub use exact::Exact;
pub use extended::Extended;
pub use float::Float;
pub use format::{Format, Value};
pub use gemm::{Dot, GemmShape, dot, gemm};
pub use layout::{arrange_blocked, restore_blocked};
pub use log2::log2_rounds_to_floor;
pub use operand::{GemmElements, GemmOperand, GemmScales};
pub use pack::{PackOrder, pack, unpack};
pub use scale::{Convention, Mode, reciprocal_of_max, scale_byte};
pub use steps::{Cursor, Steps};
pub use tensor::{Axis, Blocking, Quantized, quantize};
