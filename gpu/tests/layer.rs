//! One kernel preference governs linear and grouped steps alike, and whichever kernel it names, sums that nothing rounds are right. Without
//! a device the tests say so and pass, unless `MXCERT_GPU=required`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use mx_gpu::layer::{Preference, Step};
use mx_gpu::{Gpu, GpuError};
use mx_reference::gemm::GemmShape;
use mx_reference::training::Recipe;
use rstest::rstest;
use std::ops::Range;

fn device() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => Some(gpu),
        Err(missing) => {
            let required = std::env::var_os("MXCERT_GPU").is_some_and(|v| v == "required");
            assert!(!required, "{missing}");
            println!("skipped: {missing}");
            None
        }
    }
}

/// bf16 bits of an integer that has at most eight digits.
fn bf16(x: i64) -> u16 {
    let bits = (x as f32).to_bits();
    assert_eq!(bits & 0xffff, 0, "{x}");
    (bits >> 16) as u16
}

/// -2 to 2, which every format has under the scale of its block, however that is rounded.
fn small(count: usize, seed: usize) -> Vec<i64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729 + i / 31 * 13) % 5) as i64 - 2).collect()
}

fn bytes(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| bf16(x).to_le_bytes()).collect()
}

/// Tokens, groups of them with weights of their own, and what a step makes of them in integers.
struct Layer {
    shape: GemmShape,
    ends: Option<Vec<i32>>,
    x: Vec<i64>,
    w: Vec<i64>,
    g: Vec<i64>,
}

impl Layer {
    fn new(shape: GemmShape, ends: Option<&[i32]>) -> Self {
        let GemmShape { m, n, k } = shape;
        let groups = ends.map_or(1, <[i32]>::len);
        let (x, w, g) = (small(m * k, 1), small(groups * n * k, 2), small(m * n, 3));
        Self { shape, ends: ends.map(<[i32]>::to_vec), x, w, g }
    }

    fn groups(&self) -> Vec<Range<usize>> {
        let ends = self.ends.clone().unwrap_or_else(|| vec![self.shape.m as i32]);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(&ends).map(|(start, &end)| start as usize..end as usize).collect()
    }

    /// The bits of y, and of the gradients of input and weights.
    fn expected(&self) -> [Vec<u16>; 3] {
        let GemmShape { m, n, k } = self.shape;
        let (mut y, mut dx) = (vec![0; m * n], vec![0; m * k]);
        let mut dw = vec![0; self.w.len()];
        for (group, rows) in self.groups().into_iter().enumerate() {
            let w = &self.w[group * n * k..][..n * k];
            let dw = &mut dw[group * n * k..][..n * k];
            for row in rows {
                for i in 0..n {
                    for j in 0..k {
                        y[row * n + i] += self.x[row * k + j] * w[i * k + j];
                        dx[row * k + j] += self.g[row * n + i] * w[i * k + j];
                        dw[i * k + j] += self.g[row * n + i] * self.x[row * k + j];
                    }
                }
            }
        }
        [y, dx, dw].map(|sums| sums.into_iter().map(bf16).collect())
    }

    fn run(
        &self,
        gpu: &Gpu,
        recipe: Recipe,
        preference: Preference,
    ) -> Result<[Vec<u16>; 3], GpuError> {
        let mut step =
            Step::new(gpu, &recipe.config(), preference, self.shape, self.ends.as_deref())?;
        let inputs =
            [&self.x, &self.w, &self.g].map(|numbers| gpu.upload(&bytes(numbers)).unwrap());
        let GemmShape { m, n, k } = self.shape;
        let mut outputs =
            [m * n, m * k, self.w.len()].map(|count| gpu.upload(&vec![0xa5; 2 * count]).unwrap());
        let [x, w, g] = inputs.each_ref().map(|buffer| buffer.as_view());
        let [y, dx, dw] = outputs.each_mut().map(|buffer| buffer.as_view_mut());
        let (mut y, mut dx, mut dw) = (y, dx, dw);
        step.run([&x, &w, &g], [&mut y, &mut dx, &mut dw])?;
        Ok(outputs.each_ref().map(|buffer| {
            let bytes = gpu.download(&buffer.as_view()).unwrap();
            bytes.as_chunks().0.iter().map(|&half| u16::from_le_bytes(half)).collect()
        }))
    }
}

#[rstest]
#[case::linear(GemmShape { m: 128, n: 64, k: 96 }, None)]
#[case::groups(GemmShape { m: 160, n: 64, k: 96 }, Some(&[32, 32, 128, 160][..]))]
#[case::one_group(GemmShape { m: 64, n: 32, k: 32 }, Some(&[64][..]))]
fn every_preference_gives_sums_that_nothing_rounds(
    #[case] shape: GemmShape,
    #[case] ends: Option<&[i32]>,
    #[values("auto", "emulated", "mx-blocks", "cublaslt-bf16")] name: &str,
    #[values(Recipe::Mxfp8Rceil, Recipe::Mxfp8Cublas)] recipe: Recipe,
) {
    let layer = Layer::new(shape, ends);
    let expected = layer.expected();
    let Some(gpu) = device() else { return };
    let preference = Preference::from_name(name).unwrap();
    let got = layer.run(&gpu, recipe, preference).unwrap();
    for (what, (got, expected)) in
        ["y", "grad_input", "grad_weight"].into_iter().zip(got.iter().zip(&expected))
    {
        assert_eq!(got, expected, "{what}");
    }
}
