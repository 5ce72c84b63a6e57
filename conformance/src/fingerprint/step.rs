//! What one step does: how many products it fuses, to how many bits it aligns them, and how it rounds to its accumulator.

use super::PlainGemm;
use super::group;
use super::lab::{Lab, UNIT};
use super::palette::Palette;
use super::probe::{Probe, Term};
use super::report::{Bits, Fingerprint, Group, Layout, SumRounding};
use super::sweep::{Sweep, power};

/// Fraction bits of f32, which every answer has been rounded to.
const F32_FRACTION: u32 = 23;

/// The nearest position to 0 that can hold a much smaller term.
const fn near(palette: &Palette) -> usize {
    if palette.wide() { 1 } else { UNIT }
}

/// Measures the step. Gives the end of the first chain if that is so short that it shows here.
pub(super) fn measure<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    found: &mut Fingerprint,
) -> Result<Option<ChainEnd>, G::Error> {
    let k = lab.short();
    let near = near(&lab.palette);
    let Sweep::Last(kept) = kept(lab, k, near)? else { return Ok(None) };
    found.accumulator_bits = Bits::Exactly(kept + 1);
    found.rounding = rounding(lab, k, near, kept)?;
    let truncates = found.rounding == SumRounding::TowardZero;
    let end = if truncates { ChainEnd::find(lab, short_promotion)? } else { None };
    let (group, members) = group::find(lab, end.map(|end| end.at), kept)?;
    found.group = group;
    found.fraction_bits = match group {
        Group::Unknown => Bits::Unknown,
        Group::Single => Bits::None,
        _ => fraction(lab, &members, found.rounding, kept)?,
    };
    if let (Group::Fused { length, layout, .. }, Bits::Exactly(fraction)) =
        (group, found.fraction_bits)
    {
        let exact = exactly_summed(lab, &members, fraction)?;
        found.group = Group::Fused { length, layout, exact };
        if fraction <= kept {
            let length = if layout == Layout::Contiguous { length } else { 1 };
            found.accumulator_bits = accumulator(lab, length, fraction, kept)?;
            found.rounding = carried_rounding(lab, length, fraction, found.accumulator_bits)?;
        }
    }
    if group == Group::Single { ChainEnd::find(lab, single_promotion) } else { Ok(end) }
}

/// Where the first chain of a short contraction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainEnd {
    /// The k after its last.
    pub(super) at: usize,
    /// Whether that is a promotion, which stays where it is when K changes, or a part of a split, which does not. `None` if no
    /// longer contraction may be asked for.
    pub(super) promotes: Option<bool>,
}

impl ChainEnd {
    fn find<'g, G: PlainGemm>(
        lab: &mut Lab<'g, G>,
        end: impl Fn(&mut Lab<'g, G>, usize) -> Result<Option<usize>, G::Error>,
    ) -> Result<Option<Self>, G::Error> {
        let short = lab.short();
        let Some(at) = end(lab, short)? else { return Ok(None) };
        let promotes = match lab.longer() {
            Some(longer) => Some(end(lab, longer)? == Some(at)),
            None => None,
        };
        Ok(Some(Self { at, promotes }))
    }
}

/// A promotion within two units of k where products are added one at a time: U at 0, -U further on and a small term next to it,
/// which survives unless it is first added to -U alone.
fn single_promotion<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    k: usize,
) -> Result<Option<usize>, G::Error> {
    if !lab.palette.wide() {
        return Ok(None);
    }
    let (top, bottom) = (lab.palette.top(), lab.palette.bottom());
    let with = |at| {
        let large = [Term::plus(0, top), Term::minus(at, top)];
        Probe::new([large.as_slice(), &[Term::plus(at + 1, bottom)]].concat())
    };
    let probes: Vec<Probe> = (2..2 * UNIT).map(with).collect();
    let answers = lab.ask(k, &probes)?;
    Ok(answers.iter().zip(2..).find(|(answer, _)| **answer == Some(0.0)).map(|(_, at)| at))
}

/// A promotion within two units of k, told by an accumulator that rounds to nearest where steps do not.
fn short_promotion<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    k: usize,
) -> Result<Option<usize>, G::Error> {
    let top = lab.palette.top();
    let place = top - F32_FRACTION as i32;
    let apart = if lab.palette.wide() { 4 } else { UNIT };
    let places: Vec<usize> = (apart..=2 * UNIT).step_by(apart).collect();
    let with = |&at: &usize| Probe::new([Term::plus(0, top), Term::three_halves(at, place - 1)]);
    let probes: Vec<Probe> = places.iter().map(with).collect();
    let answers = lab.ask(k, &probes)?;
    let up = Some(power(top) + power(place));
    Ok(places.into_iter().zip(answers).find(|(_, answer)| *answer == up).map(|(at, _)| at))
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
            let with = |t| Probe::new([Term::plus(0, top), Term::minus(UNIT, top - t)]);
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
        let with =
            |j| Probe::new([Term::plus(0, top), Term::minus(UNIT, half), Term::minus(j, half)]);
        ((UNIT + 1..2 * UNIT).map(with).collect(), power(top))
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
