//! Progress on standard error: a bar on a terminal, plain lines elsewhere.

use crate::record::Counts;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Prints a line to standard error (with `@` first, without its end). Where nobody can read it, it is not worth failing for.
#[macro_export]
macro_rules! say {
    (@ $($arguments:tt)*) => {{
        use std::io::Write;
        let _ = write!(anstream::stderr(), $($arguments)*);
    }};
    ($($arguments:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), $($arguments)*);
    }};
}
pub use say;

/// Hears how far a run is.
pub trait Progress: Sync {
    /// Some cases are done.
    fn advance(&self, cell: &str, counts: &Counts);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Progress for Quiet {
    fn advance(&self, _: &str, _: &Counts) {}
}

/// How often plain lines come.
const EVERY: Duration = Duration::from_secs(5);

/// A bar on a terminal, a line every five seconds elsewhere.
#[derive(Debug)]
pub struct Meter {
    name: String,
    total: u64,
    bar: Option<ProgressBar>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    started: Instant,
    said: Instant,
    done: u64,
    elements: u64,
    failed: u64,
}

impl Meter {
    /// For `total` cases of a backend.
    pub fn new(name: &str, total: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let template = "[{elapsed:>4} {percent:>3}%] {bar:16} {prefix} {msg}  eta {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("##-"));
            }
            bar.set_prefix(name.to_owned());
            bar
        });
        let now = Instant::now();
        let state = State { started: now, said: now, done: 0, elements: 0, failed: 0 };
        Self { name: name.to_owned(), total, bar, state: Mutex::new(state) }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Meter {
    fn advance(&self, cell: &str, counts: &Counts) {
        let Ok(mut state) = self.state.lock() else { return };
        state.done +=
            counts.passed + counts.failed + counts.faulted + counts.outside + counts.not_run;
        state.elements += counts.elements;
        state.failed += counts.failed + counts.faulted;
        let elapsed = state.started.elapsed().as_secs_f64().max(1e-9);
        let rate = state.elements as f64 / elapsed / 1e6;
        let failed = state.failed;
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{cell}  {rate:.0} M/s  fail {failed}"));
            bar.set_position(state.done);
        } else if state.said.elapsed() >= EVERY {
            state.said = Instant::now();
            let share = state.done as f64 / self.total.max(1) as f64;
            let left = Duration::from_secs_f64(elapsed * (1.0 - share).max(0.0) / share.max(1e-9));
            say!(
                "[{elapsed:>4.0}s {:>3.0}%] {} {cell}  {rate:.0} M elements/s  eta {}  fail {failed}",
                100.0 * share,
                self.name,
                HumanDuration(left),
            );
        }
    }
}
