//! `mxcert roofline`: the model against arithmetic done by hand, and what the command makes of bad arguments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::mxcert;
use mx_conformance::roofline::{
    Bound, Estimate, Gpu, Kernel, Operands, Recipe, Role, Shape, cast, estimate, estimate_groups,
    gemm,
};
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

// What the H200 reaches: 0.78 × 989e12 = 771.42e12 and 0.78 × 1979e12 = 1543.62e12 FLOP/s, 0.92 × 4.8e12 = 4.416e12 B/s.
const H200_BF16: f64 = 771.42e12;
const H200_FP8: f64 = 1543.62e12;
const H200_BANDWIDTH: f64 = 4.416e12;
const FLOOR: f64 = 2e-6;

fn gpu(name: &str) -> &'static Gpu {
    Gpu::from_name(name).unwrap()
}

fn of(gpu_name: &str, recipe: &str, size: u32) -> Estimate {
    estimate(gpu(gpu_name), Recipe::from_name(recipe).unwrap(), Shape::square(size)).unwrap()
}

#[track_caller]
fn close(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 1e-12, "got {got}, want {want}");
}

#[track_caller]
fn is(kernel: Kernel, bound: Bound, flops: u128, bytes: u128, seconds: f64) {
    assert_eq!((kernel.bound, kernel.flops, kernel.bytes), (bound, flops, bytes));
    close(kernel.seconds, seconds);
}

#[test]
fn a_large_gemm_is_bound_by_arithmetic() {
    // 2 × 4096^3 = 2^37 operations, 89.0 us; 2^25 operands + 2^20 scales + 2 × 2^24 bytes of output, 15.4 us.
    let kernel = gemm(gpu("H200"), Operands::Mxfp8, Shape::square(4096)).unwrap();
    is(kernel, Bound::Compute, 137_438_953_472, 68_157_440, 137_438_953_472.0 / H200_FP8);
    // In bf16 2 bytes an operand and no scales: 2 × 2^25 + 2 × 2^24.
    let kernel = gemm(gpu("H200"), Operands::Bf16, Shape::square(4096)).unwrap();
    is(kernel, Bound::Compute, 137_438_953_472, 100_663_296, 137_438_953_472.0 / H200_BF16);
}

#[test]
fn a_gemm_of_few_tokens_is_bound_by_memory() {
    // 2 × 16 × 8192^2 = 2^31 operations, 1.4 us. Operands 16 × 8192 + 8192^2 = 67_239_936, a 32nd of that in scales
    // = 2_101_248, output 2 × 16 × 8192 = 262_144: together 69_603_328 bytes, 15.8 us.
    let shape = Shape { m: 16, k: 8192, n: 8192 };
    let kernel = gemm(gpu("H200"), Operands::Mxfp8, shape).unwrap();
    is(kernel, Bound::Memory, 2_147_483_648, 69_603_328, 69_603_328.0 / H200_BANDWIDTH);
}

#[test]
fn a_small_gemm_is_bound_by_the_floor() {
    // 2 × 128^3 = 2^22 operations, 2.7 ns; 2^15 + 2^10 + 2^15 bytes, 15 ns.
    let kernel = gemm(gpu("H200"), Operands::Mxfp8, Shape::square(128)).unwrap();
    is(kernel, Bound::Floor, 4_194_304, 66_560, FLOOR);
}

#[rstest]
// 2^25 operands of half a byte, and a byte for each 32 or 16 of them; 2 × 2^24 bytes of output.
#[case(Operands::Mxfp4, 16_777_216 + 1_048_576 + 33_554_432)]
#[case(Operands::Nvfp4, 16_777_216 + 2_097_152 + 33_554_432)]
fn scales_of_fp4_cost_a_byte_each(#[case] operands: Operands, #[case] bytes: u128) {
    let kernel = gemm(gpu("B200"), operands, Shape::square(4096)).unwrap();
    // 0.78 × 9e15 = 7.02e15 FLOP/s.
    is(kernel, Bound::Compute, 137_438_953_472, bytes, 137_438_953_472.0 / 7.02e15);
}

#[test]
fn casts_read_bf16_and_write_elements() {
    let elements = 1 << 24;
    let bytes = |to, fused| cast(gpu("B200"), to, elements, fused).bytes;
    // 2 + 1 or 2 + 0.5 bytes an element; only the written ones when fused.
    assert_eq!(bytes(Operands::Mxfp8, false), 50_331_648);
    assert_eq!(bytes(Operands::Mxfp8, true), 16_777_216);
    assert_eq!(bytes(Operands::Mxfp4, false), 41_943_040);
    assert_eq!(bytes(Operands::Mxfp4, true), 8_388_608);
    // 7680 / 8 × 3.996e9 × 2 = 7.67232e12 B/s, of which 92 %.
    close(
        cast(gpu("B200"), Operands::Mxfp8, elements, false).seconds,
        50_331_648.0 / 7_058_534_400_000.0,
    );
    is(cast(gpu("B200"), Operands::Mxfp8, 1000, false), Bound::Floor, 0, 3000, FLOOR);
}

#[test]
fn gradients_contract_the_other_dimensions() {
    // M, K, N = 64, 4096, 16384. Forward reads MK + KN = 262_144 + 67_108_864 and writes MN = 1_048_576; the input's
    // gradient reads MN + NK and writes MK; the weight's reads KM + MN and writes KN.
    let shape = Shape { m: 64, k: 4096, n: 16384 };
    let gemms = estimate(gpu("H200"), Recipe::ALL[0], shape).unwrap().bf16.gemms;
    assert_eq!(gemms.forward.bytes, 2 * (262_144 + 67_108_864 + 1_048_576));
    assert_eq!(gemms.grad_input.bytes, 2 * (1_048_576 + 67_108_864 + 262_144));
    assert_eq!(gemms.grad_weight.bytes, 2 * (262_144 + 1_048_576 + 67_108_864));
    let gemms = estimate(gpu("H200"), Recipe::ALL[0], shape).unwrap().unfused.gemms;
    assert_eq!(gemms.forward.bytes, 67_371_008 + 67_371_008 / 32 + 2 * 1_048_576);
    assert_eq!(gemms.grad_input.bytes, 68_157_440 + 68_157_440 / 32 + 2 * 262_144);
    assert_eq!(gemms.grad_weight.bytes, 1_310_720 + 1_310_720 / 32 + 2 * 67_108_864);
}

#[test]
fn a_step_is_three_gemms_and_six_casts() {
    let step = of("H200", "mxfp8", 4096);
    let flops = 3.0 * 137_438_953_472.0;
    // Six casts of 3 × 2^24 bytes; fused, two of them 2^24.
    let (unfused, fused) = (6.0 * 50_331_648.0, 4.0 * 50_331_648.0 + 2.0 * 16_777_216.0);
    close(step.bf16.seconds, flops / H200_BF16);
    close(step.unfused.gemm_seconds, flops / H200_FP8);
    close(step.unfused.cast_seconds, unfused / H200_BANDWIDTH);
    close(step.unfused.seconds, flops / H200_FP8 + unfused / H200_BANDWIDTH);
    close(step.fused.seconds, flops / H200_FP8 + fused / H200_BANDWIDTH);
    close(step.speedup.unfused, step.bf16.seconds / step.unfused.seconds);
    close(step.speedup.fused, step.bf16.seconds / step.fused.seconds);
    assert!(step.bf16.casts.is_empty());
}

#[test]
fn a_weight_gradient_in_high_precision_saves_two_casts() {
    let step = of("H200", "mxfp8_wgrad_with_hp", 4096).unfused;
    close(step.gemms.grad_weight.seconds, 137_438_953_472.0 / H200_BF16);
    close(step.gemms.grad_input.seconds, 137_438_953_472.0 / H200_FP8);
    close(step.cast_seconds, 4.0 * 50_331_648.0 / H200_BANDWIDTH);
}

#[rstest]
#[case("mxfp8_emulated", 6.0 * 50_331_648.0)]
#[case("mxfp4_emulated", 6.0 * 41_943_040.0)]
fn emulation_is_bf16_and_casts(#[case] recipe: &str, #[case] cast_bytes: f64) {
    let step = of("H200", recipe, 4096);
    close(step.unfused.gemm_seconds, step.bf16.gemm_seconds);
    close(step.unfused.cast_seconds, cast_bytes / H200_BANDWIDTH);
    assert!(step.speedup.fused < 1.0);
}

#[rstest]
#[case("mxfp8_rceil", "mxfp8")]
#[case("mxfp8_cublas", "mxfp8")]
#[case("mxfp8_cublas_rceil", "mxfp8")]
#[case("mxfp8_rceil_wgrad_with_hp", "mxfp8_wgrad_with_hp")]
#[case("mxfp8_emulated_rceil", "mxfp8_emulated")]
#[case("mxfp4_cutlass", "mxfp4")]
#[case("mxfp4_emulated", "mxfp4_emulated")]
fn torchao_names_are_known(#[case] theirs: &str, #[case] ours: &str) {
    assert_eq!(Recipe::from_name(theirs).unwrap().name, ours);
}

#[test]
fn the_largest_shape_that_parses_is_finite() {
    let largest = Shape::parse("16777216,16777216,16777216").unwrap();
    let step = estimate(gpu("H100"), Recipe::ALL[0], largest).unwrap();
    // 2 × 2^72 operations.
    close(step.bf16.gemms.forward.seconds, 2f64.powf(73.0) / H200_BF16);
}

fn run(args: &str) -> (i32, String, String) {
    mxcert(&[&["roofline"], &args.split_whitespace().collect::<Vec<_>>()[..]].concat())
}

#[test]
fn the_table_has_a_line_a_shape() {
    let (code, stdout, stderr) = run("--gpu h200 --shapes 4096,4096,4096 128x128x128");
    assert_eq!((code, stderr.as_str()), (0, ""));
    let lines: Vec<_> = stdout.lines().collect();
    assert!(lines[2].contains("H200 has no GEMM that applies MX scales"), "{stdout}");
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // Sums of the steps above, in microseconds: 534.49 in bf16; 267.11 + 68.39, or + 53.19.
    let row = "4096 4096 4096 534.49 267.11 68.39 335.50 1.593 53.19 320.30 1.669";
    assert_eq!(cells(lines[4]), cells(row));
    // Nine kernels of 2 us against three.
    assert_eq!(cells(lines[5]), cells("128 128 128 6.00 6.00 12.00 18.00 0.333 12.00 18.00 0.333"));
    assert_eq!(lines.len(), 6);
    assert!(lines[3..].iter().all(|line| line.len() == lines[3].len()), "{stdout}");
}

#[test]
fn squares_are_the_default() {
    let (_, stdout, _) = run("--gpu B200");
    let sizes: Vec<_> =
        stdout.lines().skip(3).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(sizes, ["1024", "2048", "4096", "8192", "16384"]);
}

#[test]
fn json_has_every_part_in_seconds() {
    let (code, stdout, _) = run("--gpu H200 --shapes 4096x4096x4096 --json -");
    assert_eq!(code, 0);
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(value["schema"], "mxcert-roofline/1");
    assert_eq!(
        (&value["gpu"]["name"], &value["recipe"]["name"]),
        (&"H200".into(), &"mxfp8".into())
    );
    assert_eq!(value["gpu"]["fp4_peak"], Value::Null);
    assert_eq!(value["gpu"]["bandwidth"]["unit"], "B/s");
    let shape = &value["shapes"][0];
    assert_eq!((&shape["m"], &shape["k"], &shape["n"]), (&4096.into(), &4096.into(), &4096.into()));
    let forward = &shape["unfused"]["gemms"]["forward"];
    assert_eq!((&forward["bound"], &forward["bytes"]), (&"compute".into(), &68_157_440.into()));
    close(forward["seconds"].as_f64().unwrap(), 137_438_953_472.0 / H200_FP8);
    let casts = shape["fused"]["casts"].as_array().unwrap();
    let which = |cast: &Value| format!("{} {} {}", cast["role"], cast["direction"], cast["bytes"]);
    let casts: Vec<_> = casts.iter().map(which).collect();
    assert_eq!(
        casts,
        [
            r#""input" "row" 16777216"#,
            r#""input" "col" 50331648"#,
            r#""weight" "row" 50331648"#,
            r#""weight" "col" 50331648"#,
            r#""grad_output" "row" 16777216"#,
            r#""grad_output" "col" 50331648"#,
        ]
    );
    let part = |step: &str, part: &str| shape[step][part].as_f64().unwrap();
    for step in ["bf16", "unfused", "fused"] {
        close(part(step, "seconds"), part(step, "gemm_seconds") + part(step, "cast_seconds"));
    }
    close(part("speedup", "fused"), part("bf16", "seconds") / part("fused", "seconds"));
}

#[test]
fn json_to_a_file_leaves_the_table() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("roofline.json");
    let (code, stdout, _) =
        mxcert(&["roofline", "--gpu", "AMD Instinct MI300X", "--json", path.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(
        stdout.contains("bf16 1307.4, fp8 2614.9 TFLOP/s at 78 %; 5.3 TB/s at 92 %"),
        "{stdout}"
    );
    let value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(value["shapes"].as_array().unwrap().len(), 5);
}

#[rstest]
#[case("", &["--gpu <H100|H200|B200|MI300X>"])]
#[case("--gpu h20", &["unknown GPU `h20`", "did you mean `H200`?", "H100, H200, B200, MI300X"])]
#[case("--gpu toaster", &["unknown GPU `toaster`; known: H100"])]
#[case("--gpu H200 --recipe mxfp8_rciel", &["did you mean `mxfp8_rceil`?", "mxfp4_emulated"])]
#[case("--gpu H200 --recipe mxfp4", &["H200 has no FP4 GEMM", "B200", "mxfp4_emulated"])]
#[case("--gpu H200 --shapes 0,1,1", &["M of `0,1,1` is `0`", "1 to 16777216"])]
#[case("--gpu H200 --shapes 1,16777217,1", &["K of `1,16777217,1` is `16777217`"])]
#[case("--gpu H200 --shapes 1x1x99999999999999999999", &["N of"])]
#[case("--gpu H200 --shapes 1,+1,1", &["K of `1,+1,1` is `+1`"])]
#[case("--gpu H200 --shapes 1,,1", &["K of `1,,1` is ``"])]
#[case("--gpu H200 --shapes 1,2", &["`1,2` has 2 dimension(s)", "M,K,N or MxKxN"])]
#[case("--gpu H200 --shapes 1x2x3x4", &["has 4 dimension(s)"])]
#[case("--gpu H200 --shapes big", &["has 1 dimension(s)"])]
#[case("--gpu H200 --shapes -1,2,3", &["-1"])]
#[case("--gpu H200 --json /no/such/folder/x.json", &["cannot write /no/such/folder/x.json"])]
fn bad_arguments_are_usage_errors(#[case] args: &str, #[case] says: &[&str]) {
    let (code, stdout, stderr) = run(args);
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    for say in says {
        assert!(stderr.contains(say), "{say} not in {stderr}");
    }
}

#[test]
fn help_names_every_gpu_and_recipe() {
    let (_, help, _) = run("--help");
    let names =
        Gpu::ALL.map(|gpu| gpu.name).into_iter().chain(Recipe::ALL.map(|recipe| recipe.name));
    for name in names {
        assert!(help.contains(name), "{name} not in {help}");
    }
}

#[test]
fn weights_of_all_groups_are_cast() {
    let gpu = Gpu::from_name("H200").unwrap();
    let recipe = Recipe::from_name("mxfp8").unwrap();
    let shape = Shape { m: 16384, k: 4096, n: 2048 };
    let [one, eight] = [1, 8].map(|groups| estimate_groups(gpu, recipe, shape, groups).unwrap());
    assert_eq!(one, estimate(gpu, recipe, shape).unwrap());
    assert_eq!(one.bf16, eight.bf16);
    for (one, eight) in one.unfused.casts.iter().zip(&eight.unfused.casts) {
        let times = eight.kernel.bytes / one.kernel.bytes;
        assert_eq!(times, if one.role == Role::Weight { 8 } else { 1 });
    }
}
