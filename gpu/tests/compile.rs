//! Every kernel compiles for every architecture, wrong ones are refused, and nothing is fused where it may not be. Needs NVRTC and no
//! device: without it the tests say so and pass, unless `MXCERT_NVRTC=required`.

use mx_gpu::program::Program;
use mx_gpu::{Arch, GpuError, probe};
use rstest::rstest;
use std::sync::atomic::{AtomicUsize, Ordering};

fn present() -> bool {
    match probe::compiler() {
        Ok(_) => true,
        Err(missing) => {
            let required = std::env::var_os("MXCERT_NVRTC").is_some_and(|v| v == "required");
            assert!(!required, "{missing}");
            println!("skipped: {missing}");
            false
        }
    }
}

/// Compiles all variants of all programs on every core, and calls `check` with each.
fn each(arch: Arch, check: impl Fn(&Program, &[String], &[u8]) + Sync) {
    let jobs: Vec<(Program, Vec<String>)> = Program::ALL
        .into_iter()
        .flat_map(|program| program.variants().into_iter().map(move |variant| (program, variant)))
        .collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((program, variant)) = jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    match program.compile(arch, variant) {
                        Ok(cubin) => check(program, variant, &cubin),
                        Err(error) => panic!("{variant:?}: {error}"),
                    }
                }
            });
        }
    });
}

#[rstest]
fn every_kernel_compiles_and_fuses_nothing(
    #[values(Arch::Sm80, Arch::Sm89, Arch::Sm90a, Arch::Sm100a, Arch::Sm120a)] arch: Arch,
) {
    if !present() {
        return;
    }
    each(arch, |program, variant, cubin| {
        if program.may_fuse() {
            return;
        }
        let fused = sass::count(cubin, sass::FFMA);
        assert_eq!(fused, 0, "{} {variant:?} on {arch} holds FFMA", program.name);
    });
}

const FUSES: &str = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] = x[threadIdx.x + 1] * x[0] + x[1]; }";

#[test]
fn a_fused_multiply_add_is_found() {
    if !present() {
        return;
    }
    for arch in Arch::ALL {
        let compile =
            |fmad: &str| Program::compile_text("fuses.cu", FUSES, arch.name(), &[fmad.to_owned()]);
        let fused = compile("--fmad=true").unwrap();
        assert_eq!(sass::count(&fused, sass::FFMA), 1, "{arch}");
        let apart = compile("--fmad=false").unwrap();
        assert_eq!(sass::count(&apart, sass::FFMA), 0, "{arch}");
    }
}

#[rstest]
#[case::e8m0_before_blackwell("sm_90", "cvt.rp.satfinite.ue8m0x2.f32")]
#[case::e8m0_without_the_suffix("sm_100", "cvt.rp.satfinite.ue8m0x2.f32")]
#[case::fp8_before_ada("sm_80", "cvt.rn.satfinite.e4m3x2.f32")]
fn a_wrong_architecture_is_refused(#[case] arch: &str, #[case] instruction: &str) {
    if !present() {
        return;
    }
    let source = format!(
        "extern \"C\" __global__ void k(unsigned short* o, float* x) {{\n\
         unsigned short v; asm(\"{instruction} %0, %1, %2;\" : \"=h\"(v) : \"f\"(x[0]), \"f\"(x[1])); *o = v; }}"
    );
    let error = Program::compile_text("wrong.cu", &source, arch, &[]).unwrap_err();
    assert!(
        matches!(&error, GpuError::Compile { log, .. } if log.contains("not supported") || log.contains("requires .target")),
        "{error}"
    );
    let newer = Program::compile_text("wrong.cu", &source, "sm_100a", &[]);
    assert!(newer.is_ok(), "{newer:?}");
}

#[test]
fn a_mistake_comes_with_its_line() {
    if !present() {
        return;
    }
    let error = Program::compile_text("typo.cu", "int f( {", "sm_80", &[]).unwrap_err();
    assert!(error.to_string().contains("typo.cu(1)"), "{error}");
}

/// Machine code of NVIDIA GPUs since Volta: 16 bytes an instruction, the opcode in the low nine bits.
mod sass {
    /// f32 fused multiply-add, whatever its operands.
    pub(super) const FFMA: u16 = 0x023;

    /// How often an instruction occurs in the code sections of a cubin.
    pub(super) fn count(cubin: &[u8], opcode: u16) -> usize {
        sections(cubin)
            .flat_map(|code| code.chunks_exact(16))
            .filter(|word| u16::from_le_bytes([word[0], word[1]]) & 0x1ff == opcode)
            .count()
    }

    /// The contents of `.text.*` in a little-endian ELF64 file.
    fn sections(elf: &[u8]) -> impl Iterator<Item = &[u8]> {
        let word = |at: usize, len: usize| {
            elf[at..at + len].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
                as usize
        };
        let (table, entry, count, names) = (word(40, 8), word(58, 2), word(60, 2), word(62, 2));
        let header = move |n: usize| table + n * entry;
        let names = word(header(names) + 24, 8);
        (0..count).filter_map(move |n| {
            let name = &elf[names + word(header(n), 4)..];
            let (start, len) = (word(header(n) + 24, 8), word(header(n) + 32, 8));
            name.starts_with(b".text.").then(|| &elf[start..start + len])
        })
    }
}
