//! Output buffers: poisoned before each call, with guard bands around them.

use mx_vectors::{Data, Tensor, Tensors};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes before and after each payload that nobody may write.
const GUARD: usize = 256;
/// What guard bands hold.
const GUARD_BYTE: u8 = 0xc3;

/// What is wrong with a set of outputs.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// An output that the op does not have, or one that is missing.
    #[error("expected outputs {expected:?}, got {got:?}")]
    Names {
        /// The op's outputs.
        expected: Vec<String>,
        /// What came.
        got: Vec<String>,
    },
    /// An output of another shape or type.
    #[error("output `{name}`: expected {expected}, got {got}")]
    Shape {
        /// Its name.
        name: String,
        /// Shape and type called for.
        expected: String,
        /// Shape and type that came.
        got: String,
    },
}

/// A write outside the buffer that was handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("output `{name}` was written outside its bounds, {side} the buffer")]
pub struct GuardError {
    /// Which output.
    pub name: String,
    /// `before` or `after`.
    pub side: &'static str,
}

#[derive(Clone, Debug)]
struct Buffer {
    shape: Vec<usize>,
    width: usize,
    bytes: Vec<u8>,
}

/// The output buffers of one call.
#[derive(Clone, Debug)]
pub struct Outputs {
    buffers: BTreeMap<String, Buffer>,
}

impl Outputs {
    /// Buffers of the shapes and types of `like`, filled with `poison`.
    ///
    /// A run uses two different patterns in two calls, so that an element which nobody wrote cannot be right in both.
    pub fn poisoned(like: &Tensors, poison: u8) -> Self {
        let buffer = |tensor: &Tensor| {
            let mut bytes = vec![GUARD_BYTE; GUARD];
            bytes.resize(GUARD + tensor.data.as_bytes().len(), poison);
            bytes.resize(bytes.len() + GUARD, GUARD_BYTE);
            Buffer { shape: tensor.shape.clone(), width: tensor.data.width(), bytes }
        };
        Self { buffers: like.iter().map(|(name, t)| (name.clone(), buffer(t))).collect() }
    }

    /// Names, in order.
    pub fn names(&self) -> Vec<String> {
        self.buffers.keys().cloned().collect()
    }

    /// Name, and type and shape as safetensors files call them.
    pub fn described(&self) -> Vec<(String, String)> {
        self.buffers.iter().map(|(name, b)| (name.clone(), describe(&b.shape, b.width))).collect()
    }

    /// The bytes a backend may write.
    pub fn bytes_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        let buffer = self.buffers.get_mut(name)?;
        let end = buffer.bytes.len() - GUARD;
        buffer.bytes.get_mut(GUARD..end)
    }

    /// A buffer with its guard bands, and where between them the payload lies: for backends that carry the whole elsewhere and back,
    /// so that writes outside the payload come back, too.
    pub fn guarded_mut(&mut self, name: &str) -> Option<(&mut [u8], Range<usize>)> {
        let buffer = self.buffers.get_mut(name)?;
        let payload = GUARD..buffer.bytes.len() - GUARD;
        Some((&mut buffer.bytes, payload))
    }

    /// Writes whole tensors, which must be exactly the outputs asked for.
    ///
    /// # Errors
    /// [`OutputError`] for a missing output, or one of another shape or type. Outputs beyond those asked for are not
    /// looked at.
    pub fn fill(&mut self, tensors: &Tensors) -> Result<(), OutputError> {
        for (name, buffer) in &mut self.buffers {
            let Some(tensor) = tensors.get(name) else {
                let got = tensors.keys().cloned().collect();
                return Err(OutputError::Names { expected: self.names(), got });
            };
            if tensor.shape != buffer.shape || tensor.data.width() != buffer.width {
                return Err(OutputError::Shape {
                    name: name.clone(),
                    expected: describe(&buffer.shape, buffer.width),
                    got: describe(&tensor.shape, tensor.data.width()),
                });
            }
            let end = buffer.bytes.len() - GUARD;
            buffer.bytes[GUARD..end].copy_from_slice(tensor.data.as_bytes());
        }
        Ok(())
    }

    /// Checks that the guard bands are as they were.
    ///
    /// # Errors
    /// [`GuardError`] names the first that is not.
    pub fn check_guards(&self) -> Result<(), GuardError> {
        for (name, buffer) in &self.buffers {
            let (before, rest) = buffer.bytes.split_at(GUARD);
            let after = &rest[rest.len() - GUARD..];
            for (side, band) in [("before", before), ("after", after)] {
                if band.iter().any(|&byte| byte != GUARD_BYTE) {
                    return Err(GuardError { name: name.clone(), side });
                }
            }
        }
        Ok(())
    }

    /// The tensors that were written.
    pub fn into_tensors(self) -> Tensors {
        let tensor = |buffer: Buffer| {
            let payload = &buffer.bytes[GUARD..buffer.bytes.len() - GUARD];
            let data = match buffer.width {
                2 => Data::U16(
                    payload.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b)).collect(),
                ),
                4 => Data::U32(
                    payload.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect(),
                ),
                _ => Data::U8(payload.to_vec()),
            };
            Tensor { shape: buffer.shape, data }
        };
        self.buffers.into_iter().map(|(name, buffer)| (name, tensor(buffer))).collect()
    }
}

fn describe(shape: &[usize], width: usize) -> String {
    format!("U{} {shape:?}", width * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like() -> Tensors {
        Tensors::from([(
            "output".to_owned(),
            Tensor { shape: vec![2], data: Data::U16(vec![1, 2]) },
        )])
    }

    #[test]
    fn filled_buffers_give_their_tensors_back() {
        let mut outputs = Outputs::poisoned(&like(), 0xa5);
        outputs.fill(&like()).unwrap();
        outputs.check_guards().unwrap();
        assert_eq!(outputs.into_tensors(), like());
    }

    #[test]
    fn what_nobody_wrote_is_poison() {
        let outputs = Outputs::poisoned(&like(), 0xa5).into_tensors();
        assert_eq!(outputs["output"].data, Data::U16(vec![0xa5a5; 2]));
    }

    #[test]
    fn a_byte_beside_the_buffer_is_seen() {
        for (at, side) in [(GUARD - 1, "before"), (GUARD + 4, "after")] {
            let mut outputs = Outputs::poisoned(&like(), 0);
            if let Some(buffer) = outputs.buffers.get_mut("output") {
                buffer.bytes[at] ^= 1;
            }
            assert_eq!(outputs.check_guards().unwrap_err().side, side);
        }
    }

    #[test]
    fn other_shapes_names_and_types_are_refused() {
        let mut outputs = Outputs::poisoned(&like(), 0);
        assert!(outputs.fill(&Tensors::new()).is_err());
        let wider = Tensor { shape: vec![2], data: Data::U32(vec![1, 2]) };
        assert!(outputs.fill(&Tensors::from([("output".to_owned(), wider)])).is_err());
        let flat = Tensor { shape: vec![1, 2], data: Data::U16(vec![1, 2]) };
        assert!(outputs.fill(&Tensors::from([("output".to_owned(), flat)])).is_err());
    }
}
