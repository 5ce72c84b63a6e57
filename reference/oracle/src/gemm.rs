//! Matrix products, exact until they are rounded once.

use crate::operand::Line;
use crate::{Big, Extended, Float, GemmOperand};

/// The shape of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of A and of the result.
    pub m: usize,
    /// Rows of B, columns of the result.
    pub n: usize,
    /// Columns of A and of B.
    pub k: usize,
}

/// One dot product. Both are zero where there is nothing to add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dot {
    /// The sum of the products.
    pub sum: Big,
    /// The sum of their absolute values.
    pub magnitude: Big,
}

/// The product of two f32 patterns.
fn tensor_factor(tensor_scales: [u32; 2]) -> Extended {
    let [a, b] = tensor_scales.map(|bits| Extended::from(Float::F32.value(bits)));
    a.times(&b)
}

/// `D = A·Bᵀ + c` of A, m × k, and B, n × k, both with blocks along k; the bits of D, m × n, row major. `c` is m × n
/// patterns of f32, `tensor_scales` one of A and one of B. All of (scale of A × scale of B) × sum + c is exact, and rounded
/// once.
///
/// - An operand's value is element × block scale: E8M0 is 2^(byte − 127) throughout, 0 included, and 0xFF is NaN; UE4M3
///   leaves bit 7 aside, and 0x7F is NaN.
/// - A NaN element, scale (even of zeros), c or tensor scale gives NaN: the output's quiet NaN.
/// - So do 0 × infinity, between element and scale, element and element, tensor scale and tensor scale, or tensor scales
///   and sum; and infinities of both signs in the sum, or of one in the sum and the other in c.
/// - Infinities of one sign give that infinity.
/// - The rest is rounded to nearest, ties to even, with subnormals; infinity from half a step beyond the largest value.
/// - A total of exactly zero gives +0, whatever its terms; one below zero that rounds to zero gives −0.
/// - k = 0 gives a sum of zero.
///
/// # Panics
/// If a slice does not have the length that the shape asks for, a format is not of its kind ([`GemmElements`],
/// [`GemmScales`]), floats have scales, or blocks are empty.
///
/// [`GemmElements`]: crate::GemmElements
/// [`GemmScales`]: crate::GemmScales
pub fn gemm(
    shape: GemmShape,
    a: &GemmOperand,
    b: &GemmOperand,
    c: Option<&[u32]>,
    tensor_scales: Option<[u32; 2]>,
    output: Float,
) -> Vec<u32> {
    let GemmShape { m, n, k } = shape;
    a.check(m, k);
    b.check(n, k);
    if let Some(c) = c {
        assert_eq!(c.len(), m * n, "c of {m} rows of {n}");
    }
    let factor = tensor_scales.map(tensor_factor);
    let columns: Vec<Line> = (0..n).map(|col| b.line(col, k)).collect();
    let mut result = Vec::with_capacity(m * n);
    for row in 0..m {
        let line = a.line(row, k);
        for column in &columns {
            let mut total = line.dot(column);
            if let Some(factor) = &factor {
                total = total.times(factor);
            }
            if let Some(c) = c {
                total = total.plus(&Float::F32.value(c[result.len()]).into());
            }
            result.push(total.nearest(output));
        }
    }
    result
}

/// What [`gemm`] adds up for one output, times the tensor scales and without c; `None` where that is not finite.
///
/// # Panics
/// As [`gemm`], or if row or column lie outside the result.
pub fn dot(
    shape: GemmShape,
    a: &GemmOperand,
    b: &GemmOperand,
    tensor_scales: Option<[u32; 2]>,
    row: usize,
    col: usize,
) -> Option<Dot> {
    let GemmShape { m, n, k } = shape;
    assert!(row < m && col < n, "({row}, {col}) of {m} × {n}");
    a.check(m, k);
    b.check(n, k);
    let (a, b) = (a.line(row, k), b.line(col, k));
    let factor = tensor_scales.map(tensor_factor);
    let finite = |sum: Extended| match factor.iter().fold(sum, |sum, factor| sum.times(factor)) {
        Extended::Finite(sum) => Some(sum),
        _ => None,
    };
    let sum = finite(a.dot(&b))?;
    let magnitude = finite(a.abs().dot(&b.abs()))?.abs();
    Some(Dot { sum, magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, GemmElements, GemmScales};
    use Format::{E2m1, E2m3, E3m2, E4m3, E5m2, E8m0, Int8, Ue4m3};

    const NAN: u32 = 0x7fc00000;
    const PLUS: u32 = 0x7f800000;
    const MINUS: u32 = 0xff800000;
    const ONE: u32 = 0x3f800000;
    /// 2^127.
    const HUGE: u32 = 0x7f000000;

    fn plain(format: Format, codes: &[u8]) -> GemmOperand<'_> {
        GemmOperand { elements: GemmElements::Codes(format, codes), scales: None }
    }

    fn scaled<'a>(
        element: Format,
        codes: &'a [u8],
        format: Format,
        bytes: &'a [u8],
        block: usize,
    ) -> GemmOperand<'a> {
        let scales = Some(GemmScales { format, bytes, block });
        GemmOperand { elements: GemmElements::Codes(element, codes), scales }
    }

    fn floats(float: Float, patterns: &[u16]) -> GemmOperand<'_> {
        GemmOperand { elements: GemmElements::Floats(float, patterns), scales: None }
    }

    fn one_output(operand: &GemmOperand) -> GemmShape {
        let k = match operand.elements {
            GemmElements::Codes(_, codes) => codes.len(),
            GemmElements::Floats(_, patterns) => patterns.len(),
        };
        GemmShape { m: 1, n: 1, k }
    }

    fn single(
        a: &GemmOperand,
        b: &GemmOperand,
        c: Option<u32>,
        tensor_scales: Option<[u32; 2]>,
    ) -> u32 {
        let c = c.map(|bits| [bits]);
        let c = c.as_ref().map(<[u32; 1]>::as_slice);
        gemm(one_output(a), a, b, c, tensor_scales, Float::F32)[0]
    }

    /// A sign and the exponent of a power of two.
    type Term = (i32, i32);

    /// ±2^e for each term, as ±1 × 2^(e / 2) in A and 1 × 2^(e − e / 2) in B.
    struct Powers {
        a: Vec<u8>,
        b: Vec<u8>,
        scales: [Vec<u8>; 2],
    }

    impl Powers {
        fn new(terms: &[Term]) -> Self {
            let scale = |e: i32| u8::try_from(e + 127).unwrap();
            Self {
                a: terms.iter().map(|&(sign, _)| if sign < 0 { 0xb8 } else { 0x38 }).collect(),
                b: vec![0x38; terms.len()],
                scales: [
                    terms.iter().map(|&(_, e)| scale(e / 2)).collect(),
                    terms.iter().map(|&(_, e)| scale(e - e / 2)).collect(),
                ],
            }
        }

        fn operands(&self) -> [GemmOperand<'_>; 2] {
            let [a, b] = &self.scales;
            [scaled(E4m3, &self.a, E8m0, a, 1), scaled(E4m3, &self.b, E8m0, b, 1)]
        }

        fn sums(&self) -> [u32; 3] {
            let [a, b] = self.operands();
            Float::ALL.map(|output| gemm(one_output(&a), &a, &b, None, None, output)[0])
        }
    }

    /// 1.5 × 1.5 and 1.5 × −1.5 of every two kinds of operand: ±2.25.
    #[test]
    fn any_two_formats() {
        let codes = [
            (E4m3, [0x3c], [0xbc]),
            (E5m2, [0x3e], [0xbe]),
            (E3m2, [0x0e], [0x2e]),
            (E2m3, [0x0c], [0x2c]),
            (E2m1, [0x03], [0x0b]),
            (Int8, [0x60], [0xa0]),
        ];
        let patterns = [(Float::Bf16, [0x3fc0], [0xbfc0]), (Float::F16, [0x3e00], [0xbe00])];
        let mut operands: Vec<[GemmOperand; 2]> =
            codes.iter().map(|(format, x, y)| [plain(*format, x), plain(*format, y)]).collect();
        operands
            .extend(patterns.iter().map(|(float, x, y)| [floats(*float, x), floats(*float, y)]));
        for [x, minus_x] in &operands {
            for [y, minus_y] in &operands {
                let results = [(x, y), (minus_x, minus_y), (x, minus_y), (minus_x, y)]
                    .map(|(a, b)| single(a, b, None, None));
                assert_eq!(results, [2.25, 2.25, -2.25, -2.25].map(f32::to_bits), "{x:?} {y:?}");
            }
        }
    }

    /// The ends of E8M0 and of E4M3, and tensor scales that bring them back: 2^-9 × 2^-127 and 448 × 2^127, squared.
    #[test]
    fn widest_products() {
        let cases = [
            (0x01, 0x00, [HUGE, HUGE], 2f32.to_bits() - (19 << 23)),
            // 448² = 1.53125 × 2^17; times 2^254 and 2^-252.
            (0x7e, 0xfe, [0x00800000, 0x00800000], (1.53125f32 * 524288.0).to_bits()),
            (0x7e, 0xfe, [ONE, ONE], PLUS),
            (0x01, 0x00, [ONE, ONE], 0),
        ];
        for (code, byte, tensor_scales, expected) in cases {
            let (codes, bytes) = ([code], [byte]);
            let x = scaled(E4m3, &codes, E8m0, &bytes, 32);
            assert_eq!(single(&x, &x, None, Some(tensor_scales)), expected);
            let minus = [code + 0x80];
            let y = scaled(E4m3, &minus, E8m0, &bytes, 32);
            assert_eq!(single(&x, &y, None, Some(tensor_scales)), expected + 0x80000000);
        }
    }

    #[test]
    fn nothing_is_lost_beside_the_largest() {
        let powers = Powers::new(&[(1, 254), (1, -254), (-1, 254)]);
        let [a, b] = powers.operands();
        let shape = GemmShape { m: 1, n: 1, k: 3 };
        let found = dot(shape, &a, &b, None, 0, 0).unwrap();
        assert_eq!(found.sum, Big::new(1, -254));
        assert_eq!(found.magnitude, Big::new(1, 255) + &Big::new(1, -254));
        assert_eq!(single(&a, &b, None, Some([HUGE, HUGE])), ONE);
        assert_eq!(single(&a, &b, None, Some([HUGE, HUGE + 0x80000000])), ONE + 0x80000000);
        // 2^254 - 2^254 and the least f32.
        assert_eq!(single(&a, &b, Some(1), None), 1);
    }

    #[test]
    fn rounded_once() {
        let rows: [(&[Term], [u32; 3]); 19] = [
            // 1 and half a step of f32, bf16 and f16; then a little more, and a little less.
            (&[(1, 0), (1, -24)], [0x3f800000, 0x3f80, 0x3c00]),
            (&[(1, 0), (1, -24), (1, -254)], [0x3f800001, 0x3f80, 0x3c00]),
            (&[(1, 0), (1, -23), (1, -24)], [0x3f800002, 0x3f80, 0x3c00]),
            (&[(1, 0), (1, -23), (1, -24), (-1, -254)], [0x3f800001, 0x3f80, 0x3c00]),
            // Halfway in bf16 once f32 has rounded, but not before.
            (&[(1, 0), (1, -8), (1, -26)], [0x3f808000, 0x3f81, 0x3c04]),
            (&[(1, 0), (1, -8)], [0x3f808000, 0x3f80, 0x3c04]),
            (&[(1, 0), (1, -11), (1, -60)], [0x3f801000, 0x3f80, 0x3c01]),
            (&[(-1, 0), (-1, -11)], [0xbf801000, 0xbf80, 0xbc00]),
            // Half of the least value.
            (&[(1, -150)], [0x00000000, 0x0000, 0x0000]),
            (&[(-1, -150), (-1, -254)], [0x80000001, 0x8000, 0x8000]),
            (&[(1, -149), (1, -150)], [0x00000002, 0x0000, 0x0000]),
            (&[(1, -134), (1, -254)], [0x00008000, 0x0001, 0x0000]),
            (&[(-1, -25)], [0xb3000000, 0xb300, 0x8000]),
            (&[(1, -25), (1, -60)], [0x33000000, 0x3300, 0x0001]),
            // Half a step beyond the largest.
            (&[(1, 128), (-1, 103)], [0x7f800000, 0x7f80, 0x7c00]),
            (&[(1, 128), (-1, 103), (-1, -254)], [0x7f7fffff, 0x7f80, 0x7c00]),
            (&[(-1, 128), (1, 119), (1, 0)], [0xff7f8000, 0xff7f, 0xfc00]),
            (&[(1, 16), (-1, 4)], [0x477ff000, 0x4780, 0x7c00]),
            (&[(-1, 16), (1, 4), (1, -254)], [0xc77ff000, 0xc780, 0xfbff]),
        ];
        for (terms, expected) in rows {
            assert_eq!(Powers::new(terms).sums(), expected, "{terms:?}");
        }
    }

    #[test]
    fn zeros() {
        assert_eq!(Powers::new(&[(1, 9), (-1, 9)]).sums(), [0; 3]);
        assert_eq!(Powers::new(&[(-1, -254)]).sums(), [0x80000000, 0x8000, 0x8000]);
        let (zero, one, minus) = (plain(E4m3, &[0x80]), plain(E4m3, &[0x38]), plain(E4m3, &[0xb8]));
        assert_eq!(single(&zero, &one, None, None), 0);
        assert_eq!(single(&zero, &one, Some(0x80000000), Some([ONE, 0xbf800000])), 0);
        assert_eq!(single(&one, &one, Some(0x80000000), Some([ONE, 0x80000000])), 0);
        assert_eq!(single(&one, &minus, Some(ONE), None), 0);
        let empty = plain(E4m3, &[]);
        assert_eq!(single(&empty, &empty, None, None), 0);
        assert_eq!(single(&empty, &empty, Some(ONE), None), ONE);
        assert_eq!(single(&empty, &empty, Some(0x80000000), None), 0);
        assert_eq!(single(&empty, &empty, None, Some([PLUS, ONE])), NAN);
        let shape = GemmShape { m: 1, n: 1, k: 0 };
        let nothing = Dot { sum: Big::default(), magnitude: Big::default() };
        assert_eq!(dot(shape, &empty, &empty, None, 0, 0), Some(nothing));
    }

    /// Codes of E5M2: infinities, NaN, ±0, ±1.
    #[test]
    fn special_elements() {
        let rows: [(&[u8], &[u8], u32); 14] = [
            (&[0x7c, 0xbc], &[0x3c, 0x3c], PLUS),
            (&[0x7c, 0x3c], &[0xbc, 0x3c], MINUS),
            (&[0xbc, 0x3c], &[0x3c, 0xfc], MINUS),
            (&[0x7c, 0xfc], &[0x7c, 0xfc], PLUS),
            (&[0x7c, 0x3c], &[0x3c, 0x7c], PLUS),
            (&[0xfc, 0x3c], &[0x7b, 0xfc], MINUS),
            (&[0x7c, 0x7c], &[0x3c, 0xbc], NAN),
            (&[0x7c, 0x3c], &[0x3c, 0xfc], NAN),
            (&[0x7c, 0x3c], &[0x00, 0x3c], NAN),
            (&[0x3c, 0x80], &[0x3c, 0xfc], NAN),
            (&[0x7c, 0x7c], &[0x3c, 0x80], NAN),
            (&[0x3c, 0x7d], &[0x3c, 0x00], NAN),
            (&[0x00, 0x3c], &[0xff, 0x3c], NAN),
            (&[0x7c, 0x3c], &[0x3c, 0x7e], NAN),
        ];
        for (x, y, expected) in rows {
            let (a, b) = (plain(E5m2, x), plain(E5m2, y));
            for (a, b) in [(a, b), (b, a)] {
                assert_eq!(single(&a, &b, None, None), expected, "{x:x?} {y:x?}");
                assert_eq!(dot(one_output(&a), &a, &b, None, 0, 0), None);
            }
        }
        let infinite = floats(Float::F16, &[0xfc00]);
        assert_eq!(single(&infinite, &plain(E2m1, &[0x1]), None, None), MINUS);
        assert_eq!(single(&infinite, &plain(E2m1, &[0x8]), None, None), NAN);
        assert_eq!(single(&floats(Float::Bf16, &[0x7f80]), &infinite, None, None), MINUS);
        assert_eq!(single(&floats(Float::Bf16, &[0xff81]), &infinite, None, None), NAN);
        let output = |output| gemm(one_output(&infinite), &infinite, &infinite, None, None, output);
        assert_eq!(Float::ALL.map(|float| output(float)[0]), [PLUS, 0x7f80, 0x7c00]);
        let nan = plain(E4m3, &[0xff]);
        let output = |output| gemm(one_output(&nan), &nan, &infinite, None, None, output);
        assert_eq!(Float::ALL.map(|float| output(float)[0]), [NAN, 0x7fc0, 0x7e00]);
    }

    #[test]
    fn special_scales() {
        let one = plain(E5m2, &[0x3c]);
        let rows = [
            // Zeros under NaN, and ones.
            (0x00, E8m0, 0xff, NAN),
            (0x00, Ue4m3, 0x7f, NAN),
            (0x3c, Ue4m3, 0xff, NAN),
            // Bit 7 of UE4M3.
            (0x3c, Ue4m3, 0xb8, ONE),
            (0xbc, Ue4m3, 0x80, 0),
            // Infinity under zero, under the least and under the largest.
            (0x7c, Ue4m3, 0x00, NAN),
            (0x7c, Ue4m3, 0x80, NAN),
            (0xfc, Ue4m3, 0x01, MINUS),
            (0x7c, E8m0, 0x00, PLUS),
            (0xfc, E8m0, 0xfe, MINUS),
            (0x3c, E8m0, 0x00, 0x00400000),
            (0x3c, E8m0, 0xfe, HUGE),
        ];
        for (code, format, byte, expected) in rows {
            let (codes, bytes) = ([code], [byte]);
            let x = scaled(E5m2, &codes, format, &bytes, 16);
            assert_eq!(single(&x, &one, None, None), expected, "{code:#x} {format:?} {byte:#x}");
            assert_eq!(single(&one, &x, None, None), expected, "{code:#x} {format:?} {byte:#x}");
        }
        // An infinity in the block whose scale is zero, or in the other operand there.
        let (x, y) = ([0x3c, 0x7c], [0x3c, 0x3c]);
        let zeroed = |codes| scaled(E5m2, codes, Ue4m3, &[0x38, 0x00], 1);
        assert_eq!(single(&zeroed(&x), &plain(E5m2, &y), None, None), NAN);
        assert_eq!(single(&zeroed(&y), &plain(E5m2, &x), None, None), NAN);
        assert_eq!(single(&zeroed(&y), &plain(E5m2, &y), None, None), ONE);
    }

    #[test]
    fn special_tensor_scales_and_c() {
        let (zero, one, minus) = (plain(E5m2, &[0x00]), plain(E5m2, &[0x3c]), plain(E5m2, &[0xbc]));
        let infinite = plain(E5m2, &[0x7c]);
        let minus_one = ONE + 0x80000000;
        let rows = [
            (&one, None, Some([NAN, ONE]), NAN),
            (&zero, None, Some([ONE, 0xff800001]), NAN),
            (&one, Some(0x7f800001), None, NAN),
            (&infinite, Some(0xffffffff), None, NAN),
            (&one, None, Some([0, PLUS]), NAN),
            (&zero, None, Some([ONE, MINUS]), NAN),
            (&infinite, None, Some([0, ONE]), NAN),
            (&one, None, Some([ONE, MINUS]), MINUS),
            (&minus, None, Some([PLUS, MINUS]), PLUS),
            (&infinite, None, Some([minus_one, ONE]), MINUS),
            (&infinite, None, Some([PLUS, minus_one]), MINUS),
            (&one, Some(MINUS), Some([PLUS, ONE]), NAN),
            (&infinite, Some(MINUS), None, NAN),
            (&infinite, Some(PLUS), None, PLUS),
            (&infinite, Some(minus_one), None, PLUS),
            (&one, Some(MINUS), None, MINUS),
            // Beyond every f32, but finite.
            (&minus, Some(PLUS), Some([HUGE, HUGE]), PLUS),
            (&one, Some(0xff7fffff), Some([HUGE, 0x40800000]), 0x7f800000),
            (&one, Some(0xff7fffff), Some([HUGE, 0x40000000]), 0x73800000),
        ];
        for (a, c, tensor_scales, expected) in rows {
            let found = single(a, &one, c, tensor_scales);
            assert_eq!(found, expected, "{a:?} {c:x?} {tensor_scales:x?}");
        }
        let of = |tensor_scales| dot(one_output(&one), &one, &one, Some(tensor_scales), 0, 0);
        assert_eq!(of([PLUS, ONE]), None);
        assert_eq!(of([ONE, NAN]), None);
        let (sum, magnitude) = (Big::new(-1, 127), Big::new(1, 127));
        assert_eq!(of([HUGE, minus_one]), Some(Dot { sum, magnitude }));
    }

    /// 16 × 6 × 0.5 × 448 / 512 = 42 and 16 × 1 × −1.5 × 1.5 × 1.125 = −40.5; 1.5 × 0.5 × 3 − 0.25 = 2.
    #[test]
    fn nvfp4() {
        let x = [[0x7; 16], [0x2; 16]].concat();
        let y = [[0x1; 16], [0xb; 16]].concat();
        let a = scaled(E2m1, &x, Ue4m3, &[0x7e, 0x3c], 16);
        let b = scaled(E2m1, &y, Ue4m3, &[0x81, 0x39], 16);
        let tensor_scales = Some([0.5f32, 3.0].map(f32::to_bits));
        let c = Some((-0.25f32).to_bits());
        assert_eq!(single(&a, &b, None, None), 1.5f32.to_bits());
        assert_eq!(single(&a, &b, c, tensor_scales), 2f32.to_bits());
        let found = dot(GemmShape { m: 1, n: 1, k: 32 }, &a, &b, tensor_scales, 0, 0).unwrap();
        assert_eq!(found.sum, Big::new(9, -2));
        assert_eq!(found.magnitude, Big::new(495, -2));
    }

    /// bf16's largest value is 255 × 2^120 and its least 2^-133; f16's are 2047 × 2^5 and 2^-24.
    #[test]
    fn floats_of_any_size() {
        let rows: [(Float, [u16; 3], Big, Big); 2] = [
            (Float::Bf16, [0x7f7f, 0xff7f, 0x0001], Big::new(255 * 255, 240), Big::new(1, -266)),
            (Float::F16, [0x7bff, 0xfbff, 0x0001], Big::new(2047 * 2047, 10), Big::new(1, -48)),
        ];
        for (float, [large, minus, least], square, smallest) in rows {
            let (x, y) = ([large, least, large], [large, least, minus]);
            let (a, b) = (floats(float, &x), floats(float, &y));
            let found = dot(one_output(&a), &a, &b, None, 0, 0).unwrap();
            assert_eq!(found.sum, smallest);
            assert_eq!(found.magnitude, square.clone() + &square + &smallest);
        }
        let (a, b) = (floats(Float::Bf16, &[0x7f7f; 2]), floats(Float::F16, &[0x0001, 0x8003]));
        let found = dot(one_output(&a), &a, &b, None, 0, 0).unwrap();
        assert_eq!(found.sum, Big::new(-510, 96));
        assert_eq!(single(&a, &b, None, None), 0xf3ff0000);
        // Products in f32 would be 0: 3 × 2^-266 times 2^127 × 2^116 is 3 × 2^-23.
        let (a, b) = (floats(Float::Bf16, &[0x0001]), floats(Float::Bf16, &[0x0003]));
        assert_eq!(
            single(&a, &b, None, Some([HUGE, HUGE - (11 << 23)])),
            3f32.to_bits() - (23 << 23)
        );
        // 2^-9 × 2^-127 × 2^-133, in a format of its own for each side.
        let tiny = scaled(E4m3, &[0x01], E8m0, &[0x00], 32);
        let found = dot(one_output(&a), &a, &tiny, None, 0, 0).unwrap();
        assert_eq!(found.sum, Big::new(1, -269));
    }

    /// 16 × 1 × 1, 16 × 1 × 2 and 8 × 2 × 4.
    #[test]
    fn blocks_of_different_sizes() {
        let ones = [0x38; 40];
        let a = scaled(E4m3, &ones, E8m0, &[127, 128], 32);
        let b = scaled(E4m3, &ones, E8m0, &[127, 128, 129], 16);
        assert_eq!(single(&a, &b, None, None), 112f32.to_bits());
        assert_eq!(single(&b, &a, None, None), 112f32.to_bits());
    }

    #[test]
    fn long_rows() {
        let k = (1 << 16) + 5;
        let largest = vec![0x7b; k];
        let a = plain(E5m2, &largest);
        let found = dot(one_output(&a), &a, &a, None, 0, 0).unwrap();
        assert_eq!(found.sum, Big::new(65541 * 57344 * 57344, 0));
        let f16 = vec![0x7bff; k];
        let a = floats(Float::F16, &f16);
        let found = dot(one_output(&a), &a, &a, None, 0, 0).unwrap();
        assert_eq!(found.sum, Big::new(65541 * 65504 * 65504, 0));
    }

    /// A xorshift generator, a byte at a time.
    fn bytes(count: usize) -> Vec<u8> {
        let mut state = 0x2545f491_u32;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 11) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    /// Products of E4M3 are multiples of 2^-18, so that f64 holds these sums, and its conversion rounds once.
    #[test]
    fn matrices_as_f64_has_them() {
        let GemmShape { m, n, k } = GemmShape { m: 3, n: 5, k: 70 };
        let random = bytes((m + n) * k);
        let codes: Vec<u8> = random.iter().map(|code| code & 0xf7).collect();
        let (x, y) = codes.split_at(m * k);
        let scales: Vec<u8> = bytes((m + n) * 3).iter().map(|byte| 126 + byte % 4).collect();
        let (sx, sy) = scales.split_at(m * 3);
        let c: Vec<u32> = (0..m * n).map(|i| (i as f32 * 0.75 - 4.0).to_bits()).collect();
        let decoded = |code: u8| {
            let (e, fraction) = (u64::from(code >> 3 & 15), f64::from(code & 7) / 8.0);
            let power = f64::from_bits((e.max(1) + 1016) << 52);
            let size = power * if e == 0 { fraction } else { 1.0 + fraction };
            if code < 0x80 { size } else { -size }
        };
        let factor = |byte: u8| [0.5, 1.0, 2.0, 4.0][usize::from(byte - 126)];
        let value = |codes: &[u8], scales: &[u8], row: usize, i: usize| {
            decoded(codes[row * k + i]) * factor(scales[row * 3 + i / 32])
        };
        let (a, b) = (scaled(E4m3, x, E8m0, sx, 32), scaled(E4m3, y, E8m0, sy, 32));
        let shape = GemmShape { m, n, k };
        let found = gemm(shape, &a, &b, Some(&c), Some([4f32, -0.5].map(f32::to_bits)), Float::F32);
        for (at, bits) in found.into_iter().enumerate() {
            let (row, col) = (at / n, at % n);
            let products = (0..k).map(|i| value(x, sx, row, i) * value(y, sy, col, i));
            let sum: f64 = products.sum();
            let total = sum * -2.0 + f64::from(f32::from_bits(c[at]));
            assert_eq!(bits, (total as f32).to_bits(), "{row} {col}");
        }
    }

    /// Scales over the whole of E8M0, so that order would count in any float.
    #[test]
    fn order_of_k_does_not_count() {
        let (k, blocks) = (256, 8);
        let codes: Vec<u8> = bytes(2 * k).iter().map(|code| code & 0xf7).collect();
        let scales: Vec<u8> = bytes(2 * blocks).iter().map(|&byte| byte.min(254)).collect();
        // Blocks in reverse, and in them elements from the 13th on in steps of 5.
        let permuted_codes = |codes: &[u8]| -> Vec<u8> {
            (0..k).map(|i| codes[(7 - i / 32) * 32 + (13 + i * 5) % 32]).collect()
        };
        let permuted_scales = |scales: &[u8]| -> Vec<u8> { scales.iter().rev().copied().collect() };
        let ((x, y), (sx, sy)) = (codes.split_at(k), scales.split_at(blocks));
        let (px, py) = (permuted_codes(x), permuted_codes(y));
        let (psx, psy) = (permuted_scales(sx), permuted_scales(sy));
        let shape = GemmShape { m: 1, n: 1, k };
        let found =
            dot(shape, &scaled(E4m3, x, E8m0, sx, 32), &scaled(E4m3, y, E8m0, sy, 32), None, 0, 0);
        let permuted = dot(
            shape,
            &scaled(E4m3, &px, E8m0, &psx, 32),
            &scaled(E4m3, &py, E8m0, &psy, 32),
            None,
            0,
            0,
        );
        assert!(found.is_some());
        assert_eq!(found, permuted);
    }

    #[test]
    #[should_panic(expected = "elements of 2 rows of 3")]
    fn elements_must_fit() {
        let a = plain(E4m3, &[0; 5]);
        gemm(GemmShape { m: 2, n: 1, k: 3 }, &a, &a, None, None, Float::F32);
    }

    #[test]
    #[should_panic(expected = "scales of 1 rows of 33")]
    fn scales_must_fit() {
        let a = scaled(E4m3, &[0; 33], E8m0, &[127], 32);
        single(&a, &a, None, None);
    }
}
