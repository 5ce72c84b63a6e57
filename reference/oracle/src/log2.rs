//! Where the f32 logarithm of a value just above a power of two is that power's exponent.

use std::cmp::Ordering;

use crate::{Exact, Float};

/// Whether `log2 (2^k × (1 + j / 2^23))`, correctly rounded to f32, is k itself; `0 <= j < 2^23`.
///
/// It is if and only if the logarithm lies below halfway from k to the next f32, at k + 2^-n: `(1 + j / 2^23)^(2^n) < 2`.
/// There are no ties, since the logarithm is irrational for j > 0.
///
/// # Panics
/// If |k| is not below 2^23, or j not below 2^23.
pub fn log2_rounds_to_floor(k: i32, j: u32) -> bool {
    assert!(j < 1 << 23 && k.unsigned_abs() < 1 << 23);
    j == 0 || root_is_below(j, half_gap(k))
}

/// The n for which 2^-n is half the distance from k to the next f32 above.
fn half_gap(k: i32) -> u32 {
    let size = Exact::new(k.unsigned_abs().into(), 0);
    let pattern = Float::F32.nearest(|v| v.cmp(&size));
    let gap = if k < 0 {
        size - Float::F32.magnitude(pattern - 1)
    } else {
        Float::F32.magnitude(pattern + 1) - size
    };
    (0..=150)
        .find(|&n| Exact::power_of_two(1 - n as i32) == gap)
        .expect("distances of f32 are powers of two")
}

/// Whether `(1 + j / 2^23)^(2^n) < 2`, by n squarings of an interval around the power.
fn root_is_below(j: u32, n: u32) -> bool {
    const POINT: u32 = 63;
    const TWO: u128 = 2 << POINT;
    let start = (1 << POINT) + (u128::from(j) << (POINT - 23));
    let (mut low, mut high) = (start, start);
    for _ in 0..n {
        // Powers of 1 + j / 2^23 ascend.
        if low >= TWO {
            return false;
        }
        assert!(high < TWO, "interval too wide to decide");
        low = (low * low) >> POINT;
        high = (high * high).div_ceil(1 << POINT);
    }
    match (low.cmp(&TWO), high.cmp(&TWO)) {
        (_, Ordering::Less) => true,
        (Ordering::Greater, _) => false,
        _ => panic!("interval too wide to decide"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(k: i32) -> u32 {
        (1..1 << 23).take_while(|&j| log2_rounds_to_floor(k, j)).count() as u32
    }

    /// The distance to the next f32 halves below a power of two, so that −64 behaves like 63.
    #[test]
    fn units_lost() {
        let rows = [
            (0, 0),
            (1, 0),
            (2, 0),
            (3, 0),
            (-4, 0),
            (4, 1),
            (7, 1),
            (-7, 1),
            (-8, 1),
            (8, 2),
            (-16, 2),
            (16, 5),
            (31, 5),
            (-32, 5),
            (32, 11),
            (63, 11),
            (-64, 11),
            (64, 22),
            (-65, 22),
            (100, 22),
            (-100, 22),
            (127, 22),
            (-127, 22),
        ];
        for (k, units) in rows {
            assert_eq!(lost(k), units, "{k}");
        }
    }

    /// `2^(s − 1) ln 2` bounds j, with s the exponent of the binade above k.
    #[test]
    fn every_exponent_agrees_with_the_series() {
        for k in (-150i32..=128).filter(|&k| k != 0) {
            let size = k.unsigned_abs();
            let binade =
                if k > 0 { size.ilog2() as i32 } else { (2 * size - 1).ilog2() as i32 - 1 };
            let bound = f64::from(1u32 << (binade + 1)) / 4.0 * std::f64::consts::LN_2;
            // The second-order term is below 2^-15 here, and no bound is that close to an integer.
            assert_eq!(lost(k), bound as u32, "{k}");
        }
    }

    #[test]
    fn far_above_the_power_is_never_lost() {
        for k in [-127, -64, 0, 64, 127] {
            assert!(!log2_rounds_to_floor(k, (1 << 23) - 1));
            assert!(!log2_rounds_to_floor(k, 1 << 22));
        }
    }
}
