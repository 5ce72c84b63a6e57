//! cuBLASLt on a device: which scale is whose, when K is split, and what that does to the bits. Without a device or the library the tests say so and pass, unless
//! `MXCERT_GPU=required`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_gpu::cublaslt::{CublasLt, Mode, Operand, Product, Reduction, Scales, WORKSPACE};
use mx_gpu::{Gpu, GpuError};
use mx_reference::Format;
use mx_reference::format::{BF16, E4M3, E5M2, F16, F32};
use mx_reference::gemm::{Accumulation, Codes, Gemm, GemmShape, Model, Operand as Terms};
use rstest::rstest;

fn device() -> Option<Gpu> {
    let opened = Gpu::open(0).and_then(|gpu| CublasLt::open(&gpu, 0).map(|_| gpu));
    match opened {
        Ok(gpu) => Some(gpu),
        Err(missing) => {
            let required = std::env::var_os("MXCERT_GPU").is_some_and(|v| v == "required");
            assert!(!required, "{missing}");
            println!("skipped: {missing}");
            None
        }
    }
}

/// A product of powers of two under power-of-two scales.
struct Side {
    rows: usize,
    /// log2 of elements, `None` for zero: row major.
    elements: Vec<Option<i32>>,
}

const K: usize = 384;
const BLOCKS: usize = K / 128;

impl Side {
    /// Each row has its elements in one block of 128 alone, so that no sum mixes scales.
    fn new(rows: usize, seed: usize) -> Self {
        let element = |r: usize, k: usize| {
            let power = (r * 7 + k * 5 + seed) % 3;
            (k / 128 == r % BLOCKS).then_some(power as i32 - 1)
        };
        let elements = (0..rows * K).map(|i| element(i / K, i % K)).collect();
        Self { rows, elements }
    }

    fn codes(&self) -> Vec<u8> {
        // E4M3 has a bias of 7 and three bits below.
        let code = |x: &Option<i32>| x.map_or(0, |power| ((power + 7) << 3) as u8);
        self.elements.iter().map(code).collect()
    }

    /// The scales as they lie in memory, as `Scales` says.
    fn scales(&self, scales: Scales, seed: Option<usize>) -> Vec<u8> {
        let power = |r, block| seed.map_or(0, |seed| scale(scales, r, block, seed));
        let rows = self.rows;
        let powers: Vec<i32> = match scales {
            Scales::Scalar => vec![power(0, 0)],
            Scales::OuterVec => (0..rows).map(|r| power(r, 0)).collect(),
            Scales::Vec128 => (0..BLOCKS * rows).map(|i| power(i % rows, i / rows)).collect(),
            Scales::Blk128x128 => {
                let stride = BLOCKS.next_multiple_of(4);
                let tiles = rows.div_ceil(128);
                // What pads a row of tiles belongs to none.
                let at =
                    |i: usize| (i % stride < BLOCKS).then(|| power(i / stride * 128, i % stride));
                (0..tiles * stride).map(|i| at(i).unwrap_or(100)).collect()
            }
            Scales::None | Scales::Vec32 | Scales::Vec16 => Vec::new(),
        };
        powers.iter().flat_map(|&power| (((power + 127) as u32) << 23).to_le_bytes()).collect()
    }
}

/// log2 of the scale of a row's block: different for every scale that a mode has, within reason.
fn scale(scales: Scales, r: usize, block: usize, seed: usize) -> i32 {
    let wave = |n: usize| (n * 5 + seed) as i32 % 23 - 11;
    match scales {
        Scales::Scalar => wave(seed),
        Scales::OuterVec => wave(r),
        Scales::Vec128 => wave(r * BLOCKS + block),
        Scales::Blk128x128 => wave(r / 128 * BLOCKS + block),
        Scales::None | Scales::Vec32 | Scales::Vec16 => 0,
    }
}

fn multiply(
    gpu: &Gpu,
    library: &CublasLt,
    product: &Product,
    sides: [&Side; 2],
    seed: Option<usize>,
) -> Result<Vec<f32>, GpuError> {
    let algorithm = library.algorithm(product)?;
    let [a, b] = sides.map(|side| gpu.upload(&side.codes()));
    let (a, b) = (a?, b?);
    let scales = [(sides[0], product.mode.a), (sides[1], product.mode.b)];
    let [a_scales, b_scales] = scales.map(|(side, scales)| gpu.upload(&side.scales(scales, seed)));
    let (a_scales, b_scales) = (a_scales?, b_scales?);
    let views = [a.as_view(), b.as_view(), a_scales.as_view(), b_scales.as_view()];
    let operand = |codes, scales| Operand { codes, scales: Some(scales) };
    let operands = [operand(&views[0], &views[2]), operand(&views[1], &views[3])];
    let mut d = gpu.allocate(product.m * product.n * 4)?;
    library.multiply(product, &algorithm, operands, 1.0, &mut d.as_view_mut())?;
    let bytes = gpu.download(&d.as_view())?;
    Ok(bytes.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect())
}

/// Under power-of-two scales every output is that under scales of 1, times the scale of its row's block and its column's: exactly.
#[rstest]
#[case(Mode::FP8_FAST)]
#[case(Mode::FP8)]
#[case(Mode::FP8_OUTER)]
#[case(Mode::FP8_OUTER_FAST)]
#[case(Mode::FP8_VEC128)]
#[case(Mode::FP8_VEC128_BLK128)]
#[case(Mode::FP8_BLK128_VEC128)]
#[case(Mode::FP8_BLK128)]
fn scales_are_where_the_library_looks_for_them(#[case] mode: Mode) {
    let Some(gpu) = device() else { return };
    let library = CublasLt::open(&gpu, WORKSPACE).unwrap();
    let (a, b) = (Side::new(272, 1), Side::new(400, 2));
    let (m, n) = (a.rows, b.rows);
    let product = Product { m, n, k: K, a: &E4M3, b: &E4M3, d: &F32, mode, strides: None };
    let unscaled = match multiply(&gpu, &library, &product, [&a, &b], None) {
        Ok(unscaled) => unscaled,
        Err(GpuError::Unsupported(reason)) => {
            println!("skipped: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let seed = 3;
    let scaled = multiply(&gpu, &library, &product, [&a, &b], Some(seed)).unwrap();
    let (mut wrong, mut told) = (Vec::new(), 0);
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let (block, at) = (i % BLOCKS, i * n + j);
        // Rows whose elements lie in different blocks have no product.
        let expected = if block == j % BLOCKS {
            let power = scale(mode.a, i, block, seed) + scale(mode.b, j, block, seed);
            unscaled[at] * f32::from_bits(((power + 127) as u32) << 23)
        } else {
            0.0
        };
        told += usize::from(unscaled[at] > 0.0);
        if scaled[at].to_bits() != expected.to_bits() {
            wrong.push((i, j, expected, scaled[at]));
        }
    }
    println!("{mode}: {told} sums, {} wrong, first {:?}", wrong.len(), wrong.first());
    assert!(told > m * n / 4, "{told} of {}", m * n);
    assert!(wrong.is_empty());
}

#[test]
fn without_a_workspace_k_is_whole() {
    let Some(gpu) = device() else { return };
    let mut split = 0;
    for k in [4096, 8192, 16384, 32768] {
        let mode = Mode::FP8_FAST;
        let product = Product { m: 16, n: 16, k, a: &E4M3, b: &E4M3, d: &F32, mode, strides: None };
        for workspace in [0, WORKSPACE] {
            let library = CublasLt::open(&gpu, workspace).unwrap();
            match library.algorithm(&product) {
                Ok(algorithm) => {
                    println!("{k}, workspace {workspace}: {algorithm}");
                    assert!(algorithm.workspace <= workspace);
                    let whole = algorithm.split == 1;
                    assert!(workspace > 0 || whole);
                    assert_eq!(whole, algorithm.reduction == Reduction::None);
                    split += u32::from(!whole);
                }
                Err(GpuError::Unsupported(reason)) => println!("skipped: {reason}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    println!("{split} split");
}

#[test]
fn buffers_of_other_sizes_are_refused() {
    let Some(gpu) = device() else { return };
    let library = CublasLt::open(&gpu, WORKSPACE).unwrap();
    let (a, b) = (Side::new(128, 1), Side::new(128, 2));
    let product = Product {
        m: 128,
        n: 128,
        k: K,
        a: &E4M3,
        b: &E4M3,
        d: &F32,
        mode: Mode::FP8_FAST,
        strides: None,
    };
    let taller = Product { m: 144, ..product };
    let refused = multiply(&gpu, &library, &taller, [&a, &b], None);
    assert!(matches!(refused, Err(GpuError::Size { what: "A", .. })), "{refused:?}");
}

/// Codes whose magnitudes differ from one 128 of K to the next by up to 2^24, so that f32 additions of their sums round.
fn loud_and_quiet(format: &Format, rows: usize, k: usize, seed: u64) -> Vec<u16> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let loudness: Vec<u64> = (0..k.div_ceil(128)).map(|_| next() % 24).collect();
    let digits = format.mantissa_bits;
    let bias = 1 << (format.bits - digits - 2);
    let exponent = |at: usize| match format.bits - digits {
        // E5M2 and wider take all of the difference.
        6.. => bias - 12 + loudness[at / 128],
        _ => bias - 2 + loudness[at / 128] % 4,
    };
    let code = |i: usize, word: u64| {
        let sign = ((word >> 20) % 2) << (format.bits - 1);
        (sign | (exponent(i % k) << digits) | (word % (1 << digits))) as u16
    };
    (0..rows * k).map(|i| code(i, next())).collect()
}

fn as_bytes(format: &Format, codes: &[u16]) -> Vec<u8> {
    match format.bits {
        8 => codes.iter().map(|&code| code as u8).collect(),
        _ => codes.iter().flat_map(|code| code.to_le_bytes()).collect(),
    }
}

/// What the model of a mode says of the first rows and columns, K split into so many parts.
fn predicted(
    model: Model,
    split: u32,
    product: &Product,
    [a, b]: [&[u16]; 2],
    (rows, columns): (usize, usize),
) -> Vec<u32> {
    let k = product.k;
    let (a, b) = (&a[..rows * k], &b[..columns * k]);
    let (a8, b8) = (as_bytes(&E4M3, a), as_bytes(&E4M3, b));
    let side = |format: &'static Format, wide, narrow| Terms {
        format,
        codes: if format.bits == 8 { Codes::Bytes(narrow) } else { Codes::Halves(wide) },
        scales: None,
    };
    let shape = GemmShape { m: rows, n: columns, k };
    let (a, b) = (side(product.a, a, &a8), side(product.b, b, &b8));
    let (split, tile) = (split as usize, product.mode.split_tile() as usize);
    let accumulation = Accumulation { split, tile, ..model.accumulation() };
    let gemm = Gemm::new(shape, a, b, None, None).unwrap();
    gemm.accumulate(&accumulation, &F32).unwrap()
}

/// On `sm_90` outputs are those of K split as the algorithm has it.
#[rstest]
#[case(Mode::FP8_FAST, Model::HopperFp8)]
#[case(Mode::FP8, Model::HopperFp8Promote128)]
#[case(Mode::FP8_OUTER, Model::HopperFp8Promote128)]
#[case(Mode::FP8_OUTER_FAST, Model::HopperFp8)]
#[case(Mode::FP8_VEC128, Model::HopperFp8Promote128)]
#[case(Mode::FP8_VEC128_BLK128, Model::HopperFp8Promote128)]
#[case(Mode::FP8_BLK128_VEC128, Model::HopperFp8Promote128)]
#[case(Mode::BF16, Model::HopperBf16)]
#[case(Mode::F16, Model::HopperF16)]
fn parts_of_k_are_where_the_model_has_them(#[case] mode: Mode, #[case] model: Model) {
    let Some(gpu) = device() else { return };
    let library = CublasLt::open(&gpu, WORKSPACE).unwrap();
    let (a, b) = match mode {
        Mode::BF16 => (&BF16, &BF16),
        Mode::F16 => (&F16, &F16),
        _ => (&E5M2, &E4M3),
    };
    let mut wrong = 0;
    for (m, n, k) in [
        (8, 8, 4096),
        (8, 8, 8192),
        (16, 16, 16384),
        (64, 64, 8192),
        (128, 128, 8192),
        (16, 272, 16384),
        (256, 256, 4096),
        (512, 64, 8192),
        (16, 16, 9344),
        (24, 40, 10016),
        (8, 136, 20000),
        (16, 16, 32768),
        (1024, 512, 8192),
        (128, 2048, 16384),
        (2048, 2048, 2048),
    ] {
        let product = Product { m, n, k, a, b, d: &F32, mode, strides: None };
        let codes = [(a, m, 5), (b, n, 77)].map(|(f, rows, seed)| loud_and_quiet(f, rows, k, seed));
        let algorithm = library.algorithm(&product).unwrap();
        let got = of_codes(&gpu, &library, &product, [&codes[0], &codes[1]]).unwrap();
        let corner = (4, 6);
        let got: Vec<u32> =
            (0..corner.0).flat_map(|i| got[i * n..i * n + corner.1].to_vec()).collect();
        let predicted = |split| predicted(model, split, &product, [&codes[0], &codes[1]], corner);
        let right = |split| predicted(split).iter().zip(&got).filter(|(a, b)| a == b).count();
        let said = right(algorithm.split);
        let others: Vec<_> = [1, 2, algorithm.split - 1, algorithm.split + 1]
            .into_iter()
            .filter(|&split| split > 0 && split != algorithm.split)
            .map(|split| (split, right(split)))
            .collect();
        println!(
            "{mode} {m}x{n}x{k}: {said} of {} as {} split into {}; otherwise {others:?}; {algorithm}",
            got.len(),
            model.name(),
            algorithm.split,
        );
        wrong += got.len() - said;
    }
    assert_eq!(wrong, 0);
}

/// A product under scales of 1.
fn of_codes(
    gpu: &Gpu,
    library: &CublasLt,
    product: &Product,
    [a, b]: [&[u16]; 2],
) -> Result<Vec<u32>, GpuError> {
    let algorithm = library.algorithm(product)?;
    let codes = [gpu.upload(&as_bytes(product.a, a))?, gpu.upload(&as_bytes(product.b, b))?];
    let ones = |scales: Scales, rows| {
        let bytes = scales.bytes(rows, product.k)?;
        let buffer = gpu.upload(&1f32.to_le_bytes().repeat(bytes / 4))?;
        Ok::<_, GpuError>((buffer, bytes))
    };
    let scales = [ones(product.mode.a, product.m)?, ones(product.mode.b, product.n)?];
    let codes = [codes[0].as_view(), codes[1].as_view()];
    let scales = scales.each_ref().map(|(buffer, bytes)| buffer.slice(..*bytes));
    let operand = |i: usize| Operand { codes: &codes[i], scales: Some(&scales[i]) };
    let mut d = gpu.allocate(product.m * product.n * 4)?;
    let operands = [operand(0), operand(1)];
    library.multiply(product, &algorithm, operands, 1.0, &mut d.as_view_mut())?;
    let bytes = gpu.download(&d.as_view())?;
    Ok(bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect())
}
