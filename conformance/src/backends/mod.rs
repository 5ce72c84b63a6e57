//! Backends, one file each, and how the command line names them.

pub mod in_process;
pub mod native;
pub mod oracle;
mod oracle_gemm;
mod oracle_training;
pub mod process;

use crate::backend::{Backend, Fault};
use crate::judge::Judge;
use crate::suggest::nearest;
use in_process::InProcess;
use process::Process;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A backend by the name that `--backend` takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// The reference.
    Reference,
    /// The fast twin.
    Native,
    /// A program that speaks the adapter protocol.
    Command(String),
    /// One that mxcert knows of and this build does not have.
    Absent(String),
}

/// A name that is no backend.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is not a backend{}; backends are reference, native and cmd:COMMAND", nearest(.name, &Spec::NAMES))]
pub struct SpecError {
    name: String,
}

impl Spec {
    /// Names without an argument.
    const NAMES: [&'static str; 4] = ["reference", "native", "cuda", "cublaslt"];
    /// Kinds with an argument that this build does not have.
    const ABSENT_KINDS: [&'static str; 3] = ["lib", "files", "fault"];

    /// The backends that are present everywhere.
    pub fn found() -> Vec<Self> {
        vec![Self::Reference, Self::Native]
    }

    /// Whose answers it is compared with: never its own.
    pub const fn judge(&self) -> Judge {
        match self {
            Self::Reference => Judge::Oracle,
            Self::Native => Judge::Reference,
            Self::Command(_) | Self::Absent(_) => Judge::Native,
        }
    }

    /// Opens it; `None` if it is not present.
    ///
    /// # Errors
    /// [`Fault`] of an external backend that does not start or answer properly.
    pub fn open(&self, timeout: Duration) -> Result<Option<Box<dyn Backend>>, Fault> {
        Ok(Some(match self {
            Self::Reference => Box::new(InProcess::reference()),
            Self::Native => Box::new(InProcess::native()),
            Self::Command(command) => Box::new(Process::start(command, timeout)?),
            Self::Absent(_) => return Ok(None),
        }))
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.split_once(':') {
            Some(("cmd", command)) if !command.trim().is_empty() => {
                Ok(Self::Command(command.to_owned()))
            }
            Some((kind, _)) if Self::ABSENT_KINDS.contains(&kind) => {
                Ok(Self::Absent(text.to_owned()))
            }
            _ => match text {
                "reference" => Ok(Self::Reference),
                "native" => Ok(Self::Native),
                "cuda" | "cublaslt" => Ok(Self::Absent(text.to_owned())),
                _ => Err(SpecError { name: text.to_owned() }),
            },
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference => f.write_str("reference"),
            Self::Native => f.write_str("native"),
            Self::Command(command) => write!(f, "cmd:{command}"),
            Self::Absent(name) => f.write_str(name),
        }
    }
}
