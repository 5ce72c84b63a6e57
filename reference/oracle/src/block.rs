//! One block: the scale they share, and a code for each element.

use std::sync::OnceLock;

use crate::{
    Convention, Float, Format, Mode, Overflow, Rounding, Steps, Value, encode, scale_byte,
};

/// All that quantising a block depends on. `element` must be one of [`Format::ELEMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The element format.
    pub element: Format,
    /// How the scale is found.
    pub mode: Mode,
    /// Whose choices.
    pub convention: Convention,
    /// Whose bits the input is.
    pub input: Float,
}

/// What elements are multiplied by before they are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplier {
    /// `2^power`.
    PowerOfTwo(i32),
    /// The inverse of infinity: zero, but NaN for what is not finite.
    InverseOfInfinity,
    /// NaN.
    Nan,
}

const ELEMENTS: usize = Format::ELEMENTS.len();
const FLOATS: usize = Float::ALL.len();
const MODES: usize = Mode::ALL.len();
const CONVENTIONS: usize = Convention::ALL.len();
/// Powers from −127 to 127.
const POWERS: usize = 255;

impl Profile {
    /// The block's amax as a pattern without sign: patterns ascend with magnitudes, and NaN lies beyond infinity.
    pub fn amax(self, input: &[u32]) -> u32 {
        let magnitudes = input.iter().map(|bits| bits & (self.input.sign_bit() - 1));
        match self.convention {
            Convention::Te => magnitudes.filter(|&pattern| pattern <= self.input.infinity()).max(),
            Convention::Propagate | Convention::Torchao018 => magnitudes.max(),
        }
        .unwrap_or(0)
    }

    /// The scale byte of every amax pattern without sign, tabulated once per process.
    ///
    /// # Panics
    /// If `element` is no element format.
    pub fn scale_steps(self) -> &'static Steps {
        type PerProfile = [[[[OnceLock<Steps>; FLOATS]; CONVENTIONS]; MODES]; ELEMENTS];
        static FOUND: PerProfile = [const {
            [const { [const { [const { OnceLock::new() }; FLOATS] }; CONVENTIONS] }; MODES]
        }; ELEMENTS];
        let Self { element, mode, convention, input } = self;
        FOUND[element as usize][mode as usize][convention as usize][input as usize].get_or_init(
            || {
                let [numbers, nans, ..] = input.stretches();
                Steps::tabulate(&[numbers, nans], |bits| {
                    scale_byte(element, mode, convention, input.value(bits))
                })
            },
        )
    }

    /// What a scale byte makes of the elements.
    pub fn multiplier(self, byte: u8) -> Multiplier {
        match (byte, self.convention, self.mode) {
            (0xff, Convention::Torchao018, Mode::Floor | Mode::Ceil | Mode::Even) => {
                Multiplier::InverseOfInfinity
            }
            (0xff, ..) => Multiplier::Nan,
            (0, Convention::Torchao018, Mode::Rceil) => Multiplier::PowerOfTwo(0),
            (0, Convention::Torchao018, _) => Multiplier::PowerOfTwo(126),
            _ => Multiplier::PowerOfTwo(127 - i32::from(byte)),
        }
    }

    /// The code of one element, by search.
    pub fn code(self, bits: u32, multiplier: Multiplier) -> u8 {
        let value = self.input.value(bits);
        let product = match (multiplier, value) {
            (Multiplier::PowerOfTwo(power), _) => value.scaled(power),
            (Multiplier::InverseOfInfinity, Value::Finite { negative, .. }) => {
                Value::Finite { negative, magnitude: crate::Exact::ZERO }
            }
            (Multiplier::InverseOfInfinity | Multiplier::Nan, _) => Value::Nan,
        };
        encode(self.element, product, Rounding::NearestEven, Overflow::Saturate)
    }

    /// The codes of all input patterns times `2^power`, tabulated once per process.
    fn element_steps(self, power: i32) -> &'static Steps {
        type PerPower = [[[OnceLock<Steps>; POWERS]; FLOATS]; ELEMENTS];
        static FOUND: PerPower =
            [const { [const { [const { OnceLock::new() }; POWERS] }; FLOATS] }; ELEMENTS];
        FOUND[self.element as usize][self.input as usize][(power + 127) as usize].get_or_init(
            || {
                Steps::tabulate(&self.input.stretches(), |bits| {
                    self.code(bits, Multiplier::PowerOfTwo(power))
                })
            },
        )
    }

    /// Quantises one block: a code per input pattern into `codes`, and the scale byte.
    ///
    /// # Panics
    /// If `codes` is shorter than `input`, or `element` no element format.
    pub fn quantize_block(self, input: &[u32], codes: &mut [u8]) -> u8 {
        let byte = self.scale_steps().code(self.amax(input));
        let codes = &mut codes[..input.len()];
        match self.multiplier(byte) {
            Multiplier::PowerOfTwo(power) => {
                let steps = self.element_steps(power);
                for (code, &bits) in codes.iter_mut().zip(input) {
                    *code = steps.code(bits);
                }
            }
            special => {
                for (code, &bits) in codes.iter_mut().zip(input) {
                    *code = self.code(bits, special);
                }
            }
        }
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(element: Format, mode: Mode, convention: Convention, input: &[f32]) -> (u8, Vec<u8>) {
        let profile = Profile { element, mode, convention, input: Float::F32 };
        let bits: Vec<u32> = input.iter().map(|x| x.to_bits()).collect();
        let mut codes = vec![0; bits.len()];
        (profile.quantize_block(&bits, &mut codes), codes)
    }

    const SMALLEST_NORMAL: f32 = f32::MIN_POSITIVE;

    /// torchao's contract after PR 4725 (`torchao/testing/_mxfp8_test_utils.py`), E4M3.
    #[test]
    fn propagate() {
        let rows: [(&[f32], Mode, u8, &[u8]); 9] = [
            (&[0.0, -0.0], Mode::Floor, 0, &[0x00, 0x80]),
            (&[SMALLEST_NORMAL], Mode::Floor, 0, &[0x40]),
            (&[f32::INFINITY, 1.0], Mode::Floor, 255, &[0x7f, 0x7f]),
            (&[f32::NAN, 1.0], Mode::Rceil, 255, &[0x7f, 0x7f]),
            (&[448.0, -448.0], Mode::Rceil, 127, &[0x7e, 0xfe]),
            (&[480.0], Mode::Floor, 127, &[0x7e]),
            (&[480.0], Mode::Rceil, 128, &[0x77]),
            (&[f32::MAX], Mode::Floor, 246, &[0x7e]),
            (&[f32::MAX], Mode::Rceil, 247, &[0x78]),
        ];
        for (input, mode, byte, codes) in rows {
            let found = block(Format::E4m3, mode, Convention::Propagate, input);
            assert_eq!(found, (byte, codes.to_vec()), "{input:?} {mode:?}");
        }
        let f32_least = f32::from_bits(1);
        assert_eq!(
            block(Format::E4m3, Mode::Floor, Convention::Propagate, &[-f32_least]).1,
            [0x80]
        );
        let bf16 = Profile {
            element: Format::E4m3,
            mode: Mode::Floor,
            convention: Convention::Propagate,
            input: Float::Bf16,
        };
        let mut code = [0];
        assert_eq!((bf16.quantize_block(&[0x0001], &mut code), code), (0, [0x08]));
    }

    #[test]
    fn te() {
        let rceil = |input: &[f32]| block(Format::E4m3, Mode::Rceil, Convention::Te, input);
        assert_eq!(rceil(&[f32::NEG_INFINITY, 1.0, -1.0]), (254, vec![0xfe, 0x00, 0x80]));
        assert_eq!(rceil(&[f32::NAN, 1.0]), (119, vec![0x7f, 0x78]));
        assert_eq!(rceil(&[f32::NAN, f32::NAN]), (0, vec![0x7f, 0x7f]));
        assert_eq!(rceil(&[f32::NAN, f32::INFINITY]), (254, vec![0x7f, 0x7e]));
    }

    #[test]
    fn torchao_0_18() {
        let run = |mode, input: &[f32]| block(Format::E4m3, mode, Convention::Torchao018, input);
        assert_eq!(run(Mode::Floor, &[SMALLEST_NORMAL]), (0, vec![0x38]));
        assert_eq!(run(Mode::Rceil, &[SMALLEST_NORMAL, -0.0]), (0, vec![0x00, 0x80]));
        assert_eq!(run(Mode::Floor, &[f32::INFINITY, 1.0]), (247, vec![0x7e, 0x00]));
        assert_eq!(run(Mode::Rceil, &[f32::INFINITY, 1.0]), (254, vec![0x7e, 0x00]));
        assert_eq!(run(Mode::Even, &[f32::NAN, 1.0, -1.0]), (255, vec![0x7f, 0x00, 0x80]));
        assert_eq!(run(Mode::Floor, &[f32::NAN, f32::INFINITY]), (255, vec![0x7f, 0x7f]));
        assert_eq!(run(Mode::Rceil, &[f32::NAN, 1.0]), (255, vec![0x7f, 0x7f]));
        let above = f32::from_bits(0x40600001);
        assert_eq!(run(Mode::Rceil, &[above]), (0x78, vec![0x7e]));
        assert_eq!(
            block(Format::E4m3, Mode::Rceil, Convention::Propagate, &[above]),
            (0x79, vec![0x76])
        );
    }

    /// The byte-0 block of flashinfer issue 2440: bf16 amax 0x0437.
    #[test]
    fn byte_zero_is_a_scale() {
        let amax = f32::from_bits(0x0437_0000);
        assert_eq!(
            block(Format::E4m3, Mode::Rceil, Convention::Propagate, &[amax]),
            (0, vec![0x7b])
        );
    }

    #[test]
    fn fp4_even() {
        let found = block(Format::E2m1, Mode::Even, Convention::Propagate, &[7.0, -1.0, 0.25]);
        assert_eq!(found, (0x80, vec![0x6, 0x9, 0x0]));
    }

    #[test]
    fn scale_tables_agree_with_the_search() {
        for element in Format::ELEMENTS {
            for (mode, convention) in Mode::ALL.into_iter().zip([1, 0, 0, 2]) {
                let convention = Convention::ALL[convention];
                let profile = Profile { element, mode, convention, input: Float::F32 };
                for bits in (0..Float::F32.sign_bit()).step_by(1_299_709) {
                    let searched = scale_byte(element, mode, convention, Float::F32.value(bits));
                    assert_eq!(profile.scale_steps().code(bits), searched, "{profile:?} {bits:#x}");
                }
            }
        }
    }

    #[test]
    fn element_tables_agree_with_the_search() {
        for element in Format::ELEMENTS {
            for input in Float::ALL {
                let profile = Profile {
                    element,
                    mode: Mode::Rceil,
                    convention: Convention::Propagate,
                    input,
                };
                for power in [-127, -1, 0, 9, 127] {
                    let steps = profile.element_steps(power);
                    for bits in (0..=input.last()).step_by(input.last() as usize / 9973 + 1) {
                        let searched = profile.code(bits, Multiplier::PowerOfTwo(power));
                        assert_eq!(
                            steps.code(bits),
                            searched,
                            "{element:?} {input:?} {power} {bits:#x}"
                        );
                    }
                }
            }
        }
    }
}
