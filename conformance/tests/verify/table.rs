//! The table of certificates: in the README it is what the certificates give.

use crate::common::mxcert;
use crate::{changed, real, rewritten, write};
use mx_conformance::progress::Quiet;
use mx_conformance::report::table;
use mx_conformance::verify::{Options, own_artifact, read, verify};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const START: &str = "<!-- certificates -->\n";
const END: &str = "<!-- end of certificates -->";

#[test]
fn the_readme_has_the_table_of_the_certificates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(root.join("certificates")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut certificates = Vec::new();
    for path in paths.filter(json) {
        let certificate = read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let options = Options { suites: false, own_artifact };
        let problems = verify(&certificate, options, &Quiet).unwrap().problems;
        assert_eq!(problems, [], "{}", path.display());
        certificates.push(certificate);
    }
    let readme = std::fs::read_to_string(root.join("../README.md")).unwrap();
    let (_, rest) = readme.split_once(START).expect("the start of the table");
    let (table, _) = rest.split_once(END).expect("the end of the table");
    let expected = table::render(&certificates);
    assert_eq!(
        table.trim(),
        expected.trim(),
        "put the output of `mxcert verify --table conformance/certificates` into README.md"
    );
}

#[test]
fn a_row_for_each_certificate_of_a_folder() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().to_str().unwrap();
    assert_eq!(mxcert(&["verify", "--table", folder]), (0, String::new(), String::new()));
    write(dir.path(), "b.json", &real());
    let other = rewritten(|s| {
        s["backend"]["name"] = "a|b".into();
        s["backend"]["device"] = "H200".into();
        s["backend"]["artifact"] = "sha256:0123456789abcdef0123456789abcdef".into();
    });
    write(dir.path(), "c.json", &other);
    write(dir.path(), "notes.md", &"no certificate".into());
    let (code, stdout, _) = mxcert(&["verify", "--table", folder]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{stdout}");
    assert!(lines[2].starts_with(
        r"| a\|b 0.1.0 | H200 | sha256:0123456789ab | propagate | standard | conformant | 3 | "
    ));
    assert!(lines[3].starts_with("| native 0.1.0 |  |  | propagate |"), "{stdout}");
}

#[test]
fn no_table_of_what_does_not_hold() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().to_str().unwrap();
    write(dir.path(), "a.json", &real());
    write(dir.path(), "b.json", &changed(|c| c["statement"]["level"] = "exhaustive".into()));
    let (code, stdout, stderr) = mxcert(&["verify", "--table", folder]);
    assert_eq!((code, stdout), (2, String::new()));
    assert!(stderr.contains("b.json: does not hold"), "{stderr}");
    assert_eq!(mxcert(&["verify", "--table", "/nowhere"]).0, 2);
}
