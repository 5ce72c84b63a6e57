//! What accumulates inside a matrix product, told from its outputs alone.
//!
//! A fingerprint asks a plain D = A·Bᵀ for sums of a few powers of two, and reads from what is lost how the sum was formed: how
//! many products are fused, to how many bits they are aligned, what the accumulator keeps, where partial sums are promoted, and
//! where K is split. Then it names the [models](mx_reference::gemm::Model) that give every one of the answers, bit for bit.
//!
//! Masking (a large U here, -U there, and small terms that vanish between the two) is the method of `FPRev` (Xie, Gao and Yang,
//! USENIX ATC 2025) for orders of summation; MMA-Sim (arXiv 2511.10909) extends it to fused groups. The sweeps of alignment and
//! accumulator follow Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores" (arXiv 2512.07004).

#![expect(
    clippy::float_cmp,
    reason = "sums of few powers of two are exact; an answer is one or it is not"
)]

mod backend;
mod group;
mod lab;
mod noise;
mod operands;
mod palette;
mod probe;
mod replay;
mod report;
mod sanity;
mod show;
mod step;
mod sweep;
mod walk;

pub use backend::{askable, claimed, fingerprint_of};
pub use operands::Operands;
pub use report::{
    Bits, Fingerprint, Group, Layout, Match, Order, Promotion, SCHEMA, Split, Subnormal,
    Subnormals, SumRounding,
};

use lab::Lab;
use mx_reference::gemm::Gemm;
use mx_vectors::op;

/// A matrix product under test: D = A·Bᵀ with f32 output, without C and without tensor scales.
pub trait PlainGemm {
    /// Why it has no answer.
    type Error;

    /// D, row major, as f32 bits: `[m, n]`. An answer that is too short counts as wrong where it is missing.
    ///
    /// # Errors
    /// Whatever keeps it from answering; the fingerprint stops there.
    fn multiply(&mut self, gemm: &Gemm<'_>) -> Result<Vec<u32>, Self::Error>;

    /// How K of a product is split, by whoever multiplies and says so. Splits that depend on the shape are no part of a model: with
    /// them said, models are replayed as each product has it.
    ///
    /// # Errors
    /// As [`PlainGemm::multiply`].
    fn split(&mut self, _gemm: &Gemm<'_>) -> Result<Option<op::Split>, Self::Error> {
        Ok(None)
    }
}

/// Which products a fingerprint may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest contraction, at least 128 and at most 16384: promotions and splits beyond half of it are not seen.
    pub k: usize,
    /// What m, n and k must be multiples of. As many different rows of B as n is a multiple of go into one product.
    pub multiple: (usize, usize, usize),
}

impl Default for Options {
    fn default() -> Self {
        Self { k: 4096, multiple: (16, 16, 32) }
    }
}

/// Parts of a split K that are allowed for where a short contraction tells nothing.
const MOST_PARTS: usize = 16;

/// Takes the fingerprint of a product: some twenty-five calls, of up to 256 rows with a k of 128, and k / 32 rows with longer
/// ones; twice as many where K may be split. Outputs beyond those that probes look at are never read, so rows and columns that pad a shape cost only their time.
///
/// ```
/// use mx_conformance::fingerprint::{Bits, Operands, Options, PlainGemm, fingerprint};
/// use mx_reference::format::F32;
/// use mx_reference::gemm::{Gemm, Model, ModelError};
/// struct Hopper;
/// impl PlainGemm for Hopper {
///     type Error = ModelError;
///     fn multiply(&mut self, gemm: &Gemm<'_>) -> Result<Vec<u32>, ModelError> {
///         gemm.accumulate(&Model::HopperFp8.accumulation(), &F32)
///     }
/// }
/// let options = Options { k: 512, multiple: (1, 1, 32) };
/// let found = fingerprint(&mut Hopper, Operands::Fp8, options)?;
/// assert_eq!(found.fraction_bits, Bits::Exactly(13));
/// assert_eq!(found.matches[0].model, "hopper-fp8");
/// # Ok::<(), ModelError>(())
/// ```
///
/// # Errors
/// Those of the product.
pub fn fingerprint<G: PlainGemm>(
    gemm: &mut G,
    operands: Operands,
    options: Options,
) -> Result<Fingerprint, G::Error> {
    let mut lab = Lab::new(gemm, operands, options);
    let mut found = Fingerprint::unknown(operands.name(), lab.longest());
    found.adds = sanity::adds(&mut lab)?;
    if found.adds {
        found.subnormals = sanity::subnormals(&mut lab)?;
        let undecided = found.clone();
        measure(&mut lab, &mut found)?;
        let parts = match &found.split {
            Split::Parts(parts) => parts.len(),
            _ if found.order == Order::Unknown => MOST_PARTS,
            _ => 1,
        };
        if lab.split(parts) {
            let mut again = undecided;
            measure(&mut lab, &mut again)?;
            if again.order != Order::Unknown {
                found = again;
            }
        }
    }
    noise::ask(&mut lab)?;
    found.probes = lab.record.iter().map(|product| product.used.len()).sum();
    found.products = lab.record.len();
    replay::conclude(&lab.palette, &lab.record, &mut found);
    Ok(found)
}

/// Measures one step, and how steps are put together.
fn measure<G: PlainGemm>(lab: &mut Lab<'_, G>, found: &mut Fingerprint) -> Result<(), G::Error> {
    let promotion = step::measure(lab, found)?;
    walk::measure(lab, found, promotion)
}
