//! What one step does: how many products it fuses, to how many bits it aligns them, and how it rounds to its accumulator.

use super::PlainGemm;
use super::lab::{Lab, UNIT};
use super::probe::{Probe, Term};
use super::report::{Bits, Fingerprint, Group, Layout, SumRounding};
use super::sweep::{Sweep, power};

/// Fraction bits of f32, which every answer has been rounded to.
const F32_FRACTION: u32 = 23;

/// Positions of k for probes of one step.
struct Places {
    /// Where an accumulator with a lowest bit is made, before the products that are looked at.
    setup: [usize; 2],
    /// The position whose group is looked for.
    first: usize,
}

impl Places {
    /// Under scales of narrow elements, large and small terms are in blocks of their own.
    const fn of(wide: bool) -> Self {
        if wide {
            Self { setup: [0, 1], first: 4 }
        } else {
            Self { setup: [0, UNIT], first: 2 * UNIT }
        }
    }
}

/// Measures the step.
pub(super) fn measure<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    found: &mut Fingerprint,
) -> Result<(), G::Error> {
    let places = Places::of(lab.palette.wide());
    let k = lab.short();
    let Sweep::Last(kept) = kept(lab, k, places.setup[1])? else { return Ok(()) };
    let rounding = rounding(lab, k, places.setup[1], kept)?;
    let members = members(lab, &places, kept)?;
    let (group, members) = group(&places, members, k);
    found.group = group;
    found.accumulator_bits = Bits::Exactly(kept + 1);
    found.rounding = rounding;
    match group {
        Group::Unknown => {}
        Group::Single => found.fraction_bits = Bits::None,
        Group::AtLeast(_) => found.fraction_bits = fraction(lab, &members, rounding, kept)?,
        Group::Fused { length, layout, .. } => {
            found.fraction_bits = fraction(lab, &members, rounding, kept)?;
            if let Bits::Exactly(fraction) = found.fraction_bits {
                let exact = exactly_summed(lab, &members, fraction)?;
                found.group = Group::Fused { length, layout, exact };
                if fraction <= kept {
                    let length = if layout == Layout::Contiguous { length } else { 1 };
                    found.accumulator_bits = accumulator(lab, length, fraction, kept)?;
                    found.rounding =
                        carried_rounding(lab, length, fraction, found.accumulator_bits)?;
                }
            }
        }
    }
    Ok(())
}

/// How small a term at `at` may be against one at 0 before it is lost from the accumulator.
pub(super) fn kept<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    k: usize,
    at: usize,
) -> Result<Sweep, G::Error> {
    let top = lab.palette.top();
    let probes: Vec<Probe> =
        (1..=30).map(|t| Probe::new([Term::plus(0, top), Term::plus(at, top - t)])).collect();
    let answers = lab.ask(k, &probes)?;
    Ok(Sweep::read(&answers, |t, answer| answer == power(top) + power(top - t)))
}

/// How a sum of a term at 0 and parts of its last place at `at` is rounded. Where alignment cuts those parts off first, that
/// looks like rounding toward zero.
pub(super) fn rounding<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    k: usize,
    at: usize,
    kept: u32,
) -> Result<SumRounding, G::Error> {
    let top = lab.palette.top();
    let place = top - kept as i32;
    let sums = [
        Term::plus(at, place - 1),
        Term::three_halves(at, place - 1),
        Term::three_halves(at, place),
    ]
    .map(|x| Probe::new([Term::plus(0, top), x]));
    let grown = grown(lab, k, &sums, (power(top), power(place)))?;
    Ok(named(&grown))
}

/// By how many units of the last place sums and their negatives grew in magnitude.
fn grown<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    k: usize,
    sums: &[Probe],
    (start, unit): (f64, f64),
) -> Result<Vec<Option<f64>>, G::Error> {
    let negatives = sums.iter().map(|sum| sum.clone().negated());
    let probes: Vec<Probe> = sums.iter().cloned().chain(negatives).collect();
    let answers = lab.ask(k, &probes)?;
    Ok(answers.into_iter().map(|answer| Some((answer?.abs() - start) / unit)).collect())
}

/// The rounding that makes 0.5, 0.75 and 1.5 units grow so, first above zero and then below.
fn named(grown: &[Option<f64>]) -> SumRounding {
    let exact: Option<Vec<f64>> = grown.iter().copied().collect();
    let is = |expected: [f64; 6]| exact.as_deref() == Some(expected.as_slice());
    if is([0., 0., 1., 0., 0., 1.]) {
        SumRounding::TowardZero
    // One bit of alignment beyond the accumulator's turns 0.75 into a tie.
    } else if is([0., 1., 2., 0., 1., 2.]) || is([0., 0., 2., 0., 0., 2.]) {
        SumRounding::NearestEven
    } else if is([1., 1., 2., 1., 1., 2.]) {
        SumRounding::NearestAway
    } else if is([1., 1., 2., 0., 0., 1.]) {
        SumRounding::Up
    } else if is([0., 0., 1., 1., 1., 2.]) {
        SumRounding::Down
    } else {
        SumRounding::Unknown
    }
}

/// The positions that are summed with the first in one step, and whether each was.
///
/// An accumulator of 1 + u, u its last place, gets 1 at one position and -1 at another. Fused, they cancel; one after the other
/// they carry the accumulator past 2, where u is lost. The second sum, with signs turned, is for a step that comes before the
/// first position's.
fn members<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    places: &Places,
    kept: u32,
) -> Result<Vec<(usize, bool)>, G::Error> {
    let k = lab.short();
    let top = lab.palette.top();
    let unit = top - kept as i32;
    let Places { setup, first } = *places;
    // Between the setup's second position and the first looked at, narrow elements share the second's scale.
    let mates: Vec<usize> = (1..k)
        .filter(|j| !setup.contains(j) && *j != first)
        .filter(|j| lab.palette.wide() || *j < setup[1] || *j > first)
        .collect();
    let accumulator = [Term::plus(setup[0], top), Term::plus(setup[1], unit)];
    let probes: Vec<Probe> = mates
        .iter()
        .flat_map(|&j| {
            let pair = [Term::plus(first, top), Term::minus(j, top)];
            [pair, pair.map(Term::negated)]
        })
        .map(|pair| Probe::new([accumulator, pair].concat()))
        .collect();
    let answers = lab.ask(k, &probes)?;
    let whole = Some(power(top) + power(unit));
    let fused = answers.chunks(2).map(|pair| pair.iter().all(|&answer| answer == whole));
    Ok(mates.into_iter().zip(fused).collect())
}

/// What group the fused positions make, and its members.
fn group(places: &Places, mates: Vec<(usize, bool)>, k: usize) -> (Group, Vec<usize>) {
    let Places { setup, first } = *places;
    let asked: Vec<usize> = mates.iter().map(|&(j, _)| j).collect();
    let mut members: Vec<usize> =
        mates.iter().filter(|(_, fused)| *fused).map(|&(j, _)| j).chain([first]).collect();
    members.sort_unstable();
    if members.len() == 1 {
        return (Group::Single, members);
    }
    if members.len() == asked.len() + 1 {
        return (Group::AtLeast(k), members);
    }
    // Positions of the setup are in the group if their neighbours are.
    let low = members[0];
    if low < first && low <= setup[1] + 1 && setup[1] == 1 {
        members.splice(0..0, setup);
    }
    let (low, high) = (members[0], members[members.len() - 1]);
    if low < first && low >= setup[0] + 1 {
        return (Group::Unknown, members);
    }
    if high - low + 1 == members.len() {
        let length = members.len();
        return (Group::Fused { length, layout: Layout::Contiguous, exact: None }, members);
    }
    for period in [2, 4, 8, 16, 32] {
        let residue = |k: usize| members.iter().any(|member| member % period == k % period);
        // Before the first member nothing but the setup can have been left out.
        let from = (0..=low / period)
            .map(|n| n * period)
            .find(|&from| (from..low).all(|k| setup.contains(&k) || !residue(k)));
        let (from, to) = (from.unwrap_or(low), (high + 1).next_multiple_of(period));
        let all: Vec<usize> = (from..to).filter(|&k| residue(k)).collect();
        let run = (0..period).filter(|&k| residue(k)).count();
        if run < period && all.iter().filter(|k| !setup.contains(k)).eq(&members) {
            let layout = Layout::Interleaved { period, run };
            return (Group::Fused { length: all.len(), layout, exact: None }, all);
        }
    }
    (Group::Unknown, members)
}

/// F. Within a group: U, -U, and a term that is cut off where alignment ends. Where a block cannot hold those: an accumulator of U
/// less a term, which truncation takes for the number below U as long as alignment keeps anything of the term.
fn fraction<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    members: &[usize],
    rounding: SumRounding,
    kept: u32,
) -> Result<Bits, G::Error> {
    let k = lab.short();
    let top = lab.palette.top();
    let range = 1..=top - lab.palette.bottom();
    let sweep = match *members {
        [first, second, third, ..] if lab.palette.wide() => {
            let pair = [Term::plus(first, top), Term::minus(second, top)];
            let with = |t| Probe::new([pair.as_slice(), &[Term::plus(third, top - t)]].concat());
            let answers = lab.ask(k, &range.map(with).collect::<Vec<_>>())?;
            Sweep::read(&answers, |t, answer| answer == power(top - t))
        }
        _ if rounding == SumRounding::TowardZero => {
            let with = |t| Probe::new([Term::plus(0, top), Term::minus(2 * UNIT, top - t)]);
            let answers = lab.ask(k, &range.map(with).collect::<Vec<_>>())?;
            Sweep::read(&answers, |_, answer| answer != power(top))
        }
        _ => return Ok(Bits::AtLeast(kept)),
    };
    Ok(match sweep {
        Sweep::Last(bits) => Bits::Exactly(bits),
        Sweep::All(bits) => Bits::AtLeast(bits),
        Sweep::Unclear => Bits::Unknown,
    })
}

/// How many neighbours are summed exactly before they are aligned: two halves of the last bit that alignment keeps survive
/// together or not at all.
fn exactly_summed<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    members: &[usize],
    fraction: u32,
) -> Result<Option<usize>, G::Error> {
    let k = lab.short();
    let top = lab.palette.top();
    let half = top - fraction as i32 - 1;
    let (probes, lost): (Vec<Probe>, f64) = if lab.palette.wide() {
        let [first, others @ .., plus, minus] = members else { return Ok(None) };
        let pair = [Term::plus(*plus, top), Term::minus(*minus, top)];
        let with = |j: &usize| {
            let halves = [Term::plus(*first, half), Term::plus(*j, half)];
            Probe::new([pair, halves].concat())
        };
        (others.iter().map(with).collect(), 0.0)
    } else {
        let first = 2 * UNIT;
        let with = |j: &usize| {
            Probe::new([Term::plus(0, top), Term::minus(first, half), Term::minus(*j, half)])
        };
        (members.iter().filter(|j| **j > first).map(with).collect(), power(top))
    };
    let answers = lab.ask(k, &probes)?;
    let together =
        answers.iter().take_while(|answer| answer.is_some_and(|answer| answer != lost)).count();
    Ok((together > 0).then_some(together + 1))
}

/// Ones that fit the last group beside one more product, as a power of two.
const fn ones(length: usize) -> Option<u32> {
    length.saturating_sub(1).checked_ilog2()
}

/// A sum of 2^n products in the last group, and another term; nothing aligns the sum again after it.
fn last_group(k: usize, length: usize, n: u32, top: i32, term: Term) -> Probe {
    let ones = (0..1 << n).map(|i| Term::plus(k - length + i, top));
    Probe::new(ones.chain([term]).collect::<Vec<_>>())
}

/// What the accumulator keeps, where alignment keeps no more within one step's terms: their sum has more bits than any of them.
fn accumulator<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    length: usize,
    fraction: u32,
    kept: u32,
) -> Result<Bits, G::Error> {
    let k = lab.short();
    let top = lab.palette.top();
    let Some(n) = ones(length) else { return Ok(Bits::AtLeast(kept + 1)) };
    let with = |t| last_group(k, length, n, top, Term::plus(k - 1, top - t));
    let answers = lab.ask(k, &(1..=fraction as i32).map(with).collect::<Vec<_>>())?;
    let whole = |t| power(top + n as i32) + power(top - t);
    Ok(match Sweep::read(&answers, |t, answer| answer == whole(t)) {
        Sweep::Last(t) => Bits::Exactly(n + t + 1),
        Sweep::All(t) if n + t >= F32_FRACTION => Bits::Exactly(F32_FRACTION + 1),
        Sweep::All(t) => Bits::AtLeast((n + t).max(kept) + 1),
        Sweep::Unclear => Bits::Unknown,
    })
}

/// How the accumulator rounds a sum that has carried past what alignment keeps.
fn carried_rounding<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    length: usize,
    fraction: u32,
    accumulator: Bits,
) -> Result<SumRounding, G::Error> {
    let Bits::Exactly(bits) = accumulator else { return Ok(SumRounding::NotSeen) };
    // Half a unit of the sum's last place must be what alignment keeps of a term.
    let n = bits.saturating_sub(fraction);
    if ones(length).is_none_or(|most| n > most) {
        return Ok(SumRounding::NotSeen);
    }
    let k = lab.short();
    let top = lab.palette.top();
    let place = top + n as i32 - bits as i32 + 1;
    let sums = [Term::plus(k - 1, place - 1), Term::three_halves(k - 1, place)]
        .map(|x| last_group(k, length, n, top, x));
    let start = power(top + n as i32);
    let grown = grown(lab, k, &sums, (start, power(place)))?;
    let [half, more, minus_half, minus_more] = grown.as_slice() else {
        return Ok(SumRounding::Unknown);
    };
    // 0.75 units are 0.5 after alignment, so they say nothing new here.
    Ok(named(&[*half, *half, *more, *minus_half, *minus_half, *minus_more]))
}
