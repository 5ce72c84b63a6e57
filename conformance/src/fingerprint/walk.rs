//! How partial sums of steps are put together along K: in order or in a tree, promoted, or split.

use super::PlainGemm;
use super::lab::{Lab, UNIT};
use super::palette::Palette;
use super::probe::{Probe, Term};
use super::report::{Bits, Fingerprint, Group, Layout, Order, Promotion, Split, SumRounding};
use super::step::{ChainEnd, kept, rounding};
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

/// Measures order, promotion and split; the end of a chain too short for it is told from outside.
pub(super) fn measure<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    found: &mut Fingerprint,
    short: Option<ChainEnd>,
) -> Result<(), G::Error> {
    let k = lab.longest();
    let ends = match walk(lab, k, found.fraction_bits)? {
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
    if levels[0] >= units {
        return Ok(());
    }
    if is_tree(&levels, units) {
        found.order = Order::Pairwise;
        (found.group, found.fraction_bits) = (Group::Single, Bits::None);
        (found.promotion, found.split) = (Promotion::None, Split::None);
        return Ok(());
    }
    found.order = Order::InOrder;
    if let (Group::AtLeast(least), [base, ..]) = (found.group, levels.as_slice())
        && *base > 1
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
        match walk(lab, half, found.fraction_bits)? {
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
    let short = match short {
        // Whether the first chain of a short contraction ends for good is open, and here no level says so.
        Some(ChainEnd { promotes: None, .. }) if promoted.is_none() => return Ok(()),
        Some(ChainEnd { at, promotes: Some(true) }) => Some(at),
        _ => None,
    };
    found.promotion = match promoted.map(|level| level * UNIT).or(short) {
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
fn walk<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    k: usize,
    fraction_bits: Bits,
) -> Result<Walk, G::Error> {
    let (top, bottom) = (lab.palette.top(), lab.palette.bottom());
    let units = k / UNIT;
    // To be counted, all small terms together must be lost against U: from an f32 accumulator, and where steps align.
    let needed = match fraction_bits {
        Bits::Exactly(bits) => bits.max(27),
        _ => 27,
    };
    if top - bottom >= (needed + units.ilog2()) as i32 { count(lab, k) } else { search(lab, k) }
}

/// U in the first unit, -U in another, and small terms in others.
fn mask(palette: &Palette, unit: usize, small: impl Iterator<Item = usize>) -> Probe {
    let (top, bottom) = (palette.top(), palette.bottom());
    let pair = [Term::plus(0, top), Term::minus(unit * UNIT, top)];
    // At an odd place, so that interleaved sums do not pass for one.
    let small = small.map(|unit| Term::plus(unit * UNIT + UNIT / 2 + 1, bottom));
    Probe::new(pair.into_iter().chain(small).collect::<Vec<_>>())
}

/// Small terms in all other units at once: how many survive says where a mask ends.
fn count<G: PlainGemm>(lab: &mut Lab<'_, G>, k: usize) -> Result<Walk, G::Error> {
    let units = k / UNIT;
    let others = |unit| (1..units).filter(move |&other| other != unit);
    let probes: Vec<Probe> =
        (1..units).map(|unit| mask(&lab.palette, unit, others(unit))).collect();
    let answers = lab.ask(k, &probes)?;
    let all = units - 2;
    let least = power(lab.palette.bottom());
    let lost = |answer: Option<f64>| {
        let survivors = answer? / least;
        (0..=all).find(|&lost| survivors == (all - lost) as f64)
    };
    let Some(lost) = answers.into_iter().map(lost).collect::<Option<Vec<usize>>>() else {
        return Ok(Walk::Other);
    };
    if lost.iter().all(|&lost| lost == 0) {
        return Ok(Walk::Lossless);
    }
    // Units 0 and that of -U hold no small term.
    let ends: Vec<usize> = lost.iter().map(|lost| lost + 2).collect();
    let prefix = ends.iter().zip(1..).all(|(&end, unit): (_, usize)| end > unit);
    Ok(if prefix { Walk::Ends(ends) } else { Walk::Other })
}

/// One small term at a time, where the operands leave no room for the sum of many.
fn search<G: PlainGemm>(lab: &mut Lab<'_, G>, k: usize) -> Result<Walk, G::Error> {
    let units = k / UNIT;
    let least = power(lab.palette.bottom());
    let mut survive = |asked: &[(usize, usize)]| {
        let probes: Vec<Probe> = asked
            .iter()
            .map(|&(unit, small)| mask(&lab.palette, unit, core::iter::once(small)))
            .collect();
        let told = |answer: Option<f64>| {
            answer.filter(|&answer| answer == 0.0 || answer == least).map(|answer| answer != 0.0)
        };
        Ok(lab.ask(k, &probes)?.into_iter().map(told).collect::<Option<Vec<bool>>>())
    };
    let between: Vec<(usize, usize)> = (2..units).map(|unit| (unit, 1)).collect();
    match survive(&between)? {
        Some(survived) if survived.iter().all(|&survived| survived) => return Ok(Walk::Lossless),
        Some(survived) if !survived.contains(&true) => {}
        _ => return Ok(Walk::Other),
    }
    // For every unit of -U: all up to the first are lost, and the second and what follows survives.
    let mut ends: Vec<(usize, usize)> = (1..units).map(|unit| (unit + 1, units)).collect();
    loop {
        let open: Vec<usize> = (0..ends.len()).filter(|&i| ends[i].0 < ends[i].1).collect();
        if open.is_empty() {
            return Ok(Walk::Ends(ends.into_iter().map(|(end, _)| end).collect()));
        }
        let middle = |i: usize| usize::midpoint(ends[i].0, ends[i].1);
        let asked: Vec<(usize, usize)> = open.iter().map(|&i| (i + 1, middle(i))).collect();
        let Some(survived) = survive(&asked)? else { return Ok(Walk::Other) };
        for ((i, (_, middle)), survived) in open.into_iter().zip(asked).zip(survived) {
            if survived {
                ends[i].1 = middle;
            } else {
                ends[i].0 = middle + 1;
            }
        }
    }
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
        let whole = (2 * unit).min(units);
        if starts && end > expected && end <= whole {
            level = unit;
            levels.push(level);
            cut_short = (end < whole).then_some(end);
        } else if end > unit && end < expected && cut_short.is_none_or(|cut| cut == end) {
            cut_short = Some(end);
        } else if cut_short.map_or(end != expected, |cut| cut != end) {
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
