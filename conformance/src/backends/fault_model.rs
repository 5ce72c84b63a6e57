//! Fault models as backends: `fault:NAME`.

use crate::backend::{Backend, Identity, Refusal};
use crate::capabilities::Capabilities;
use crate::fault_models::{Delta, Device, FaultModel, Memory, raised};
use crate::outputs::Outputs;
use mx_reference::Convention;
use mx_vectors::{Call, Tensors};

/// A backend that has one fault.
#[derive(Clone, Debug)]
pub struct Faulty {
    model: &'static FaultModel,
    identity: Identity,
    capabilities: Capabilities,
    memory: Memory,
}

impl Faulty {
    /// The backend of a model. It claims every op; what the model is no fault of it computes right.
    pub fn new(model: &'static FaultModel) -> Self {
        let identity = Identity {
            name: format!("fault:{}", model.name),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            artifact: None,
            device: None,
        };
        let accumulate = Some(model.accumulation());
        let capabilities = Capabilities { strided: true, accumulate, ..Capabilities::default() };
        Self { model, identity, capabilities, memory: Memory::default() }
    }

    /// The model.
    pub const fn model(&self) -> &'static FaultModel {
        self.model
    }
}

/// The backend beside the right outputs of the call that it will be asked: computing them again for every model takes most of a
/// measurement.
#[derive(Debug)]
pub struct Knowing<'a> {
    /// The backend.
    pub faulty: &'a mut Faulty,
    /// What the right implementation answers.
    pub right: &'a Tensors,
}

impl Backend for Knowing<'_> {
    fn identity(&self) -> &Identity {
        &self.faulty.identity
    }

    fn capabilities(&self) -> &Capabilities {
        &self.faulty.capabilities
    }

    fn execute(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        self.faulty.run(call, convention, outputs, Some(self.right))
    }
}

impl Backend for Faulty {
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
        self.run(call, convention, outputs, None)
    }

    fn duplicate(&self) -> Option<Box<dyn Backend>> {
        self.model.delta.is_pure().then(|| Box::new(self.clone()) as Box<dyn Backend>)
    }
}

impl Faulty {
    fn run(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
        known: Option<&Tensors>,
    ) -> Result<(), Refusal> {
        if let Delta::Device(run) = self.model.delta
            && (self.model.applies)(&call.op)
        {
            self.memory.calls += 1;
            let mut inputs = call.inputs.clone();
            let memory = &mut self.memory;
            let inputs_of = &mut inputs;
            run(&mut Device { call, convention, inputs: inputs_of, known, memory, outputs })?;
            let changed = inputs.into_iter().find(|(name, own)| call.inputs.get(name) != Some(own));
            return match changed {
                Some((name, _)) => Err(Refusal::InputsChanged(name)),
                None => Ok(()),
            };
        }
        let tensors =
            self.model.outputs(call, convention, known).map_err(|error| raised(&error))?;
        outputs.fill(&tensors).map_err(|error| raised(&error))
    }
}
