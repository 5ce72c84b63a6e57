//! The training operations of MX: linear layers and mixtures of experts, forward and backward, and the exchange of tokens between
//! ranks, as torchao composes them from casts and matrix products.
//!
//! Every product is handed out with its operands, so that it can be evaluated exactly or by any model of an accumulation; the
//! convenient way is exact and rounded once.

mod all_to_all;
mod cast;
mod config;
mod error;
mod grouped;
mod linear;
mod pad;
mod product;

pub use all_to_all::{Received, all_to_all};
pub use config::{KernelPreference, OutputType, Recipe, TrainingConfig};
pub use error::TrainingError;
pub use grouped::{Grouped, GroupedOutputs};
pub use linear::{Casts, Linear, LinearOutputs};
pub use pad::{PaddedGroups, pad_token_groups};
pub use product::{GroupedProduct, Output, OwnedCodes, OwnedOperand, Product};
