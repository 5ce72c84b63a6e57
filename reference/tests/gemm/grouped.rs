//! Grouped products are the products of their groups.

use mx_reference::format::{BF16, E2M1, E4M3, E5M2, E8M0, F32, INT8, UE4M3};
use mx_reference::gemm::{Gemm, GemmShape, GroupAxis, GroupedGemm};
use proptest::prelude::*;
use rstest::rstest;

use crate::noise::Noise;
use crate::side::Side;

/// Rows that are cut out of an operand element by element.
fn rows(noise: &mut Noise, kind: usize, rows: usize, k: usize) -> Side {
    let count = rows * k;
    let mut bytes = |format| noise.finite(format, count);
    match kind {
        0 => {
            let codes = bytes(&E4M3);
            let scales: Vec<u8> = (0..count / 32).map(|_| noise.below(255) as u8).collect();
            Side::new(&E4M3, &codes).scaled(&E8M0, &scales, 32)
        }
        1 => {
            let codes = bytes(&E2M1);
            let scales: Vec<u8> = (0..count / 16).map(|_| noise.below(126) as u8).collect();
            Side::new(&E2M1, &codes).scaled(&UE4M3, &scales, 16)
        }
        2 => {
            let halves: Vec<u16> = (0..count)
                .map(|_| 0x3e00 | noise.below(0x300) as u16 | (noise.below(2) as u16) << 15)
                .collect();
            Side::halves(&BF16, &halves)
        }
        3 => Side::new(&INT8, &bytes(&INT8)),
        _ => {
            let codes = bytes(&E5M2);
            let scales: Vec<u8> = (0..count / 64).map(|_| 100 + noise.below(50) as u8).collect();
            Side::new(&E5M2, &codes).scaled(&E8M0, &scales, 64)
        }
    }
}

/// Rows and columns of a side, one index at a time.
fn part(
    side: &Side,
    k: usize,
    rows: impl Iterator<Item = usize> + Clone,
    cols: core::ops::Range<usize>,
) -> Side {
    fn pick<T: Copy>(
        data: &[T],
        width: usize,
        rows: impl Iterator<Item = usize>,
        keep: impl Fn(usize) -> bool,
    ) -> Vec<T> {
        let mut kept = Vec::new();
        for r in rows {
            for c in 0..width {
                if keep(c) {
                    kept.push(data[r * width + c]);
                }
            }
        }
        kept
    }
    let inside = |c: usize| cols.contains(&c);
    let halves = !side.halves.is_empty();
    let bytes = if halves { Vec::new() } else { pick(&side.bytes, k, rows.clone(), inside) };
    let wide = if halves { pick(&side.halves, k, rows.clone(), inside) } else { Vec::new() };
    let part = Side { format: side.format, bytes, halves: wide, scales: None };
    match &side.scales {
        None => part,
        Some(s) => {
            let inside = |c: usize| cols.contains(&(c * s.block));
            part.scaled(s.format, &pick(&s.bytes, k / s.block, rows, inside), s.block)
        }
    }
}

fn product(shape: GemmShape, a: &Side, b: &Side) -> Vec<u32> {
    Gemm::new(shape, a.operand(), b.operand(), None, None).unwrap().exact(&F32)
}

fn ends(cuts: &[usize], step: usize) -> Vec<i32> {
    let mut ends: Vec<i32> = cuts.iter().map(|&cut| (cut * step) as i32).collect();
    ends.sort_unstable();
    ends
}

fn each(grouped: &GroupedGemm<'_>) -> Vec<Vec<u32>> {
    let mut outputs = Vec::new();
    grouped
        .try_each(|number, gemm| {
            assert_eq!(number, outputs.len());
            outputs.push(gemm.exact(&F32));
            Ok::<(), ()>(())
        })
        .unwrap();
    outputs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn groups_of_rows_each_meet_their_own_b(
        a in 0usize..5, b in 0usize..5, cuts in prop::collection::vec(0usize..=5, 0..5), seed: u64,
    ) {
        let (shape, mut noise) = (GemmShape { m: 5, n: 2, k: 64 }, Noise::new(seed));
        let ends = ends(&cuts, 1);
        let (a, b) = (rows(&mut noise, a, 5, 64), rows(&mut noise, b, 2 * ends.len(), 64));
        let grouped = GroupedGemm::new(shape, GroupAxis::M, &ends, a.operand(), b.operand())?;
        let mut start = 0;
        let expected = ends.iter().enumerate().map(|(number, &end)| {
            let end = end as usize;
            let rows = part(&a, 64, start..end, 0..64);
            let own = part(&b, 64, number * 2..number * 2 + 2, 0..64);
            let shape = GemmShape { m: end - start, ..shape };
            start = end;
            product(shape, &rows, &own)
        });
        prop_assert_eq!(each(&grouped), expected.collect::<Vec<_>>());
    }

    #[test]
    fn groups_of_the_contraction_each_have_their_own_d(
        a in 0usize..5, b in 0usize..5, cuts in prop::collection::vec(0usize..=4, 0..5), seed: u64,
    ) {
        let (shape, mut noise) = (GemmShape { m: 3, n: 2, k: 256 }, Noise::new(seed));
        let ends = ends(&cuts, 64);
        let (a, b) = (rows(&mut noise, a, 3, 256), rows(&mut noise, b, 2, 256));
        let grouped = GroupedGemm::new(shape, GroupAxis::K, &ends, a.operand(), b.operand())?;
        let mut start = 0;
        let expected = ends.iter().map(|&end| {
            let cols = start..end as usize;
            start = cols.end;
            let (a, b) = (part(&a, 256, 0..3, cols.clone()), part(&b, 256, 0..2, cols.clone()));
            product(GemmShape { k: cols.len(), ..shape }, &a, &b)
        });
        prop_assert_eq!(each(&grouped), expected.collect::<Vec<_>>());
    }
}

/// Ones by ones: a group of K gives its length.
#[rstest]
#[case::along_m(GroupAxis::M, &[0, 2, 2, 3], &[0, 2, 0, 1], 64.0)]
#[case::along_k(GroupAxis::K, &[0, 32, 32, 64], &[3; 4], 32.0)]
fn empty_groups_give_no_rows_or_zeros(
    #[case] axis: GroupAxis,
    #[case] ends: &[i32],
    #[case] rows: &[usize],
    #[case] sum: f32,
) {
    let shape = GemmShape { m: 3, n: 1, k: 64 };
    let ones = |rows: usize| {
        Side::new(&E4M3, &vec![0x38; rows * 64]).scaled(&E8M0, &vec![0x7f; rows * 2], 32)
    };
    let (a, b) = (ones(3), ones(if axis == GroupAxis::M { 4 } else { 1 }));
    let grouped = GroupedGemm::new(shape, axis, ends, a.operand(), b.operand()).unwrap();
    let expected = grouped
        .groups()
        .iter()
        .zip(rows)
        .map(|(group, &rows)| vec![if group.is_empty() { 0 } else { sum.to_bits() }; rows]);
    assert_eq!(each(&grouped), expected.collect::<Vec<_>>());
    assert_eq!(grouped.groups().len(), 4);
}

#[test]
fn what_lies_beyond_the_last_end_belongs_to_no_group() {
    let shape = GemmShape { m: 1, n: 1, k: 64 };
    let mut codes = [0x38; 64];
    codes[32..].fill(0x7f);
    let a = Side::new(&E4M3, &codes).scaled(&E8M0, &[0x7f, 0xff], 32);
    let b = Side::new(&E4M3, &[0x38; 64]);
    let grouped = GroupedGemm::new(shape, GroupAxis::K, &[32], a.operand(), b.operand()).unwrap();
    assert_eq!(each(&grouped), [[32f32.to_bits()]]);
}

#[test]
fn an_error_ends_the_groups() {
    let shape = GemmShape { m: 2, n: 1, k: 32 };
    let (a, b) = (Side::new(&E4M3, &[0; 64]), Side::new(&E4M3, &[0; 64]));
    let grouped = GroupedGemm::new(shape, GroupAxis::M, &[1, 2], a.operand(), b.operand()).unwrap();
    let mut seen = 0;
    assert_eq!(
        grouped.try_each(|number, _| {
            seen += 1;
            Err(number)
        }),
        Err(0)
    );
    assert_eq!(seen, 1);
}

#[test]
fn axes_go_by_their_names() {
    for axis in GroupAxis::ALL {
        assert_eq!(GroupAxis::from_name(axis.name()), Some(axis));
    }
    assert_eq!(GroupAxis::from_name("n"), None);
}
