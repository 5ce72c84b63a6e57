//! Claims that a fault model computes what is right in some profile, each over its whole domain.

use mx_conformance::fault_models::equivalence::{ALL, Equivalence};
use mx_conformance::fault_models::{Delta, FaultModel};
use mx_reference::{Element, ScaleMode};
use mx_vectors::Float;
use mx_vectors::cells::cells;
use rayon::prelude::*;

/// Magnitudes that one task tries.
const TASK: u32 = 1 << 24;

fn refuted(claim: &Equivalence, profile: (Element, ScaleMode, Float)) -> Option<u32> {
    let magnitudes = 1u32 << (profile.2.format().bits - 1);
    let tasks = magnitudes.div_ceil(TASK);
    (0..tasks)
        .into_par_iter()
        .find_map_any(|task| claim.refuted(profile, task * TASK..magnitudes.min((task + 1) * TASK)))
}

fn check(inputs: impl Fn(Float) -> bool) {
    for claim in ALL {
        for profile in claim.profiles().filter(|&(_, _, input)| inputs(input)) {
            let at = refuted(claim, profile);
            assert_eq!(at, None, "{} in {profile:?}", claim.model);
        }
    }
}

#[test]
fn claims_are_about_models_and_profiles_that_exist() {
    for claim in ALL {
        let model = FaultModel::from_name(claim.model).unwrap();
        assert!(matches!(model.delta, Delta::Stages(_)), "{}", claim.model);
        for (element, mode, input) in claim.profiles() {
            let id = format!("quantize/{}/{}/{}/row", element.name(), mode.name(), input.name());
            let cell = cells().into_iter().find(|op| op.prefix() == id).unwrap();
            assert!((model.applies)(&cell), "{} is no fault of {id}", claim.model);
        }
        assert!(!claim.reason.is_empty());
    }
}

#[test]
fn a_false_claim_is_refuted() {
    let claim = Equivalence {
        model: "amax-rounded-to-bf16",
        elements: &[Element::E4m3],
        modes: &[ScaleMode::Floor],
        inputs: &[Float::F16],
        ..ALL[0]
    };
    assert!(refuted(&claim, claim.profiles().next().unwrap()).is_some());
}

#[test]
fn every_sixteen_bit_amax() {
    check(|input| input != Float::F32);
}

#[test]
#[ignore = "whole domain, minutes: cargo test --release -p mx-conformance --test equivalences -- --ignored"]
fn every_f32_amax() {
    check(|input| input == Float::F32);
}
