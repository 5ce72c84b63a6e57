#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![expect(
    clippy::inline_always,
    reason = "compiled for a format known to the caller the codec is three times as fast, over domains of 2^32"
)]

pub mod block;
mod codec;
pub mod convention;
mod element;
mod error;
pub mod format;
pub mod gemm;
pub mod grouped_layout;
pub mod layout;
mod log2;
mod matrix;
mod number;
pub mod pack;
mod quantize;
mod round;
pub mod scale;
pub mod training;

pub use block::{Profile, Rule};
pub use codec::Overflow;
pub use convention::Convention;
pub use element::Element;
pub use error::ShapeError;
pub use format::Format;
pub use gemm::ExactSum;
pub use grouped_layout::GroupedLayout;
pub use layout::ScaleLayout;
pub use matrix::{Input, Matrix, MatrixView};
pub use number::{Magnitude, Number};
pub use quantize::{
    Axis, BlockShape, Blocking, Quantized, check_quantized, dequantize, dequantize_code, quantize,
};
pub use round::{Cut, Rest, Rounding};
pub use scale::ScaleMode;
