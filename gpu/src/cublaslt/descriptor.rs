//! Descriptors that are destroyed when they go out of scope.

use super::library::{Calls, Library};
use super::refusal;
use crate::error::GpuError;
use std::ffi::c_void;

/// A handle or descriptor of the library, owned.
#[derive(Debug)]
pub(super) struct Descriptor {
    pointer: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> i32,
}

#[expect(unsafe_code, reason = "a pointer into a foreign library")]
// SAFETY: the library's objects belong to no thread; each is owned by one `Descriptor`, which only hands it out while it is borrowed.
unsafe impl Send for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a foreign function")]
        // SAFETY: `pointer` was created by the library and is destroyed once. The status is of no use: the object is gone either way.
        let _ = unsafe { (self.destroy)(self.pointer) };
    }
}

impl Descriptor {
    fn new(
        what: &'static str,
        destroy: unsafe extern "C" fn(*mut c_void) -> i32,
        create: impl FnOnce(*mut *mut c_void) -> i32,
    ) -> Result<Self, GpuError> {
        let mut pointer = std::ptr::null_mut();
        match create(&raw mut pointer) {
            0 if !pointer.is_null() => Ok(Self { pointer, destroy }),
            status => Err(GpuError::Blas { what, status }),
        }
    }

    /// The pointer that the library knows it by.
    pub(super) const fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

impl Library {
    /// A handle to the device whose context is current.
    pub(super) fn handle(&self) -> Result<Descriptor, GpuError> {
        let Calls { create, destroy, .. } = self.calls;
        Descriptor::new("cublasLtCreate", destroy, |pointer| {
            #[expect(unsafe_code, reason = "a foreign function")]
            // SAFETY: writes one pointer.
            unsafe {
                create(pointer)
            }
        })
    }

    /// A product with f32 sums and f32 factors.
    pub(super) fn product(&self) -> Result<Descriptor, GpuError> {
        use cudarc::cublaslt::sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        use cudarc::cublaslt::sys::cudaDataType_t::CUDA_R_32F;
        let Calls { desc_create, desc_destroy, .. } = self.calls;
        Descriptor::new("cublasLtMatmulDescCreate", desc_destroy, |pointer| {
            #[expect(unsafe_code, reason = "a foreign function")]
            // SAFETY: writes one pointer.
            unsafe {
                desc_create(pointer, CUBLAS_COMPUTE_32F as u32, CUDA_R_32F as u32)
            }
        })
    }

    /// A matrix of `rows` columns and `length` rows in the library's column-major view: a row-major matrix with rows of that length, so
    /// many elements from row to row.
    pub(super) fn layout(
        &self,
        data_type: u32,
        (rows, length): (usize, usize),
        stride: usize,
    ) -> Result<Descriptor, GpuError> {
        let Calls { layout_create, layout_destroy, .. } = self.calls;
        Descriptor::new("cublasLtMatrixLayoutCreate", layout_destroy, |pointer| {
            #[expect(unsafe_code, reason = "a foreign function")]
            // SAFETY: writes one pointer.
            unsafe {
                layout_create(pointer, data_type, length as u64, rows as u64, stride as i64)
            }
        })
    }

    /// What a heuristic may use: a workspace of so many bytes, and buffers that start at a multiple of so many. Everything else is the
    /// library's default.
    pub(super) fn preference(
        &self,
        workspace: usize,
        alignment: u32,
    ) -> Result<Descriptor, GpuError> {
        use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let Calls { preference_create, preference_destroy, preference_set, .. } = self.calls;
        let what = "cublasLtMatmulPreferenceCreate";
        let preference = Descriptor::new(what, preference_destroy, |pointer| {
            #[expect(unsafe_code, reason = "a foreign function")]
            // SAFETY: writes one pointer.
            unsafe {
                preference_create(pointer)
            }
        })?;
        let set = |attribute: Attribute, value: &[u8]| {
            #[expect(unsafe_code, reason = "a foreign function")]
            // SAFETY: reads as many bytes as `value` has; the library refuses a size that is not its own.
            let status = unsafe {
                preference_set(
                    preference.pointer(),
                    attribute as u32,
                    value.as_ptr().cast(),
                    value.len(),
                )
            };
            refusal("cublasLtMatmulPreferenceSetAttribute", status)
        };
        let bytes = (workspace as u64).to_ne_bytes();
        set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes)?;
        for operand in [
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        ] {
            set(operand, &alignment.to_ne_bytes())?;
        }
        Ok(preference)
    }

    /// Sets an attribute of a product to a value of exactly the size that the library has for it.
    pub(super) fn set<T: Plain>(
        &self,
        product: &Descriptor,
        attribute: u32,
        value: T,
    ) -> Result<(), GpuError> {
        #[expect(unsafe_code, reason = "a foreign function")]
        // SAFETY: reads the size of a `T`; the library compares it with its own and refuses another.
        let status = unsafe {
            (self.calls.desc_set)(
                product.pointer(),
                attribute,
                (&raw const value).cast(),
                size_of::<T>(),
            )
        };
        refusal("cublasLtMatmulDescSetAttribute", status)
    }
}

/// The types of attributes.
pub(super) trait Plain: Copy {}
impl Plain for i8 {}
impl Plain for i32 {}
impl Plain for u64 {}

#[cfg(test)]
mod tests {
    use super::super::mode::{Mode, Scales};
    use super::super::product::data_type;
    use super::*;
    use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
    use mx_reference::format::{BF16, E2M1, E3M2, E4M3, E5M2, F16, F32};

    /// The library, which needs no device for descriptors. Without it the tests say so and pass, unless `MXCERT_CUBLASLT=required`.
    fn library() -> Option<&'static Library> {
        match Library::load() {
            Ok(library) => Some(library),
            Err(missing) => {
                let required = std::env::var_os("MXCERT_CUBLASLT").is_some_and(|v| v == "required");
                assert!(!required, "{missing}");
                println!("skipped: {missing}");
                None
            }
        }
    }

    fn is_invalid(result: &Result<(), GpuError>) -> bool {
        matches!(result, Err(GpuError::Blas { status: 7, .. }))
    }

    #[test]
    fn attributes_have_the_sizes_that_are_set() {
        let Some(library) = library() else { return };
        let product = library.product().unwrap();
        let fast = Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM as u32;
        assert!(library.set(&product, fast, 1i8).is_ok());
        assert!(is_invalid(&library.set(&product, fast, 1i32)));
        for number in [
            Attribute::CUBLASLT_MATMUL_DESC_TRANSA,
            Attribute::CUBLASLT_MATMUL_DESC_TRANSB,
            Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
            Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
        ] {
            assert!(library.set(&product, number as u32, 1i32).is_ok(), "{number:?}");
            assert!(is_invalid(&library.set(&product, number as u32, 1u64)), "{number:?}");
        }
        for pointer in [
            Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
            Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
        ] {
            assert!(library.set(&product, pointer as u32, 256u64).is_ok(), "{pointer:?}");
            assert!(is_invalid(&library.set(&product, pointer as u32, 256i32)), "{pointer:?}");
        }
    }

    #[test]
    fn descriptors_of_every_mode_are_made() {
        let Some(library) = library() else { return };
        for mode in Mode::ALL {
            for &(a, b) in mode.elements.pairs() {
                for d in [&F32, &BF16, &F16] {
                    let strides = (mode.a == Scales::None).then_some([128, 96]);
                    let (m, n, k) = (16, 32, 64);
                    let product = super::super::Product { m, n, k, a, b, d, mode, strides };
                    let call = super::super::Call::new(library, &product, [256, 512]);
                    assert!(call.is_ok(), "{}: {call:?}", product.kind());
                }
            }
        }
        for alignment in [16, 256] {
            assert!(library.preference(0, alignment).is_ok());
        }
        assert_eq!(data_type(&E2M1).unwrap(), 33);
        assert!(data_type(&E3M2).is_err());
        assert_eq!([&E4M3, &E5M2].map(|format| data_type(format).unwrap()), [28, 29]);
    }

    #[test]
    fn a_handle_needs_a_device() {
        let Some(library) = library() else { return };
        assert!(library.version >= 120_800, "{}", library.version);
        let name = library.file().unwrap().file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("libcublasLt.so"), "{name}");
        if crate::probe::device(0).is_err() {
            let refused = library.handle();
            assert!(matches!(refused, Err(GpuError::Blas { .. })), "{refused:?}");
        }
    }

    #[test]
    fn scales_take_what_their_layouts_take() {
        let bytes = |scales: Scales, rows, k| scales.bytes(rows, k).unwrap();
        assert_eq!(bytes(Scales::None, 300, 384), 0);
        assert_eq!(bytes(Scales::Scalar, 300, 384), 4);
        assert_eq!(bytes(Scales::OuterVec, 300, 384), 1200);
        assert_eq!(bytes(Scales::Vec128, 300, 400), 4 * 4 * 300);
        assert_eq!(bytes(Scales::Blk128x128, 300, 640), 4 * 3 * 8);
        assert_eq!(bytes(Scales::Vec32, 300, 160), 384 * 8);
        assert_eq!(bytes(Scales::Vec16, 300, 160), 384 * 12);
        assert!(Scales::OuterVec.bytes(usize::MAX, 128).is_err());
    }
}
