//! Whole tensors: random bits in random shapes and strides, by every profile, against the reference.

use half::{bf16, f16};
use mx_native::{quantize, quantize_into, quantize_row};
use mx_reference::{
    Axis, BlockShape, Blocking, Convention, Element, Input, MatrixView, Profile, ScaleMode,
    ShapeError, convention,
};
use proptest::prelude::*;
use proptest::sample::select;
use rayon::ThreadPoolBuilder;

fn profiles() -> impl Strategy<Value = Profile> {
    let conventions = select(Convention::ALL.to_vec());
    (select(Element::ALL.to_vec()), select(ScaleMode::ALL.to_vec()), conventions)
        .prop_map(|(element, mode, convention)| Profile { element, mode, convention })
}

fn blockings() -> impl Strategy<Value = Blocking> {
    let lines = [8, 16, 32, 64, 128].map(|size| BlockShape::line(size).expect("a size"));
    let shapes = lines.into_iter().chain([BlockShape::TILE, BlockShape::TILE]).collect::<Vec<_>>();
    let axes = select(vec![Axis::Row, Axis::Col]);
    (axes, select(shapes)).prop_map(|(axis, shape)| Blocking { axis, shape, pad: true })
}

/// What a tensor's bits are drawn from: each shows a part of the domain that uniform bits hardly touch.
#[derive(Clone, Copy, Debug)]
enum Draw {
    Uniform,
    /// Exponents within a few binades of this one, and nothing special.
    Around(u32),
    /// The same, with a NaN, infinity or zero now and then.
    Specials(u32),
    Zeros,
}

fn draws() -> impl Strategy<Value = Draw> {
    prop_oneof![
        Just(Draw::Uniform),
        (0..255u32).prop_map(Draw::Around),
        prop_oneof![0..24u32, 230..255u32].prop_map(Draw::Around),
        (0..255u32).prop_map(Draw::Specials),
        Just(Draw::Zeros),
    ]
}

/// f32 bits from a hash; narrower types take the upper bits, which keeps the drawing's character.
fn draw(draw: Draw, hash: u64) -> u32 {
    let bits = (hash >> 32) as u32;
    let around = |field: u32| {
        let field = (field + (hash as u32 & 7)).clamp(4, 258) - 4;
        bits & 0x807f_ffff | field << 23
    };
    match draw {
        Draw::Uniform => bits,
        Draw::Zeros => bits & 0x8000_0000,
        Draw::Around(field) => around(field) & !(u32::from(field == 255) << 30),
        Draw::Specials(field) => match hash >> 8 & 0xff {
            0 => bits | 0x7f80_0000,
            1 => bits & 0x8000_0000 | 0x7f80_0000,
            2..8 => bits & 0x8000_0000,
            _ => around(field),
        },
    }
}

fn hash(seed: u64, i: u64) -> u64 {
    let mut x = seed ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 27;
    }
    x
}

/// Rows, columns, offset and the two strides of a view, not necessarily with rows side by side.
fn views() -> impl Strategy<Value = (usize, usize, usize, usize, usize)> {
    (0..150usize, 0..150usize, 0..3usize, 1..3usize, 0..3usize, any::<bool>()).prop_map(
        |(rows, cols, offset, step, gap, transposed)| {
            if transposed {
                (rows, cols, offset, step, rows * step + gap)
            } else {
                (rows, cols, offset, cols * step + gap, step)
            }
        },
    )
}

fn check<T: Input + Sync>(
    data: &[T],
    (rows, cols, offset, row_stride, col_stride): (usize, usize, usize, usize, usize),
    profile: Profile,
    blocking: Blocking,
) -> Result<(), TestCaseError> {
    let view = MatrixView::new(data, offset, rows, cols, row_stride, col_stride)
        .expect("data holds the view");
    for pad in [true, false] {
        let blocking = Blocking { pad, ..blocking };
        let expected = mx_reference::quantize(view, profile, blocking);
        prop_assert_eq!(quantize(view, profile, blocking), expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn tensors(
        profile in profiles(),
        blocking in blockings(),
        view in views(),
        kind in draws(),
        seed: u64,
    ) {
        let (rows, cols, offset, row_stride, col_stride) = view;
        let length = offset + rows * row_stride + cols * col_stride + 1;
        let bits: Vec<u32> = (0..length as u64).map(|i| draw(kind, hash(seed, i))).collect();
        let f32s: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b)).collect();
        check(&f32s, view, profile, blocking)?;
        let bf16s: Vec<bf16> = bits.iter().map(|&b| bf16::from_bits((b >> 16) as u16)).collect();
        check(&bf16s, view, profile, blocking)?;
        let f16s: Vec<f16> = bits.iter().map(|&b| f16::from_bits((b >> 16) as u16)).collect();
        check(&f16s, view, profile, blocking)?;
    }

    #[test]
    fn rows(profile in profiles(), blocks in 0..20usize, size in 3..8u32, kind in draws(), seed: u64) {
        let size = 1 << size;
        let input: Vec<bf16> = (0..(blocks * size) as u64)
            .map(|i| bf16::from_bits((draw(kind, hash(seed, i)) >> 16) as u16))
            .collect();
        let (mut codes, mut scales) = (vec![0xee; input.len()], vec![0xee; blocks]);
        quantize_row(profile, size, &input, &mut codes, &mut scales).unwrap();
        let shape = BlockShape::line(size).unwrap();
        let view = MatrixView::contiguous(&input, 1, input.len()).unwrap();
        let blocking = Blocking { shape, ..Blocking::MX_ROW };
        let expected = mx_reference::quantize(view, profile, blocking).unwrap();
        prop_assert_eq!((codes, scales), (expected.elements, expected.scales));
    }
}

const RCEIL: Profile =
    Profile { element: Element::E4m3, mode: ScaleMode::Rceil, convention: &convention::PROPAGATE };

/// Large enough for several tasks of every kind.
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (rows, cols) = (600, 300);
    let data: Vec<f32> = (0..(rows * cols) as u64)
        .map(|i| f32::from_bits(draw(Draw::Specials(120), hash(7, i))))
        .collect();
    let long = MatrixView::contiguous(&data, 1, rows * cols).unwrap();
    let square = MatrixView::contiguous(&data, rows, cols).unwrap();
    let strided = MatrixView::new(&data, 0, 300, 299, 300, 2).unwrap();
    for view in [long, square, square.transposed(), strided] {
        for axis in [Axis::Row, Axis::Col] {
            for shape in [BlockShape::MX, BlockShape::line(128).unwrap(), BlockShape::TILE] {
                let blocking = Blocking { axis, shape, pad: true };
                let expected = mx_reference::quantize(view, RCEIL, blocking).unwrap();
                for threads in 1..=3 {
                    let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let got = pool.install(|| quantize(view, RCEIL, blocking)).unwrap();
                    assert!(got == expected, "{blocking:?} with {threads} threads");
                }
            }
        }
    }
}

#[test]
fn misfits_are_refused_and_nothing_is_written() {
    let data = [1f32; 64];
    let view = MatrixView::contiguous(&data, 2, 32).unwrap();
    let (mut elements, mut scales) = ([0xee; 64], [0xee; 2]);
    let into = |elements: &mut [u8], scales: &mut [u8]| {
        quantize_into(view, RCEIL, Blocking::MX_ROW, elements, scales)
    };
    let length = |what, expected, got| Err(ShapeError::Length { what, expected, got });
    assert_eq!(into(&mut elements[1..], &mut scales), length("elements", 64, 63));
    assert_eq!(into(&mut elements, &mut scales[1..]), length("scales", 2, 1));
    let row = |block, codes: &mut [u8], scales: &mut [u8]| {
        quantize_row(RCEIL, block, &data, codes, scales)
    };
    assert_eq!(row(24, &mut elements, &mut scales), Err(ShapeError::BlockSize(24)));
    assert_eq!(row(32, &mut elements[1..], &mut scales), length("elements", 64, 63));
    assert!(matches!(row(128, &mut elements, &mut scales), Err(ShapeError::PartialBlock { .. })));
    assert_eq!((elements, scales), ([0xee; 64], [0xee; 2]));
}
