//! Profiles in which a fault model computes what is right: each claim with a domain over which that is shown by trying all of it.

use super::{Block, Delta, FaultModel, Stages};
use mx_reference::block::Multiplier;
use mx_reference::{Element, Number, Profile, ScaleMode, convention::PROPAGATE};
use mx_vectors::Float;

/// A domain that is tried whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Every magnitude of the input type as the amax: the scale byte is right, and codes depend on nothing else.
    Amaxes,
    /// Every magnitude of the input type as the amax, of either sign, and its own code. Codes of one sign grow with the magnitude, so
    /// what the largest element of a block does not reach, none does.
    AmaxWithItself,
}

impl Domain {
    /// In words.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Amaxes => "every magnitude of the input type as the amax: the scale byte",
            Self::AmaxWithItself => {
                "every magnitude of the input type as the amax, both signs: its byte and its own code, the largest of its block"
            }
        }
    }
}

/// A claim that a model is no fault of some profiles.
#[derive(Clone, Copy, Debug)]
pub struct Equivalence {
    /// The model.
    pub model: &'static str,
    /// Element formats, modes and input types: every combination of them.
    pub elements: &'static [Element],
    /// Modes.
    pub modes: &'static [ScaleMode],
    /// Input types.
    pub inputs: &'static [Float],
    /// The domain.
    pub domain: Domain,
    /// Why.
    pub reason: &'static str,
}

/// Every claim.
pub const ALL: &[Equivalence] = &[];

/// The claim about a model in a profile (`quantize/element/mode/input`), if there is one.
pub fn claim(model: &str, profile: &str) -> Option<&'static Equivalence> {
    ALL.iter().find(|claim| {
        claim.model == model && claim.profiles().any(|(e, m, i)| profile == id(e, m, i))
    })
}

fn id(element: Element, mode: ScaleMode, input: Float) -> String {
    format!("quantize/{}/{}/{}", element.name(), mode.name(), input.name())
}

impl Equivalence {
    /// The profiles that it is about.
    pub fn profiles(&self) -> impl Iterator<Item = (Element, ScaleMode, Float)> {
        self.elements.iter().flat_map(move |&element| {
            self.modes
                .iter()
                .flat_map(move |&mode| self.inputs.iter().map(move |&input| (element, mode, input)))
        })
    }

    /// The first magnitude of `magnitudes` at which the claim does not hold.
    pub fn refuted(
        &self,
        (element, mode, input): (Element, ScaleMode, Float),
        magnitudes: impl IntoIterator<Item = u32>,
    ) -> Option<u32> {
        let model = FaultModel::from_name(self.model)?;
        let Delta::Stages(stages) = model.delta else { return Some(0) };
        let profile = Profile { element, mode, convention: &PROPAGATE };
        magnitudes.into_iter().find(|&bits| {
            let signs: &[u32] = match self.domain {
                Domain::Amaxes => &[0],
                Domain::AmaxWithItself => &[0, input.format().sign_bit()],
            };
            signs.iter().any(|sign| {
                !agree(&stages, profile, input, bits | sign, self.domain == Domain::AmaxWithItself)
            })
        })
    }
}

/// Whether byte (and code) of a block of one element are right.
fn agree(stages: &Stages, profile: Profile, input: Float, bits: u32, code_too: bool) -> bool {
    let right = input.format().decode(bits);
    let x = match stages.load {
        Some(load) => load(input, bits),
        None => right,
    };
    let (amax, byte) = (right.abs(), profile.scale(right.abs()));
    let multiplier: Multiplier = profile.multiplier(byte);
    let numbers: &[Number] = &[x];
    let before = None;
    let mut block = Block { profile, input, numbers, before, amax, scale: byte, multiplier };
    block.amax = stages.amax.map_or_else(|| x.abs(), |amax| amax(&block));
    block.scale = stages.scale.map_or_else(|| profile.scale(block.amax), |scale| scale(&block));
    block.multiplier = profile.multiplier(block.scale);
    if let Some(stage) = stages.multiplier {
        block.multiplier = stage(&block);
    }
    // Zeros stay zeros under every power of two.
    if block.scale != byte || block.multiplier != multiplier && !amax.is_zero() {
        return false;
    }
    if !code_too {
        return true;
    }
    let code = stages.code.map_or_else(|| block.right(x), |code| code(&block, x));
    let expected = profile.code(right, multiplier);
    let nan = |code: u8| profile.element.format().is_nan(code.into());
    code == expected
        || nan(code) && nan(expected)
        || byte == 0xff && !profile.element.format().has_nan()
}
