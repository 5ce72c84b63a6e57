//! One pass over every pattern of an oracle's table.

use mx_oracle::Steps;

use crate::tally::Tally;

/// Patterns in hand at a time: small enough for the first cache.
const CHUNK: usize = 1 << 12;

/// Compares the oracle with the reference, asked pattern by pattern, and with the native twin, which fills in the codes
/// of consecutive patterns from one on.
#[inline]
pub(crate) fn sweep(
    tally: &mut Tally,
    what: &str,
    oracle: &Steps,
    reference: impl Fn(u32) -> u8,
    mut native: impl FnMut(u32, &mut [u8]),
) {
    let [mut by_oracle, mut by_reference, mut by_native] = [[0; CHUNK]; 3];
    let mut runs = Runs::new(oracle);
    loop {
        let first = runs.next;
        let count = runs.fill(&mut by_oracle);
        if count == 0 {
            break;
        }
        // A last chunk may end at the last u32.
        let first = first as u32;
        for (i, code) in (0..).zip(&mut by_reference[..count]) {
            *code = reference(first + i);
        }
        native(first, &mut by_native[..count]);
        tally.compare(
            |i| format!("{what} input {:#010x}", first + i as u32),
            &[
                ("oracle", &by_oracle[..count]),
                ("reference", &by_reference[..count]),
                ("native", &by_native[..count]),
            ],
        );
    }
}

/// Writes out the runs of a table.
struct Runs<'a> {
    rest: Box<dyn Iterator<Item = (u32, u32, u8)> + 'a>,
    /// The next pattern.
    next: u64,
    /// Where the run it lies in ends, exclusively.
    end: u64,
    code: u8,
}

impl<'a> Runs<'a> {
    fn new(steps: &'a Steps) -> Self {
        Self { rest: Box::new(steps.runs()), next: 0, end: 0, code: 0 }
    }

    /// The codes of the next patterns; fewer than there is room for only at the end of the table.
    fn fill(&mut self, codes: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < codes.len() {
            if self.next == self.end {
                let Some((first, last, code)) = self.rest.next() else { break };
                assert_eq!(u64::from(first), self.next, "the oracle's table has a gap");
                (self.end, self.code) = (u64::from(last) + 1, code);
            }
            let count = (self.end - self.next).min((codes.len() - filled) as u64);
            codes[filled..][..count as usize].fill(self.code);
            self.next += count;
            filled += count as usize;
        }
        filled
    }
}
