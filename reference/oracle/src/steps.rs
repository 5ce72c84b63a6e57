//! A function of bit patterns as the list of places where it changes.

/// A piecewise constant function from patterns to codes.
///
/// Tables are built by bisection within stretches over which the function is monotone; reading them assumes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Where each run of equal codes starts, ascending, the first at 0.
    starts: Vec<u32>,
    codes: Vec<u8>,
    last: u32,
}

impl Steps {
    /// Tabulates `function` over stretches of patterns (first and last) that follow each other from 0. Within each, codes
    /// must not return once they have changed: monotone functions of the magnitude do not.
    pub(crate) fn tabulate(stretches: &[(u32, u32)], function: impl Fn(u32) -> u8) -> Self {
        let mut steps = Self { starts: Vec::new(), codes: Vec::new(), last: 0 };
        for &(first, last) in stretches {
            let final_code = function(last);
            let (mut start, mut code) = (first, function(first));
            loop {
                steps.push(start, code);
                if code == final_code {
                    break;
                }
                let (mut same, mut other) = (start, last);
                while other - same > 1 {
                    let middle = same.midpoint(other);
                    if function(middle) == code {
                        same = middle;
                    } else {
                        other = middle;
                    }
                }
                (start, code) = (other, function(other));
            }
            steps.last = last;
        }
        steps
    }

    fn push(&mut self, start: u32, code: u8) {
        if self.codes.last() != Some(&code) {
            self.starts.push(start);
            self.codes.push(code);
        }
    }

    /// The code of any pattern, by binary search.
    pub fn code(&self, bits: u32) -> u8 {
        self.codes[self.starts.partition_point(|&start| start <= bits) - 1]
    }

    /// The runs of equal codes in ascending order, as (first pattern, last pattern, code); together they are the domain.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32, u8)> + '_ {
        (0..self.codes.len()).map(|i| (self.starts[i], self.run_end(i), self.codes[i]))
    }

    /// A reader for patterns that only ascend: one comparison a pattern.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { steps: self, at: 0, until: self.run_end(0), code: self.codes[0] }
    }

    fn run_end(&self, run: usize) -> u32 {
        self.starts.get(run + 1).map_or(self.last, |start| start - 1)
    }
}

/// Reads [`Steps`] at ascending patterns.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    steps: &'a Steps,
    at: usize,
    until: u32,
    code: u8,
}

impl Cursor<'_> {
    /// The code of a pattern not below any asked for before.
    ///
    /// # Panics
    /// If the pattern lies beyond the table.
    #[inline]
    pub fn code(&mut self, bits: u32) -> u8 {
        while bits > self.until {
            self.at += 1;
            self.code = self.steps.codes[self.at];
            self.until = self.steps.run_end(self.at);
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_back_its_function() {
        let function =
            |bits: u32| if bits < 512 { (bits / 7) as u8 } else { 200 - (bits / 9) as u8 };
        let steps = Steps::tabulate(&[(0, 511), (512, 1023)], function);
        let mut cursor = steps.cursor();
        for bits in 0..1024 {
            assert_eq!(steps.code(bits), function(bits));
            assert_eq!(cursor.code(bits), function(bits));
        }
        let mut next = 0;
        for (first, last, code) in steps.runs() {
            assert_eq!(first, next);
            assert!((first..=last).all(|bits| function(bits) == code));
            next = last + 1;
        }
        assert_eq!(next, 1024);
    }
}
