//! Scale bytes: from an amax to its E8M0 byte by one addition.
//!
//! Every rule has the shape `byte = e − p + bump`, where bump is 1 from some fraction of the amax on. Adding what that
//! fraction lacks to the next binade lets the carry into the exponent field be the bump.

use mx_reference::convention::{Convention, InfinityScale, RceilRule};
use mx_reference::scale::{LARGEST_BYTE, NAN_BYTE, even_threshold};
use mx_reference::{Element, Magnitude, ScaleMode};

use crate::lane::F32_INFINITY;

/// What is added to the f32 bits of an amax.
#[derive(Clone, Copy, Debug)]
enum Carry {
    /// The same everywhere.
    Uniform(u32),
    /// By the amax's exponent field.
    ByExponent(&'static [u32; 256]),
}

/// The scale rule of one element format and mode under one convention, prepared for many amaxes.
#[derive(Clone, Copy, Debug)]
pub struct ScaleRule {
    carry: Carry,
    /// The least amax whose byte is not 0, where the carry would be wrong about it.
    least: u32,
    p: i32,
    /// The largest byte of a finite amax.
    top: u8,
    infinity: u8,
}

/// The scale byte of an amax given as f32 bits (every bf16 and f16 is an f32); the sign is not looked at.
///
/// Equal to [`ScaleMode::byte`]. For many amaxes prepare a [`ScaleRule`].
///
/// ```
/// use mx_reference::{Element, ScaleMode, convention::PROPAGATE};
/// let byte = |mode| mx_native::scale_byte(Element::E4m3, mode, &PROPAGATE, 500f32.to_bits());
/// assert_eq!(ScaleMode::ALL.map(byte), [0x7f, 0x80, 0x80, 0x80]);
/// ```
#[inline]
pub fn scale_byte(element: Element, mode: ScaleMode, convention: &Convention, amax: u32) -> u8 {
    ScaleRule::new(element, mode, convention).byte(amax)
}

impl ScaleRule {
    /// Prepares the rule.
    #[inline]
    pub fn new(element: Element, mode: ScaleMode, convention: &Convention) -> Self {
        let p = element.format().max_exponent();
        let infinity_scale = mode.edges(convention).infinity_scale;
        let infinity = match infinity_scale {
            InfinityScale::Nan => NAN_BYTE,
            InfinityScale::Largest => LARGEST_BYTE,
            InfinityScale::ExponentField => (255 - p).min(LARGEST_BYTE.into()) as u8,
        };
        let (carry, least, top) = match (mode, convention.rceil_rule) {
            (ScaleMode::Floor, _) => (Carry::Uniform(0), 0, LARGEST_BYTE),
            (ScaleMode::Ceil, _) => (Carry::Uniform((1 << 23) - 1), 0, LARGEST_BYTE),
            (ScaleMode::Even, _) => {
                (Carry::Uniform((1 << 23) - even_threshold(element)), 0, LARGEST_BYTE)
            }
            // Only MXINT8, whose max is below 2, has finite amaxes above max × 2^127.
            (ScaleMode::Rceil, RceilRule::Product) => {
                let top =
                    if infinity_scale == InfinityScale::Nan { NAN_BYTE } else { LARGEST_BYTE };
                (Carry::Uniform(product_carry(element)), product_least(element), top)
            }
            (ScaleMode::Rceil, RceilRule::CeilLog2) => {
                let table = &CEIL_LOG2[element as usize];
                (Carry::ByExponent(table), ceil_log2_least(element), LARGEST_BYTE)
            }
        };
        Self { carry, least, p, top, infinity }
    }

    /// The scale byte of an amax given as f32 bits; the sign is not looked at.
    #[inline(always)]
    pub fn byte(&self, amax: u32) -> u8 {
        let amax = amax & 0x7fff_ffff;
        let carry = match self.carry {
            Carry::Uniform(carry) => carry,
            Carry::ByExponent(table) => table[(amax >> 23) as usize],
        };
        // One step is all the normalisation that a subnormal needs: without its top bit it is below 2^-127, and its byte 0
        // in every mode.
        let subnormal = amax < 1 << 23;
        let normal = amax << u32::from(subnormal);
        let exponent = (normal.wrapping_add(carry) >> 23) as i32 - i32::from(subnormal);
        let byte = (exponent - self.p).clamp(0, self.top.into()) as u8;
        let byte = if amax < self.least { 0 } else { byte };
        match amax {
            F32_INFINITY => self.infinity,
            _ if amax > F32_INFINITY => NAN_BYTE,
            _ => byte,
        }
    }
}

/// f32(1/max) is `significand × 2^(-p - 24)` with a significand in [2^23, 2^24).
const fn reciprocal(element: Element) -> u64 {
    (element.reciprocal_of_max() & 0x7f_ffff | 0x80_0000) as u64
}

/// With the amax's significand the product of the two has its binade's upper end at 2^47, where the f32 spacing is 2^24
/// from there on: the bump begins above 2^47 plus half of it, the tie going down to even.
const fn product_carry(element: Element) -> u32 {
    let first = ((1 << 47) + (1 << 23)) / reciprocal(element) + 1;
    ((1 << 24) - first) as u32
}

/// At 2^-127 products are subnormal and the spacing is twice as wide.
const fn product_least(element: Element) -> u32 {
    bottom(element, ((1 << 47) + (1 << 24)) / reciprocal(element) + 1)
}

/// The f32 bits of the least value not below `significand × 2^(p - 127 - 23)`, a subnormal for MXINT8, whose p is 0.
const fn bottom(element: Element, significand: u64) -> u32 {
    let p = element.format().max_exponent() as u32;
    if p == 0 { significand.div_ceil(2) as u32 } else { ((p - 1) << 23) + significand as u32 }
}

/// The largest element as an integer, and the width of that below its top bit.
const fn max(element: Element) -> (u64, u32) {
    let format = element.format();
    match format.decode(format.max_code()).magnitude {
        Magnitude::Finite { significand, .. } => (significand, significand.ilog2()),
        _ => (1, 0),
    }
}

/// What [`RceilRule::CeilLog2`] adds, by the exponent field of the amax.
static CEIL_LOG2: [[u32; 256]; 6] = {
    let mut tables = [[0; 256]; 6];
    let mut i = 0;
    while i < Element::ALL.len() {
        let element = Element::ALL[i];
        let p = element.format().max_exponent();
        let mut field = 0;
        while field < 256 {
            tables[element as usize][field] = ceil_log2_carry(element, field as i32 - 127 - p);
            field += 1;
        }
        i += 1;
    }
    tables
};

/// The bump begins where the f32 quotient amax / max, `2^k × (1 + j × 2^-23)`, has j above what its logarithm loses.
const fn ceil_log2_carry(element: Element, k: i32) -> u32 {
    let (max, width) = max(element);
    let lost = lost_below(k);
    // Half a unit above the last quotient that is lost; that tie goes up where it is odd.
    let bound = max * ((1 << 24) + 2 * lost + 1);
    let first = if lost % 2 == 1 { bound.div_ceil(2 << width) } else { bound / (2 << width) + 1 };
    ((1 << 24) - first) as u32
}

/// At 2^-127 quotients are subnormal: j is even, and the first above 22 is reached from 23 on, a tie that goes to even.
const fn ceil_log2_least(element: Element) -> u32 {
    let (max, width) = max(element);
    bottom(element, (max * ((1 << 23) + 23)).div_ceil(1 << width))
}

/// The largest j for which the f32 nearest to `log2 (2^k × (1 + j × 2^-23))` is k: `2^(s - 1) ln 2` rounded down, with s the
/// exponent of the f32 binade that lies beyond k.
const fn lost_below(k: i32) -> u64 {
    // Going up from a negative power of two leads into the finer binade next to zero.
    let beyond = if k < 0 { k.unsigned_abs() - 1 } else { k.unsigned_abs() };
    match beyond {
        64.. => 22,
        32..64 => 11,
        16..32 => 5,
        8..16 => 2,
        4..8 => 1,
        _ => 0,
    }
}
