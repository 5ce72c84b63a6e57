//! CUDA kernels of the Microscaling formats, and matrix products through cuBLASLt.
//!
//! A plain kernel library: device buffers in, device buffers out. It knows the formats and nothing of cases or expected values. Kernels
//! are CUDA C++ in `kernels/`, compiled for the device at run time by NVRTC with `--fmad=false`; the libraries of CUDA are loaded when
//! they are first needed, so the crate builds and links on any machine, and [`Probe`] says what is missing there.
//!
//! ```
//! match mx_gpu::Gpu::open(0) {
//!     Ok(gpu) => println!("{} ({})", gpu.name(), gpu.arch()),
//!     Err(missing) => println!("{missing}"),
//! }
//! ```

pub mod arch;
pub mod cublaslt;
mod dequantize;
pub mod device;
pub mod error;
pub mod gemm;
mod launch;
pub mod layer;
mod layout;
pub mod probe;
pub mod program;
pub mod quantize;
mod warpgroup;

pub use arch::Arch;
pub use device::Gpu;
pub use error::GpuError;
pub use probe::Probe;

/// A buffer of bytes on the device.
pub type Buffer = cudarc::driver::CudaSlice<u8>;
/// A readable part of a buffer.
pub type View<'a> = cudarc::driver::CudaView<'a, u8>;
/// A writable part of a buffer.
pub type ViewMut<'a> = cudarc::driver::CudaViewMut<'a, u8>;
