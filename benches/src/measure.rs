//! Timing on a device.

use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;
use mx_gpu::{Buffer, Gpu, GpuError};

/// How often things are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs before timing starts: compilation, clocks and caches settle.
    pub warmup: usize,
    /// Timed runs, of which the median counts.
    pub runs: usize,
}

impl Effort {
    /// What the figures in the documents are made with.
    pub const USUAL: Self = Self { warmup: 3, runs: 20 };
}

/// Buffers that rotate must exceed the largest L2 cache by far (H200: 60 MB).
pub const BEYOND_CACHE: usize = 256 << 20;

/// How many sets of buffers of `bytes` it takes to pass through more than the cache, at most 16.
pub fn sets(bytes: usize) -> usize {
    BEYOND_CACHE.div_ceil(bytes.max(1)).clamp(1, 16)
}

/// The median of the times of `launch` in seconds, each with the number of the run, by events around it.
///
/// # Errors
/// What `launch` or the driver report.
pub fn median(
    gpu: &Gpu,
    effort: Effort,
    mut launch: impl FnMut(usize) -> Result<(), GpuError>,
) -> Result<f64, GpuError> {
    for run in 0..effort.warmup {
        launch(run)?;
    }
    gpu.synchronize()?;
    let driver = |error| GpuError::Driver { what: "timing".to_owned(), error };
    let event = || gpu.context().new_event(Some(CU_EVENT_DEFAULT)).map_err(driver);
    let mut seconds = Vec::with_capacity(effort.runs);
    for run in 0..effort.runs.max(1) {
        let (start, end) = (event()?, event()?);
        start.record(gpu.stream()).map_err(driver)?;
        launch(run)?;
        end.record(gpu.stream()).map_err(driver)?;
        seconds.push(f64::from(start.elapsed_ms(&end).map_err(driver)?) / 1e3);
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}

/// Bytes per second of a device-to-device copy, counting what is read and what is written.
///
/// # Errors
/// What the driver reports.
pub fn copy(gpu: &Gpu, effort: Effort, bytes: usize) -> Result<f64, GpuError> {
    let sets = sets(2 * bytes);
    let from: Vec<Buffer> = (0..sets).map(|_| gpu.allocate(bytes)).collect::<Result<_, _>>()?;
    let mut to: Vec<Buffer> = (0..sets).map(|_| gpu.allocate(bytes)).collect::<Result<_, _>>()?;
    let seconds = median(gpu, effort, |run| {
        let (from, to) = (&from[run % sets], &mut to[run % sets]);
        gpu.copy(&from.as_view(), &mut to.as_view_mut())
    })?;
    Ok(2.0 * bytes as f64 / seconds)
}
