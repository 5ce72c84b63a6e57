//! Backends, one file each, and how the command line names them.

pub mod cuda;
pub mod in_process;
pub mod native;
pub mod oracle;
mod oracle_gemm;
mod oracle_training;
pub mod process;

use crate::backend::{Backend, Fault};
use crate::judge::Judge;
use crate::suggest::nearest;
use cuda::Cuda;
use in_process::InProcess;
use mx_gpu::{GpuError, Probe};
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
    /// The project's own CUDA kernels, on the first device.
    Cuda,
    /// A program that speaks the adapter protocol.
    Command(String),
    /// One that mxcert knows of and this build does not have.
    Absent(String),
}

/// What opening a backend came to.
pub enum Opened {
    /// It is here.
    Ready(Box<dyn Backend>),
    /// It is not, and why.
    Absent(String),
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(backend) => f.debug_tuple("Ready").field(backend.identity()).finish(),
            Self::Absent(reason) => f.debug_tuple("Absent").field(reason).finish(),
        }
    }
}

/// A name that is no backend.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is not a backend{}; backends are reference, native, cuda and cmd:COMMAND", nearest(.name, &Spec::NAMES))]
pub struct SpecError {
    name: String,
}

impl Spec {
    /// Names without an argument.
    const NAMES: [&'static str; 4] = ["reference", "native", "cuda", "cublaslt"];
    /// Kinds with an argument that this build does not have.
    const ABSENT_KINDS: [&'static str; 3] = ["lib", "files", "fault"];

    /// The backends that are present here: the project's own, and those of a GPU where there is one.
    pub fn found() -> Vec<Self> {
        let mut found = vec![Self::Reference, Self::Native];
        let probe = Probe::new();
        if probe.kernels().is_none() {
            found.push(Self::Cuda);
        }
        found
    }

    /// Whose answers it is compared with: never its own.
    pub const fn judge(&self) -> Judge {
        match self {
            Self::Reference => Judge::Oracle,
            Self::Native => Judge::Reference,
            Self::Cuda | Self::Command(_) | Self::Absent(_) => Judge::Native,
        }
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`Fault`] of an external backend that does not start or answer properly, or of a device that is here and fails.
    pub fn open(&self, timeout: Duration) -> Result<Opened, Fault> {
        Ok(Opened::Ready(match self {
            Self::Reference => Box::new(InProcess::reference()),
            Self::Native => Box::new(InProcess::native()),
            Self::Cuda => match Cuda::open() {
                Ok(cuda) => Box::new(cuda),
                Err(error) => return self.absent(error),
            },
            Self::Command(command) => Box::new(Process::start(command, timeout)?),
            Self::Absent(_) => {
                return Ok(Opened::Absent("not present in this build of mxcert".to_owned()));
            }
        }))
    }

    /// A device that is not here is absent; one that is here and does not open is at fault.
    fn absent(&self, error: GpuError) -> Result<Opened, Fault> {
        match error {
            GpuError::Missing(missing) => Ok(Opened::Absent(missing.to_string())),
            error => Err(Fault::Start { command: self.to_string(), reason: error.to_string() }),
        }
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
                "cuda" => Ok(Self::Cuda),
                "cublaslt" => Ok(Self::Absent(text.to_owned())),
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
            Self::Cuda => f.write_str("cuda"),
            Self::Command(command) => write!(f, "cmd:{command}"),
            Self::Absent(name) => f.write_str(name),
        }
    }
}
