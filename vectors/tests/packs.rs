//! Packs are pure functions of level and convention: the committed one is what this build makes, with any number of threads.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use mx_reference::convention::PROPAGATE;
use mx_vectors::Level;
use mx_vectors::packs::{check, generate};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packs/smoke")
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_name().unwrap().to_string_lossy());
            if path.is_dir() {
                folders.push((path, name + "/"));
            } else {
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

fn generated(level: Level, threads: usize, filter: fn(&str) -> bool) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| generate(level, &PROPAGATE, folder.path(), filter, |_| {})).unwrap();
    files(folder.path())
}

fn assert_same(a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>, hint: &str) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{hint}");
    for (name, bytes) in a {
        assert!(*bytes == b[name], "{name} differs: {hint}");
    }
}

#[test]
fn the_committed_smoke_pack_is_what_this_build_makes() {
    if std::env::var_os("MXCERT_WRITE_SMOKE").is_some() {
        generate(Level::Smoke, &PROPAGATE, committed(), |_| true, |_| {}).unwrap();
    }
    let hint = "rewrite it with\nMXCERT_WRITE_SMOKE=1 cargo test -p mx-vectors --test packs";
    for threads in [1, 2] {
        assert_same(&generated(Level::Smoke, threads, |_| true), &files(&committed()), hint);
    }
    let report = check(committed()).unwrap();
    assert!(report.is_clean() && report.absent.is_empty(), "{report:?}");
}

#[test]
fn standard_packs_do_not_depend_on_threads() {
    let some = |prefix: &str| {
        let lists = ["quantize/e2m3/even", "dequantize/int8", "cast/e8m0/up"];
        let named = ["pack/e3m2", "swizzle", "all_to_all", "group_swizzle"];
        lists.iter().chain(&named).any(|start| prefix.starts_with(start))
    };
    let one = generated(Level::Standard, 1, some);
    assert!(one.len() > 12);
    assert_same(&one, &generated(Level::Standard, 2, some), "1 and 2 threads");
}
