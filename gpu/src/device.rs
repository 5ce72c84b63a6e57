//! An opened device: memory, compiled kernels, launches, in one stream.

use crate::arch::Arch;
use crate::error::GpuError;
use crate::probe::{self, Found, Missing};
use crate::program::Program;
use crate::{Buffer, View, ViewMut};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, DeviceRepr, DriverError, LaunchConfig,
    PinnedHostSlice, PushKernelArg, result as driver, sys,
};
use cudarc::nvrtc::Ptx;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of page-locked memory.
const STAGING: usize = 8 << 20;

/// By program and defines. Whoever needs a module while another compiles it waits for that.
type Modules = Mutex<BTreeMap<(&'static str, Vec<String>), Arc<Mutex<Option<Arc<CudaModule>>>>>>;

/// A device with a context and a stream of its own. Kernels are compiled when first launched, and kept. Clones share everything.
#[derive(Clone, Debug)]
pub struct Gpu {
    found: Found,
    arch: Arch,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    modules: Arc<Modules>,
    /// Memory for what lies between kernels of one call. Calls that use it follow one another in the stream.
    scratch: Arc<Mutex<Option<Buffer>>>,
    /// Page-locked memory that bytes go through on their way: the driver's own has one lock for all streams.
    staging: Arc<Mutex<Option<PinnedHostSlice<u8>>>>,
}

/// Lets the device's memory pool keep what is freed: otherwise it goes back to the driver whenever a stream is waited for, and the next
/// allocation waits for all others.
#[expect(unsafe_code, reason = "driver calls that the safe bindings do not have")]
fn keep_memory(device: sys::CUdevice) -> Result<(), DriverError> {
    // SAFETY: the device is that of an open context.
    let pool = unsafe { driver::device::get_default_mem_pool(device) }?;
    let mut threshold = u64::MAX;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the pool is the device's own, and the attribute's value is a u64 that is read before the call returns.
    unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()) }.result()
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// [`GpuError::Missing`] says what is not here; [`GpuError::Driver`] what the driver refused.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        // Bindings newer than the driver panic at the first symbol that it lacks.
        catch_unwind(AssertUnwindSafe(|| Self::open_here(ordinal))).unwrap_or_else(|_| {
            Err(Missing::Driver("it lacks a symbol that CUDA 13.0 has".to_owned()).into())
        })
    }

    fn open_here(ordinal: usize) -> Result<Self, GpuError> {
        let found = probe::device(ordinal)?;
        let (major, minor) = found.capability;
        let arch = Arch::of_device(major, minor).ok_or(Missing::Architecture { major, minor })?;
        let context = CudaContext::new(ordinal).map_err(GpuError::driver("opening the device"))?;
        // Threads that wait leave their core to others.
        context.set_blocking_synchronize().map_err(GpuError::driver("choosing how to wait"))?;
        if context.has_async_alloc() {
            keep_memory(context.cu_device()).map_err(GpuError::driver("setting up memory"))?;
        }
        let stream = context.default_stream();
        let (modules, scratch, staging) = Default::default();
        Ok(Self { found, arch, context, stream, modules, scratch, staging })
    }

    /// The same device with a stream of its own, for work side by side. Buffers of one stream may not be handed to another.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn fork(&self) -> Result<Self, GpuError> {
        let stream = self.context.new_stream().map_err(GpuError::driver("making a stream"))?;
        let (scratch, staging) = Default::default();
        Ok(Self { stream, scratch, staging, ..self.clone() })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.found.name
    }

    /// What was found out about it.
    pub const fn found(&self) -> &Found {
        &self.found
    }

    /// What its kernels are compiled for.
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// The stream that everything runs in.
    pub const fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The context.
    pub const fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Free and total bytes of memory.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.context.mem_get_info().map_err(GpuError::driver("asking for free memory"))
    }

    /// The number of multiprocessors.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn multiprocessors(&self) -> Result<u32, GpuError> {
        use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let count = self.context.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        count.map(|count| count as u32).map_err(GpuError::driver("asking for multiprocessors"))
    }

    /// A buffer of `len` bytes that hold anything.
    ///
    /// # Errors
    /// [`GpuError::Driver`], out of memory for one.
    #[expect(unsafe_code, reason = "an uninitialised allocation")]
    pub fn allocate(&self, len: usize) -> Result<Buffer, GpuError> {
        // SAFETY: bytes have no invalid values; the driver reports what cannot be had. An allocation is never empty.
        let buffer = unsafe { self.stream.alloc::<u8>(len.max(1)) };
        buffer.map_err(GpuError::driver(format!("allocating {len} bytes")))
    }

    /// Calls `f` with at least `len` bytes that hold anything and that nobody else uses until the stream has got past what `f` launches.
    /// They are kept for the next call.
    ///
    /// # Errors
    /// [`GpuError::Driver`], out of memory for one, and those of `f`.
    pub(crate) fn with_scratch<T>(
        &self,
        len: usize,
        f: impl FnOnce(&mut Buffer) -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = scratch.take().filter(|buffer| buffer.len() >= len);
        let buffer = scratch.insert(match kept {
            Some(buffer) => buffer,
            None => self.allocate(len)?,
        });
        f(buffer)
    }

    /// A buffer with these bytes.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer, GpuError> {
        let mut buffer = self.allocate(bytes.len())?;
        if !bytes.is_empty() {
            self.write(bytes, &mut buffer.slice_mut(..bytes.len()))?;
        }
        Ok(buffer)
    }

    /// Copies bytes to the device. Returns when they are there.
    ///
    /// # Errors
    /// [`GpuError::Size`], [`GpuError::Driver`].
    pub fn write(&self, bytes: &[u8], to: &mut ViewMut<'_>) -> Result<(), GpuError> {
        if bytes.len() != to.len() {
            return Err(GpuError::Size { what: "upload", expected: to.len(), got: bytes.len() });
        }
        let failed = || GpuError::driver("copying to the device");
        self.with_staging(|staging| {
            for (index, part) in bytes.chunks(STAGING).enumerate() {
                let staged = &mut staging.as_mut_slice().map_err(failed())?[..part.len()];
                staged.copy_from_slice(part);
                let to = &mut to.slice_mut(index * STAGING..index * STAGING + part.len());
                self.stream.memcpy_htod(staged, to).map_err(failed())?;
                self.synchronize()?;
            }
            Ok(())
        })
    }

    /// Calls `f` with memory for bytes on their way.
    #[expect(unsafe_code, reason = "an uninitialised allocation")]
    fn with_staging(
        &self,
        f: impl FnOnce(&mut PinnedHostSlice<u8>) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if staging.is_none() {
            // SAFETY: bytes have no invalid values, and none is read before it was written.
            let pinned = unsafe { self.context.alloc_pinned_with_flags(STAGING, 0) };
            *staging = Some(pinned.map_err(GpuError::driver("allocating page-locked memory"))?);
        }
        staging.as_mut().map_or(Ok(()), f)
    }

    /// Copies bytes back, once everything before is done.
    ///
    /// # Errors
    /// [`GpuError::Driver`]: faults of kernels launched before show here.
    pub fn download(&self, from: &View<'_>) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; from.len()];
        self.download_into(from, &mut bytes)?;
        Ok(bytes)
    }

    /// The same, into bytes that are there already.
    ///
    /// # Errors
    /// [`GpuError::Size`], [`GpuError::Driver`].
    pub fn download_into(&self, from: &View<'_>, to: &mut [u8]) -> Result<(), GpuError> {
        if from.len() != to.len() {
            return Err(GpuError::Size { what: "download", expected: from.len(), got: to.len() });
        }
        let failed = || GpuError::driver("copying back");
        self.with_staging(|staging| {
            for (index, part) in to.chunks_mut(STAGING).enumerate() {
                let staged = &mut staging.as_mut_slice().map_err(failed())?[..part.len()];
                let from = from.slice(index * STAGING..index * STAGING + part.len());
                self.stream.memcpy_dtoh(&from, staged).map_err(failed())?;
                self.synchronize()?;
                part.copy_from_slice(staged);
            }
            Ok(())
        })
    }

    /// Copies between buffers of the device.
    ///
    /// # Errors
    /// [`GpuError::Size`], [`GpuError::Driver`].
    pub fn copy(&self, from: &View<'_>, to: &mut ViewMut<'_>) -> Result<(), GpuError> {
        if from.len() != to.len() {
            return Err(GpuError::Size { what: "copy", expected: to.len(), got: from.len() });
        }
        self.stream.memcpy_dtod(from, to).map_err(GpuError::driver("copying on the device"))
    }

    /// Fills a buffer with zeros.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn clear(&self, to: &mut ViewMut<'_>) -> Result<(), GpuError> {
        self.stream.memset_zeros(to).map_err(GpuError::driver("filling with zeros"))
    }

    /// Waits until everything launched is done.
    ///
    /// # Errors
    /// [`GpuError::Driver`]: faults of kernels launched before show here.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.stream.synchronize().map_err(GpuError::driver("waiting for the device"))
    }

    /// A kernel by name, compiled with these defines unless it was before.
    ///
    /// # Errors
    /// [`GpuError::Compile`], [`GpuError::Driver`].
    pub fn kernel(
        &self,
        program: Program,
        defines: &[String],
        name: &str,
    ) -> Result<CudaFunction, GpuError> {
        self.module(program, defines)?
            .load_function(name)
            .map_err(GpuError::driver(format!("looking up {name}")))
    }

    fn module(&self, program: Program, defines: &[String]) -> Result<Arc<CudaModule>, GpuError> {
        let key = (program.name, defines.to_vec());
        let place = {
            let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(modules.entry(key).or_default())
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = &*place {
            return Ok(Arc::clone(module));
        }
        let cubin = program.compile(self.arch, defines)?;
        let module = self
            .context
            .load_module(Ptx::from_binary(cubin))
            .map_err(GpuError::driver(format!("loading {}", program.name)))?;
        *place = Some(Arc::clone(&module));
        Ok(module)
    }

    /// Launches a kernel whose one parameter is `job`.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    ///
    /// # Safety
    /// `job` must be laid out as the kernel's parameter is, and every pointer in it must be valid for what the kernel does with it
    /// until the stream has got there. Freeing a buffer is ordered in the same stream and so comes after.
    #[expect(unsafe_code, reason = "a kernel can do anything to the memory it is handed")]
    pub unsafe fn launch<J: DeviceRepr>(
        &self,
        kernel: &CudaFunction,
        config: LaunchConfig,
        job: &J,
    ) -> Result<(), GpuError> {
        let mut launch = self.stream.launch_builder(kernel);
        launch.arg(job);
        // SAFETY: handed on to the caller.
        unsafe { launch.launch(config) }.map(|_| ()).map_err(GpuError::driver("launching a kernel"))
    }
}
