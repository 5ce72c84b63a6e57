//! SHA-256, as text.

use mx_vectors::Tensors;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The digest of a set of tensors: names, shapes, widths and bytes, in name order.
pub fn of_tensors(tensors: &Tensors) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (name, tensor) in tensors {
        hash.update(format!("{name} {:?} {}\n", tensor.shape, tensor.data.width()));
        hash.update(tensor.data.as_bytes());
    }
    hash.finalize().into()
}
