//! The header of a safetensors file: where each tensor lies, parsed without trusting it and written as a pure function of
//! its content.

use super::container::{METADATA_KEY, Problem};
use safetensors::Dtype;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;

/// The key that is no tensor.
const METADATA: &str = "__metadata__";

/// The description of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Bytes from the end of the header, first and one past the last.
    pub(super) data_offsets: (u64, u64),
}

impl Entry {
    /// Bytes of data, once [`check`] has seen the entry.
    pub(super) const fn bytes(&self) -> u64 {
        self.data_offsets.1 - self.data_offsets.0
    }
}

/// Bytes that a tensor takes; `None` if that is no whole number or exceeds memory.
pub(super) fn size(dtype: Dtype, shape: &[usize]) -> Option<u64> {
    let elements = shape.iter().try_fold(1u64, |n, &length| n.checked_mul(length as u64))?;
    let bits = elements.checked_mul(dtype.bitsize() as u64)?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// A parsed header.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) entries: BTreeMap<String, Entry>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with one entry per tensor")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        header.metadata = map.next_value()?;
                        continue;
                    }
                    match header.entries.entry(name) {
                        Slot::Vacant(slot) => drop(slot.insert(map.next_value()?)),
                        Slot::Occupied(slot) => {
                            let name = slot.key();
                            let twice = format!("tensor `{name}` comes twice");
                            return Err(A::Error::custom(twice));
                        }
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// Parses a header and checks it against the length of the data behind it: sizes fit shapes, and tensors lie side by side
/// from the first byte to the last.
pub(super) fn parse(text: &[u8], data: u64) -> Result<Header, Problem> {
    let header: Header = serde_json::from_slice(text).map_err(Problem::Header)?;
    let mut by_offset: Vec<_> = header.entries.iter().collect();
    by_offset.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut end = 0;
    for (name, entry) in by_offset {
        let (start, stop) = entry.data_offsets;
        if start != end {
            return Err(Problem::Start { name: name.clone(), expected: end, got: start });
        }
        let needed = size(entry.dtype, &entry.shape);
        if needed.and_then(|bytes| start.checked_add(bytes)) != Some(stop) {
            return Err(Problem::Length {
                name: name.clone(),
                dtype: entry.dtype,
                shape: entry.shape.clone(),
                got: stop.saturating_sub(start),
            });
        }
        end = stop;
    }
    if end == data { Ok(header) } else { Err(Problem::Data { expected: end, got: data }) }
}

/// The header of tensors in file order, with one metadata entry or none.
struct Written<'a> {
    metadata: Option<&'a str>,
    entries: &'a [(&'a str, Entry)],
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(text) = self.metadata {
            map.serialize_entry(METADATA, &BTreeMap::from([(METADATA_KEY, text)]))?;
        }
        for (name, entry) in self.entries {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

/// The bytes of a file before its data: the header's length and the header, padded to 8 bytes.
pub(super) fn write(metadata: Option<&str>, entries: &[(&str, Entry)]) -> Result<Vec<u8>, Problem> {
    if entries.iter().any(|(name, _)| *name == METADATA) {
        return Err(Problem::Reserved);
    }
    let mut bytes = vec![0; 8];
    serde_json::to_writer(&mut bytes, &Written { metadata, entries }).map_err(Problem::Header)?;
    bytes.resize(bytes.len().next_multiple_of(8), b' ');
    let length = bytes.len() as u64 - 8;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}
