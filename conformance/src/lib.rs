#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod algorithm;
pub mod ask;
pub mod backend;
pub mod backends;
pub mod capabilities;
pub mod certify;
pub mod compare;
pub mod digest;
pub mod explain;
pub mod fingerprint;
pub mod golden;
pub mod judge;
pub mod outputs;
pub mod pipe;
pub mod progress;
pub mod record;
pub mod report;
pub mod roofline;
pub mod runner;
pub mod selection;
pub mod suggest;
pub mod suite;
pub mod verdict;
pub mod verify;
