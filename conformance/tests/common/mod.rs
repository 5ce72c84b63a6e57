//! What the tests of the command line share.

#![allow(dead_code, reason = "each test crate uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs `mxcert` and gives exit code, standard output and standard error.
pub(crate) fn mxcert(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mxcert")).args(args).output().unwrap();
    split(&output)
}

fn split(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Writes an executable shell script that serves the protocol: `hello` is its answer to hello, `body` runs for each
/// request with `$line`, `$id`, `$in` and `$out` set.
pub(crate) fn adapter(dir: &Path, hello: &str, body: &str) -> PathBuf {
    let path = dir.join("adapter.sh");
    let script = format!(
        r#"#!/bin/sh
field() {{ printf '%s' "$line" | sed "s/.*\"$1\":\"\{{0,1\}}\([^\",}}]*\).*/\1/"; }}
while read -r line; do
    case $(field op) in
    hello) printf '%s\n' '{hello}' ;;
    bye) exit 0 ;;
    *) id=$(field id) in=$(field in) out=$(field out)
{body}
    ;;
    esac
done
"#
    );
    std::fs::write(&path, script).unwrap();
    path
}

/// `cmd:` with that script.
pub(crate) fn spec(script: &Path) -> String {
    format!("cmd:sh {}", script.display())
}

/// A safetensors file of one or more tensors: name, dtype, shape, bytes.
pub(crate) fn safetensors(path: &Path, tensors: &[(&str, &str, &[usize], Vec<u8>)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        let info = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert((*name).to_owned(), info);
        data.extend_from_slice(bytes);
    }
    let mut text = serde_json::to_vec(&header).unwrap();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text);
    file.extend(data);
    std::fs::write(path, file).unwrap();
}

/// The bytes of a tensor of a safetensors file, with its dtype and shape.
pub(crate) fn tensor(path: &Path, name: &str) -> (String, Vec<usize>, Vec<u8>) {
    let file = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + length]).unwrap();
    let info = &header[name];
    let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
    let offsets: Vec<_> = info["data_offsets"].as_array().unwrap().iter().map(number).collect();
    let shape = info["shape"].as_array().unwrap().iter().map(number).collect();
    let bytes = file[8 + length + offsets[0]..8 + length + offsets[1]].to_vec();
    (info["dtype"].as_str().unwrap().to_owned(), shape, bytes)
}

/// f32 values as bytes.
pub(crate) fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}
