//! What of CUDA is on this machine, found out without starting anything.

use crate::arch::Arch;
use cudarc::driver::{DriverError, result as driver, sys};
use cudarc::{cublaslt, nvrtc};

/// What is missing, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No driver library.
    #[error(
        "no CUDA driver library (libcuda.so.1): install the NVIDIA driver, or put its folder on LD_LIBRARY_PATH"
    )]
    DriverLibrary,
    /// The driver does not start.
    #[error("the CUDA driver does not start ({0}): check with nvidia-smi")]
    Driver(String),
    /// No device.
    #[error("no CUDA device: the driver is here and sees none (CUDA_VISIBLE_DEVICES?)")]
    Device,
    /// A device that no kernel is compiled for.
    #[error(
        "no kernels for compute capability {major}.{minor}: there are kernels for 8.x, 9.0, 10.0 and 12.0"
    )]
    Architecture {
        /// Major version.
        major: i32,
        /// Minor version.
        minor: i32,
    },
    /// No compiler.
    #[error(
        "no NVRTC (libnvrtc.so.13): install CUDA 13, or `pip install nvidia-cuda-nvrtc` and put its lib folder on LD_LIBRARY_PATH"
    )]
    Nvrtc,
    /// No cuBLASLt.
    #[error(
        "no cuBLASLt (libcublasLt.so.13): install CUDA 13, or `pip install nvidia-cublas` and put its lib folder on LD_LIBRARY_PATH"
    )]
    CublasLt,
}

/// A device that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its ordinal.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// The driver's CUDA version: 13000 is 13.0.
    pub driver: i32,
}

/// What is here and what is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The first device, or why there is none.
    pub device: Result<Found, Missing>,
    /// The compiler's version, or that it is missing.
    pub nvrtc: Result<(i32, i32), Missing>,
    /// cuBLASLt's version (130100 is 13.1.0), or that it is missing.
    pub cublaslt: Result<usize, Missing>,
}

impl Probe {
    /// Looks.
    pub fn new() -> Self {
        Self { device: device(0), nvrtc: compiler(), cublaslt: cublaslt() }
    }

    /// Why the project's own kernels cannot run here, if they cannot.
    pub fn kernels(&self) -> Option<&Missing> {
        self.device.as_ref().err().or(self.nvrtc.as_ref().err())
    }

    /// Why cuBLASLt cannot run here, if it cannot.
    pub fn products(&self) -> Option<&Missing> {
        self.device.as_ref().err().or(self.cublaslt.as_ref().err())
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

/// cuBLASLt's version number in words: 130100 is 13.1.0.
///
/// ```
/// assert_eq!(mx_gpu::probe::version_of(130_100), "13.1.0");
/// ```
pub fn version_of(number: usize) -> String {
    format!("{}.{}.{}", number / 10000, number / 100 % 100, number % 100)
}

/// Looks for a device.
///
/// # Errors
/// [`Missing`].
#[expect(unsafe_code, reason = "driver calls")]
pub fn device(ordinal: usize) -> Result<Found, Missing> {
    // SAFETY: opens and closes a shared library whose initialisers are those of the NVIDIA driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(Missing::DriverLibrary);
    }
    let no_driver = |error: DriverError| Missing::Driver(error.to_string());
    driver::init().map_err(|error| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Missing::Device,
        _ => no_driver(error),
    })?;
    let count = driver::device::get_count().map_err(no_driver)?;
    if usize::try_from(count).unwrap_or(0) <= ordinal {
        return Err(Missing::Device);
    }
    let device = driver::device::get(ordinal as i32).map_err(no_driver)?;
    let name = driver::device::get_name(device).map_err(no_driver)?;
    let attribute = |which| {
        // SAFETY: `device` was just handed out by the driver.
        unsafe { driver::device::get_attribute(device, which) }.map_err(no_driver)
    };
    let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    if Arch::of_device(major, minor).is_none() {
        return Err(Missing::Architecture { major, minor });
    }
    let mut version = 0;
    // SAFETY: writes one i32.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(no_driver)?;
    Ok(Found { ordinal, name, capability: (major, minor), driver: version })
}

/// Looks for the compiler.
///
/// # Errors
/// [`Missing::Nvrtc`].
#[expect(unsafe_code, reason = "loads NVRTC")]
pub fn compiler() -> Result<(i32, i32), Missing> {
    // SAFETY: opens and closes a shared library whose initialisers are those of NVRTC.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(Missing::Nvrtc);
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two i32.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) }
        .result()
        .map_err(|_| Missing::Nvrtc)?;
    Ok((major, minor))
}

/// Looks for cuBLASLt.
///
/// # Errors
/// [`Missing::CublasLt`].
#[expect(unsafe_code, reason = "loads cuBLASLt")]
pub fn cublaslt() -> Result<usize, Missing> {
    // SAFETY: opens and closes a shared library whose initialisers are those of cuBLASLt.
    if !unsafe { cublaslt::sys::is_culib_present() } {
        return Err(Missing::CublasLt);
    }
    // SAFETY: reads a version number; needs no device.
    Ok(unsafe { cublaslt::sys::cublasLtGetVersion() })
}
