//! What can go wrong between a caller and a device.

use crate::probe::Missing;
use cudarc::driver::DriverError;
use mx_reference::ShapeError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// Something that has to be on this machine is not.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The CUDA driver refused; out of memory and illegal addresses come here.
    #[error("CUDA: {what}: {error}")]
    Driver {
        /// What was attempted.
        what: String,
        /// The driver's status.
        error: DriverError,
    },
    /// A kernel does not compile for an architecture.
    #[error("{program} does not compile for {target}: {log}")]
    Compile {
        /// The program.
        program: String,
        /// The target.
        target: String,
        /// NVRTC's log.
        log: String,
    },
    /// A shape that the op does not have.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A buffer of the wrong size.
    #[error("{what}: expected {expected} bytes, got {got}")]
    Size {
        /// Which buffer.
        what: &'static str,
        /// Bytes that the shapes call for.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// Something this library, this device or this combination does not offer.
    #[error("{0}")]
    Unsupported(String),
    /// cuBLASLt refused.
    #[error("cuBLASLt: {what}: status {status}")]
    Blas {
        /// The call.
        what: &'static str,
        /// The status.
        status: i32,
    },
}

impl GpuError {
    /// A driver error, and what was attempted.
    pub(crate) fn driver(what: impl Into<String>) -> impl FnOnce(DriverError) -> Self {
        let what = what.into();
        move |error| Self::Driver { what, error }
    }

    /// Whether the device has no room for what was asked: a smaller request may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        use cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        matches!(self, Self::Driver { error, .. } if error.0 == CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Whether the context is lost: after an illegal address or a failed launch nothing that follows can succeed.
    pub fn is_fatal(&self) -> bool {
        use cudarc::driver::sys::CUresult as C;
        matches!(
            self,
            Self::Driver { error, .. } if matches!(
                error.0,
                C::CUDA_ERROR_ILLEGAL_ADDRESS
                    | C::CUDA_ERROR_LAUNCH_FAILED
                    | C::CUDA_ERROR_LAUNCH_TIMEOUT
                    | C::CUDA_ERROR_ILLEGAL_INSTRUCTION
                    | C::CUDA_ERROR_MISALIGNED_ADDRESS
                    | C::CUDA_ERROR_HARDWARE_STACK_ERROR
                    | C::CUDA_ERROR_ECC_UNCORRECTABLE
                    | C::CUDA_ERROR_DEVICE_UNAVAILABLE
            )
        )
    }
}
