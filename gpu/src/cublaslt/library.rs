//! The library's entry points, looked up by name.
//!
//! Statuses are integers here: the bindings' enum has no value for a status that a newer library may return. A function that an older
//! library lacks is reported, where the bindings would panic.

use crate::error::GpuError;
use crate::probe::{self, Missing};
use cudarc::cublaslt::sys;
use sha2::{Digest, Sha256};
use std::ffi::c_void;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `CUBLAS_STATUS_NOT_SUPPORTED`.
pub(super) const NOT_SUPPORTED: i32 = 15;

/// The library as this process has it.
#[derive(Debug)]
pub struct Library {
    /// Its version: 130100 is 13.1.0.
    pub version: usize,
    pub(super) calls: Calls,
    file: Option<PathBuf>,
    digest: OnceLock<Option<String>>,
}

type Attribute = unsafe extern "C" fn(*mut c_void, u32, *const c_void, usize) -> i32;
type Destroy = unsafe extern "C" fn(*mut c_void) -> i32;

/// The algorithm that a heuristic came to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Heuristic {
    pub(super) algorithm: sys::cublasLtMatmulAlgo_t,
    pub(super) workspace: usize,
    pub(super) state: i32,
    pub(super) waves: f32,
    reserved: [i32; 4],
}

impl Heuristic {
    /// Nothing, for the library to write over.
    pub(super) const EMPTY: Self = Self {
        algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        workspace: 0,
        state: 0,
        waves: 0.0,
        reserved: [0; 4],
    };
}

/// The functions that are called, with the types of `cublasLt.h`; every handle and descriptor is a pointer to something opaque.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    pub(super) create: unsafe extern "C" fn(*mut *mut c_void) -> i32,
    pub(super) destroy: Destroy,
    pub(super) desc_create: unsafe extern "C" fn(*mut *mut c_void, u32, u32) -> i32,
    pub(super) desc_set: Attribute,
    pub(super) desc_destroy: Destroy,
    pub(super) layout_create: unsafe extern "C" fn(*mut *mut c_void, u32, u64, u64, i64) -> i32,
    pub(super) layout_destroy: Destroy,
    pub(super) preference_create: unsafe extern "C" fn(*mut *mut c_void) -> i32,
    pub(super) preference_set: Attribute,
    pub(super) preference_destroy: Destroy,
    /// Handle, descriptor, layouts of A, B, C and D, preference, how many, results, how many there are.
    pub(super) heuristic: unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        i32,
        *mut Heuristic,
        *mut i32,
    ) -> i32,
    pub(super) algorithm_get: unsafe extern "C" fn(
        *const sys::cublasLtMatmulAlgo_t,
        u32,
        *mut c_void,
        usize,
        *mut usize,
    ) -> i32,
    /// Handle, descriptor, alpha, A and its layout, B, beta, C, D, algorithm, workspace and its size, stream.
    pub(super) matmul: unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        *const c_void,
        *const c_void,
        *mut c_void,
        *const c_void,
        *mut c_void,
        *const c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *const sys::cublasLtMatmulAlgo_t,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> i32,
}

impl Library {
    /// Loads it, or gives the one that was loaded before.
    ///
    /// # Errors
    /// [`GpuError::Missing`] if it is not here, [`GpuError::Unsupported`] if it lacks a function.
    pub fn load() -> Result<&'static Self, GpuError> {
        static LOADED: OnceLock<Result<Library, Lacking>> = OnceLock::new();
        let loaded = LOADED.get_or_init(Self::load_here);
        loaded.as_ref().map_err(|lacking| match lacking {
            Lacking::Library(missing) => missing.clone().into(),
            Lacking::Function(name) => {
                GpuError::Unsupported(format!("this cuBLASLt has no {name}; CUDA 13 has"))
            }
        })
    }

    fn load_here() -> Result<Self, Lacking> {
        let version = probe::cublaslt().map_err(Lacking::Library)?;
        let calls = Calls::look_up().map_err(Lacking::Function)?;
        Ok(Self { version, calls, file: mapped_file(), digest: OnceLock::new() })
    }

    /// The file that it was loaded from, where `/proc` tells.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// SHA-256 of that file, as `sha256:` and hexadecimal digits. Reads all of it, the first time: some 500 MB.
    pub fn digest(&self) -> Option<&str> {
        self.digest.get_or_init(|| hash(self.file.as_deref()?).ok()).as_deref()
    }
}

#[derive(Debug)]
enum Lacking {
    Library(Missing),
    Function(&'static str),
}

impl Calls {
    fn look_up() -> Result<Self, &'static str> {
        /// A function pointer of the field's type, from the name it is exported by.
        macro_rules! function {
            ($name:literal) => {{
                const NAME: &str = concat!("cublasLt", $name, "\0");
                #[expect(unsafe_code, reason = "a foreign library")]
                // SAFETY: `probe::cublaslt` found the library, so this loads it and does not panic; it stays loaded until the end.
                let library = unsafe { sys::culib() };
                #[expect(unsafe_code, reason = "a foreign function's type")]
                // SAFETY: the types above are those of the header, enums as the 32-bit integers that C makes them.
                let found = unsafe { library.get(NAME.as_bytes()) };
                *found.map_err(|_| concat!("cublasLt", $name))?
            }};
        }
        Ok(Self {
            create: function!("Create"),
            destroy: function!("Destroy"),
            desc_create: function!("MatmulDescCreate"),
            desc_set: function!("MatmulDescSetAttribute"),
            desc_destroy: function!("MatmulDescDestroy"),
            layout_create: function!("MatrixLayoutCreate"),
            layout_destroy: function!("MatrixLayoutDestroy"),
            preference_create: function!("MatmulPreferenceCreate"),
            preference_set: function!("MatmulPreferenceSetAttribute"),
            preference_destroy: function!("MatmulPreferenceDestroy"),
            heuristic: function!("MatmulAlgoGetHeuristic"),
            algorithm_get: function!("MatmulAlgoConfigGetAttribute"),
            matmul: function!("Matmul"),
        })
    }
}

/// The file behind a mapping of this process whose name is the library's.
fn mapped_file() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let path = Path::new(line.get(line.find('/')?..)?);
        let name = path.file_name()?.to_str()?;
        name.starts_with("libcublasLt.so").then(|| path.to_path_buf())
    })
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            n => hash.update(&chunk[..n]),
        }
    }
    let hex = |text: String, byte: &u8| text + &format!("{byte:02x}");
    Ok(hash.finalize().iter().fold("sha256:".to_owned(), hex))
}
