//! Matrix products: levels G0 (decode and layout), G1 (order-invariant sums), G2 (specials), G3 (bounded) and G4 (modelled), and
//! grouped products.
//!
//! A class that is answered exactly (G0 to G2) has inputs whose sum no accumulation of the backend's kind rounds, whatever its
//! order: every product and every partial sum is a number of the accumulator.

pub(super) mod bounded;
pub(super) mod grouped;
pub(super) mod masks;
pub(super) mod one_hot;
mod operands;
pub(super) mod order_invariant;
pub(super) mod products;
pub(super) mod scale_pairs;
pub(super) mod specials;
