//! How fast, against whom, measured side by side on one device in one run.
//!
//! Every figure stands beside its limit: casts beside a copy of device memory, products beside bf16 through cuBLASLt. Times are medians
//! by CUDA events over buffers that rotate through more than the L2 cache.
#![forbid(unsafe_code)]

pub mod cast;
pub mod measure;
pub mod plot;
pub mod product;
pub mod report;
