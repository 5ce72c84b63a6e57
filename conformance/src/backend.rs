//! What a backend is: identity, capabilities, and one method that executes an op.

use crate::algorithm::Algorithm;
use crate::capabilities::Capabilities;
use crate::outputs::Outputs;
use mx_reference::Convention;
use mx_vectors::Call;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Who a backend says it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Name of the library or kernel.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Digest of the build that ran, if the backend knows it: with it a certificate means this build.
    pub artifact: Option<String>,
    /// What it ran on.
    pub device: Option<String>,
}

/// Why an op was not executed. *Unsupported*, *fault* and *mismatch* are three things and never blur.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The backend says that it does not do this.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// The backend did something no answer should do.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The backend changed the inputs it was given.
    #[error("the backend changed its inputs: `{0}` hashes differently after the call")]
    InputsChanged(String),
}

/// A backend that did not answer properly: the verdict is *not established*.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fault {
    /// The program could not be started.
    #[error("could not start `{command}`: {reason}")]
    Start {
        /// The command line.
        command: String,
        /// The system's words.
        reason: String,
    },
    /// The program ended before it answered.
    #[error("ended before it answered ({status}){}", tail(.stderr))]
    Crashed {
        /// Exit status or signal.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// No answer within the deadline.
    #[error("no answer within {seconds} s; raise --timeout if it needs longer")]
    TimedOut {
        /// The deadline.
        seconds: f64,
    },
    /// An answer that is not one.
    #[error("broke the protocol: {what}{}", tail(.stderr))]
    Protocol {
        /// What was expected and what came.
        what: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// The backend answered `error`.
    #[error("answered error: {reason}")]
    Raised {
        /// Its reason.
        reason: String,
    },
}

impl Fault {
    /// The fault of a missed deadline.
    pub fn timed_out(deadline: Duration) -> Self {
        Self::TimedOut { seconds: deadline.as_secs_f64() }
    }
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; stderr ends: {stderr}") }
}

/// An implementation under judgement.
pub trait Backend: Send {
    /// Who it says it is.
    fn identity(&self) -> &Identity;

    /// What it claims. Nothing outside is sent; refusing something inside is a failure.
    fn capabilities(&self) -> &Capabilities;

    /// How it will compute a matrix product, where that depends on the shape. Asked before a product is judged, and held to in every
    /// call of the same kind and shape.
    ///
    /// # Errors
    /// [`Refusal`].
    fn algorithm(&mut self, _call: &Call) -> Result<Algorithm, Refusal> {
        Ok(Algorithm::default())
    }

    /// Executes one op, writing every buffer of `outputs`.
    ///
    /// # Errors
    /// [`Refusal`].
    fn execute(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal>;

    /// Another instance of the same backend, if several may work side by side.
    fn duplicate(&self) -> Option<Box<dyn Backend>> {
        None
    }
}
