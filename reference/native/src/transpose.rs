//! Transposing bytes, eight by eight in eight words.

/// Writes the transpose of `rows` × `cols` bytes: `out[c × out_stride + r] = tile[r × tile_stride + c]`. `rows` is a multiple
/// of 8, and `tile_stride` not less than the next such multiple of `cols`.
#[inline(always)]
pub(crate) fn transpose(
    tile: &[u8],
    tile_stride: usize,
    out: &mut [u8],
    out_stride: usize,
    (rows, cols): (usize, usize),
) {
    for c in (0..cols).step_by(8) {
        for r in (0..rows).step_by(8) {
            let mut words = [0; 8];
            for (i, word) in words.iter_mut().enumerate() {
                *word = tile[(r + i) * tile_stride + c..]
                    .first_chunk()
                    .map_or(0, |&b| u64::from_le_bytes(b));
            }
            for (i, word) in transposed(words).into_iter().enumerate().take(cols - c) {
                let start = (c + i) * out_stride + r;
                out[start..start + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// Transposes an 8 × 8 byte matrix, a row a word and the first column lowest, by exchanging its off-diagonal quarters, and then
/// those of each quarter (Hacker's Delight, 7-3).
#[inline(always)]
fn transposed(mut rows: [u64; 8]) -> [u64; 8] {
    for (distance, mask) in
        [(4, 0xffff_ffff), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)]
    {
        for i in 0..8 {
            if i & distance == 0 {
                let exchanged = (rows[i] >> (8 * distance) ^ rows[i + distance]) & mask;
                rows[i] ^= exchanged << (8 * distance);
                rows[i + distance] ^= exchanged;
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives() {
        let (rows, cols, tile_stride, out_stride) = (16, 21, 30, 17);
        let tile: Vec<u8> = (0..rows * tile_stride).map(|i| (i * 37 % 251) as u8).collect();
        let mut out = vec![0; cols * out_stride];
        transpose(&tile, tile_stride, &mut out, out_stride, (rows, cols));
        for r in 0..rows {
            for c in 0..cols {
                assert_eq!(out[c * out_stride + r], tile[r * tile_stride + c], "{r} {c}");
            }
        }
    }
}
