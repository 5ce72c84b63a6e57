//! The tile kernel: 4 rows of A by 8 of B, block after block.

use super::panel::{BLOCK, Block, PLANE, Panel};
use super::sum::{Sum, integer, power};

/// Rows of A in a tile.
pub(super) const ROWS: usize = 4;
/// Rows of B in a tile: with four rows of A, half of the sixteen AVX2 registers hold sums.
pub(super) const COLS: usize = 8;

/// Something for each output of a tile.
pub(super) type Tile<T> = [[T; COLS]; ROWS];

/// The sums of a tile in units of 2^(unit of A's row + unit of B's row), and of the magnitudes if they are asked for: those are
/// doubles that may be off by 2^-53 of themselves for each of [`additions`].
#[inline(always)]
pub(super) fn sums<S: Sum, const MAGNITUDES: bool>(
    a: &Panel<ROWS>,
    b: &Panel<COLS>,
) -> (Tile<S>, Tile<f64>) {
    let mut sums = [[S::ZERO; COLS]; ROWS];
    let mut magnitudes = [[0.0; COLS]; ROWS];
    for (block, (a_shifts, b_shifts)) in a.shifts.iter().zip(&b.shifts).enumerate() {
        for (a_plane, a_blocks) in (0..).zip(&a.planes) {
            for (b_plane, b_blocks) in (0..).zip(&b.planes) {
                let (Some(x), Some(y)) = (a_blocks.get(block), b_blocks.get(block)) else {
                    continue;
                };
                let plane = PLANE * (a_plane + b_plane);
                let products = products(x, y, |x| x);
                for i in 0..ROWS {
                    for j in 0..COLS {
                        let shift = a_shifts[i] + b_shifts[j] + plane;
                        let unit = a.lines[i].unit() + b.lines[j].unit();
                        sums[i][j].add(integer(products[i][j]), shift, unit);
                    }
                }
                if MAGNITUDES {
                    let products = self::products(x, y, f64::abs);
                    for i in 0..ROWS {
                        for j in 0..COLS {
                            let shift = a_shifts[i] + b_shifts[j] + plane;
                            magnitudes[i][j] += products[i][j] * power(shift as i32);
                        }
                    }
                }
            }
        }
    }
    (sums, magnitudes)
}

/// The most additions that form a magnitude of [`sums`].
pub(super) const fn additions(blocks: usize) -> usize {
    4 * blocks
}

/// The sums of one block, exact in f64 (see [`PLANE`]).
#[inline(always)]
fn products(a: &Block<ROWS>, b: &Block<COLS>, of: impl Fn(f64) -> f64) -> Tile<f64> {
    let mut sums = [[0.0; COLS]; ROWS];
    for k in 0..BLOCK {
        for i in 0..ROWS {
            for j in 0..COLS {
                sums[i][j] += of(a[k][i]) * of(b[k][j]);
            }
        }
    }
    sums
}
