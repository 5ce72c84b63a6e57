//! The blocks of public faults, through the reference: every answer in the file is what `propagate` gives.

use mx_reference::{Convention, Profile, Rule, convention::PROPAGATE};
use mx_vectors::Float;
use mx_vectors::classes::bug_blocks::{BugBlock, Expected, all};
use std::collections::BTreeSet;

fn profile(expected: &Expected, convention: &'static Convention) -> Profile {
    Profile { element: expected.element, mode: expected.mode, convention }
}

/// What is wrong with the reference's answer, or with the file's.
fn differences(block: &BugBlock, expected: &Expected) -> Vec<String> {
    let profile = profile(expected, &PROPAGATE);
    let input = block.input().map(|bits| Float::F32.format().decode(bits));
    let mut codes = [0; 32];
    let scale = profile.quantize_block(&input, &mut codes);
    let name = format!("{} {}/{}", block.id, expected.element.name(), expected.mode.name());
    let mut found = Vec::new();
    if scale != expected.scale {
        found.push(format!("{name}: scale {scale:#04x}, the file has {:#04x}", expected.scale));
    }
    for (lane, (&code, &wanted)) in codes.iter().zip(&expected.codes).enumerate() {
        let equal = match profile.rule(scale, code, input[lane].is_nan()) {
            Rule::Exact => code == wanted,
            Rule::AnyNan => expected.element.format().is_nan(wanted.into()),
            Rule::Free => true,
            Rule::AnyZero | Rule::Between { .. } => panic!("no rule of codes"),
        };
        if !equal {
            found.push(format!("{name}: lane {lane} {code:#04x}, the file has {wanted:#04x}"));
        }
    }
    found
}

#[test]
fn the_reference_gives_every_answer_in_the_file() {
    let all: Vec<String> = all()
        .iter()
        .flat_map(|block| block.expected().into_iter().map(move |expected| (block, expected)))
        .flat_map(|(block, expected)| differences(block, &expected))
        .collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn every_block_has_a_name_of_its_own_a_fault_a_reference_and_an_answer() {
    let ids: BTreeSet<&str> = all().iter().map(|block| block.id.as_str()).collect();
    assert_eq!(ids.len(), all().len());
    for block in all() {
        assert!(!block.fault.is_empty() && !block.references.is_empty(), "{}", block.id);
        assert!(!block.expected().is_empty(), "{}", block.id);
    }
}
