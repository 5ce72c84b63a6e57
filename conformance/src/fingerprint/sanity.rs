//! What must hold before anything can be told: plain sums are right; and what becomes of subnormal numbers.

use super::PlainGemm;
use super::lab::Lab;
use super::palette::Palette;
use super::probe::{Fixed, Probe, Term};
use super::report::{Subnormal, Subnormals};
use super::sweep::power;
use mx_reference::format::F32;

/// A result that is subnormal in f32, and in any narrower accumulator with its exponents.
const SUBNORMAL_RESULT: i32 = -130;

/// True if sums of one and two products come out right, which no accumulation rounds.
pub(super) fn adds<G: PlainGemm>(lab: &mut Lab<'_, G>) -> Result<bool, G::Error> {
    let k = lab.short();
    let asked: [(&[Term], f64); 7] = [
        (&[], 0.0),
        (&[Term::plus(0, 0)], 1.0),
        (&[Term::minus(k - 1, 0)], -1.0),
        (&[Term::three_halves(k / 2, 0)], 1.5),
        (&[Term::plus(1, 0), Term::plus(k / 2 + 1, 0)], 2.0),
        (&[Term::plus(1, 0), Term::minus(k - 1, 0)], 0.0),
        (&[Term::plus(k - 2, 0), Term::three_halves(2, 0)], 2.5),
    ];
    let probes: Vec<Probe> = asked.iter().map(|&(terms, _)| Probe::new(terms)).collect();
    let answers = lab.ask(k, &probes)?;
    Ok(answers.into_iter().zip(asked).all(|(answer, (_, sum))| answer == Some(sum)))
}

/// Subnormal elements, scales and results. From here on probes do without subnormals that count as zero.
pub(super) fn subnormals<G: PlainGemm>(lab: &mut Lab<'_, G>) -> Result<Subnormals, G::Error> {
    let operands = lab.palette.operands;
    let element = operands.element();
    let low = lab.palette.elements().low;
    let fixed = |exponent, element, scales| Probe {
        terms: vec![Term::plus(0, exponent)],
        fixed: Some(Fixed { element, scales }),
    };
    let mut asked = Vec::new();
    if element.exponent_bits > 0 {
        // Times a large number, so that the result is none of the subnormals that are asked for below.
        let other = lab.palette.elements().high.min(-low);
        asked.push((Kind::A, fixed(low + other, other, (0, 0))));
        asked.push((Kind::B, fixed(low + other, low, (0, 0))));
    }
    let lowest_scale = lab.palette.scales().map(|codes| codes.low);
    if let Some((scale, _)) = operands.scales()
        && scale.subnormals
        && let Some(low) = lowest_scale
    {
        asked.push((Kind::A, fixed(low, 0, (low, 0))));
        asked.push((Kind::B, fixed(low, 0, (0, low))));
    }
    let least = lowest_scale.unwrap_or(0) + low;
    if 2 * least < F32.min_exponent() {
        let half = SUBNORMAL_RESULT / 2;
        let probe = match lowest_scale {
            Some(_) => fixed(SUBNORMAL_RESULT, 0, (half, half)),
            None => fixed(SUBNORMAL_RESULT, half, (0, 0)),
        };
        asked.push((Kind::Result, probe));
    }
    let k = lab.short();
    let probes: Vec<Probe> = asked.iter().map(|(_, probe)| probe.clone()).collect();
    let answers = lab.ask(k, &probes)?;
    let of = |kind| {
        let mut found = Subnormal::NotSeen;
        for ((_, probe), answer) in asked.iter().zip(&answers).filter(|((k, _), _)| *k == kind) {
            let expected = power(probe.terms[0].exponent);
            match answer {
                Some(answer) if *answer == 0.0 => return Subnormal::Flushed,
                Some(answer) if *answer == expected => found = Subnormal::Kept,
                _ => {}
            }
        }
        found
    };
    let found = Subnormals { results: of(Kind::Result), a: of(Kind::A), b: of(Kind::B) };
    if found.a == Subnormal::Flushed || found.b == Subnormal::Flushed {
        lab.palette = Palette::new(operands, false);
    }
    Ok(found)
}

/// What a probe of subnormals is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    A,
    B,
    Result,
}
