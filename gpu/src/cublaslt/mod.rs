//! Matrix products by cuBLASLt: D = A·Bᵀ with both operands contiguous along K.
//!
//! The library is column major. A row-major D `[m, n]` is to it a matrix of n rows and m columns, so its A is our B, transposed, and its
//! B is our A, as it lies: the "TN" form, which is the only one that FP8 has on `sm_89`, `sm_90` and `sm_120`.

mod algorithm;
mod descriptor;
mod library;
mod mode;
mod product;

pub use algorithm::{Algorithm, Reduction};
pub use library::Library;
pub use mode::{Elements, Mode, Scales};
pub use product::Product;

use crate::device::Gpu;
use crate::error::GpuError;
use crate::launch::{pointer, pointer_mut, sized};
use crate::{Buffer, View, ViewMut};
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use descriptor::Descriptor;
use library::{Heuristic, NOT_SUPPORTED};
use product::data_type;

/// The workspace that NVIDIA recommends on Hopper.
pub const WORKSPACE: usize = 32 << 20;
/// `CUBLAS_OP_N`.
const AS_IT_LIES: i32 = 0;
/// `CUBLAS_OP_T`.
const TRANSPOSED: i32 = 1;

/// A handle to the library on one device, with a workspace. Calls run in the device's stream.
#[derive(Debug)]
pub struct CublasLt {
    library: &'static Library,
    handle: Descriptor,
    workspace: Buffer,
    workspace_bytes: usize,
    /// Last: the handle and the workspace go before their device does.
    gpu: Gpu,
}

/// An operand: codes as they lie in memory (FP4 two a byte), and scales in the layout of their mode.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The elements.
    pub codes: &'a View<'a>,
    /// The scales; `None` where the mode has none.
    pub scales: Option<&'a View<'a>>,
}

impl CublasLt {
    /// Opens the library on a device, with so many bytes of workspace; without any K is never split.
    ///
    /// # Errors
    /// [`GpuError::Missing`] says what is not here; [`GpuError::Unsupported`] for a library that is too old; [`GpuError::Blas`],
    /// [`GpuError::Driver`].
    pub fn open(gpu: &Gpu, workspace: usize) -> Result<Self, GpuError> {
        let library = Library::load()?;
        bind(gpu)?;
        let handle = library.handle()?;
        // Never empty: heuristics are told that scales are somewhere, and this is where.
        let buffer = gpu.allocate(workspace.max(256))?;
        Ok(Self {
            library,
            gpu: gpu.clone(),
            handle,
            workspace: buffer,
            workspace_bytes: workspace,
        })
    }

    /// The library.
    pub const fn library(&self) -> &'static Library {
        self.library
    }

    /// The algorithm that the library's heuristic chooses for a product. It depends on the device, the shape, the types and the
    /// workspace, and on nothing else.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where the library has none; [`GpuError::Blas`].
    pub fn algorithm(&self, product: &Product) -> Result<Algorithm, GpuError> {
        bind(&self.gpu)?;
        let anywhere = pointer(&self.gpu, &self.workspace.as_view());
        let call = Call::new(self.library, product, [anywhere, anywhere])?;
        let preference = self.library.preference(self.workspace_bytes, product.alignment())?;
        let (mut best, mut count) = (Heuristic::EMPTY, 0);
        #[expect(unsafe_code, reason = "a foreign function")]
        // SAFETY: every descriptor is alive; one result is asked for and there is room for one.
        let status = unsafe {
            (self.library.calls.heuristic)(
                self.handle.pointer(),
                call.product.pointer(),
                call.b.pointer(),
                call.a.pointer(),
                call.d.pointer(),
                call.d.pointer(),
                preference.pointer(),
                1,
                &raw mut best,
                &raw mut count,
            )
        };
        let status = match (status, count) {
            (0, 0) => NOT_SUPPORTED,
            (0, _) => best.state,
            (status, _) => status,
        };
        self.supported(product, "cublasLtMatmulAlgoGetHeuristic", status)?;
        Ok(Algorithm::of(&self.library.calls, &best))
    }

    /// An error unless a call for a product succeeded.
    fn supported(
        &self,
        product: &Product,
        what: &'static str,
        status: i32,
    ) -> Result<(), GpuError> {
        match status {
            NOT_SUPPORTED => {
                let (kind, family) = (product.kind(), self.gpu.arch().family());
                Err(GpuError::Unsupported(format!(
                    "{kind}: unsupported on {family} (status {status})"
                )))
            }
            status => refusal(what, status),
        }
    }

    /// D = alpha · A·Bᵀ, by an algorithm that [`Self::algorithm`] gave for the same product.
    ///
    /// # Errors
    /// [`GpuError::Size`] for buffers of other sizes than the product calls for; [`GpuError::Unsupported`] for buffers that do not
    /// start at a multiple of 256 bytes (16 of strided operands), or where the library refuses; [`GpuError::Blas`].
    pub fn multiply(
        &self,
        product: &Product,
        algorithm: &Algorithm,
        [a, b]: [Operand<'_>; 2],
        alpha: f32,
        d: &mut ViewMut<'_>,
    ) -> Result<(), GpuError> {
        let [a_bytes, b_bytes, d_bytes] = product.bytes()?;
        sized("A", a_bytes, a.codes.len())?;
        sized("B", b_bytes, b.codes.len())?;
        sized("D", d_bytes, d.len())?;
        if d_bytes == 0 {
            return Ok(());
        }
        let scales = |operand: Operand<'_>, scales: Scales, rows| {
            let bytes = scales.bytes(rows, product.k)?;
            sized("scales", bytes, operand.scales.map_or(0, View::len))?;
            Ok::<u64, GpuError>(operand.scales.map_or(0, |view| pointer(&self.gpu, view)))
        };
        let a_scales = scales(a, product.mode.a, product.m)?;
        let b_scales = scales(b, product.mode.b, product.n)?;
        let (a, b) = (pointer(&self.gpu, a.codes), pointer(&self.gpu, b.codes));
        let d = pointer_mut(&self.gpu, d);
        let workspace = pointer(&self.gpu, &self.workspace.as_view());
        let alignment = product.alignment();
        if [a, b, d, workspace].iter().any(|address| !address.is_multiple_of(alignment.into())) {
            return Err(GpuError::Unsupported(format!(
                "buffers of this product must start at a multiple of {alignment} bytes"
            )));
        }
        bind(&self.gpu)?;
        let call = Call::new(self.library, product, [a_scales, b_scales])?;
        let beta = 0f32;
        let at = |address: u64| address as *mut std::ffi::c_void;
        #[expect(unsafe_code, reason = "a foreign function")]
        // SAFETY: descriptors are alive, and A, B, D and scales are device memory of the sizes that they describe, checked above. Alpha
        // and beta are read before the call returns. C is D, which beta = 0 keeps from being read. The algorithm asked for no more
        // workspace than there is. Freeing a buffer is ordered in the stream and so comes after the product.
        let status = unsafe {
            (self.library.calls.matmul)(
                self.handle.pointer(),
                call.product.pointer(),
                (&raw const alpha).cast(),
                at(b),
                call.b.pointer(),
                at(a),
                call.a.pointer(),
                (&raw const beta).cast(),
                at(d),
                call.d.pointer(),
                at(d),
                call.d.pointer(),
                &raw const algorithm.opaque,
                at(workspace),
                self.workspace_bytes,
                self.gpu.stream().cu_stream().cast(),
            )
        };
        self.supported(product, "cublasLtMatmul", status)
    }
}

/// The descriptors of one call, in our names: `a` describes our A.
#[derive(Debug)]
struct Call {
    product: Descriptor,
    a: Descriptor,
    b: Descriptor,
    d: Descriptor,
}

impl Call {
    fn new(
        library: &Library,
        wanted: &Product,
        [a_scales, b_scales]: [u64; 2],
    ) -> Result<Self, GpuError> {
        let &Product { m, n, k, a, b, d, mode, .. } = wanted;
        let [a_stride, b_stride] = wanted.row_strides();
        let product = library.product()?;
        let set = |attribute: Attribute, value: i32| {
            library.set::<i32>(&product, attribute as u32, value)
        };
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, TRANSPOSED)?;
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, AS_IT_LIES)?;
        if mode.fast_accumulation {
            library.set(&product, Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM as u32, 1i8)?;
        }
        // The library's A is our B.
        for (scales, address, pointer, number) in [
            (
                mode.b,
                b_scales,
                Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
            ),
            (
                mode.a,
                a_scales,
                Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
            ),
        ] {
            if scales != Scales::None {
                library.set::<u64>(&product, pointer as u32, address)?;
            }
            // Libraries before 12.8 have no attribute for the mode that all have.
            if scales.mode() != 0 {
                set(number, scales.mode())?;
            }
        }
        Ok(Self {
            product,
            a: library.layout(data_type(a)?, (m, k), a_stride)?,
            b: library.layout(data_type(b)?, (n, k), b_stride)?,
            d: library.layout(data_type(d)?, (m, n), n)?,
        })
    }
}

/// Makes a device's context the current one of this thread, as the library expects.
fn bind(gpu: &Gpu) -> Result<(), GpuError> {
    gpu.context().bind_to_thread().map_err(GpuError::driver("choosing the device"))
}

/// An error unless a call succeeded.
const fn refusal(what: &'static str, status: i32) -> Result<(), GpuError> {
    match status {
        0 => Ok(()),
        status => Err(GpuError::Blas { what, status }),
    }
}
