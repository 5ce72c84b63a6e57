//! Backends, one file each, and how the command line names them.

pub mod cublaslt;
pub mod cuda;
pub mod fault_model;
pub mod in_process;
pub mod native;
pub mod oracle;
mod oracle_gemm;
mod oracle_training;
pub mod process;

use crate::backend::{Backend, Fault};
use crate::fault_models::{self, FaultModel};
use crate::judge::Judge;
use crate::suggest::nearest;
use cublaslt::Cublaslt;
use cuda::Cuda;
use fault_model::Faulty;
use in_process::InProcess;
use mx_gpu::cublaslt::Mode;
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
    /// A mode of NVIDIA's cuBLASLt, on the first device; without one all of its modes.
    Cublaslt(Option<Mode>),
    /// A program that speaks the adapter protocol.
    Command(String),
    /// A deliberately wrong implementation, by the name of its fault model.
    Fault(&'static str),
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
#[error("`{name}` is not a backend{}; backends are reference, native, cuda, cublaslt, cublaslt:MODE, cmd:COMMAND and fault:NAME (mxcert list --faults)", Spec::suggestion(.name))]
pub struct SpecError {
    name: String,
}

impl Spec {
    /// Names without an argument.
    const NAMES: [&'static str; 4] = ["reference", "native", "cuda", "cublaslt"];
    /// Kinds with an argument that this build does not have.
    const ABSENT_KINDS: [&'static str; 2] = ["lib", "files"];

    /// The backends that are present here: the project's own, and those of a GPU where there is one.
    pub fn found() -> Vec<Self> {
        let mut found = vec![Self::Reference, Self::Native];
        let probe = Probe::new();
        if probe.kernels().is_none() {
            found.push(Self::Cuda);
        }
        if probe.products().is_none() {
            found.push(Self::Cublaslt(None));
        }
        found
    }

    /// The backends that it stands for.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Cublaslt(None) => {
                Mode::ALL.into_iter().map(|mode| Self::Cublaslt(Some(mode))).collect()
            }
            one => vec![one],
        }
    }

    fn suggestion(name: &str) -> String {
        let modes = Mode::ALL.map(|mode| Self::Cublaslt(Some(mode)).to_string());
        let faults: Vec<String> =
            fault_models::all().map(|model| Self::Fault(model.name).to_string()).collect();
        let with_arguments = modes.iter().chain(&faults).map(String::as_str);
        let names: Vec<&str> = Self::NAMES.into_iter().chain(with_arguments).collect();
        nearest(name, &names)
    }

    /// Whose answers it is compared with: never its own.
    pub const fn judge(&self) -> Judge {
        match self {
            Self::Reference => Judge::Oracle,
            Self::Native => Judge::Reference,
            Self::Cuda
            | Self::Cublaslt(_)
            | Self::Command(_)
            | Self::Fault(_)
            | Self::Absent(_) => Judge::Native,
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
            Self::Cublaslt(Some(mode)) => match Cublaslt::open(*mode) {
                Ok(mode) => Box::new(mode),
                Err(error) => return self.absent(error),
            },
            Self::Cublaslt(None) => {
                let modes = Mode::ALL.map(|mode| mode.name).join(", ");
                return Ok(Opened::Absent(format!("name one mode, as in cublaslt:fp8: {modes}")));
            }
            Self::Command(command) => Box::new(Process::start(command, timeout)?),
            Self::Fault(name) => match FaultModel::from_name(name) {
                Some(model) => Box::new(Faulty::new(model)),
                None => return Ok(Opened::Absent(format!("there is no fault model `{name}`"))),
            },
            Self::Absent(_) => {
                return Ok(Opened::Absent("not present in this build of mxcert".to_owned()));
            }
        }))
    }

    /// A device that is not here, or has nothing of this kind, is absent; one that is here and does not open is at fault.
    fn absent(&self, error: GpuError) -> Result<Opened, Fault> {
        match error {
            GpuError::Missing(missing) => Ok(Opened::Absent(missing.to_string())),
            GpuError::Unsupported(reason) => Ok(Opened::Absent(reason)),
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
            Some(("cublaslt", mode)) => Mode::from_name(mode)
                .map(|mode| Self::Cublaslt(Some(mode)))
                .ok_or_else(|| SpecError { name: text.to_owned() }),
            Some(("fault", name)) => FaultModel::from_name(name)
                .map(|model| Self::Fault(model.name))
                .ok_or_else(|| SpecError { name: text.to_owned() }),
            Some((kind, _)) if Self::ABSENT_KINDS.contains(&kind) => {
                Ok(Self::Absent(text.to_owned()))
            }
            _ => match text {
                "reference" => Ok(Self::Reference),
                "native" => Ok(Self::Native),
                "cuda" => Ok(Self::Cuda),
                "cublaslt" => Ok(Self::Cublaslt(None)),
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
            Self::Cublaslt(None) => f.write_str("cublaslt"),
            Self::Cublaslt(Some(mode)) => write!(f, "cublaslt:{mode}"),
            Self::Command(command) => write!(f, "cmd:{command}"),
            Self::Fault(name) => write!(f, "fault:{name}"),
            Self::Absent(name) => f.write_str(name),
        }
    }
}
