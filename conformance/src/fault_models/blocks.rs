//! Shorthand for models of one stage of block quantisation.

use super::{Area, Block, Delta, FaultModel, Stages};
use mx_reference::block::Multiplier;
use mx_reference::gemm::Model;
use mx_reference::{Magnitude, Number};
use mx_vectors::{Float, Op};

/// What a model is called, what it does and what it stands for.
pub(super) type About = [&'static str; 3];

/// A model of any kind.
pub(super) const fn model(
    area: Area,
    [name, summary, source]: About,
    applies: fn(&Op) -> bool,
    delta: Delta,
) -> FaultModel {
    FaultModel { name, area, summary, source, applies, delta, accumulate: Some(Model::Exact) }
}

pub(super) const fn load(
    area: Area,
    about: About,
    applies: fn(&Op) -> bool,
    stage: fn(Float, u32) -> Number,
) -> FaultModel {
    let stages = Stages { load: Some(stage), ..Stages::RIGHT };
    model(area, about, applies, Delta::Stages(stages))
}

pub(super) const fn amax(
    area: Area,
    about: About,
    applies: fn(&Op) -> bool,
    stage: fn(&Block<'_>) -> Number,
) -> FaultModel {
    let stages = Stages { amax: Some(stage), ..Stages::RIGHT };
    model(area, about, applies, Delta::Stages(stages))
}

pub(super) const fn scale(
    area: Area,
    about: About,
    applies: fn(&Op) -> bool,
    stage: fn(&Block<'_>) -> u8,
) -> FaultModel {
    let stages = Stages { scale: Some(stage), ..Stages::RIGHT };
    model(area, about, applies, Delta::Stages(stages))
}

pub(super) const fn multiplier(
    area: Area,
    about: About,
    applies: fn(&Op) -> bool,
    stage: fn(&Block<'_>) -> Multiplier,
) -> FaultModel {
    let stages = Stages { multiplier: Some(stage), ..Stages::RIGHT };
    model(area, about, applies, Delta::Stages(stages))
}

pub(super) const fn code(
    area: Area,
    about: About,
    applies: fn(&Op) -> bool,
    stage: fn(&Block<'_>, Number) -> u8,
) -> FaultModel {
    let stages = Stages { code: Some(stage), ..Stages::RIGHT };
    model(area, about, applies, Delta::Stages(stages))
}

/// `floor(log2 |x|)` and the 23-bit fraction of a finite number of at most 24 bits that is not zero.
pub(super) const fn parts(x: Number) -> Option<(i32, u32)> {
    match x.magnitude {
        Magnitude::Finite { significand, exponent } => {
            let width = significand.ilog2();
            let fraction = (significand << (23 - width)) as u32 & 0x7f_ffff;
            Some((exponent + width as i32, fraction))
        }
        _ => None,
    }
}

/// An exponent as a scale byte, from 0 to 0xfe.
pub(super) fn clamped(exponent: i32) -> u8 {
    (exponent + 127).clamp(0, 254) as u8
}
