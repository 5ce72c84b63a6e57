//! Whole-domain proofs: the oracle, the reference and its native twin agree on every input there is.
//!
//! Every point is put to the reference once. The 16-bit domains, decoding and the edges of scale rules take seconds and
//! always run; all f32 patterns and all pairs of bf16 take minutes and run with `--ignored`.

mod casts;
mod decode;
mod gemm;
mod pairs;
mod scales;
mod sweep;
mod tally;

/// Evaluates an expression with an element format as a constant, for which the reference's one codec is then compiled.
macro_rules! with_element {
    ($element:expr, $name:ident => $body:expr) => {
        with_element!(@each $element, $name => $body; E4m3 E5m2 E3m2 E2m3 E2m1 Int8)
    };
    (@each $element:expr, $name:ident => $body:expr; $($variant:ident)*) => {
        match $element {
            $(mx_reference::Element::$variant => {
                const $name: mx_reference::Element = mx_reference::Element::$variant;
                $body
            })*
        }
    };
}
pub(crate) use with_element;
