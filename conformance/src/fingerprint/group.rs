//! Which positions of k one step sums.

use super::PlainGemm;
use super::lab::{Lab, UNIT};
use super::probe::{Probe, Term};
use super::report::{Group, Layout};
use super::sweep::power;
use std::collections::BTreeSet;

/// The group and its members. `kept` is how many bits below 1 an accumulator keeps, and `promotion` one that is already known.
pub(super) fn find<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    promotion: Option<usize>,
    kept: u32,
) -> Result<(Group, Vec<usize>), G::Error> {
    let Some(places) = Places::of(lab, promotion) else { return Ok((Group::Unknown, Vec::new())) };
    let mates = members(lab, &places, kept)?;
    let (group, members) = group(&places, &mates);
    Ok(if any_role(lab, &members, kept)? { (group, members) } else { (Group::Unknown, members) })
}

/// Positions of k for the group.
struct Places {
    /// Where an accumulator of 1 and its last place is made, before the products that are looked at.
    setup: [usize; 2],
    /// The position whose group is looked for.
    first: usize,
    /// Where its other members are looked for: where a promotion is known, not beyond it, as the next chain starts afresh.
    others: Vec<usize>,
    /// The group that they make if all of them are members.
    all: Group,
}

impl Places {
    /// Under one scale narrow elements cannot hold both 1 and the last place. If chains end after two blocks, there is one block
    /// for the last place, and one for 1 and the group; if they end after one, the group cannot be told.
    fn of<G: PlainGemm>(lab: &Lab<'_, G>, promotion: Option<usize>) -> Option<Self> {
        const TWICE: usize = 2 * UNIT;
        let all = Group::AtLeast(lab.reach());
        match (promotion, lab.palette.wide()) {
            (None, true) => {
                Some(Self { setup: [0, 1], first: 4, others: (2..lab.reach()).collect(), all })
            }
            (Some(length @ 8..), true) => {
                let all = Group::Fused { length, layout: Layout::Contiguous, exact: None };
                Some(Self { setup: [0, 1], first: 4, others: (2..length).collect(), all })
            }
            (None, false) => Some(Self {
                setup: [0, UNIT],
                first: TWICE,
                others: (1..UNIT).chain(TWICE..lab.reach()).collect(),
                all,
            }),
            (Some(TWICE), false) => {
                let (first, others) = (UNIT + 4, (UNIT + 1..TWICE).collect());
                Some(Self { setup: [UNIT, 0], first, others, all: Group::AtLeast(UNIT) })
            }
            (Some(_), _) => None,
        }
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
    let Places { setup, first, ref others, .. } = *places;
    let mates: Vec<usize> =
        others.iter().copied().filter(|j| !setup.contains(j) && *j != first).collect();
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
fn group(places: &Places, mates: &[(usize, bool)]) -> (Group, Vec<usize>) {
    let Places { setup, first, .. } = *places;
    let fused = mates.iter().filter(|(_, fused)| *fused).map(|&(j, _)| j);
    let mut members: BTreeSet<usize> = fused.chain([first]).collect();
    if members.len() == 1 {
        return (Group::Single, vec![first]);
    }
    let all = members.len() == mates.len() + 1;
    // Positions of the setup are in the group if their next neighbours are.
    for at in setup.into_iter().rev() {
        if members.contains(&(at + 1)) {
            members.insert(at);
        }
    }
    let members: Vec<usize> = members.into_iter().collect();
    if all {
        return (places.all, members);
    }
    let (low, high) = (members[0], members[members.len() - 1]);
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
        let asked = |k: &&usize| !setup.contains(*k);
        if run < period && all.iter().filter(asked).eq(members.iter().filter(asked)) {
            let layout = Layout::Interleaved { period, run };
            return (Group::Fused { length: all.len(), layout, exact: None }, all);
        }
    }
    (Group::Unknown, members)
}

/// True if members come to the same sum whichever of them make the accumulator and whichever cancel. Sums in some order of their
/// own, next to the accumulator, cancel as fused products do; but not in every role.
fn any_role<G: PlainGemm>(
    lab: &mut Lab<'_, G>,
    members: &[usize],
    kept: u32,
) -> Result<bool, G::Error> {
    // One gets the last place, as many as named here -1, and the others 1; all of them come to 1 and the last place.
    let (asked, minuses) = match *members {
        [a, b, c, .., d, e] if members.len() > 7 => {
            (vec![a, b, c, members[members.len() / 2], d, e], 2)
        }
        [a, b, c, d, ..] => (vec![a, b, c, d], 1),
        _ => return Ok(true),
    };
    if !lab.palette.wide() {
        return Ok(true);
    }
    let (k, top) = (lab.short(), lab.palette.top());
    let unit = top - kept as i32;
    let mut probes = Vec::new();
    for place in 0..asked.len() {
        for signs in 0u32..1 << asked.len() {
            if signs.count_ones() != minuses || signs >> place & 1 == 1 {
                continue;
            }
            let term = |(role, &k): (usize, &usize)| match signs >> role & 1 {
                _ if role == place => Term::plus(k, unit),
                0 => Term::plus(k, top),
                _ => Term::minus(k, top),
            };
            probes.push(Probe::new(asked.iter().enumerate().map(term).collect::<Vec<_>>()));
        }
    }
    let whole = Some(power(top) + power(unit));
    Ok(lab.ask(k, &probes)?.into_iter().all(|answer| answer == whole))
}
