//! Fingerprints of backends: a plain product, asked through the same interface as every case.

use super::{Fingerprint, Operands, Options, PlainGemm, fingerprint};
use crate::algorithm::Algorithm;
use crate::backend::{Backend, Refusal};
use crate::capabilities::Capabilities;
use crate::outputs::Outputs;
use mx_reference::Element;
use mx_reference::convention::PROPAGATE;
use mx_reference::gemm::{Codes, Gemm, GemmShape, Model, Operand};
use mx_vectors::op::{self, Factor, Scaling, Test};
use mx_vectors::{Call, Data, Float, Op, Tensor, Tensors};

/// What outputs hold before each product.
const POISON: u8 = 0xa5;

/// The product that a kind of operands is asked as.
fn product(operands: Operands, claims: &Capabilities) -> op::Gemm {
    let (factor, scaling) = match operands {
        Operands::Fp8 => (Factor::Element(Element::E4m3), Scaling::Unit),
        Operands::Bf16 => (Factor::Bf16, Scaling::Plain),
        Operands::F16 => (Factor::F16, Scaling::Plain),
        Operands::Mx(element) => (Factor::Element(element), Scaling::Mx),
        Operands::Nvfp4 => (Factor::Element(Element::E2m1), Scaling::Nvfp4),
    };
    let accumulate = claims.accumulate.and_then(|accumulate| accumulate.0);
    let (a, b, output, split) = (factor, factor, Float::F32, op::Split::NONE);
    op::Gemm { a, b, scaling, output, accumulate, split, test: Test::Exact }
}

/// The kinds of operands whose products to f32 a backend claims.
pub fn claimed(claims: &Capabilities) -> Vec<Operands> {
    let mut kinds = Operands::ALL.to_vec();
    kinds.retain(|&kind| claims.covers(&Op::Gemm(product(kind, claims))));
    kinds
}

/// Those that it can be asked: also FP8 without scales of who does not know its model yet. Such products are not certified, as
/// nothing says what they must be.
pub fn askable(claims: &Capabilities) -> Vec<Operands> {
    let mut kinds = claimed(claims);
    let op = product(Operands::Fp8, claims);
    let hopper = op::Gemm { accumulate: Some(Model::HopperFp8), ..op };
    if op.accumulate.is_none() && claims.covers(&Op::Gemm(hopper)) {
        kinds.insert(0, Operands::Fp8);
    }
    kinds
}

/// Takes the fingerprint of a backend's products of one kind of operands.
///
/// # Errors
/// [`Refusal`] of the backend.
pub fn fingerprint_of(
    backend: &mut dyn Backend,
    operands: Operands,
    k: usize,
) -> Result<Fingerprint, Refusal> {
    let (rows, cols) = backend.capabilities().multiple();
    let options = Options { k, multiple: (rows, rows, cols.next_multiple_of(32)) };
    let op = product(operands, backend.capabilities());
    fingerprint(&mut Asked { backend, op }, operands, options)
}

struct Asked<'a> {
    backend: &'a mut dyn Backend,
    op: op::Gemm,
}

impl PlainGemm for Asked<'_> {
    type Error = Refusal;

    fn multiply(&mut self, gemm: &Gemm<'_>) -> Result<Vec<u32>, Refusal> {
        let GemmShape { m, n, .. } = gemm.shape();
        let call = self.call(gemm);
        let like = Tensor { shape: vec![m, n], data: Data::U32(vec![0; m * n]) };
        let like = Tensors::from([("output".to_owned(), like)]);
        let mut outputs = Outputs::poisoned(&like, POISON);
        self.backend.execute(&call, &PROPAGATE, &mut outputs)?;
        match outputs.into_tensors().remove("output").map(|tensor| tensor.data) {
            Some(Data::U32(bits)) => Ok(bits),
            _ => Ok(Vec::new()),
        }
    }

    fn split(&mut self, gemm: &Gemm<'_>) -> Result<Option<op::Split>, Refusal> {
        let said = self.backend.algorithm(&self.call(gemm))?.within(gemm.shape().k);
        Ok((said != Algorithm::default()).then_some(said.split))
    }
}

impl Asked<'_> {
    fn call(&self, gemm: &Gemm<'_>) -> Call {
        let GemmShape { m, n, k } = gemm.shape();
        let mut inputs = Tensors::new();
        let [a, b] = gemm.operands();
        put(&mut inputs, ["a_elements", "a_scales"], a, self.op.scaling, (m, k));
        put(&mut inputs, ["b_elements", "b_scales"], b, self.op.scaling, (n, k));
        if self.op.scaling == Scaling::Nvfp4 {
            let data = Data::U32(vec![1f32.to_bits(); 2]);
            inputs.insert("tensor_scale".to_owned(), Tensor { shape: vec![2], data });
        }
        Call { op: Op::Gemm(self.op), inputs }
    }
}

fn put(
    inputs: &mut Tensors,
    names: [&str; 2],
    operand: &Operand<'_>,
    scaling: Scaling,
    (rows, k): (usize, usize),
) {
    let data = match operand.codes {
        Codes::Bytes(codes) => Data::U8(codes.to_vec()),
        Codes::Halves(halves) => Data::U16(halves.to_vec()),
    };
    inputs.insert(names[0].to_owned(), Tensor { shape: vec![rows, k], data });
    if let Some((block, _)) = scaling.block() {
        let ones = || vec![127; rows * (k / block)];
        let scales = operand.scales.map_or_else(ones, |scales| scales.bytes.to_vec());
        inputs.insert(names[1].to_owned(), Tensor::u8([rows, k / block], scales));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(claims: &str) -> [Vec<Operands>; 2] {
        let claims = serde_json::from_str(claims).expect("claims");
        [claimed(&claims), askable(&claims)]
    }

    #[test]
    fn fp8_can_be_asked_before_its_model_is_known() {
        let fp8 = || vec![Operands::Fp8];
        let unit = r#"{"profiles":["e4m3-e4m3/unit"]"#;
        let declared = |model: &str| format!(r#"{unit},"accumulate":"{model}"}}"#);
        assert_eq!(kinds(&format!("{unit}}}")), [vec![], fp8()]);
        assert_eq!(kinds(&declared("f32")), [vec![], fp8()]);
        assert_eq!(kinds(&declared("hopper-fp8")), [fp8(), fp8()]);
        // A model that is not of FP8 without scales rules them out.
        assert_eq!(kinds(&declared("blackwell-mxf4")), [vec![], vec![]]);
        assert_eq!(
            kinds(r#"{"profiles":["bf16-bf16/plain"]}"#),
            [[Operands::Bf16]; 2].map(Vec::from)
        );
    }
}
