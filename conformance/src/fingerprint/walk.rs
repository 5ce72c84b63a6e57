//! How partial sums of steps are put together along K: in order or in a tree, promoted, or split.

use super::PlainGemm;
use super::lab::{Lab, UNIT};
use super::probe::{Probe, Term};
use super::report::{Bits, Fingerprint, Group, Layout, Order, Promotion, Split, SumRounding};
use super::step::{kept, rounding};
use super::sweep::{Sweep, power};

/// Where a mask ends: U in the first unit of k and -U in another take with them every small term up to there.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Walk {
    /// No small term is ever lost.
    Lossless,
    /// For -U in unit 1, 2, …: the first unit whose small term survives.
    Ends(Vec<usize>),
    /// What is lost is no prefix of k.
    Other,
}

/// Measures order, promotion and split.
pub(super) fn measure<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    found: &mut Fingerprint,
) -> Result<(), G::Error> {
    let k = lab.longest();
    let ends = match walk(lab, k)? {
        Walk::Lossless => {
            // Whether it is the exact sum is for a replay to say.
            found.order = Order::Exact;
            (found.promotion, found.split) = (Promotion::None, Split::None);
            return Ok(());
        }
        Walk::Ends(ends) => ends,
        Walk::Other => return Ok(()),
    };
    let units = k / UNIT;
    let Some(levels) = levels(&ends, units) else { return Ok(()) };
    if is_tree(&levels, units) {
        found.order = Order::Pairwise;
        (found.group, found.fraction_bits) = (Group::Single, Bits::None);
        (found.promotion, found.split) = (Promotion::None, Split::None);
        return Ok(());
    }
    found.order = Order::InOrder;
    if let (Group::AtLeast(least), [base, ..]) = (found.group, levels.as_slice())
        && base * UNIT >= least
    {
        let length = base * UNIT;
        found.group = Group::Fused { length, layout: Layout::Contiguous, exact: None };
    }
    let step = match found.group {
        Group::Fused { length, .. } => length.div_ceil(UNIT),
        _ => 1,
    };
    let above: Vec<usize> = levels.into_iter().filter(|&level| level > step).collect();
    let half = lab.length(k / 2);
    let shorter = if above.is_empty() || half >= k {
        None
    } else {
        match walk(lab, half)? {
            Walk::Ends(ends) => self::levels(&ends, half / UNIT),
            _ => None,
        }
    };
    let (promoted, part) = match (above.as_slice(), shorter) {
        ([], _) => (None, None),
        // A promotion stays where it is when K changes; parts of a split do not.
        (&[level], Some(shorter)) if shorter.contains(&level) => (Some(level), None),
        (&[level], Some(_)) => (None, Some(level)),
        (&[level, part], Some(shorter)) if shorter.contains(&level) => (Some(level), Some(part)),
        _ => return Ok(()),
    };
    found.split = match part {
        None => Split::None,
        Some(part) => {
            let length = part * UNIT;
            Split::Parts((0..k).step_by(length).map(|at| length.min(k - at)).collect())
        }
    };
    let promoted = match promoted {
        Some(level) => Some(level * UNIT),
        None => short_promotion(lab, found)?,
    };
    found.promotion = match promoted {
        None => Promotion::None,
        Some(interval) => {
            let k = if 2 * interval <= lab.short() { lab.short() } else { k };
            match kept(lab, k, interval)? {
                Sweep::Last(kept) => Promotion::Every {
                    interval,
                    accumulator_bits: Bits::Exactly(kept + 1),
                    rounding: rounding(lab, k, interval, kept)?,
                },
                _ => Promotion::Every {
                    interval,
                    accumulator_bits: Bits::Unknown,
                    rounding: SumRounding::Unknown,
                },
            }
        }
    };
    Ok(())
}

/// Masks U in the first unit against -U in every other.
fn walk<G: PlainGemm>(lab: &mut Lab<'_, G>, k: usize) -> Result<Walk, G::Error> {
    let (top, bottom) = (lab.palette.top(), lab.palette.bottom());
    let units = k / UNIT;
    // All small terms together must be lost against U; operands of little range take several U.
    let spread = units.ilog2() as i32 + 27;
    let copies = 1usize << (spread - (top - bottom)).clamp(0, 4);
    let large = |unit: usize| (0..copies).map(move |i| unit * UNIT + i);
    let probes: Vec<Probe> = (1..units)
        .map(|unit| {
            let small = (1..units)
                .filter(|&other| other != unit)
                .map(|other| Term::plus(other * UNIT + UNIT / 2, bottom));
            let pair = large(0)
                .map(|k| Term::plus(k, top))
                .chain(large(unit).map(|k| Term::minus(k, top)));
            Probe::new(pair.chain(small).collect::<Vec<_>>())
        })
        .collect();
    let answers = lab.ask(k, &probes)?;
    let all = units - 2;
    let lost: Option<Vec<usize>> = answers
        .into_iter()
        .map(|answer| {
            let survivors = answer? / power(bottom);
            (0..=all).find(|&lost| survivors == (all - lost) as f64)
        })
        .collect();
    let Some(lost) = lost else { return Ok(Walk::Other) };
    if lost.iter().all(|&lost| lost == 0) {
        return Ok(Walk::Lossless);
    }
    // Units 0 and that of -U hold no small term.
    let ends: Vec<usize> = lost.iter().map(|lost| lost + 2).collect();
    let prefix = ends.iter().zip(1..).all(|(&end, unit): (_, usize)| end > unit);
    Ok(if prefix { Walk::Ends(ends) } else { Walk::Other })
}

/// The lengths, in units, of the nested sums that ends show: the first has one unit, or as many as the mask next to the first
/// takes; each further one starts where the one before it ends.
fn levels(ends: &[usize], units: usize) -> Option<Vec<usize>> {
    let first = *ends.first()?;
    let mut levels = vec![if first > 2 { first } else { 1 }];
    let mut level = levels[0];
    let mut cut_short = None;
    for (&end, unit) in ends.iter().zip(1..) {
        let expected = ((unit / level + 1) * level).min(units);
        let starts = cut_short.map_or(unit % level == 0, |cut| unit == cut);
        if starts && end != expected && end == (2 * unit).min(units) {
            level = unit;
            levels.push(level);
            cut_short = None;
        } else if end > unit && end < expected && cut_short.is_none_or(|cut| cut == end) {
            cut_short = Some(end);
        } else if end != expected || cut_short.is_some() {
            return None;
        }
    }
    Some(levels)
}

/// True if every level is two of the one before, up to the whole.
fn is_tree(levels: &[usize], units: usize) -> bool {
    let doubles = levels.windows(2).all(|pair| pair[1] == 2 * pair[0]);
    levels.len() > 3 && doubles && levels.last().is_some_and(|last| 2 * last >= units)
}

/// A promotion within one unit, told by an accumulator that rounds to nearest where steps do not.
fn short_promotion<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    found: &Fingerprint,
) -> Result<Option<usize>, G::Error> {
    const PLACE: i32 = 23;
    let fused = matches!(found.group, Group::Fused { .. });
    if !fused || !matches!(found.rounding, SumRounding::TowardZero | SumRounding::NotSeen) {
        return Ok(None);
    }
    let top = lab.palette.top();
    let apart = if lab.palette.wide() { 4 } else { UNIT };
    let places: Vec<usize> = (apart..=UNIT).step_by(apart).collect();
    let with = |&at: &usize| Probe::new([Term::plus(0, top), Term::three_halves(at, top - PLACE - 1)]);
    let probes: Vec<Probe> = places.iter().map(with).collect();
    let answers = lab.ask(lab.short(), &probes)?;
    let up = Some(power(top) + power(top - PLACE));
    Ok(places.into_iter().zip(answers).find(|(_, answer)| *answer == up).map(|(at, _)| at))
}
