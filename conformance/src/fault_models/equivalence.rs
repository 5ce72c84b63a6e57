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

const FLOATS: &[Element] =
    &[Element::E4m3, Element::E5m2, Element::E3m2, Element::E2m3, Element::E2m1];
const INT8: &[Element] = &[Element::Int8];
const EVERY: &[Element] = &Element::ALL;
const FLOOR: &[ScaleMode] = &[ScaleMode::Floor];
const EVEN: &[ScaleMode] = &[ScaleMode::Even];
const CEIL: &[ScaleMode] = &[ScaleMode::Ceil];
const RCEIL: &[ScaleMode] = &[ScaleMode::Rceil];
const MODES: &[ScaleMode] = &ScaleMode::ALL;
const F32: &[Float] = &[Float::F32];
const F16: &[Float] = &[Float::F16];
const SIXTEEN: &[Float] = &[Float::Bf16, Float::F16];
const WIDE: &[Float] = &[Float::F32, Float::Bf16];
const TYPES: &[Float] = &Float::ALL;

const fn claim_of(
    (model, reason): (&'static str, &'static str),
    elements: &'static [Element],
    modes: &'static [ScaleMode],
    inputs: &'static [Float],
    domain: Domain,
) -> Equivalence {
    Equivalence { model, elements, modes, inputs, domain, reason }
}

const NO_SO_SMALL: &str = "f16 has no amax so small";
const TOP: &str = "the largest numbers of MXINT8 have a NaN scale under RCEIL";

/// Every claim.
pub const ALL: &[Equivalence] = &{
    use Domain::{AmaxWithItself, Amaxes};
    let log2 = "16-bit amaxes are never within the few f32 ulps that a logarithm loses";
    let top = "f16 ends at 65504";
    let cut =
        "a cut keeps the exponent, and the thresholds of FLOOR and EVEN have no bits below bf16's";
    let low = "below 2^-126 the byte is 0 by its value, too";
    let fits = "the amax does not reach what saturates";
    [
        claim_of(("rceil-ceil-log2f", log2), FLOATS, RCEIL, SIXTEEN, Amaxes),
        claim_of(("rceil-ceil-log2f", log2), INT8, RCEIL, F16, Amaxes),
        claim_of(("floor-log2f", log2), EVERY, FLOOR, SIXTEEN, Amaxes),
        claim_of(("rceil-subnormal-up", NO_SO_SMALL), EVERY, RCEIL, F16, Amaxes),
        claim_of(("rceil-subnormal-flushed", NO_SO_SMALL), EVERY, RCEIL, F16, Amaxes),
        claim_of(
            (
                "rceil-true-division",
                "the rounded product and the rounded quotient step at the same amaxes",
            ),
            FLOATS,
            RCEIL,
            TYPES,
            Amaxes,
        ),
        claim_of(
            ("rceil-true-division", "16-bit amaxes are never where they differ"),
            INT8,
            RCEIL,
            SIXTEEN,
            Amaxes,
        ),
        claim_of(("even-top-nan", top), EVERY, EVEN, F16, Amaxes),
        claim_of(("amax-truncated-to-bf16", cut), EVERY, FLOOR, &[Float::F32, Float::F16], Amaxes),
        claim_of(("amax-truncated-to-bf16", cut), FLOATS, EVEN, F32, Amaxes),
        claim_of(("amax-truncated-to-bf16", cut), EVERY, EVEN, F16, Amaxes),
        claim_of(("scale-at-least-byte-1", NO_SO_SMALL), EVERY, MODES, F16, Amaxes),
        claim_of(
            ("scale-wraps", NO_SO_SMALL),
            EVERY,
            &[ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even],
            F16,
            Amaxes,
        ),
        claim_of(
            ("subnormal-amax-exponent-field", low),
            FLOATS,
            &[ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even],
            WIDE,
            Amaxes,
        ),
        claim_of(("subnormal-amax-exponent-field", low), INT8, FLOOR, WIDE, Amaxes),
        claim_of(("subnormal-amax-exponent-field", low), INT8, EVEN, &[Float::Bf16], Amaxes),
        claim_of(("amax-subnormals-flushed", low), FLOATS, MODES, WIDE, Amaxes),
        claim_of(("amax-subnormals-flushed", low), INT8, FLOOR, WIDE, Amaxes),
        claim_of(("amax-subnormals-flushed", low), INT8, EVEN, &[Float::Bf16], Amaxes),
        claim_of(("amax-subnormals-flushed", low), INT8, RCEIL, &[Float::Bf16], Amaxes),
        claim_of(
            ("element-nan-on-overflow", fits),
            &[Element::E4m3, Element::E5m2],
            CEIL,
            TYPES,
            AmaxWithItself,
        ),
        claim_of(
            ("element-nan-on-overflow", fits),
            &[Element::E4m3, Element::E5m2],
            RCEIL,
            TYPES,
            AmaxWithItself,
        ),
        claim_of(("element-nan-on-overflow", fits), &[Element::E5m2], EVEN, TYPES, AmaxWithItself),
        claim_of(("int8-minus-128", fits), INT8, RCEIL, TYPES, AmaxWithItself),
        claim_of(("int8-minus-128", fits), INT8, CEIL, F16, AmaxWithItself),
        claim_of(("int8-minus-128", fits), INT8, EVEN, F16, AmaxWithItself),
        claim_of(("infinity-clamped-on-load", TOP), INT8, RCEIL, WIDE, AmaxWithItself),
        claim_of(("negative-infinity-lost", TOP), INT8, RCEIL, WIDE, AmaxWithItself),
        claim_of(("signalling-nan-is-a-number", TOP), INT8, RCEIL, WIDE, AmaxWithItself),
        claim_of(("byte-0-taken-for-no-scale", NO_SO_SMALL), EVERY, MODES, F16, AmaxWithItself),
        claim_of(("byte-0-clamped-to-normal", NO_SO_SMALL), EVERY, MODES, F16, AmaxWithItself),
        claim_of(("byte-0-flushed", NO_SO_SMALL), EVERY, MODES, F16, AmaxWithItself),
        claim_of(("byte-254-reciprocal-zero", top), INT8, MODES, F16, AmaxWithItself),
    ]
};

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
