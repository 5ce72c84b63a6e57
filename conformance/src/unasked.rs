//! Profiles that a backend claims and is not asked, and why.

use crate::capabilities::{Accumulate, Capabilities, Claim};
use mx_reference::gemm::Model;
use mx_vectors::op::{Factor, Gemm};
use mx_vectors::{Op, cells::cells};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A profile that is claimed, and that no question is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unasked {
    /// As claimed.
    pub profile: String,
    /// Why nothing of it is asked, and what would be.
    pub reason: String,
}

impl fmt::Display for Unasked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claimed, not asked: {}, because {}", self.profile, self.reason)
    }
}

/// The profiles among the claims that no cell is asked of. Which cells filters leave out is no matter of claims.
pub fn unasked(claims: &Capabilities) -> Vec<Unasked> {
    let Claim::Only(profiles) = &claims.profiles else { return Vec::new() };
    let mut seen = BTreeSet::new();
    profiles
        .iter()
        .filter(|profile| seen.insert(profile.as_str()))
        .filter_map(|profile| {
            let reason = match Pair::parse(profile) {
                Some(pair) => pair.reason(claims),
                None => reason(claims, profile),
            };
            reason.map(|reason| Unasked { profile: profile.clone(), reason })
        })
        .collect()
}

/// A product's profile: `A-B`, with a scaling where one is meant.
struct Pair<'a> {
    elements: &'a str,
    scaling: Option<&'a str>,
}

impl<'a> Pair<'a> {
    fn parse(profile: &'a str) -> Option<Self> {
        let (elements, scaling) = match profile.split_once('/') {
            Some((elements, scaling)) => (elements, Some(scaling)),
            None => (profile, None),
        };
        let (a, b) = elements.split_once('-')?;
        Factor::from_name(a).and(Factor::from_name(b))?;
        Some(Self { elements, scaling })
    }

    fn is_of(&self, g: &Gemm) -> bool {
        g.pair() == self.elements && self.scaling.is_none_or(|scaling| g.scaling.name() == scaling)
    }

    fn reason(&self, claims: &Capabilities) -> Option<String> {
        let declared = || cells().into_iter().map(|op| claims.declared(op));
        let own = |op: &Op| gemm(op).is_some_and(|g| self.is_of(g));
        if declared().any(|op| own(&op) && claims.covers(&op)) {
            return None;
        }
        let known = profiles(cells().iter().filter_map(gemm), self.elements);
        if !cells().iter().any(own) {
            let pair = self.elements;
            return Some(if known.is_empty() {
                format!("mxcert has no product of {pair}")
            } else {
                format!("products of {pair} have no such scaling; mxcert has {}", known.join(", "))
            });
        }
        if declared().any(|op| own(&op) && gemm(&op).is_some_and(Gemm::is_of_its_model)) {
            return Some(excluded(claims, |claims| {
                cells().into_iter().any(|op| own(&op) && claims.covers(&claims.declared(op)))
            }));
        }
        let ops: Vec<Op> = declared().collect();
        let asked = ops.iter().filter_map(gemm).filter(|g| g.is_of_its_model());
        let asked = profiles(asked, self.elements);
        let instead = if asked.is_empty() {
            format!("no product of {}", self.elements)
        } else {
            format!("{} and no other product of them", asked.join(", "))
        };
        let is = |model: &Option<Model>| {
            cells().into_iter().filter(own).any(|op| {
                gemm(&op).is_some_and(|g| Gemm { accumulate: *model, ..*g }.is_of_its_model())
            })
        };
        let models = std::iter::once(None).chain(Model::ALL.map(Some)).filter(is);
        let models: Vec<String> = models.map(|model| Accumulate(model).into()).collect();
        Some(format!(
            "who declares the accumulation {} is asked {instead}; it is asked of {}",
            String::from(claims.accumulate.unwrap_or(Accumulate(None))),
            models.join(", ")
        ))
    }
}

fn gemm(op: &Op) -> Option<&Gemm> {
    match op {
        Op::Gemm(g) => Some(g),
        Op::GroupedGemm(g) => Some(&g.gemm),
        _ => None,
    }
}

/// The profiles of products of a pair of elements.
fn profiles<'a>(products: impl Iterator<Item = &'a Gemm>, pair: &str) -> Vec<String> {
    let mut names: Vec<String> = products
        .filter(|g| g.pair() == pair)
        .map(|g| format!("{pair}/{}", g.scaling.name()))
        .collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// Why a profile that is no product's is not asked.
fn reason(claims: &Capabilities, profile: &str) -> Option<String> {
    let alone = || Claim::Only(vec![profile.to_owned()]);
    // Ops without formats are asked whatever the profiles are.
    let asked = |claims: &Capabilities| {
        let without = Capabilities { profiles: Claim::Only(Vec::new()), ..claims.clone() };
        let mut declared = cells().into_iter().map(|op| claims.declared(op));
        declared.any(|op| claims.covers(&op) && !without.covers(&op))
    };
    if asked(&Capabilities { profiles: alone(), ..claims.clone() }) {
        return None;
    }
    if !asked(&Capabilities { profiles: alone(), ..Capabilities::default() }) {
        return Some(format!("mxcert {} has nothing of that name", env!("CARGO_PKG_VERSION")));
    }
    Some(excluded(claims, |claims| asked(&Capabilities { profiles: alone(), ..claims.clone() })))
}

/// Takes one claim back.
type Change = fn(&mut Capabilities);

/// Which other claims leave nothing of a profile.
fn excluded(claims: &Capabilities, asked: impl Fn(&Capabilities) -> bool) -> String {
    let without = |change: Change| {
        let mut claims = claims.clone();
        change(&mut claims);
        claims
    };
    let others: [(&str, Change); 10] = [
        ("ops", |claims| claims.ops = Claim::All),
        ("inputs", |claims| claims.inputs = Claim::All),
        ("axes", |claims| claims.axes = Claim::All),
        ("layouts", |claims| claims.layouts = Claim::All),
        ("blocks", |claims| claims.blocks = Claim::All),
        ("roundings", |claims| claims.roundings = Claim::All),
        ("overflows", |claims| claims.overflows = Claim::All),
        ("orders", |claims| claims.orders = Claim::All),
        ("recipes", |claims| claims.recipes = Claim::All),
        ("accumulate", |claims| claims.accumulate = None),
    ];
    let names: Vec<String> = others
        .into_iter()
        .filter(|&(_, change)| asked(&without(change)))
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    if names.is_empty() {
        "the other claims together leave nothing of it".to_owned()
    } else {
        format!("what it claims as {} leaves nothing of it", names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn said(json: &str) -> Vec<String> {
        let claims: Capabilities = serde_json::from_str(json).unwrap();
        unasked(&claims).iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::everything("{}")]
    #[case::products(
        r#"{"ops":["gemm"],"profiles":["e4m3-e4m3/mx","e2m1-e2m1","bf16-bf16/plain"]}"#
    )]
    #[case::modelled(r#"{"profiles":["e4m3-e5m2/unit"],"accumulate":"hopper-fp8"}"#)]
    #[case::by_elements(r#"{"ops":["gemm"],"profiles":["e4m3/rceil"],"accumulate":"hopper-fp8"}"#)]
    #[case::without_mode(r#"{"ops":["cast"],"profiles":["e4m3","ue4m3/even"]}"#)]
    fn what_is_asked_is_not_named(#[case] claims: &str) {
        assert!(said(claims).is_empty(), "{:?}", said(claims));
    }

    #[rstest]
    #[case::model_without_scales(
        r#"{"profiles":["e4m3-e4m3/mx","e4m3-e4m3/unit"],"accumulate":"hopper-fp8"}"#,
        "claimed, not asked: e4m3-e4m3/mx, because who declares the accumulation hopper-fp8 is asked e4m3-e4m3/unit and no other \
         product of them; it is asked of f32, exact, f32-sequential, f32-pairwise, mx-block-f16-pair, ada-bf16, hopper-bf16, \
         blackwell-mxf8f6f4"
    )]
    #[case::unit_in_any_order(
        r#"{"ops":["gemm"],"profiles":["e4m3-e4m3","e4m3-e5m2/unit"]}"#,
        "claimed, not asked: e4m3-e5m2/unit, because who declares the accumulation f32 is asked e4m3-e5m2/mx and no other product of \
         them; it is asked of ada-fp8, hopper-fp8, hopper-fp8-promote128, sm90-mma-fp8"
    )]
    #[case::no_such_scaling(
        r#"{"profiles":["e4m3-e4m3/plain"]}"#,
        "claimed, not asked: e4m3-e4m3/plain, because products of e4m3-e4m3 have no such scaling; mxcert has e4m3-e4m3/mx, \
         e4m3-e4m3/unit"
    )]
    #[case::no_such_pair(
        r#"{"profiles":["bf16-e4m3/mx"]}"#,
        "claimed, not asked: bf16-e4m3/mx, because mxcert has no product of bf16-e4m3"
    )]
    #[case::model_of_other_pairs(
        r#"{"profiles":["int8-int8/mx"],"accumulate":"ada-fp8"}"#,
        "who declares the accumulation ada-fp8 is asked no product of int8-int8"
    )]
    #[case::other_op(
        r#"{"ops":["quantize"],"profiles":["e4m3/floor","e4m3-e4m3/mx"]}"#,
        "claimed, not asked: e4m3-e4m3/mx, because what it claims as `ops` leaves nothing of it"
    )]
    #[case::other_ops_or_model(
        r#"{"ops":["gemm"],"profiles":["int8/floor"],"accumulate":"hopper-fp8"}"#,
        "claimed, not asked: int8/floor, because what it claims as `ops` or `accumulate` leaves nothing of it"
    )]
    #[case::together(
        r#"{"ops":["quantize"],"axes":["k"],"inputs":["fp8"],"orders":["none"],"profiles":["e4m3/floor"]}"#,
        "claimed, not asked: e4m3/floor, because the other claims together leave nothing of it"
    )]
    #[case::unknown(r#"{"profiles":["nvfp4/two-level"]}"#, "has nothing of that name")]
    fn what_is_not_asked_is_named_with_why(#[case] claims: &str, #[case] expected: &str) {
        let said = said(claims);
        assert!(said.iter().any(|line| line.contains(expected)), "{said:#?}");
    }
}
