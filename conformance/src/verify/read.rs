//! Reading a certificate: the shape of the file, before anything that it says.

use crate::report::certificate::{Certificate, SCHEMA};
use crate::suggest::nearest;
use mx_reference::Convention;
use mx_vectors::Level;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of the largest file that is read: a certificate of every cell has less than a tenth.
pub const LARGEST: u64 = 4 << 20;
/// The largest `multiple` of a claim: adapters may not claim more.
pub const LARGEST_MULTIPLE: usize = 4096;
/// Digits of a SHA-256.
const DIGITS: usize = 64;

/// A file that is no certificate, or none that this mxcert can check.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// No file, or none that can be read.
    #[error("cannot be read: {0}; give a certificate as `mxcert certify --out DIR` writes it")]
    Unreadable(String),
    /// Far larger than any certificate.
    #[error("expected at most {LARGEST} bytes, got {got}: this is no certificate")]
    TooLarge {
        /// How many.
        got: String,
    },
    /// The end of the file comes too soon.
    #[error("expected JSON, but the file ends {0}; it was cut short: copy it again")]
    Truncated(String),
    /// No JSON.
    #[error("expected JSON, got {0}; give a certificate as `mxcert certify --out DIR` writes it")]
    Syntax(String),
    /// JSON that does not say what it is.
    #[error(
        "expected an object with the key `schema`, got {got}; give a certificate, not a run record or a report"
    )]
    NoSchema {
        /// What is there.
        got: String,
    },
    /// A schema of another version, or of something else.
    #[error("expected the schema `{SCHEMA}`, got {got}; {advice}")]
    Schema {
        /// What is there.
        got: String,
        /// What to do.
        advice: &'static str,
    },
    /// A field that is missing, unknown or of another type.
    #[error(
        "expected the fields of `{SCHEMA}`, got {0}; the file was edited or written by another program: take it from its source again"
    )]
    Shape(String),
    /// No SHA-256 where one stands.
    #[error(
        "expected {DIGITS} hexadecimal digits as {what}, got `{got}`; take the file from its source again"
    )]
    Digits {
        /// Which digest.
        what: String,
        /// What is there.
        got: String,
    },
    /// A name that this mxcert does not know.
    #[error(
        "expected a {what} of {}, got `{got}`{}; verify it with mxcert {writer}, which wrote it",
        known.join(", "),
        nearest(got, known)
    )]
    Unknown {
        /// What it would be the name of.
        what: &'static str,
        /// Names that are known.
        known: Vec<&'static str>,
        /// What is there.
        got: String,
        /// The version that wrote the certificate.
        writer: String,
    },
    /// A claim that no backend can make.
    #[error(
        "expected a `multiple` between 1 and {LARGEST_MULTIPLE} in the claims, got [{0}, {1}]; no backend can claim that"
    )]
    Multiple(usize, usize),
}

/// Reads a certificate.
///
/// # Errors
/// [`CertificateError`] if the file is none.
pub fn read(path: &Path) -> Result<Certificate, CertificateError> {
    let unreadable = |error: std::io::Error| CertificateError::Unreadable(error.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    if length > LARGEST {
        return Err(CertificateError::TooLarge { got: length.to_string() });
    }
    let mut bytes = Vec::new();
    // What has no length, such as a device, ends here too.
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    parse(&bytes)
}

/// Reads a certificate from its bytes.
///
/// # Errors
/// [`CertificateError`] if they are none.
pub fn parse(bytes: &[u8]) -> Result<Certificate, CertificateError> {
    if bytes.len() as u64 > LARGEST {
        return Err(CertificateError::TooLarge { got: format!("more than {LARGEST}") });
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        if error.is_eof() {
            CertificateError::Truncated(format!("at line {}", error.line()))
        } else {
            CertificateError::Syntax(error.to_string())
        }
    })?;
    check_schema(&value)?;
    let certificate: Certificate = serde_json::from_slice(bytes)
        .map_err(|error| CertificateError::Shape(shortened(&error.to_string())))?;
    check(&certificate)?;
    Ok(certificate)
}

fn check_schema(value: &Value) -> Result<(), CertificateError> {
    let Value::Object(fields) = value else {
        return Err(CertificateError::NoSchema { got: kind(value).to_owned() });
    };
    match fields.get("schema") {
        Some(Value::String(schema)) if schema == SCHEMA => Ok(()),
        Some(Value::String(schema)) => {
            let advice = if schema.starts_with("mxcert-certificate/") {
                "certify again with this mxcert, or verify it with the one that wrote it"
            } else {
                "give a certificate as `mxcert certify --out DIR` writes it"
            };
            Err(CertificateError::Schema { got: format!("`{}`", shortened(schema)), advice })
        }
        Some(other) => {
            Err(CertificateError::NoSchema { got: format!("{} under that key", kind(other)) })
        }
        None => Err(CertificateError::NoSchema { got: "an object without it".to_owned() }),
    }
}

fn check(certificate: &Certificate) -> Result<(), CertificateError> {
    let statement = &certificate.statement;
    let is_digest = |text: &str| {
        text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let suites =
        statement.cells.iter().map(|cell| (format!("the suite of {}", cell.id), &cell.suite));
    let digests = std::iter::once(("the digest".to_owned(), &certificate.digest)).chain(suites);
    for (what, digest) in digests {
        if !is_digest(digest) {
            let got = shortened(digest);
            return Err(CertificateError::Digits { what: shortened(&what), got });
        }
    }
    let unknown = |what, known, got: &str| CertificateError::Unknown {
        what,
        known,
        got: shortened(got),
        writer: shortened(&statement.mxcert),
    };
    if Level::from_name(&statement.level).is_none() {
        let known = Level::ALL.map(Level::name).to_vec();
        return Err(unknown("level", known, &statement.level));
    }
    if Convention::from_name(&statement.convention).is_none() {
        let known = Convention::ALL.map(|convention| convention.name).to_vec();
        return Err(unknown("convention", known, &statement.convention));
    }
    if let Some((rows, cols)) = statement.claims.as_ref().and_then(|claims| claims.0.multiple)
        && ![rows, cols].iter().all(|side| (1..=LARGEST_MULTIPLE).contains(side))
    {
        return Err(CertificateError::Multiple(rows, cols));
    }
    Ok(())
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A stranger's words, not endless.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
