//! Which accumulations give every answer that was recorded, bit for bit.

use super::lab::Product;
use super::palette::Palette;
use super::report::{Bits, Fingerprint, Group, Layout, Match, Order, Promotion, Split};
use super::{Operands, SumRounding};
use mx_reference::format::{BF16, F16, F32, Format};
use mx_reference::gemm::{Accepts, Accumulation, E8M13, FusedDot, Model, Scheme};
use std::collections::BTreeSet;

/// The tiles that parts of a split K may be whole numbers of, the usual one first.
pub(super) const TILES: [usize; 5] = [128, 64, 32, 256, 512];

/// A split of K: parts, of whole tiles of so many k.
type Parts = (usize, usize);

/// K as a whole.
const WHOLE: Parts = (1, TILES[0]);

/// Replays the parameters that were found, and every named model.
pub(super) fn conclude(palette: &Palette, record: &[Product], found: &mut Fingerprint) {
    let operands = palette.operands;
    let mut record: Vec<&Product> = record.iter().collect();
    record.sort_by_key(|product| product.cost());
    let gives = |accumulation: &Accumulation| replays(&record, operands, accumulation);
    let mut named = Vec::new();
    let said = record.iter().any(|product| product.split.is_some());
    let splits = if said { vec![WHOLE] } else { splits_of(found) };
    for model in Model::ALL {
        let of = |&(split, tile): &Parts| Accumulation { split, tile, ..model.accumulation() };
        let mut fitting = splits.iter().map(of).filter(gives);
        if let Some(accumulation) = fitting.next() {
            let Accumulation { split, tile, .. } = accumulation;
            // More parts and other tiles may fit as well, where no product that was asked for tells them apart.
            let open = fitting.next().is_some_and(|other| other.split == split);
            let tile = (split > 1 && !open).then_some(tile);
            found.matches.push(Match { model: model.name(), split, tile });
            named.push(Accumulation { accepts: Accepts::Any, ..accumulation });
        }
    }
    if !found.adds {
        return;
    }
    if found.order == Order::Exact && !gives(&Model::Exact.accumulation()) {
        found.order = Order::Unknown;
        (found.promotion, found.split) = (Promotion::Unknown, Split::Unknown);
    }
    let candidates = if found.split == Split::Unknown {
        Vec::new()
    } else {
        candidates(operands, found, &splits)
    };
    if candidates.is_empty() {
        return;
    }
    // The first of the accumulators that does; a wider one that does as well leaves it open.
    let fits: Vec<&Format> = candidates
        .iter()
        .filter(|(_, all)| all.iter().any(|one| named.contains(one)) || all.iter().any(gives))
        .map(|&(accumulator, _)| accumulator)
        .collect();
    found.reproduced = Some(!fits.is_empty());
    if let (Bits::AtLeast(_), [accumulator]) = (found.accumulator_bits, fits.as_slice()) {
        found.accumulator_bits = Bits::Exactly(accumulator.mantissa_bits + 1);
    }
}

/// True if the accumulation takes all operands and gives all answers, K split as each product has it where that was said; any NaN
/// stands for any other.
fn replays(record: &[&Product], operands: Operands, accumulation: &Accumulation) -> bool {
    record.iter().all(|product| {
        let Some(gemm) = product.gemm(operands) else { return false };
        let accumulation = &product.split.map_or(*accumulation, |said| Accumulation {
            split: said.parts as usize,
            tile: said.tile as usize,
            ..*accumulation
        });
        let columns: BTreeSet<usize> = product.used.iter().map(|&(_, j, _)| j).collect();
        columns.into_iter().all(|column| {
            let Ok(rows) = gemm.accumulated(accumulation, &F32, column..column + 1) else {
                return false;
            };
            product.used.iter().filter(|&&(_, j, _)| j == column).all(|&(i, _, bits)| {
                let expected = rows.row(i);
                bits.zip(expected.first().copied()).is_some_and(|(bits, expected)| {
                    bits == expected || (F32.is_nan(bits) && F32.is_nan(expected))
                })
            })
        })
    })
}

/// Accumulations with the parameters that were found, by the accumulator of a step.
fn candidates(
    operands: Operands,
    found: &Fingerprint,
    splits: &[Parts],
) -> Vec<(&'static Format, Vec<Accumulation>)> {
    let accumulators: &[&'static Format] = match found.accumulator_bits {
        Bits::Exactly(24) => &[&F32],
        Bits::Exactly(14) => &[&E8M13],
        Bits::AtLeast(bits) if bits <= 14 => &[&F32, &E8M13],
        Bits::AtLeast(bits) if bits <= 24 => &[&F32],
        _ => &[],
    };
    // Registers matter where their format has more small normal numbers than the elements'.
    let registers: &[Option<&'static Format>] = match operands {
        Operands::Fp8 => &[None, Some(&F16)],
        Operands::Mx(_) => &[None, Some(&BF16), Some(&F16)],
        Operands::Nvfp4 => &[None, Some(&BF16)],
        Operands::Bf16 | Operands::F16 => &[None],
    };
    let of = |accumulator| {
        let scheme = scheme(found, accumulator)?;
        let all = registers.iter().flat_map(|&registers| {
            splits.iter().map(move |&(split, tile)| Accumulation {
                accepts: Accepts::Any,
                registers,
                scheme,
                split,
                tile,
            })
        });
        Some((accumulator, all.collect()))
    };
    accumulators.iter().filter_map(|&accumulator| of(accumulator)).collect()
}

/// The scheme with the parameters that were found.
fn scheme(found: &Fingerprint, accumulator: &'static Format) -> Option<Scheme> {
    let nearest = found.rounding == SumRounding::NearestEven && *accumulator == F32;
    match (found.order, found.group) {
        (Order::Exact, _) => return Some(Scheme::Exact),
        (Order::Pairwise, _) if nearest => return Some(Scheme::Pairwise),
        (Order::InOrder, Group::Single) if nearest && found.promotion == Promotion::None => {
            return Some(Scheme::Sequential);
        }
        _ => {}
    }
    let truncates = matches!(found.rounding, SumRounding::TowardZero | SumRounding::NotSeen);
    let (Order::InOrder, Group::Fused { length, layout, exact }, Bits::Exactly(fraction), true) =
        (found.order, found.group, found.fraction_bits, truncates)
    else {
        return None;
    };
    let promote = match found.promotion {
        Promotion::None => None,
        Promotion::Every {
            interval,
            accumulator_bits: Bits::Exactly(24),
            rounding: SumRounding::NearestEven,
        } => Some(interval),
        _ => return None,
    };
    let step = FusedDot { length, fraction, accumulator };
    match (layout, exact, promote) {
        (Layout::Contiguous, None, promote) => Some(Scheme::Chain { step, promote }),
        (Layout::Contiguous, Some(16), None) => Some(Scheme::Groups { step }),
        (Layout::Interleaved { period: 4, run: 2 }, None, Some(32)) if length == 16 => {
            Some(Scheme::Halves { step })
        }
        _ => None,
    }
}

/// The splits that give the parts that were found, those of fewest parts first; K as a whole where no split was seen.
fn splits_of(found: &Fingerprint) -> Vec<Parts> {
    let Split::Parts(lengths) = &found.split else { return vec![WHOLE] };
    let first = lengths.first().copied().unwrap_or(0);
    let of_tile = |tile: usize| {
        let tiles = found.k.div_ceil(tile);
        let fits = move |parts: &usize| tiles.div_ceil(*parts) * tile == first;
        (2..=tiles).filter(fits).map(move |parts| (parts, tile))
    };
    let mut splits: Vec<Parts> = TILES.into_iter().flat_map(of_tile).collect();
    splits.sort_by_key(|&(parts, _)| parts);
    splits
}
