//! Counts points, keeps the first differences, and says how far a long proof is.

use std::fmt::{LowerHex, Write as _};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// How often a long proof speaks.
const EVERY: Duration = Duration::from_secs(5);
/// Differences that are shown; the rest is counted.
const SHOWN: u64 = 8;

/// The outcome so far of one proof.
#[derive(Debug)]
pub(crate) struct Tally {
    name: String,
    announced: u64,
    done: u64,
    different: u64,
    shown: String,
    long: bool,
    started: Instant,
    said: Instant,
}

impl Tally {
    /// A proof of seconds over `announced` points.
    pub(crate) fn short(name: impl Into<String>, announced: u64) -> Self {
        let now = Instant::now();
        Self {
            name: name.into(),
            announced,
            done: 0,
            different: 0,
            shown: String::new(),
            long: false,
            started: now,
            said: now,
        }
    }

    /// A proof of minutes.
    ///
    /// # Panics
    /// In a build without optimisation, which would take hours.
    pub(crate) fn long(name: impl Into<String>, announced: u64) -> Self {
        let optimised = !cfg!(debug_assertions);
        assert!(
            optimised,
            "run cargo test --release -p mx-conformance --test domains -- --ignored"
        );
        Self { long: true, ..Self::short(name, announced) }
    }

    /// Takes the next points: what each source says of them. `input` describes one by its place among them.
    pub(crate) fn compare<T: Copy + PartialEq + LowerHex>(
        &mut self,
        input: impl Fn(usize) -> String,
        sources: &[(&str, &[T])],
    ) {
        let (_, first) = sources[0];
        for (source, codes) in sources {
            assert_eq!(codes.len(), first.len(), "{}: points of {source}", self.name);
        }
        self.done += first.len() as u64;
        if sources.iter().any(|(_, codes)| *codes != first) {
            for (i, &code) in first.iter().enumerate() {
                if sources.iter().any(|(_, codes)| codes[i] != code) {
                    self.differ(
                        &input(i),
                        sources.iter().map(|(source, codes)| (*source, codes[i])),
                    );
                }
            }
        }
        if self.long && self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            self.say(&format!("{} %", self.done * 100 / self.announced));
        }
    }

    #[cold]
    fn differ<'a, T: LowerHex>(
        &mut self,
        input: &str,
        sources: impl Iterator<Item = (&'a str, T)>,
    ) {
        self.different += 1;
        if self.different <= SHOWN {
            let _ = write!(self.shown, "\n  {input}:");
            for (source, code) in sources {
                let _ = write!(self.shown, " {source} {code:#04x}");
            }
        }
    }

    /// Past libtest, which keeps what the printing macros say until a test has failed.
    fn say(&self, what: &str) {
        let microseconds = self.started.elapsed().as_micros().max(1);
        let rate = u128::from(self.done) / microseconds;
        let _ = writeln!(io::stderr(), "{}: {what}, {rate} M/s", self.name);
    }

    /// Ends the proof.
    ///
    /// # Panics
    /// If sources differed, or the points were not as many as announced.
    pub(crate) fn finish(self) {
        if self.long {
            let seconds = self.started.elapsed().as_secs_f64();
            self.say(&format!("{} outputs in {seconds:.1} s", self.done));
        }
        let Self { name, announced, done, different, shown, .. } = self;
        assert!(different == 0, "{name}: {different} of {done} points differ, the first:{shown}");
        assert_eq!(done, announced, "{name}: points run, points announced");
    }
}
