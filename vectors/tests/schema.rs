//! The schemas beside the packs are those of the types that are written.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use mx_vectors::packs::{Manifest, SmokeLine, canonical};
use schemars::{Schema, schema_for};
use std::path::Path;

fn compare(name: &str, schema: &Schema) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    let expected = canonical(schema).unwrap();
    if std::env::var_os("MXCERT_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let got = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == expected,
        "{} has drifted from its type; rewrite it with\n\
         MXCERT_WRITE_SCHEMA=1 cargo test -p mx-vectors --test schema",
        path.display()
    );
}

#[test]
fn manifest_schema_is_current() {
    compare("manifest.schema.json", &schema_for!(Manifest));
}

#[test]
fn smoke_schema_is_current() {
    compare("smoke.schema.json", &schema_for!(SmokeLine));
}
