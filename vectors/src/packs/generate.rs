//! Writing a pack.

use super::atomic;
use super::error::PackError;
use super::files::{Planned, numbered_classes, planned};
use super::manifest::{FileRecord, Generator, MANIFEST, Manifest, PACK_VERSION, SCHEMA, canonical};
use crate::class::Level;
use crate::op::Op;
use mx_reference::Convention;
use rayon::prelude::*;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far a pack has come. Files finish in any order.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Files done.
    pub done: usize,
    /// Files in all.
    pub total: usize,
    /// The file just done, as a path in the pack.
    pub path: &'a str,
    /// Its length.
    pub bytes: u64,
}

/// Writes a pack to a folder and returns its manifest. Files of the same name are replaced, others left alone.
///
/// `filter` sees ids up to the class (`quantize/e4m3/rceil/f32/row`); a file is written whole if any of its ops passes.
/// `progress` is called from several threads, once a file. The bytes depend on level, convention and this crate alone.
///
/// # Errors
/// [`PackError`] if the level is not stored, nothing passes the filter, or a file cannot be written.
pub fn generate(
    level: Level,
    convention: &'static Convention,
    out: impl AsRef<Path>,
    filter: impl Fn(&str) -> bool,
    progress: impl Fn(Progress<'_>) + Sync,
) -> Result<Manifest, PackError> {
    let out = out.as_ref();
    let mut files = planned(level)?;
    files.retain(|file| file.ops.iter().map(Op::prefix).any(|prefix| filter(&prefix)));
    if files.is_empty() {
        return Err(PackError::Nothing { level: level.name() });
    }
    for file in &files {
        let folder = out.join(&file.path);
        let folder = folder.parent().unwrap_or(out);
        fs::create_dir_all(folder).map_err(|source| PackError::Io {
            path: folder.to_owned(),
            action: "make the folder",
            source,
        })?;
    }
    let done = AtomicUsize::new(0);
    let make = |file: &Planned| {
        let built = file.build(convention)?;
        write(&out.join(&file.path), &built.bytes)?;
        progress(Progress {
            done: done.fetch_add(1, Ordering::Relaxed) + 1,
            total: files.len(),
            path: &file.path,
            bytes: built.record.bytes,
        });
        Ok(built.record)
    };
    let records = files.par_iter().map(make).collect::<Result<_, PackError>>()?;
    let manifest = manifest(level, convention, records);
    write(&out.join(MANIFEST), canonical(&manifest)?.as_bytes())?;
    Ok(manifest)
}

/// The manifest of these files.
pub(super) fn manifest(
    level: Level,
    convention: &'static Convention,
    files: Vec<FileRecord>,
) -> Manifest {
    Manifest {
        schema: SCHEMA.to_owned(),
        pack: PACK_VERSION.to_owned(),
        level: level.name().to_owned(),
        generator: Generator {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        convention: convention.into(),
        classes: numbered_classes().map(|(_, class)| class.into()).collect(),
        files,
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), PackError> {
    atomic::write(path, |writer| writer.write_all(bytes)).map_err(|source: io::Error| {
        PackError::Io { path: path.to_owned(), action: "write", source }
    })
}
