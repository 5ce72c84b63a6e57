#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod answer;
pub mod bits;
pub mod cells;
pub mod class;
pub mod classes;
pub mod op;
pub mod packs;
pub mod pad;
pub mod plan;
pub mod rng;
pub mod tensor;

pub use class::{Block, Call, Class, LANES, Level, Source};
pub use op::{Float, Op, Quantize};
pub use tensor::{Data, Tensor, Tensors};
