//! Packs: vectors on disk, for test suites that are not written in Rust.

mod atomic;
mod check;
pub mod container;
mod difference;
mod error;
mod files;
mod generate;
mod header;
mod manifest;
mod smoke;
mod standard;

pub use check::{Finding, Report, check};
pub use difference::Difference;
pub use error::PackError;
pub use generate::{Progress, generate};
pub use manifest::{
    ClassRecord, ConventionRecord, EdgesRecord, FileRecord, Generator, MANIFEST, Manifest,
    PACK_VERSION, SCHEMA, TensorRecord, canonical,
};
pub use smoke::SmokeLine;
