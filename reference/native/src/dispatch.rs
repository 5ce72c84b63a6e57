//! One source, several instruction sets: the element format becomes a type, and the best instruction set is chosen at run time.

use std::marker::PhantomData;

use mx_reference::format::{E2M1, E2M3, E3M2, E4M3, E5M2, INT8};
use mx_reference::{Element, Format};

/// An element format as a type, so that every kernel is compiled with its descriptor as a constant.
pub(crate) trait Spec {
    /// The descriptor.
    const FORMAT: Format;
}

macro_rules! specs {
    ($($name:ident $format:ident),*) => {$(
        pub(crate) struct $name;
        impl Spec for $name {
            const FORMAT: Format = $format;
        }
    )*};
}
specs!(E4m3 E4M3, E5m2 E5M2, E3m2 E3M2, E2m3 E2M3, E2m1 E2M1, Int8 INT8);

/// Work over many elements. `run` and all that it calls must be `#[inline(always)]`: what is not inlined into
/// the function that enables an instruction set is compiled without it.
pub(crate) trait Kernel {
    /// Does the work for one element format.
    fn run<S: Spec>(self);
}

/// A [`Kernel`] that is of no element format.
pub(crate) trait Work {
    /// Does the work.
    fn run(self);
}

/// A kernel that knows its element format.
struct Typed<S, K>(K, PhantomData<S>);

impl<S: Spec, K: Kernel> Work for Typed<S, K> {
    #[inline(always)]
    fn run(self) {
        self.0.run::<S>();
    }
}

/// Runs a kernel for an element format with the best instruction set of this machine.
pub(crate) fn dispatch<K: Kernel>(element: Element, kernel: K) {
    match element {
        Element::E4m3 => detect(Typed::<E4m3, K>(kernel, PhantomData)),
        Element::E5m2 => detect(Typed::<E5m2, K>(kernel, PhantomData)),
        Element::E3m2 => detect(Typed::<E3m2, K>(kernel, PhantomData)),
        Element::E2m3 => detect(Typed::<E2m3, K>(kernel, PhantomData)),
        Element::E2m1 => detect(Typed::<E2m1, K>(kernel, PhantomData)),
        Element::Int8 => detect(Typed::<Int8, K>(kernel, PhantomData)),
    }
}

/// Does the work with the best instruction set of this machine.
pub(crate) fn detect<W: Work>(work: W) {
    #[cfg(target_arch = "x86_64")]
    #[expect(
        unsafe_code,
        reason = "calling a function compiled for an instruction set that was just detected"
    )]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the running CPU was just found to support AVX2, the only feature that `avx2` enables.
        return unsafe { avx2(work) };
    }
    work.run();
}

/// Variable shifts per lane, which the kernels live on, came to x86 with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<W: Work>(work: W) {
    work.run();
}

#[cfg(test)]
mod tests {
    use mx_reference::{MatrixView, Profile, ScaleMode, convention};

    use super::*;
    use crate::plan::Plan;
    use crate::rows::Lines;

    #[test]
    fn the_plain_build_of_a_kernel_agrees_with_the_chosen_one() {
        let input: Vec<f32> = (0..1 << 14)
            .map(|i: u32| f32::from_bits(i.wrapping_mul(0x9e37_79b9) & 0xbfff_ffff))
            .collect();
        let x = MatrixView::contiguous(&input, 1, input.len()).unwrap();
        let (element, mode) = (Element::E4m3, ScaleMode::Rceil);
        let profile = Profile { element, mode, convention: &convention::PROPAGATE };
        let plan = &Plan::new::<f32>(profile);
        let quantized = |work: fn(Lines<'_, f32>)| {
            let (mut codes, mut scales) = (vec![0; input.len()], vec![0; input.len() / 32]);
            work(Lines { plan, block: 32, x, first: 0, codes: &mut codes, scales: &mut scales });
            (codes, scales)
        };
        let plain = quantized(|lines| lines.run::<E4m3>());
        assert_eq!(plain, quantized(|lines| dispatch(Element::E4m3, lines)));
    }
}
