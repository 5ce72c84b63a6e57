//! Every model, asked for its products alone, gives its own parameters back.

use mx_conformance::fingerprint::{
    Bits, Fingerprint, Group, Layout, Operands, Options, Order, PlainGemm, Promotion, Split,
    Subnormal, SumRounding, fingerprint,
};
use mx_reference::Element;
use mx_reference::format::{F32, Format};
use mx_reference::gemm::{
    Accepts, Accumulation, Codes, E8M13, FusedDot, Gemm, Model, ModelError, Operand, Scheme,
};
use rstest::rstest;

const OPTIONS: Options = Options { k: 2048, multiple: (1, 1, 32) };

/// An accumulation as a black box.
struct Box_(Accumulation);

impl PlainGemm for Box_ {
    type Error = ModelError;

    fn multiply(&mut self, gemm: &Gemm<'_>) -> Result<Vec<u32>, ModelError> {
        gemm.accumulate(&self.0, &F32)
    }
}

fn of(accumulation: Accumulation, operands: Operands) -> Result<Fingerprint, ModelError> {
    fingerprint(&mut Box_(accumulation), operands, OPTIONS)
}

#[test]
fn show() {
    for model in Model::ALL {
        for operands in Operands::ALL {
            let start = std::time::Instant::now();
            match of(model.accumulation(), operands) {
                Ok(found) => println!("== {} {:?}\n{found}\n", model.name(), start.elapsed()),
                Err(_) => println!("== {} does not take {}\n", model.name(), operands.name()),
            }
        }
    }
}
