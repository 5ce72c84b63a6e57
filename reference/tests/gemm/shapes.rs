//! Tensors that do not fit each other are refused, and why is in the error.

use mx_reference::ShapeError;
use mx_reference::format::{BF16, E4M3, E8M0, UE4M3};
use mx_reference::gemm::{Gemm, GemmShape, GroupAxis, GroupedGemm, group_ranges};
use rstest::rstest;

use crate::side::Side;

/// A 2 × 64 and B 3 × 64 under blocks of 32.
const SHAPE: GemmShape = GemmShape { m: 2, n: 3, k: 64 };

fn side(elements: usize, scales: usize, block: usize) -> Side {
    Side::new(&E4M3, &vec![0x38; elements]).scaled(&E8M0, &vec![0x7f; scales], block)
}

const fn length(what: &'static str, expected: usize, got: usize) -> ShapeError {
    ShapeError::Length { what, expected, got }
}

#[rstest]
#[case::a_is_short(SHAPE, (127, 4, 32), (192, 6, 32), None, length("a_elements", 128, 127))]
#[case::a_is_long(SHAPE, (129, 4, 32), (192, 6, 32), None, length("a_elements", 128, 129))]
#[case::b_has_the_rows_of_a(SHAPE, (128, 4, 32), (128, 4, 32), None, length("b_elements", 192, 128))]
#[case::a_has_too_few_scales(SHAPE, (128, 3, 32), (192, 6, 32), None, length("a_scales", 4, 3))]
#[case::b_has_too_many_scales(SHAPE, (128, 4, 32), (192, 7, 32), None, length("b_scales", 6, 7))]
#[case::b_has_the_scales_of_other_blocks(SHAPE, (128, 4, 32), (192, 6, 16), None, length("b_scales", 12, 6))]
#[case::c_is_transposed_away(SHAPE, (128, 4, 32), (192, 6, 32), Some(9), length("c", 6, 9))]
#[case::c_is_empty(SHAPE, (128, 4, 32), (192, 6, 32), Some(0), length("c", 6, 0))]
#[case::k_is_no_multiple_of_the_block(GemmShape { k: 48, ..SHAPE }, (96, 2, 32), (144, 3, 32), None,
    ShapeError::PartialBlock { axis: "row", length: 48, block: 32 })]
#[case::nor_of_the_block_of_b(SHAPE, (128, 4, 32), (192, 3, 48), None,
    ShapeError::PartialBlock { axis: "row", length: 64, block: 48 })]
#[case::blocks_of_nothing(SHAPE, (128, 4, 0), (192, 6, 32), None, ShapeError::BlockSize(0))]
#[case::more_elements_than_can_be(GemmShape { m: 1 << 62, k: 1 << 62, n: 3 }, (128, 4, 32), (192, 6, 32), None,
    length("a_elements", usize::MAX, 128))]
fn what_does_not_fit_is_refused(
    #[case] shape: GemmShape,
    #[case] a: (usize, usize, usize),
    #[case] b: (usize, usize, usize),
    #[case] c: Option<usize>,
    #[case] expected: ShapeError,
) {
    let (a, b) = (side(a.0, a.1, a.2), side(b.0, b.1, b.2));
    let c = c.map(|count| vec![0; count]);
    let refused = Gemm::new(shape, a.operand(), b.operand(), c.as_deref(), None);
    assert_eq!(refused.unwrap_err(), expected);
}

#[test]
fn what_fits_is_taken() {
    let (a, b, c) = (side(128, 4, 32), side(192, 6, 32), [0; 6]);
    let gemm = Gemm::new(SHAPE, a.operand(), b.operand(), Some(&c), Some([1, 2])).unwrap();
    assert_eq!((gemm.shape(), gemm.c(), gemm.tensor_scales()), (SHAPE, Some(&c[..]), Some([1, 2])));
    // One side by blocks of 16, the other without scales, or in halves.
    let narrow = Side::new(&E4M3, &[0; 192]).scaled(&UE4M3, &[0x38; 12], 16);
    assert!(Gemm::new(SHAPE, a.operand(), narrow.operand(), None, None).is_ok());
    let halves = Side::halves(&BF16, &[0; 192]);
    assert!(Gemm::new(SHAPE, a.operand(), halves.operand(), None, None).is_ok());
    for empty in [GemmShape { m: 0, ..SHAPE }, GemmShape { n: 0, ..SHAPE }] {
        let (a, b) = (side(64 * empty.m, 2 * empty.m, 32), side(64 * empty.n, 2 * empty.n, 32));
        let gemm = Gemm::new(empty, a.operand(), b.operand(), Some(&[]), None).unwrap();
        assert!(gemm.exact(&BF16).is_empty());
    }
}

const fn offsets(index: usize, previous: i64, got: i64, end: usize) -> ShapeError {
    ShapeError::Offsets { index, previous, got, end }
}

#[rstest]
#[case::one_decreases(&[32, 96, 64], 128, 32, offsets(2, 96, 64, 128))]
#[case::one_overruns(&[64, 160], 128, 32, offsets(1, 64, 160, 128))]
#[case::one_is_negative(&[-32], 128, 32, offsets(0, 0, -32, 128))]
#[case::one_overruns_nothing(&[0, 1], 0, 1, offsets(1, 0, 1, 0))]
#[case::the_last_of_i32(&[i32::MAX], 128, 32, offsets(0, 0, 0x7fffffff, 128))]
#[case::one_is_within_a_block(&[32, 48], 128, 32, ShapeError::GroupStart { index: 1, got: 48, multiple: 32 })]
#[case::the_length_is_within_a_block(&[100], 100, 32, ShapeError::GroupStart { index: 0, got: 100, multiple: 32 })]
fn offsets_that_do_not_cut_are_refused(
    #[case] ends: &[i32],
    #[case] length: usize,
    #[case] multiple: usize,
    #[case] expected: ShapeError,
) {
    assert_eq!(group_ranges(ends, length, multiple).unwrap_err(), expected);
}

#[test]
fn offsets_cut_an_axis() {
    assert_eq!(group_ranges(&[], 128, 32).unwrap(), []);
    assert_eq!(group_ranges(&[0, 32, 32, 96], 128, 32).unwrap(), [0..0, 0..32, 32..32, 32..96]);
    assert_eq!(group_ranges(&[1, 3], 3, 0).unwrap(), [0..1, 1..3]);
}

#[rstest]
#[case::along_m_rows_may_end_anywhere(GroupAxis::M, &[1, 2], (128, 4, 32), (384, 12, 32), None)]
#[case::along_m_every_group_has_a_b(GroupAxis::M, &[1, 2], (128, 4, 32), (192, 6, 32), Some(length("b_elements", 384, 192)))]
#[case::along_m_rows_overrun(GroupAxis::M, &[1, 3], (128, 4, 32), (384, 12, 32), Some(offsets(1, 1, 3, 2)))]
#[case::along_m_rows_decrease(GroupAxis::M, &[2, 1], (128, 4, 32), (384, 12, 32), Some(offsets(1, 2, 1, 2)))]
#[case::along_k_at_blocks(GroupAxis::K, &[32, 64], (128, 4, 32), (192, 6, 32), None)]
#[case::along_k_within_a_block(GroupAxis::K, &[16, 64], (128, 4, 32), (192, 6, 32),
    Some(ShapeError::GroupStart { index: 0, got: 16, multiple: 32 }))]
#[case::along_k_within_a_block_of_b_alone(GroupAxis::K, &[16, 64], (128, 8, 16), (192, 6, 32),
    Some(ShapeError::GroupStart { index: 0, got: 16, multiple: 32 }))]
#[case::along_k_within_a_block_of_a_alone(GroupAxis::K, &[16, 64], (128, 4, 32), (192, 12, 16),
    Some(ShapeError::GroupStart { index: 0, got: 16, multiple: 32 }))]
#[case::along_k_overrun(GroupAxis::K, &[96], (128, 4, 32), (192, 6, 32), Some(offsets(0, 0, 96, 64)))]
#[case::along_k_scales_are_those_of_the_whole(GroupAxis::K, &[32], (128, 2, 32), (192, 6, 32), Some(length("a_scales", 4, 2)))]
fn groups_fit_or_are_refused(
    #[case] axis: GroupAxis,
    #[case] ends: &[i32],
    #[case] a: (usize, usize, usize),
    #[case] b: (usize, usize, usize),
    #[case] expected: Option<ShapeError>,
) {
    let (a, b) = (side(a.0, a.1, a.2), side(b.0, b.1, b.2));
    let grouped = GroupedGemm::new(SHAPE, axis, ends, a.operand(), b.operand());
    assert_eq!(grouped.err(), expected);
}

/// 48 ends a block of A but not one of B, whose next end is 64; 96 ends both.
#[test]
fn groups_along_k_end_at_blocks_of_both_operands() {
    let shape = GemmShape { m: 1, n: 1, k: 96 };
    let (a, b) = (side(96, 2, 48), side(96, 3, 32));
    let new = |ends: &[i32]| GroupedGemm::new(shape, GroupAxis::K, ends, a.operand(), b.operand());
    assert!(matches!(new(&[48]), Err(ShapeError::GroupStart { index: 0, got: 48, .. })));
    assert!(new(&[96]).is_ok());
}

#[test]
fn errors_say_what_was_expected_and_what_came() {
    assert_eq!(length("c", 6, 9).to_string(), "c: expected 6 values for this shape, got 9");
}
