//! Blocked scales, in the order in which they lie.

/// The row and column of each byte of the blocked layout: tiles of 128 × 4 in row-major order, in each of them 32 lines,
/// each of the four rows a multiple of 32 apart, each of four columns (cuBLAS, "1D block scaling factors layout").
fn positions(rows: usize, cols: usize) -> impl Iterator<Item = (usize, usize)> {
    let tiles = (0..rows.div_ceil(128))
        .flat_map(move |down| (0..cols.div_ceil(4)).map(move |across| (down, across)));
    tiles.flat_map(|(down, across)| {
        (0..32).flat_map(move |line| {
            (0..4).flat_map(move |quarter| {
                (0..4).map(move |c| (down * 128 + quarter * 32 + line, across * 4 + c))
            })
        })
    })
}

/// Brings row-major scales into the blocked layout, padding with zeros.
///
/// # Panics
/// If there are fewer than `rows` × `cols` scales.
pub fn arrange_blocked(rows: usize, cols: usize, plain: &[u8]) -> Vec<u8> {
    let byte = |(r, c)| if r < rows && c < cols { plain[r * cols + c] } else { 0 };
    positions(rows, cols).map(byte).collect()
}

/// Brings scales of the blocked layout back into row-major order.
pub fn restore_blocked(rows: usize, cols: usize, blocked: &[u8]) -> Vec<u8> {
    let mut plain = vec![0; rows * cols];
    for ((r, c), &byte) in positions(rows, cols).zip(blocked) {
        if r < rows && c < cols {
            plain[r * cols + c] = byte;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_the_published_formula() {
        for (rows, cols) in [(128, 4), (1, 1), (200, 9), (256, 8)] {
            let across = usize::div_ceil(cols, 4);
            for (offset, (r, c)) in positions(rows, cols).enumerate() {
                let tile = r / 128 * across + c / 4;
                assert_eq!(offset, tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4);
            }
        }
    }

    #[test]
    fn padding_is_zero_and_restoring_undoes() {
        let (rows, cols) = (130, 5);
        let plain: Vec<u8> = (0..rows * cols).map(|i| (i % 255) as u8 + 1).collect();
        let blocked = arrange_blocked(rows, cols, &plain);
        assert_eq!(blocked.len(), 2 * 2 * 512);
        let padding =
            positions(rows, cols).zip(&blocked).filter(|&((r, c), _)| r >= rows || c >= cols);
        assert!(padding.into_iter().all(|(_, &byte)| byte == 0));
        assert_eq!(restore_blocked(rows, cols, &blocked), plain);
        assert!(arrange_blocked(0, 7, &[]).is_empty());
    }
}
