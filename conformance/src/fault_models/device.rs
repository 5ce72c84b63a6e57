//! What a model that writes buffers itself works with.

use super::raised;
use crate::backend::Refusal;
use crate::backends::native;
use crate::outputs::Outputs;
use mx_reference::Convention;
use mx_vectors::{Call, Op, Tensors};
use std::collections::{BTreeMap, BTreeSet};

/// What a model remembers from call to call.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Calls so far, this one included.
    pub calls: u64,
    /// The outputs of the call before.
    pub last: Tensors,
    /// Outputs by the shapes of the call.
    pub by_shape: BTreeMap<String, Tensors>,
    /// Blocks of input bits that it has learnt, by op.
    pub learnt: BTreeMap<Op, BTreeSet<Vec<u32>>>,
}

/// One call as a device has it: inputs of its own, and buffers that hold whatever they held.
#[derive(Debug)]
pub struct Device<'a> {
    /// The call as it was made.
    pub call: &'a Call,
    /// The convention.
    pub convention: &'static Convention,
    /// The device's copy of the inputs, compared with the call's when it is done.
    pub inputs: &'a mut Tensors,
    /// The right outputs, where somebody computed them before.
    pub known: Option<&'a Tensors>,
    /// What it remembers.
    pub memory: &'a mut Memory,
    /// The buffers.
    pub outputs: &'a mut Outputs,
}

impl Device<'_> {
    /// The right outputs.
    ///
    /// # Errors
    /// [`Refusal`] for inputs that do not fit the op.
    pub fn right(&self) -> Result<Tensors, Refusal> {
        if let Some(known) = self.known {
            return Ok(known.clone());
        }
        native::answer(&self.call.op, self.convention, &self.call.inputs)
            .map_err(|error| raised(&error))
    }

    /// Writes whole outputs.
    ///
    /// # Errors
    /// [`Refusal`] if they have other shapes.
    pub fn write(&mut self, tensors: &Tensors) -> Result<(), Refusal> {
        self.outputs.fill(tensors).map_err(|error| raised(&error))
    }

    /// Writes the elements for which `written` holds, given the output's name and the flat index, and leaves the others as they are.
    pub fn write_where(&mut self, tensors: &Tensors, written: impl Fn(&str, usize) -> bool) {
        for (name, tensor) in tensors {
            let Some(bytes) = self.outputs.bytes_mut(name) else { continue };
            let width = tensor.data.width();
            let parts =
                bytes.chunks_exact_mut(width).zip(tensor.data.as_bytes().chunks_exact(width));
            for (index, (to, from)) in parts.enumerate() {
                if written(name, index) {
                    to.copy_from_slice(from);
                }
            }
        }
    }

    /// The op and the shapes of the inputs, as a key.
    pub fn shapes(&self) -> String {
        let shapes = self.call.inputs.iter().map(|(name, t)| format!(" {name}{:?}", t.shape));
        format!("{:?}{}", self.call.op, shapes.collect::<String>())
    }
}
