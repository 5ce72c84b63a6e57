#![doc = include_str!("../README.md")]
#![allow(
    clippy::inline_always,
    reason = "what is not inlined into a kernel misses its instruction set"
)]

mod cast;
mod columns;
mod dequantize;
mod dispatch;
mod gemm;
mod lane;
mod plan;
mod quantize;
mod rows;
mod scale;
mod tiles;
mod transpose;

pub use cast::{encode, encode_slice};
pub use dequantize::{
    dequantize, dequantize_f32, dequantize_f32_into, dequantize_u16, dequantize_u16_into,
};
pub use gemm::{accumulate, gemm, gemm_with_magnitude};
pub use quantize::{quantize, quantize_into, quantize_row};
pub use scale::{ScaleRule, scale_byte};
