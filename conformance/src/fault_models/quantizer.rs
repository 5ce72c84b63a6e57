//! A plain quantiser in which any stage can be replaced: load, amax, scale, multiplier, code.

use mx_reference::block::Multiplier;
use mx_reference::convention::AmaxNan;
use mx_reference::{
    Axis, Blocking, Convention, Format, Input, Matrix, MatrixView, Number, Overflow, Profile,
    Quantized, Rounding, ShapeError,
};
use mx_vectors::answer::{AnswerError, quantized};
use mx_vectors::{Float, Quantize, Tensors};

/// Replaced stages; a stage that is `None` is right.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stages {
    /// From input bits to a number.
    pub load: Option<fn(Float, u32) -> Number>,
    /// The block's largest magnitude.
    pub amax: Option<fn(&Block<'_>) -> Number>,
    /// The scale byte.
    pub scale: Option<fn(&Block<'_>) -> u8>,
    /// What elements are multiplied by.
    pub multiplier: Option<fn(&Block<'_>) -> Multiplier>,
    /// The code of an element.
    pub code: Option<fn(&Block<'_>, Number) -> u8>,
}

impl Stages {
    /// Nothing replaced.
    pub const RIGHT: Self =
        Self { load: None, amax: None, scale: None, multiplier: None, code: None };
}

/// One block on its way through the stages; what a stage has not computed yet is what the right stages would have it.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Element format, mode and convention.
    pub profile: Profile,
    /// Input type.
    pub input: Float,
    /// The elements, row by row for tiles.
    pub numbers: &'a [Number],
    /// The amax of the block that was done before this one, if any.
    pub before: Option<Number>,
    /// The amax.
    pub amax: Number,
    /// The scale byte.
    pub scale: u8,
    /// What elements are multiplied by.
    pub multiplier: Multiplier,
}

impl Block<'_> {
    /// The element format.
    pub const fn format(&self) -> &'static Format {
        self.profile.element.format()
    }

    /// The scale byte that the right rule gives another amax.
    pub const fn byte(&self, amax: Number) -> u8 {
        self.profile.scale(amax)
    }

    /// The right code of an element.
    pub const fn right(&self, x: Number) -> u8 {
        self.profile.code(x, self.multiplier)
    }

    /// The element times the multiplier.
    pub const fn ratio(&self, x: Number) -> Number {
        self.multiplier.apply(x)
    }

    /// The code of a ratio under another rounding or overflow.
    pub const fn encode(&self, ratio: Number, rounding: Rounding, overflow: Overflow) -> u8 {
        self.format().encode(ratio, rounding, overflow) as u8
    }

    /// The largest magnitude of some elements.
    pub fn largest(&self, of: impl IntoIterator<Item = Number>) -> Number {
        self.profile.amax(of)
    }
}

/// The outputs of a quantize call with these stages.
///
/// # Errors
/// [`AnswerError`] for inputs that do not fit the op.
pub fn quantize(
    stages: &Stages,
    q: &Quantize,
    convention: &'static Convention,
    inputs: &Tensors,
) -> Result<Tensors, AnswerError> {
    quantized(q, convention, inputs, |x, profile, blocking| match x {
        Matrix::F32(x) => run(stages, q.input, x, profile, blocking),
        Matrix::Bf16(x) => run(stages, q.input, x, profile, blocking),
        Matrix::F16(x) => run(stages, q.input, x, profile, blocking),
    })
}

/// Starts from what native computes and does again what the replaced stages change.
fn run<T: Input>(
    stages: &Stages,
    input: Float,
    x: MatrixView<'_, T>,
    profile: Profile,
    blocking: Blocking,
) -> Result<Quantized, ShapeError> {
    let mut done = mx_native::quantize(T::any(x), profile, blocking)?;
    let x = match blocking.axis {
        Axis::Row => x,
        Axis::Col => x.transposed(),
    };
    let (rows, cols) = (blocking.shape.rows(), blocking.shape.cols());
    let each_lane = stages.load.is_some() || stages.amax.is_some() || stages.code.is_some();
    let mut numbers = vec![Number::ZERO; rows * cols];
    let mut before = None;
    for sr in 0..done.scale_rows {
        for sc in 0..done.scale_cols {
            let at = |i: usize| x.at(sr * rows + i / cols, sc * cols + i % cols);
            let fill = |numbers: &mut [Number]| {
                for (i, number) in numbers.iter_mut().enumerate() {
                    *number = match stages.load {
                        Some(load) => load(input, at(i).bits()),
                        None => at(i).number(),
                    };
                }
            };
            let own = done.scales[sr * done.scale_cols + sc];
            let multiplier = profile.multiplier(own);
            let mut amax = Number::ZERO;
            if each_lane {
                fill(&mut numbers);
                amax = profile.amax(numbers.iter().copied());
            } else if stages.scale.is_some() {
                amax = largest(profile, (0..numbers.len()).map(at));
            }
            let right =
                Block { profile, input, numbers: &[], before, amax, scale: own, multiplier };
            let staged = if each_lane || stages.scale.is_some() {
                scaled(stages, Block { numbers: &numbers, ..right })
            } else {
                right
            };
            before = Some(amax);
            let (amax, scale) = (staged.amax, staged.scale);
            let multiplier = stages.multiplier.map_or(staged.multiplier, |stage| stage(&staged));
            let same = scale == own && multiplier == right.multiplier;
            done.scales[sr * done.scale_cols + sc] = scale;
            if same && stages.load.is_none() && stages.code.is_none() {
                continue;
            }
            if !each_lane {
                fill(&mut numbers);
            }
            let block = Block { numbers: &numbers, amax, scale, multiplier, ..right };
            for (i, &number) in numbers.iter().enumerate() {
                done.elements[(sr * rows + i / cols) * done.cols + sc * cols + i % cols] =
                    match stages.code {
                        Some(code) => code(&block, number),
                        None => block.right(number),
                    };
            }
        }
    }
    Ok(done)
}

/// The block with its amax, scale and multiplier as the stages have them.
fn scaled<'a>(stages: &Stages, right: Block<'a>) -> Block<'a> {
    let mut block = right;
    if let Some(stage) = stages.amax {
        block.amax = stage(&block);
    }
    block.scale = match stages.scale {
        Some(stage) => stage(&block),
        None => block.profile.scale(block.amax),
    };
    block.multiplier = block.profile.multiplier(block.scale);
    block
}

/// The amax of some inputs, whose magnitudes are in order of their bits.
fn largest<T: Input>(profile: Profile, lanes: impl Iterator<Item = T>) -> Number {
    let format = T::FORMAT;
    let magnitudes = lanes.map(|x| x.bits() & !format.sign_bit());
    let counts = |bits: &u32| {
        profile.convention.amax_nan == AmaxNan::Propagate || *bits <= format.max_code() + 1
    };
    format.decode(magnitudes.filter(counts).max().unwrap_or(0))
}
