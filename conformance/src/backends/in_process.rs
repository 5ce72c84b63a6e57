//! Backends that answer in this process: the reference and its fast twin.

use crate::backend::{Backend, Fault, Identity, Refusal};
use crate::capabilities::{Accumulate, Capabilities, Claim};
use crate::outputs::Outputs;
use mx_reference::gemm::Model;
use mx_reference::{Convention, Element, ScaleMode};
use mx_vectors::answer::{AnswerError, answer};
use mx_vectors::{Call, Op, Tensors};

type Answer = fn(&Op, &'static Convention, &Tensors) -> Result<Tensors, AnswerError>;

/// A backend that answers in this process, from one of the project's own implementations.
#[derive(Clone, Debug)]
pub struct InProcess {
    identity: Identity,
    capabilities: Capabilities,
    answer: Answer,
}

impl InProcess {
    /// The reference.
    pub fn reference() -> Self {
        Self::new("reference", answer)
    }

    /// The fast twin. It claims only what it computes itself: the rest is the reference's, which judges it.
    pub fn native() -> Self {
        let mut native = Self::new("native", super::native::answer);
        let only = |values: &[&str]| Claim::Only(values.iter().map(|&v| v.to_owned()).collect());
        let profiles = Element::ALL.into_iter().flat_map(|element| {
            ScaleMode::ALL.map(|mode| format!("{}/{}", element.name(), mode.name()))
        });
        native.capabilities.ops = only(&["quantize", "dequantize", "cast", "gemm", "grouped_gemm"]);
        let products = ["e2m1-e2m1/nvfp4", "bf16-bf16/plain", "f16-f16/plain"];
        let products = products.into_iter().map(str::to_owned);
        native.capabilities.profiles = Claim::Only(profiles.chain(products).collect());
        native.capabilities.roundings = only(&["even"]);
        native
    }

    /// Changes what it claims, for tests and fault models.
    pub fn claim(&mut self, change: impl FnOnce(&mut Capabilities)) {
        change(&mut self.capabilities);
    }

    /// Any answering function under a name, for tests and fault models.
    pub fn new(name: &str, answer: Answer) -> Self {
        let identity = Identity {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            artifact: None,
            device: None,
        };
        let accumulate = Some(Accumulate(Some(Model::Exact)));
        let capabilities = Capabilities { strided: true, accumulate, ..Capabilities::default() };
        Self { identity, capabilities, answer }
    }
}

impl Backend for InProcess {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        let tensors = (self.answer)(&call.op, convention, &call.inputs)
            .map_err(|error| Fault::Raised { reason: error.to_string() })?;
        outputs
            .fill(&tensors)
            .map_err(|error| Fault::Raised { reason: error.to_string() })
            .map_err(Refusal::from)
    }

    fn duplicate(&self) -> Option<Box<dyn Backend>> {
        Some(Box::new(self.clone()))
    }
}
