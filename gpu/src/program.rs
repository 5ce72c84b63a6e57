//! Kernel sources, and their compilation by NVRTC.

use crate::arch::Arch;
use crate::error::GpuError;
use crate::probe::compiler;
use cudarc::nvrtc::{result, sys};
use mx_reference::{Element, Format, format};
use sha2::{Digest, Sha256};
use std::ffi::CString;

/// Options of every compilation: nothing may fuse, flush or approximate.
pub const OPTIONS: [&str; 5] =
    ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// A translation unit: the files it consists of, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name in messages: the last file's.
    pub name: &'static str,
    files: &'static [(&'static str, &'static str)],
}

macro_rules! program {
    ($($file:literal),+ => $name:literal) => {
        Program { name: $name, files: &[$(($file, include_str!(concat!("../kernels/", $file)))),+] }
    };
}

/// Scale layouts and packing.
pub const LAYOUT: Program = program!("layout.cu" => "layout.cu");
/// Quantisation along rows.
pub const QUANTIZE_ROW: Program =
    program!("formats.cuh", "scales.cuh", "quantize_row.cu" => "quantize_row.cu");
/// Quantisation along columns, along both, and of tiles.
pub const QUANTIZE_BLOCK: Program =
    program!("formats.cuh", "scales.cuh", "quantize_block.cu" => "quantize_block.cu");
/// Dequantisation.
pub const DEQUANTIZE: Program = program!("dequantize.cu" => "dequantize.cu");
/// Products on half-precision tensor cores.
pub const GEMM: Program = program!(
    "operand.cuh", "gemm_tile.cuh", "gemm_scales.cuh", "gemm_store.cuh", "gemm_stage.cuh", "gemm.cu" => "gemm.cu"
);
/// Products on tensor cores that know block scales.
pub const GEMM_BLOCK_SCALED: Program = program!(
    "operand.cuh", "gemm_tile.cuh", "gemm_scales.cuh", "gemm_store.cuh", "gemm_stage.cuh", "gemm_block_scaled.cu"
    => "gemm_block_scaled.cu"
);

/// Operands laid out for [`GEMM_WGMMA`].
pub const GEMM_PANEL: Program = program!(
    "operand.cuh", "gemm_tile.cuh", "gemm_scales.cuh", "gemm_panel.cuh", "gemm_panel.cu" => "gemm_panel.cu"
);
/// Products on the warpgroup MMAs of `sm_90a`.
pub const GEMM_WGMMA: Program = program!(
    "operand.cuh", "gemm_tile.cuh", "gemm_scales.cuh", "gemm_store.cuh", "gemm_panel.cuh", "gemm_wgmma.cu" => "gemm_wgmma.cu"
);

impl Program {
    /// Every program.
    pub const ALL: [Self; 8] = [
        QUANTIZE_ROW,
        QUANTIZE_BLOCK,
        DEQUANTIZE,
        LAYOUT,
        GEMM,
        GEMM_BLOCK_SCALED,
        GEMM_PANEL,
        GEMM_WGMMA,
    ];

    /// The text that is compiled.
    pub fn source(&self) -> String {
        self.files.iter().fold(String::new(), |source, (name, text)| {
            source + &format!("#line 1 \"{name}\"\n{text}\n")
        })
    }

    /// Compiles to machine code, with `defines` as `NAME=VALUE`.
    ///
    /// # Errors
    /// [`GpuError::Missing`] without NVRTC, [`GpuError::Compile`] with its log.
    pub fn compile(&self, arch: Arch, defines: &[String]) -> Result<Vec<u8>, GpuError> {
        let defines = defines.iter().map(|define| format!("-D{define}"));
        let options: Vec<String> = OPTIONS.map(str::to_owned).into_iter().chain(defines).collect();
        Self::compile_text(self.name, &self.source(), arch.name(), &options)
    }

    /// Compiles any text for any target that `--gpu-architecture` takes.
    ///
    /// # Errors
    /// As [`Self::compile`].
    #[expect(unsafe_code, reason = "NVRTC")]
    pub fn compile_text(
        name: &str,
        source: &str,
        target: &str,
        options: &[String],
    ) -> Result<Vec<u8>, GpuError> {
        compiler()?;
        let failed = |log: String| GpuError::Compile {
            program: name.to_owned(),
            target: target.to_owned(),
            log,
        };
        let text = |text: &str| CString::new(text).map_err(|error| failed(error.to_string()));
        let (source, file) = (text(source)?, text(name)?);
        let program = Guard(
            result::create_program(&source, Some(&file))
                .map_err(|error| failed(error.to_string()))?,
        );
        let options: Vec<String> = std::iter::once(format!("--gpu-architecture={target}"))
            .chain(options.iter().cloned())
            .collect();
        // SAFETY: `program` is alive until `Guard` is dropped, and so are `source` and `file`.
        let compiled = unsafe { result::compile_program(program.0, &options) };
        compiled.map_err(|error| {
            // SAFETY: as above; a log exists after a compilation that failed, too.
            let log = unsafe { result::get_program_log(program.0) }.unwrap_or_default();
            let log: Vec<u8> = log.iter().map(|&c| c as u8).filter(|&c| c != 0).collect();
            failed(format!("{error}: {}", String::from_utf8_lossy(&log).trim()))
        })?;
        let mut size = 0;
        // SAFETY: writes one usize.
        unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) }
            .result()
            .map_err(|error| failed(error.to_string()))?;
        let mut cubin = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC just asked for.
        unsafe { sys::nvrtcGetCUBIN(program.0, cubin.as_mut_ptr().cast()) }
            .result()
            .map_err(|error| failed(error.to_string()))?;
        Ok(cubin)
    }

    /// Sets of defines in which every kernel, element format, input type and convention occurs: what tests compile.
    pub fn variants(&self) -> Vec<Vec<String>> {
        let floats = [&format::F32, &format::BF16, &format::F16];
        let all = || Element::ALL.into_iter().flat_map(move |e| floats.map(|f| (e, f)));
        let cast = |(element, input), convention: &str| {
            let convention = format!("CONVENTION={convention}");
            vec![define("INPUT", input), element_define("ELEMENT", element), convention]
        };
        let blocks = |variant, convention, kind: &str| {
            let mut defines = cast(variant, convention);
            defines.push(format!("KIND={kind}"));
            defines
        };
        let pair = |[a, b]: [Element; 2]| {
            vec![element_define("A_ELEMENT", a), element_define("B_ELEMENT", b)]
        };
        let (e4m3, bf16) = (Element::E4m3, &format::BF16);
        match self.name {
            "quantize_row.cu" => all()
                .map(|variant| cast(variant, "PROPAGATE"))
                .chain([cast((e4m3, bf16), "TE")])
                .collect(),
            "quantize_block.cu" => Element::ALL
                .map(|element| blocks((element, bf16), "PROPAGATE", "BOTH"))
                .into_iter()
                .chain(["COL", "TILE"].map(|kind| blocks((e4m3, bf16), "PROPAGATE", kind)))
                .chain([&format::F32, &format::F16].map(|f| blocks((e4m3, f), "TE", "BOTH")))
                .collect(),
            "dequantize.cu" => all()
                .map(|(element, f)| vec![element_define("ELEMENT", element), define("OUTPUT", f)])
                .collect(),
            // Every format on either side, and the one pair without a fast way.
            "gemm.cu" => {
                let [first, .., last] = Element::ALL;
                let pairs = Element::ALL.array_windows().copied();
                pairs.chain([[last, first], [Element::E5m2; 2]]).map(pair).collect()
            }
            // B has its scales multiplied in, which E5M2 has no room for.
            "gemm_wgmma.cu" => {
                let b = |i: usize| [Element::E4m3, Element::E2m1][i % 2];
                Element::ALL.into_iter().enumerate().map(|(i, a)| pair([a, b(i)])).collect()
            }
            "gemm_panel.cu" => {
                let of = |[a, b]: [Element; 2], side: &str| {
                    let mut defines = pair([a, b]);
                    defines.push(format!("OF_A={side}"));
                    defines
                };
                let b = Element::ALL.into_iter().filter(|&element| element != Element::E5m2);
                let a = Element::ALL.into_iter().map(|element| of([element, e4m3], "1"));
                a.chain(b.map(|element| of([e4m3, element], "0"))).collect()
            }
            "gemm_block_scaled.cu" => {
                let takes = |&element: &Element| element != Element::Int8;
                Element::ALL
                    .into_iter()
                    .filter(takes)
                    .map(|element| pair([element, e4m3]))
                    .collect()
            }
            _ => vec![Vec::new()],
        }
    }

    /// Whether fused multiply-adds are part of what it computes.
    pub fn may_fuse(&self) -> bool {
        [GEMM, GEMM_WGMMA].contains(self)
    }
}

/// `NAME=FORMAT`, with a format's name as kernels spell it: in capitals.
pub(crate) fn define(name: &str, format: &Format) -> String {
    format!("{name}={}", format.name.to_ascii_uppercase())
}

/// [`define`] of an element format.
pub(crate) fn element_define(name: &str, element: Element) -> String {
    define(name, element.format())
}

struct Guard(sys::nvrtcProgram);

impl Drop for Guard {
    #[expect(unsafe_code, reason = "NVRTC")]
    fn drop(&mut self) {
        // SAFETY: created by `create_program`, destroyed once. The result is of no use: the memory is gone either way.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// SHA-256 over every kernel file and the compile options: which kernels a certificate is about.
pub fn digest() -> String {
    let mut hash = Sha256::new();
    for option in OPTIONS {
        hash.update(option);
        hash.update([0]);
    }
    for (name, text) in Program::ALL.iter().flat_map(|program| program.files) {
        hash.update(name);
        hash.update([0]);
        hash.update(text);
        hash.update([0]);
    }
    let hex = |text: String, byte: &u8| text + &format!("{byte:02x}");
    hash.finalize().iter().fold("sha256:".to_owned(), hex)
}
