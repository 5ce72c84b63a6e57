//! Safetensors files of raw-bit tensors.
//!
//! Files are written with U8, U16, U32 and I32 tensors and at most one `__metadata__` key, [`METADATA_KEY`]: these are what
//! the numpy, torch and JAX loaders all read, and one key keeps the bytes a pure function of the content. Reading also takes
//! any typed tensor of 8, 16 or 32 bits an element as raw bits, and never trusts a header: what it says is checked against
//! the file's length before anything is allocated.

use super::{atomic, header};
use crate::tensor::{Data, Tensor, Tensors};
use header::{Entry, Header};
pub use safetensors::Dtype;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use zerocopy::IntoBytes;

/// The one metadata key that is written and read.
pub const METADATA_KEY: &str = "mxcert";

/// The longest header that is read, in bytes; the limit of the safetensors libraries.
const MAX_HEADER: u64 = 100_000_000;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ContainerError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a file, or with what was to become one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The system refused to read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// The system refused to write.
    #[error("cannot be written: {0}")]
    Write(io::Error),
    /// A folder, a device or a pipe.
    #[error("expected a regular file")]
    NotAFile,
    /// More than memory holds.
    #[error("tensor `{name}` has {bytes} bytes, more than can be allocated")]
    TooLarge {
        /// The tensor.
        name: String,
        /// Its length.
        bytes: u64,
    },
    /// Less than a header length.
    #[error("expected 8 bytes of safetensors header length, the file has {got} bytes")]
    TooShort {
        /// Bytes in the file.
        got: u64,
    },
    /// A header length that the file cannot hold.
    #[error(
        "not a safetensors file, or cut off: the first 8 bytes announce a header of {expected} bytes, {got} follow"
    )]
    HeaderLength {
        /// What the first 8 bytes say.
        expected: u64,
        /// Bytes after them.
        got: u64,
    },
    /// A header beyond what any safetensors library reads.
    #[error("expected a header of at most {MAX_HEADER} bytes, got {got}")]
    HeaderLimit {
        /// What the first 8 bytes say.
        got: u64,
    },
    /// A header that is not JSON of the right form.
    #[error("the header is not that of a safetensors file: {0}")]
    Header(serde_json::Error),
    /// Data ranges with a gap or an overlap.
    #[error(
        "tensor `{name}` starts at byte {got} of the data, expected {expected}: tensors lie side by side"
    )]
    Start {
        /// The tensor.
        name: String,
        /// Where the one before it ends.
        expected: u64,
        /// Where it starts.
        got: u64,
    },
    /// A data range that does not fit the shape.
    #[error("tensor `{name}`: {dtype} {shape:?} needs {}, got {got}", bytes_needed(*dtype, shape))]
    Length {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// Bytes that came.
        got: u64,
    },
    /// More or less data than the header describes.
    #[error("the header describes {expected} bytes of data, the file has {got}")]
    Data {
        /// Bytes by the header.
        expected: u64,
        /// Bytes in the file.
        got: u64,
    },
    /// A tensor that is not there.
    #[error("tensor `{name}` is missing; the file has: {present}")]
    Missing {
        /// The tensor.
        name: String,
        /// The names that are there.
        present: String,
    },
    /// A type that has no raw-bit tensor.
    #[error("tensor `{name}`: expected a type of 8, 16 or 32 bits, got {dtype}")]
    Type {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: Dtype,
    },
    /// A tensor named like the header's own key.
    #[error("a tensor cannot be named `__metadata__`")]
    Reserved,
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

fn bytes_needed(dtype: Dtype, shape: &[usize]) -> String {
    header::size(dtype, shape)
        .map_or_else(|| "no whole number of bytes".to_owned(), |n| format!("{n} bytes"))
}

/// An open file: names, types and shapes are known, data is read on demand.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    reader: fs::File,
    header: Header,
    /// Where the data starts.
    start: u64,
}

/// Opens a file and checks its header.
///
/// # Errors
/// [`ContainerError`] for anything but a well-formed safetensors file.
pub fn open(path: impl AsRef<Path>) -> Result<File, ContainerError> {
    let path = path.as_ref();
    let fail = |problem| ContainerError { path: path.to_owned(), problem };
    let read = |error| fail(Problem::Read(error));
    // Before opening: to open a FIFO is to wait for its writer.
    if !fs::metadata(path).map_err(read)?.is_file() {
        return Err(fail(Problem::NotAFile));
    }
    let mut reader = fs::File::open(path).map_err(read)?;
    let length = reader.metadata().map_err(read)?.len();
    let mut announced = [0; 8];
    let Some(rest) = length.checked_sub(8) else {
        return Err(fail(Problem::TooShort { got: length }));
    };
    reader.read_exact(&mut announced).map_err(read)?;
    let announced = u64::from_le_bytes(announced);
    let Some(data) = rest.checked_sub(announced) else {
        return Err(fail(Problem::HeaderLength { expected: announced, got: rest }));
    };
    if announced > MAX_HEADER {
        return Err(fail(Problem::HeaderLimit { got: announced }));
    }
    let mut text = vec![0; announced as usize];
    reader.read_exact(&mut text).map_err(read)?;
    let header = header::parse(&text, data).map_err(fail)?;
    Ok(File { path: path.to_owned(), reader, header, start: 8 + announced })
}

impl File {
    /// The names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.entries.keys().map(String::as_str)
    }

    /// The type that a tensor is stored as.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        self.header.entries.get(name).map(|entry| entry.dtype)
    }

    /// The shape of a tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.entries.get(name).map(|entry| &entry.shape[..])
    }

    /// The value of the metadata key [`METADATA_KEY`].
    pub fn metadata(&self) -> Option<&str> {
        self.header.metadata.get(METADATA_KEY).map(String::as_str)
    }

    /// Reads one tensor as raw bits, straight into its vector.
    ///
    /// # Errors
    /// [`ContainerError`] if it is not there, is of a type without raw-bit tensor, or cannot be read.
    pub fn load(&mut self, name: &str) -> Result<Tensor, ContainerError> {
        self.raw(name).map_err(|problem| ContainerError { path: self.path.clone(), problem })
    }

    fn raw(&mut self, name: &str) -> Result<Tensor, Problem> {
        let entry = self.header.entries.get(name).ok_or_else(|| Problem::Missing {
            name: name.to_owned(),
            present: self.header.entries.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })?;
        let width = entry.dtype.bitsize() / 8;
        let elements = entry.bytes() as usize / width.max(1);
        let allocated = match entry.dtype.bitsize() {
            32 if entry.dtype == Dtype::I32 => zeros(elements).map(Data::I32),
            8 => zeros(elements).map(Data::U8),
            16 => zeros(elements).map(Data::U16),
            32 => zeros(elements).map(Data::U32),
            _ => return Err(Problem::Type { name: name.to_owned(), dtype: entry.dtype }),
        };
        let too_large = || Problem::TooLarge { name: name.to_owned(), bytes: entry.bytes() };
        let mut data = allocated.ok_or_else(too_large)?;
        let bytes = match &mut data {
            Data::U8(data) => data.as_mut_slice(),
            Data::U16(data) => data.as_mut_slice().as_mut_bytes(),
            Data::U32(data) => data.as_mut_slice().as_mut_bytes(),
            Data::I32(data) => data.as_mut_slice().as_mut_bytes(),
        };
        let at = SeekFrom::Start(self.start + entry.data_offsets.0);
        self.reader.seek(at).and_then(|_| self.reader.read_exact(bytes)).map_err(Problem::Read)?;
        Ok(Tensor { shape: entry.shape.clone(), data })
    }
}

/// A vector of zeros, or `None` where memory does not hold it.
fn zeros<T: Clone + Default>(length: usize) -> Option<Vec<T>> {
    let mut data = Vec::new();
    data.try_reserve_exact(length).ok()?;
    data.resize(length, T::default());
    Some(data)
}

/// Everything a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The tensors as raw bits.
    pub tensors: Tensors,
    /// The types they are stored as.
    pub dtypes: BTreeMap<String, Dtype>,
    /// The value of the metadata key [`METADATA_KEY`].
    pub metadata: Option<String>,
}

/// Reads a whole file.
///
/// # Errors
/// Those of [`open`] and [`File::load`].
pub fn read(path: impl AsRef<Path>) -> Result<Loaded, ContainerError> {
    let mut file = open(path)?;
    let dtypes: BTreeMap<_, _> =
        file.header.entries.iter().map(|(name, entry)| (name.clone(), entry.dtype)).collect();
    let tensors = dtypes
        .keys()
        .map(|name| Ok((name.clone(), file.load(name)?)))
        .collect::<Result<_, ContainerError>>()?;
    Ok(Loaded { tensors, dtypes, metadata: file.metadata().map(str::to_owned) })
}

/// A tensor to be written, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// The type it is stored as.
    pub dtype: Dtype,
    /// Lengths of the dimensions, outermost first.
    pub shape: &'a [usize],
    /// The elements, little endian, row major.
    pub bytes: &'a [u8],
}

impl<'a> From<&'a Tensor> for TensorRef<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        let dtype = match tensor.data {
            Data::U8(_) => Dtype::U8,
            Data::U16(_) => Dtype::U16,
            Data::U32(_) => Dtype::U32,
            Data::I32(_) => Dtype::I32,
        };
        Self { dtype, shape: &tensor.shape, bytes: tensor.data.as_bytes() }
    }
}

/// Writes tensors to a file, which appears whole or not at all.
///
/// # Errors
/// [`ContainerError`] if a tensor does not fill its shape or the file cannot be written.
pub fn write(
    path: impl AsRef<Path>,
    tensors: &Tensors,
    metadata: Option<&str>,
) -> Result<(), ContainerError> {
    write_refs(path, &refs(tensors), metadata)
}

/// Like [`write()`], from tensors where they lie.
///
/// # Errors
/// Those of [`write()`].
pub fn write_refs(
    path: impl AsRef<Path>,
    tensors: &BTreeMap<&str, TensorRef<'_>>,
    metadata: Option<&str>,
) -> Result<(), ContainerError> {
    let path = path.as_ref();
    atomic::write(path, |writer| encode(writer, tensors, metadata))
        .map_err(|problem| ContainerError { path: path.to_owned(), problem })
}

/// The bytes of a file.
///
/// # Errors
/// [`Problem`] if a tensor does not fill its shape.
pub fn to_bytes(tensors: &Tensors, metadata: Option<&str>) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    encode(&mut bytes, &refs(tensors), metadata)?;
    Ok(bytes)
}

fn refs(tensors: &Tensors) -> BTreeMap<&str, TensorRef<'_>> {
    tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.into())).collect()
}

/// Writes a file in the safetensors crate's order: widest types first, so that every tensor is aligned, then by name.
fn encode(
    writer: &mut dyn Write,
    tensors: &BTreeMap<&str, TensorRef<'_>>,
    metadata: Option<&str>,
) -> Result<(), Problem> {
    let mut ordered: Vec<_> = tensors.iter().collect();
    ordered.sort_by(|(a, x), (b, y)| y.dtype.cmp(&x.dtype).then(a.cmp(b)));
    let mut end = 0;
    let mut entries = Vec::with_capacity(ordered.len());
    for &(&name, tensor) in &ordered {
        let (start, bytes) = (end, tensor.bytes.len() as u64);
        if header::size(tensor.dtype, tensor.shape) != Some(bytes) {
            return Err(Problem::Length {
                name: name.to_owned(),
                dtype: tensor.dtype,
                shape: tensor.shape.to_vec(),
                got: bytes,
            });
        }
        end += bytes;
        let shape = tensor.shape.to_vec();
        entries.push((name, Entry { dtype: tensor.dtype, shape, data_offsets: (start, end) }));
    }
    writer.write_all(&header::write(metadata, &entries)?)?;
    for (_, tensor) in ordered {
        writer.write_all(tensor.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
