//! Checking a pack on disk: every byte is made again and compared.

use super::difference::{Difference, between};
use super::error::PackError;
use super::files::{Planned, planned};
use super::generate::manifest;
use super::manifest::{FileRecord, MANIFEST, Manifest, PACK_VERSION, SCHEMA, canonical};
use crate::class::Level;
use mx_reference::Convention;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How much the pack claims to hold.
    pub level: Level,
    /// The convention it was made under.
    pub convention: &'static str,
    /// Files that were made again and compared.
    pub files: usize,
    /// Their length on disk, in bytes.
    pub bytes: u64,
    /// Files of the complete pack that the manifest does not list, as after generating with a filter.
    pub absent: Vec<String>,
    /// What is wrong, the first difference of each file, in path order.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if everything that is there is right. Absent files do not count: a pack may be a part.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// One file of a pack that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Finding {
    /// The path in the pack.
    pub path: String,
    /// What is wrong.
    pub what: Difference,
}

/// The longest manifest that is read; a complete one has about 100 kB.
const LONGEST_MANIFEST: u64 = 16 << 20;

/// Checks a pack: the manifest is of this form and version, every file it lists is there and no other, each has the listed
/// size and digest, and all of it, manifest included, equals what this build generates.
///
/// # Errors
/// [`PackError`] if there is no readable manifest of this form and version, or the system refuses to read. A damaged file
/// is a [`Finding`].
pub fn check(dir: impl AsRef<Path>) -> Result<Report, PackError> {
    let dir = dir.as_ref();
    let path = dir.join(MANIFEST);
    let there = fs::metadata(&path).map_err(|source| unreadable(&path, source))?;
    if !there.is_file() || there.len() > LONGEST_MANIFEST {
        let what = format!("expected a regular file of at most {LONGEST_MANIFEST} bytes");
        return Err(unreadable(&path, io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    let text = fs::read(&path).map_err(|source| unreadable(&path, source))?;
    let (claimed, level, convention) = parse(&path, &text)?;
    let on_disk = walk(dir)?;

    let complete: BTreeMap<_, _> =
        planned(level)?.into_iter().map(|file| (file.path.clone(), file)).collect();
    let mut listed = BTreeMap::new();
    let mut findings = Vec::new();
    for record in &claimed.files {
        match complete.get(&record.path) {
            Some(file) => drop(listed.insert(&record.path, (file, record))),
            None => findings.push((record.path.clone(), Difference::Unknown)),
        }
    }
    for extra in on_disk.keys().filter(|path| *path != MANIFEST) {
        if !claimed.files.iter().any(|record| record.path == *extra) {
            findings.push((extra.clone(), Difference::Extra));
        }
    }
    let again = |(file, record): &(&Planned, &FileRecord)| {
        let built = file.build(convention)?;
        let found = compare(dir, file, convention, record, &built.record, &built.bytes)?;
        Ok((built.record, found))
    };
    let pairs: Vec<_> = listed.values().copied().collect();
    let made = pairs.par_iter().map(again).collect::<Result<Vec<_>, PackError>>()?;
    let mut records = Vec::with_capacity(made.len());
    for (record, found) in made {
        findings.extend(found.map(|difference| (record.path.clone(), difference)));
        records.push(record);
    }
    let expected = canonical(&manifest(level, convention, records))?;
    if expected.as_bytes() != text {
        let got = String::from_utf8_lossy(&text);
        findings.push((MANIFEST.to_owned(), Difference::line(&expected, &got)));
    }
    findings.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Report {
        level,
        convention: convention.name,
        files: listed.len(),
        bytes: listed.keys().filter_map(|path| on_disk.get(*path)).sum(),
        absent: complete.keys().filter(|path| !listed.contains_key(path)).cloned().collect(),
        findings: findings.into_iter().map(|(path, what)| Finding { path, what }).collect(),
    })
}

/// The manifest, and the level and convention it names.
fn parse(path: &Path, text: &[u8]) -> Result<(Manifest, Level, &'static Convention), PackError> {
    let manifest: Manifest = serde_json::from_slice(text)
        .map_err(|source| PackError::Manifest { path: path.to_owned(), source })?;
    let other = |what, expected: &str, got: &str| PackError::Other {
        path: path.to_owned(),
        what,
        expected: expected.to_owned(),
        got: got.to_owned(),
    };
    if manifest.schema != SCHEMA {
        return Err(other("schema", SCHEMA, &manifest.schema));
    }
    if manifest.pack != PACK_VERSION {
        return Err(other("pack", PACK_VERSION, &manifest.pack));
    }
    let level = Level::from_name(&manifest.level)
        .ok_or_else(|| PackError::Level { level: manifest.level.clone() })?;
    let name = &manifest.convention.name;
    let convention = Convention::from_name(name).ok_or_else(|| {
        other("convention", &Convention::ALL.map(|convention| convention.name).join("` or `"), name)
    })?;
    Ok((manifest, level, convention))
}

/// The first thing that is wrong with a file, given what it should be.
fn compare(
    dir: &Path,
    file: &Planned,
    convention: &'static Convention,
    claimed: &FileRecord,
    expected: &FileRecord,
    bytes: &[u8],
) -> Result<Option<Difference>, PackError> {
    let path = dir.join(&file.path);
    let regular = match fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_file() => metadata,
        Ok(_) => return Ok(Some(Difference::NoFile)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(Difference::Missing));
        }
        Err(source) => return Err(unreadable(&path, source)),
    };
    let same = regular.len() == expected.bytes
        && fs::read(&path).map_err(|source| unreadable(&path, source))? == bytes;
    Ok(if !same {
        let (content, _) = file.content(convention)?;
        Some(between(file, &content, &path))
    } else if claimed.bytes != expected.bytes {
        Some(Difference::Size { expected: expected.bytes, claimed: claimed.bytes })
    } else if claimed.sha256 != expected.sha256 {
        let (expected, claimed) = (expected.sha256.clone(), claimed.sha256.clone());
        Some(Difference::Digest { expected, claimed })
    } else if claimed != expected {
        Some(Difference::Record)
    } else {
        None
    })
}

/// Every file below a folder, as paths with `/`, and its length. Links are not followed.
fn walk(dir: &Path) -> Result<BTreeMap<String, u64>, PackError> {
    let mut files = BTreeMap::new();
    let mut folders = BTreeSet::from([(PathBuf::from(dir), String::new())]);
    while let Some((folder, prefix)) = folders.pop_first() {
        let read = |source| unreadable(&folder, source);
        for entry in fs::read_dir(&folder).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let metadata = entry.metadata().map_err(read)?;
            if metadata.is_dir() {
                folders.insert((entry.path(), name + "/"));
            } else {
                files.insert(name, metadata.len());
            }
        }
    }
    Ok(files)
}

fn unreadable(path: &Path, source: io::Error) -> PackError {
    PackError::Io { path: path.to_owned(), action: "read", source }
}

#[cfg(test)]
mod tests;
