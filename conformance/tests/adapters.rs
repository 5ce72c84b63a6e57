//! External backends, good and bad: verdicts and exit codes.

mod common;

use common::{adapter, mxcert, spec};
use rstest::rstest;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HELLO: &str = r#"{"name":"t","version":"1","ops":["quantize"],"profiles":["e4m3/rceil"],"inputs":["f32"],"axes":["row"],"layouts":["plain"],"blocks":["32"]}"#;
const FILTER: &str = "quantize/e4m3/rceil/f32/row/signed-zero*";

fn certify(dir: &Path, hello: &str, body: &str, more: &[&str]) -> (i32, String, String) {
    let script = adapter(dir, hello, body);
    let backend = spec(&script);
    let mut args = vec!["certify", FILTER, "--backend", &backend, "--timeout", "2s"];
    args.extend(more);
    mxcert(&args)
}

/// Writes the file `$out` from `$header` and `$data` as printf formats.
const WRITE: &str = r#"    n=$(printf "$header" | wc -c)
    { printf "\\$(printf %03o $((n % 256)))\\$(printf %03o $((n / 256)))\0\0\0\0\0\0"; printf "$header"; printf "$data"; } > "$out"
    echo "{\"id\":$id,\"status\":\"ok\"}""#;

#[rstest]
#[case::junk("echo 'loading weights...'", "expected an answer with `id` and `status`")]
#[case::dies("echo 'CUDA error 700' >&2; exit 7", "exit code 7")]
#[case::killed("kill -9 $$", "killed by signal 9")]
#[case::hangs("sleep 1000", "no answer within 2 s")]
#[case::error(
    r#"echo "{\"id\":$id,\"status\":\"error\",\"reason\":\"out of memory\"}""#,
    "out of memory"
)]
#[case::wrong_id(r#"echo '{"id":0,"status":"ok"}'"#, "expected the answer to request")]
#[case::no_file(r#"echo "{\"id\":$id,\"status\":\"ok\"}""#, "wrote no output file")]
#[case::garbage_file(
    r#"echo garbage-garbage > "$out"; echo "{\"id\":$id,\"status\":\"ok\"}""#,
    "answered ok, but"
)]
#[case::no_status(r#"echo "{\"id\":$id}""#, "status")]
fn what_is_no_answer_is_a_fault(#[case] body: &str, #[case] message: &str) {
    let dir = TempDir::new().unwrap();
    let started = Instant::now();
    let (code, stdout, stderr) = certify(dir.path(), HELLO, body, &[]);
    assert_eq!(code, 3, "{stdout}{stderr}");
    assert!(stdout.contains(message), "{message} in {stdout}");
    assert!(stdout.contains("not established"), "{stdout}");
    assert!(!stdout.contains(": conformant"), "{stdout}");
    assert!(started.elapsed() < Duration::from_mins(1));
}

#[test]
fn the_tail_of_standard_error_is_shown() {
    let dir = TempDir::new().unwrap();
    let (_, stdout, _) = certify(dir.path(), HELLO, "echo 'CUDA error 700' >&2; exit 7", &[]);
    assert!(stdout.contains("CUDA error 700"), "{stdout}");
}

#[test]
fn an_adapter_that_lies_about_shapes_breaks_the_protocol() {
    let dir = TempDir::new().unwrap();
    let header = r#"{"elements":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"scales":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
    let body = format!("header='{header}' data=ab\n{WRITE}");
    let (code, stdout, _) = certify(dir.path(), HELLO, &body, &[]);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains("output `elements`: expected U8 [1, 32], got U8 [1]"), "{stdout}");
}

#[test]
fn an_adapter_that_writes_short_breaks_the_protocol() {
    let dir = TempDir::new().unwrap();
    let header = r#"{"elements":{"dtype":"U8","shape":[100,32],"data_offsets":[0,3200]},"scales":{"dtype":"U8","shape":[100,1],"data_offsets":[3200,3300]}}"#;
    let body = format!("header='{header}' data=short\n{WRITE}");
    let (code, stdout, _) = certify(dir.path(), HELLO, &body, &[]);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains("broke the protocol"), "{stdout}");
}

#[test]
fn wrong_bits_are_non_conformant() {
    let dir = TempDir::new().unwrap();
    let header = r#"{"elements":{"dtype":"U8","shape":[100,32],"data_offsets":[0,3200]},"scales":{"dtype":"U8","shape":[100,1],"data_offsets":[3200,3300]}}"#;
    let body = format!("header='{header}' data=$(printf '%3300s')\n{WRITE}");
    let (code, stdout, _) = certify(dir.path(), HELLO, &body, &[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("non-conformant"), "{stdout}");
    assert!(stdout.contains("mxcert repro"), "{stdout}");
}

#[test]
fn refusing_what_was_claimed_is_non_conformant() {
    let dir = TempDir::new().unwrap();
    let body =
        r#"echo "{\"id\":$id,\"status\":\"unsupported\",\"reason\":\"only multiples of 128\"}""#;
    let (code, stdout, _) = certify(dir.path(), HELLO, body, &[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("only multiples of 128"), "{stdout}");
}

#[test]
fn an_adapter_that_overwrites_its_input_is_non_conformant() {
    let dir = TempDir::new().unwrap();
    let body = r#"printf xxxx | dd of="$in" bs=1 seek=200 conv=notrunc 2>/dev/null; echo "{\"id\":$id,\"status\":\"ok\"}""#;
    let (code, stdout, _) = certify(dir.path(), HELLO, body, &[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("changed its inputs"), "{stdout}");
}

#[rstest]
#[case::hangs("sleep 1000")]
#[case::junk("echo hello")]
#[case::dies("exit 3")]
fn a_bad_hello_is_a_fault_and_the_rest_of_the_run_goes_on(#[case] command: &str) {
    let dir = TempDir::new().unwrap();
    let script = dir.path().join("bad.sh");
    std::fs::write(&script, command).unwrap();
    let backend = spec(&script);
    let args = ["certify", FILTER, "--backend", &backend, "--backend", "native", "--timeout", "1s"];
    let (code, stdout, _) = mxcert(&args);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains("native: conformant"), "{stdout}");
}

#[test]
fn a_command_that_is_not_there_is_a_fault() {
    let (code, stdout, _) = mxcert(&["certify", FILTER, "--backend", "cmd:no-such-program-here"]);
    assert_eq!(code, 3);
    assert!(stdout.contains("could not start"), "{stdout}");
}

#[test]
fn a_claim_of_another_convention_establishes_nothing() {
    let dir = TempDir::new().unwrap();
    let hello = HELLO.replace(r#""ops""#, r#""conventions":["te"],"ops""#);
    let (code, stdout, _) = certify(dir.path(), &hello, "exit 1", &[]);
    assert_eq!(code, 4, "{stdout}");
    assert!(!stdout.contains(": conformant"), "{stdout}");
}

#[test]
fn a_run_in_which_nothing_ran_never_says_conformant() {
    for args in [
        &["certify", "no/such/case"][..],
        &["certify", "--backend", "cuda"],
        &["certify", "--backend", "files:/nowhere"],
        &["certify", "quantize/e4m3/*", "--backend", "cublaslt"],
    ] {
        let (code, stdout, stderr) = mxcert(args);
        assert_eq!(code, 4, "{stdout}{stderr}");
        assert!(!format!("{stdout}{stderr}").contains("conformant"), "{stdout}{stderr}");
        let mut args = args.to_vec();
        args.extend(["--json", "-"]);
        let (_, json, _) = mxcert(&args);
        let record: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(record["exit"], 4);
        assert!(!json.contains("conformant"), "{json}");
    }
}

#[rstest]
#[case(r#""profiles":["e4m3/rceil"]"#, r#""profiles":["e4m3/rcei"]"#, "did you mean `e4m3/rceil`?")]
#[case(r#""layouts""#, r#""layout""#, "did you mean `layouts`?")]
fn a_misspelt_claim_is_a_fault(#[case] right: &str, #[case] wrong: &str, #[case] message: &str) {
    let dir = TempDir::new().unwrap();
    let (code, stdout, _) = certify(dir.path(), &HELLO.replace(right, wrong), "exit 1", &[]);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains(message), "{stdout}");
}

#[test]
fn a_selection_of_cases_gets_no_certificate() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let (code, stdout, _) = mxcert(&["certify", FILTER, "--backend", "native", "--out", out]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("in the cases selected, which does not certify"), "{stdout}");
    let cell = "quantize/e4m3/rceil/f32/row";
    mxcert(&["certify", cell, "--backend", "native", "--out", out]);
    let written = |name: &str| dir.path().join("out").join(name).exists();
    assert!(written("run.json") && written("certificate-native.json"));
    std::fs::remove_file(dir.path().join("out/certificate-native.json")).unwrap();
    mxcert(&["certify", FILTER, "--backend", "native", "--out", out]);
    assert!(!written("certificate-native.json"));
}

#[test]
fn the_digest_does_not_depend_on_threads_and_is_the_certificates() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let cell = "quantize/e4m3/*/bf16/row";
    let digests: Vec<String> = ["1", "2"]
        .map(|jobs| {
            let args = ["certify", cell, "--backend", "native", "--jobs", jobs, "--out", out];
            mxcert(&args);
            let read = |name: &str| {
                let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
                serde_json::from_str::<serde_json::Value>(&text).unwrap()
            };
            let certificate = read("certificate-native.json");
            assert_eq!(certificate["digest"], read("run.json")["backends"][0]["digest"]);
            certificate["digest"].to_string()
        })
        .into();
    assert_eq!(digests[0], digests[1]);
}
