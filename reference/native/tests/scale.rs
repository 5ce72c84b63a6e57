//! Scale bytes on a sample of amaxes that holds every place where a rule could change its mind by mistake.

use mx_native::{ScaleRule, scale_byte};
use mx_reference::format::F32;
use mx_reference::{Convention, Element, ScaleMode};
use rstest::rstest;

/// A stride over all magnitudes; every exponent with the fractions where modes bump; all of the smallest and largest.
fn amaxes() -> impl Iterator<Item = u32> {
    let strided = (0..1u32 << 31).step_by(20_011);
    let thresholds = Element::ALL.into_iter().flat_map(|element| {
        let reciprocal = u64::from(element.reciprocal_of_max() & 0x7f_ffff | 0x80_0000);
        let max = ((1u64 << 47) / reciprocal) as u32;
        [0, max, max << 1, 0x78_0000, 0x7c_0000, 0x70_0000, 0x7e_0000, 0x60_0000]
    });
    let near = thresholds.flat_map(|fraction| {
        (0..256u32).flat_map(move |field| {
            (0..64)
                .map(move |step| (field << 23) + (fraction & 0x7f_ffff) + step)
                .map(|a| a.wrapping_sub(16))
        })
    });
    let ends =
        (0..1 << 12).flat_map(|i| [i, (1 << 22) - 2048 + i, (1 << 23) - 2048 + i, 0x7f80_0800 - i]);
    strided.chain(near).chain(ends)
}

#[rstest]
fn bytes_are_those_of_the_reference(
    #[values(
        Element::E4m3,
        Element::E5m2,
        Element::E3m2,
        Element::E2m3,
        Element::E2m1,
        Element::Int8
    )]
    element: Element,
    #[values(ScaleMode::Floor, ScaleMode::Ceil, ScaleMode::Even, ScaleMode::Rceil)] mode: ScaleMode,
) {
    for convention in Convention::ALL {
        let rule = ScaleRule::new(element, mode, convention);
        for amax in amaxes() {
            let expected = mode.byte(element, F32.decode(amax), convention);
            assert_eq!(rule.byte(amax), expected, "{} {amax:08x}", convention.name);
        }
        assert_eq!(
            scale_byte(element, mode, convention, 0xc3e0_0001),
            mode.byte(element, F32.decode(0xc3e0_0001), convention)
        );
    }
}
