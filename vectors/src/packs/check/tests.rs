use super::*;
use crate::packs::{container, generate};
use crate::tensor::Data;
use mx_reference::convention::{PROPAGATE, TE};
use rstest::rstest;

/// A pack of a few files.
fn pack() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let some =
        |prefix: &str| prefix.starts_with("pack/") || prefix == "quantize/e2m1/rceil/bf16/row";
    generate(Level::Standard, &PROPAGATE, folder.path(), some, |_| {}).unwrap();
    folder
}

fn edit(pack: &tempfile::TempDir, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let path = pack.path().join(path);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
}

fn findings(pack: &tempfile::TempDir) -> Vec<String> {
    let report = check(pack.path()).unwrap();
    assert!(!report.is_clean());
    report.findings.iter().map(ToString::to_string).collect()
}

const QUANTIZE: &str = "quantize/e2m1-rceil-bf16.safetensors";

#[test]
fn a_fresh_pack_is_clean() {
    let pack = pack();
    let report = check(pack.path()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(report.files > 1 && report.bytes > 1000);
    assert!(report.absent.contains(&"quantize/e4m3-rceil-f32.safetensors".to_owned()));
}

#[test]
fn another_convention_is_checked_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let some = |prefix: &str| prefix == "quantize/e2m1/rceil/bf16/row";
    generate(Level::Standard, &TE, folder.path(), some, |_| {}).unwrap();
    assert!(check(folder.path()).unwrap().is_clean());
    edit(&folder, MANIFEST, |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes = text.replace("\"name\": \"te\"", "\"name\": \"propagate\"").into_bytes();
    });
    assert!(!check(folder.path()).unwrap().is_clean());
}

#[test]
fn a_changed_element_is_named_with_its_case() {
    let pack = pack();
    edit(&pack, QUANTIZE, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let found = findings(&pack);
    assert_eq!(found.len(), 1);
    // Bytes are written widest type first, then by name: the last is the last scale.
    assert!(found[0].starts_with(&format!("{QUANTIZE}: tensor `scales` at [")), "{}", found[0]);
    assert!(found[0].contains("(quantize/e2m1/rceil/bf16/row/"), "{}", found[0]);
}

#[rstest]
#[case::low("linear/e2m1/", "linear#5.low.y", "linear/e2m1/mxfp4_emulated/bf16/-/linear#5")]
#[case::high("linear/e2m1/", "linear#5.high.y", "linear/e2m1/mxfp4_emulated/bf16/-/linear#5")]
#[case::care("all_to_all/e4m3/mxfp8_rceil/", "all-to-all#3.care.output", "all-to-all#3")]
#[case::splits("all_to_all/e4m3/mxfp8_rceil/", "all-to-all#1.in.splits", "all-to-all#1")]
fn a_changed_byte_of_a_named_tensor_is_found_with_its_case(
    #[case] prefix: &str,
    #[case] name: &str,
    #[case] id: &str,
) {
    let pack = tempfile::tempdir().unwrap();
    let some = |other: &str| other.starts_with(prefix);
    generate(Level::Standard, &PROPAGATE, pack.path(), some, |_| {}).unwrap();
    let listed = fs::read(pack.path().join(MANIFEST)).unwrap();
    let manifest: Manifest = serde_json::from_slice(&listed).unwrap();
    let path = pack.path().join(&manifest.files[0].path);
    let mut file = container::read(&path).unwrap();
    match &mut file.tensors.get_mut(name).unwrap().data {
        Data::U8(data) => data[5] ^= 1,
        Data::U16(data) => data[5] ^= 1,
        Data::U32(data) => data[5] ^= 1,
        Data::I32(data) => data[5] ^= 1,
    }
    container::write(&path, &file.tensors, file.metadata.as_deref()).unwrap();
    let report = check(pack.path()).unwrap();
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    let found = finding.what.to_string();
    assert!(found.starts_with(&format!("tensor `{name}` at [")), "{found}");
    assert!(found.contains(&format!("{id}): expected 0x")), "{found}");
}

#[rstest]
#[case::cut(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 1), "bytes of data, the file has")]
#[case::empty(|bytes: &mut Vec<u8>| bytes.clear(), "has 0 bytes")]
#[case::header(|bytes: &mut Vec<u8>| bytes[7] = 0xff, "announce a header of")]
#[case::json(|bytes: &mut Vec<u8>| bytes[8] = b'[', "not that of a safetensors file")]
#[case::padding(|bytes: &mut Vec<u8>| {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + 8;
    bytes[..8].copy_from_slice(&length.to_le_bytes());
    bytes.splice(length as usize..length as usize, [b' '; 8]);
}, "another header or order")]
fn damaged_files_are_findings(#[case] damage: fn(&mut Vec<u8>), #[case] message: &str) {
    let pack = pack();
    edit(&pack, QUANTIZE, damage);
    let found = findings(&pack);
    assert!(found[0].starts_with(QUANTIZE) && found[0].contains(message), "{found:?}");
}

#[test]
fn missing_and_extra_files_are_findings() {
    let pack = pack();
    fs::remove_file(pack.path().join(QUANTIZE)).unwrap();
    fs::create_dir(pack.path().join(QUANTIZE)).unwrap();
    fs::remove_file(pack.path().join("pack/e2m1-little-endian.safetensors")).unwrap();
    fs::write(pack.path().join("pack/notes.txt"), "").unwrap();
    assert_eq!(
        findings(&pack),
        [
            "pack/e2m1-little-endian.safetensors: is listed in the manifest and missing",
            "pack/notes.txt: is not listed in the manifest",
            "quantize/e2m1-rceil-bf16.safetensors: expected a regular file",
        ]
    );
}

#[test]
fn a_manifest_that_lies_is_a_finding() {
    let pack = pack();
    let rename = |from: &'static str, to: &'static str| {
        edit(&pack, MANIFEST, move |bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            assert!(text.contains(from), "{from}");
            *bytes = text.replacen(from, to, 1).into_bytes();
        });
    };
    rename("\"sha256\": \"", "\"sha256\": \"0");
    rename("pack/e5m2-little-endian", "../../etc/passwd");
    rename("e2m1/rceil/bf16/row\"", "e2m1/rceil/bf16/col\"");
    let found = findings(&pack).join("\n");
    assert!(found.contains("../../etc/passwd.safetensors: no pack of this level"), "{found}");
    assert!(found.contains("as it should, the manifest says 0"), "{found}");
    assert!(found.contains("its record in the manifest is not"), "{found}");
    assert!(found.contains("manifest.json: line "), "{found}");
}

#[rstest]
#[case::no_json("{", "not a manifest: EOF")]
#[case::not_utf8("\u{fffd}", "not a manifest: expected value")]
#[case::unknown_field(r#"{"hello":1}"#, "unknown field `hello`")]
#[case::deep(&"[".repeat(10_000), "not a manifest")]
fn manifests_of_another_form_are_errors(#[case] text: &str, #[case] message: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(MANIFEST), text).unwrap();
    let error = check(folder.path()).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[rstest]
#[case("mxcert-pack/1", "mxcert-pack/2", "expected schema `mxcert-pack/1`, got `mxcert-pack/2`")]
#[case("\"pack\": \"1.", "\"pack\": \"2.", "expected pack `1.1.0`, got `2.1.0`")]
#[case("\"level\": \"standard", "\"level\": \"vast", "level `vast` is streamed, not stored")]
#[case("\"name\": \"propagate", "\"name\": \"other", "expected convention `propagate` or `te`")]
fn manifests_of_other_packs_are_errors(
    #[case] from: &str,
    #[case] to: &str,
    #[case] message: &str,
) {
    let pack = pack();
    edit(&pack, MANIFEST, |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes = text.replace(from, to).into_bytes();
    });
    let error = check(pack.path()).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn no_pack_at_all_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(check(folder.path()).unwrap_err().to_string().contains("manifest.json: cannot read"));
}
