//! Matrix products: exact, and as models accumulate.
//!
//! Products of the elements of a block are summed in f64, where they are integers and nothing rounds; block sums in the
//! narrowest integer that is wide enough for their scales; and each output is rounded once.

mod panel;
mod strip;
mod sum;
mod tile;

use mx_reference::Format;
use mx_reference::gemm::{Accumulation, Gemm, ModelError, Scheme};
use rayon::prelude::*;

use crate::dispatch::detect;
use panel::panels;
use strip::{Strip, Whole};
use tile::ROWS;

/// The most panels of A in a strip: every panel of B, once read, meets all of them.
const STRIP: usize = 8;

/// The exact product, each output rounded once: [`Gemm::exact`], fast.
///
/// ```
/// use mx_reference::format::{E4M3, E8M0, F32};
/// use mx_reference::gemm::{BlockScales, Codes, Gemm, GemmShape, Operand};
/// let codes: Vec<u8> = (0..64 * 96).map(|i| (i % 127) as u8).collect();
/// let scales: Vec<u8> = (0..64 * 3).map(|i| i as u8).collect();
/// let scales = Some(BlockScales { format: &E8M0, bytes: &scales, block: 32 });
/// let operand = Operand { format: &E4M3, codes: Codes::Bytes(&codes), scales };
/// let gemm = Gemm::new(GemmShape { m: 64, n: 64, k: 96 }, operand, operand, None, None)?;
/// assert_eq!(mx_native::gemm(&gemm, &F32), gemm.exact(&F32));
/// # Ok::<(), mx_reference::ShapeError>(())
/// ```
pub fn gemm(gemm: &Gemm<'_>, output: &Format) -> Vec<u32> {
    let mut d = vec![0; gemm.shape().m * gemm.shape().n];
    product(gemm, output, &mut d, &mut []);
    d
}

/// [`gemm`], and for each output an upper bound of |t|·Σ |aₖbₖ|, t the product of the tensor scales: not less than
/// [`Dot::magnitude`](mx_reference::gemm::Dot::magnitude) and, for K up to 2^25, at most 1e-9 of itself more; infinite where
/// the output's exact value is not finite.
pub fn gemm_with_magnitude(gemm: &Gemm<'_>, output: &Format) -> (Vec<u32>, Vec<f64>) {
    let outputs = gemm.shape().m * gemm.shape().n;
    let (mut d, mut magnitudes) = (vec![0; outputs], vec![0.0; outputs]);
    product(gemm, output, &mut d, &mut magnitudes);
    (d, magnitudes)
}

/// D as a model of an accumulation computes it: [`Gemm::accumulate`] on the current rayon pool.
///
/// # Errors
/// [`ModelError`] if the operands are not what the model is of.
pub fn accumulate(
    gemm: &Gemm<'_>,
    accumulation: &Accumulation,
    output: &Format,
) -> Result<Vec<u32>, ModelError> {
    accumulation.check(gemm)?;
    if accumulation.scheme == Scheme::Exact {
        return Ok(self::gemm(gemm, output));
    }
    let shape = gemm.shape();
    let mut d = vec![0; shape.m * shape.n];
    // Columns are decoded once for all rows, as many at a time as keep within some memory.
    let width = (COLUMNS / shape.k.max(1)).clamp(1, shape.n.max(1));
    for first in (0..shape.n).step_by(width) {
        let columns = first..(first + width).min(shape.n);
        let accumulated = gemm.accumulated(accumulation, output, columns.clone())?;
        d.par_chunks_mut(shape.n).enumerate().for_each(|(i, row)| {
            row[columns.clone()].copy_from_slice(&accumulated.row(i));
        });
    }
    Ok(d)
}

/// Elements of B that [`accumulate`] keeps decoded.
const COLUMNS: usize = 1 << 22;

/// Fills D, and the magnitudes unless there is no room for them.
fn product(gemm: &Gemm<'_>, output: &Format, d: &mut [u32], magnitudes: &mut [f64]) {
    let shape = gemm.shape();
    if d.is_empty() {
        return;
    }
    let [a, b] = gemm.operands();
    let (a, b) = (panels::<ROWS>(a, shape.m, shape.k), panels(b, shape.n, shape.k));
    let whole = &Whole { gemm, b: &b, output };
    let strip = (a.len() / (4 * rayon::current_num_threads())).clamp(1, STRIP);
    let outputs = strip * ROWS * shape.n;
    let work = |(number, ((a, d), magnitudes))| {
        detect(Strip { whole, a, first: number * strip * ROWS, d, magnitudes });
    };
    let strips = a.par_chunks(strip).zip(d.par_chunks_mut(outputs));
    if magnitudes.is_empty() {
        strips.map(|strip| (strip, Default::default())).enumerate().for_each(work);
    } else {
        strips.zip(magnitudes.par_chunks_mut(outputs)).enumerate().for_each(work);
    }
}

#[cfg(test)]
mod tests {
    use mx_reference::format::{E5M2, F32};
    use mx_reference::gemm::{Codes, GemmShape, Operand};

    use super::*;
    use crate::dispatch::Work;

    #[test]
    fn the_plain_build_of_the_kernel_agrees_with_the_chosen_one() {
        let codes: Vec<u8> = (0..8 * 160).map(|i| (i * 37 % 123) as u8).collect();
        let operand = Operand { format: &E5M2, codes: Codes::Bytes(&codes), scales: None };
        let shape = GemmShape { m: 8, n: 8, k: 160 };
        let gemm = &Gemm::new(shape, operand, operand, None, None).unwrap();
        let (a, b) = (panels::<ROWS>(&operand, 8, 160), panels(&operand, 8, 160));
        let whole = &Whole { gemm, b: &b, output: &F32 };
        let (mut d, mut magnitudes) = (vec![0; 64], vec![0.0; 64]);
        Strip { whole, a: &a, first: 0, d: &mut d, magnitudes: &mut magnitudes }.run();
        assert_eq!((d, magnitudes), gemm_with_magnitude(gemm, &F32));
    }
}
