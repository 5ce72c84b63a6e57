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
#[case(
    r#""inputs""#,
    r#""outputs""#,
    "unknown key `outputs` (did you mean `inputs`, in which products claim their outputs?)"
)]
#[case(
    r#""ops""#,
    r#""accumulate":"hoper-fp8","ops""#,
    "broke the protocol: unknown accumulation `hoper-fp8` (did you mean `hopper-fp8`?)"
)]
#[case(r#""name":"t","#, "", "missing field `name` in the answer to hello")]
fn a_misspelt_claim_is_a_fault(#[case] right: &str, #[case] wrong: &str, #[case] message: &str) {
    let dir = TempDir::new().unwrap();
    let (code, stdout, _) = certify(dir.path(), &HELLO.replace(right, wrong), "exit 1", &[]);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains(message), "{stdout}");
    assert!(!stdout.contains("print everything else"), "{stdout}");
}

const PRODUCTS: &str = r#"{"name":"t","version":"1","ops":["gemm"],"profiles":["e4m3-e4m3/mx","e4m3-e4m3/unit"],"inputs":["f32"],"accumulate":"hopper-fp8"}"#;
/// Refuses every question, which is an answer.
const REFUSES: &str = r#"echo "{\"id\":$id,\"status\":\"unsupported\"}""#;

#[test]
fn profiles_of_another_accumulation_are_named_in_every_report() {
    let dir = TempDir::new().unwrap();
    let backend = spec(&adapter(dir.path(), PRODUCTS, REFUSES));
    let out = dir.path().join("out");
    let (code, stdout, stderr) =
        mxcert(&["certify", "--backend", &backend, "--out", out.to_str().unwrap()]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let line = "claimed, not asked: e4m3-e4m3/mx, because who declares the accumulation hopper-fp8 is asked e4m3-e4m3/unit and no other product of them; it is asked of f32, exact, ";
    assert!(stdout.contains(line), "{stdout}");
    assert!(!stdout.contains("not asked: e4m3-e4m3/unit"), "{stdout}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert!(read("report.html").contains(line) && read("report.md").contains(line));
    for (name, at) in
        [("run.json", "/backends/0/unasked"), ("certificate-t.json", "/statement/unasked")]
    {
        let value: serde_json::Value = serde_json::from_str(&read(name)).unwrap();
        assert_eq!(value.pointer(at).unwrap()[0]["profile"], "e4m3-e4m3/mx", "{name}");
    }
    let path = out.join("certificate-t.json");
    let (code, stdout, _) = mxcert(&["verify", path.to_str().unwrap()]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("non-conformant and current") && stdout.contains(line), "{stdout}");
}

#[test]
fn a_profile_of_no_cell_is_named_with_those_that_there_are() {
    let dir = TempDir::new().unwrap();
    let hello = PRODUCTS.replace("e4m3-e4m3/mx\",\"e4m3-e4m3/unit", "e4m3-e4m3/plain");
    let backend = spec(&adapter(dir.path(), &hello, REFUSES));
    let (code, stdout, _) = mxcert(&["certify", "--backend", &backend]);
    assert_eq!(code, 4, "{stdout}");
    assert!(stdout.contains("not established: nothing that it claims is asked"), "{stdout}");
    let line = "claimed, not asked: e4m3-e4m3/plain, because products of e4m3-e4m3 have no such scaling; mxcert has e4m3-e4m3/mx, e4m3-e4m3/unit";
    assert!(stdout.contains(line), "{stdout}");
    // Filters that name no case of the model, and filters that name cases outside the claims.
    for (filter, why) in [
        ("gemm/e4m3-e4m3/mx/*", "of a backend that declares the accumulation hopper-fp8"),
        ("gemm/e4m3-e4m3/unit/*", "what the filters name is not among what the backend claims"),
    ] {
        let (code, stdout, _) = mxcert(&["certify", filter, "--backend", &backend]);
        assert_eq!(code, 4, "{stdout}");
        assert!(stdout.contains(why) && stdout.contains(line), "{stdout}");
    }
}

#[test]
fn one_case_in_one_cell_is_no_plural() {
    let (_, stdout, _) =
        mxcert(&["certify", "quantize/e2m1/floor/bf16/row/ties#1", "--backend", "native"]);
    assert!(stdout.contains("1 case in 1 cell, every output right"), "{stdout}");
    assert!(stdout.contains("the filters left out cases of 1 of 1 cell\n"), "{stdout}");
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

#[test]
fn fingerprints_stand_apart_and_end_their_lines() {
    let args = ["fingerprint", "--backend", "native", "--operands", "bf16", "f16", "--k", "128"];
    let (code, stdout, stderr) = mxcert(&args);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.ends_with('\n') && !stdout.ends_with("\n\n"), "{stdout:?}");
    assert!(stdout.contains("\n\noperands"), "{stdout:?}");
}
