//! Blocks: every pair of a finite bf16 amax and an element not beyond it.

use std::sync::Mutex;

use half::bf16;
use mx_native::quantize_row;
use mx_reference::convention::PROPAGATE;
use mx_reference::format::BF16;
use mx_reference::{Element, Number, Profile, ScaleMode};
use rayon::prelude::*;
use rstest::rstest;

use crate::tally::Tally;
use crate::with_element;

/// Finite magnitudes of bf16.
const AMAXES: u16 = 0x7f80;
/// For each amax the magnitudes up to it, with both signs.
const PAIRS: u64 = 1_065_402_240;
/// Elements of a native block: an amax and the others.
const BLOCK: usize = 128;
const OTHERS: usize = BLOCK - 1;

/// The elements under all amaxes: magnitudes in ascending order with both signs, so that an amax has the first of them.
fn elements() -> impl Iterator<Item = u16> {
    (0..AMAXES).flat_map(|magnitude| [magnitude, magnitude | 0x8000])
}

/// How many elements an amax has.
const fn count(amax: u16) -> usize {
    2 * (amax as usize + 1)
}

/// Native blocks of one thread: the first element of each is the amax, the others are consecutive [`elements`].
struct Blocks {
    input: Vec<bf16>,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Blocks {
    fn new() -> Self {
        let elements: Vec<bf16> = elements().map(bf16::from_bits).collect();
        let blocks = elements.chunks(OTHERS).flat_map(|others| {
            let mut block = [bf16::ZERO; BLOCK];
            block[1..=others.len()].copy_from_slice(others);
            block
        });
        let input: Vec<bf16> = blocks.collect();
        let (codes, scales) = (vec![0; input.len()], vec![0; input.len() / BLOCK]);
        Self { input, codes, scales }
    }

    /// The outcome of every element under an amax.
    fn quantize(&mut self, profile: Profile, amax: u16, outcomes: &mut Vec<u16>) {
        let blocks = count(amax).div_ceil(OTHERS);
        let input = &mut self.input[..blocks * BLOCK];
        for block in input.chunks_exact_mut(BLOCK) {
            block[0] = bf16::from_bits(amax);
        }
        let beyond = blocks * BLOCK - (blocks * OTHERS - count(amax))..blocks * BLOCK;
        let (codes, scales) = (&mut self.codes[..blocks * BLOCK], &mut self.scales[..blocks]);
        // Larger elements in the last block make way for zeros.
        let hidden: Vec<bf16> = input[beyond.clone()].to_vec();
        input[beyond.clone()].fill(bf16::ZERO);
        quantize_row(profile, BLOCK, input, codes, scales).expect("whole blocks");
        input[beyond].copy_from_slice(&hidden);
        outcomes.clear();
        for (codes, &scale) in codes.chunks_exact(BLOCK).zip(&*scales) {
            outcomes.extend(codes[1..].iter().map(|&code| outcome(scale, code)));
        }
        outcomes.truncate(count(amax));
    }
}

/// A scale byte and a code as one number.
const fn outcome(scale: u8, code: u8) -> u16 {
    u16::from_be_bytes([scale, code])
}

/// Quantises all elements of an amax as one block of the reference, and as native blocks.
#[inline]
fn pairs(
    tally: &Mutex<Tally>,
    profile: Profile,
    reference: impl Fn(&[Number], &mut [u8]) -> u8 + Sync,
) {
    let numbers: Vec<Number> = elements().map(|bits| BF16.decode(bits.into())).collect();
    let buffers = || (Blocks::new(), vec![0; numbers.len()], Vec::new(), Vec::new());
    (0..AMAXES).into_par_iter().for_each_init(
        buffers,
        |(blocks, codes, by_reference, by_native), amax| {
            let codes = &mut codes[..count(amax)];
            let scale = reference(&numbers[..count(amax)], codes);
            by_reference.clear();
            by_reference.extend(codes.iter().map(|&code| outcome(scale, code)));
            blocks.quantize(profile, amax, by_native);
            tally.lock().expect("no thread has panicked").compare(
                |i| format!("amax {amax:#06x} element {:#06x}", i >> 1 | (i & 1) << 15),
                &[("reference", by_reference), ("native", by_native)],
            );
        },
    );
}

/// Other profiles are a line each.
#[rstest]
#[case::e4m3_rceil(Element::E4m3, ScaleMode::Rceil)]
#[ignore = "whole domain, minutes: cargo test --release -p mx-conformance --test domains -- --ignored"]
fn every_bf16_pair(#[case] element: Element, #[case] mode: ScaleMode) {
    let name = format!("pairs {} {} {}", element.name(), mode.name(), PROPAGATE.name);
    let tally = Mutex::new(Tally::long(name, PAIRS));
    let profile = Profile { element, mode, convention: &PROPAGATE };
    with_element!(element, ELEMENT => pairs(&tally, profile, |input, codes| {
        Profile { element: ELEMENT, ..profile }.quantize_block(input, codes)
    }));
    tally.into_inner().expect("no thread has panicked").finish();
}
