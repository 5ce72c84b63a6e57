//! How fast the processors of this machine make questions and right answers, with nobody to ask.
//!
//! `cargo run --release -p mx-conformance --example generate -- exhaustive 'quantize/e4m3/rceil/bf16/row/pairs'` prints output elements
//! a second: what a backend that answered at once could be judged at, less the digest and the comparison.

#![expect(clippy::print_stdout, reason = "a program")]

use mx_conformance::ask::Question;
use mx_conformance::judge::Judge;
use mx_conformance::runner::Options;
use mx_conformance::selection::{Filter, plan};
use mx_reference::convention::PROPAGATE;
use mx_vectors::{Level, cells::cells, classes};
use rayon::prelude::*;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(level), Some(filter)) = (args.next(), args.next()) else {
        return Err("give a level and a filter".into());
    };
    let level = Level::from_name(&level).ok_or("no such level")?;
    let filter = Filter::parse(&filter)?;
    let plans = plan(cells(), &classes::ALL, level, &[filter], (1, 1));
    let works: Vec<_> = plans
        .iter()
        .flat_map(|plan| plan.works.iter().map(move |work| (plan.prefix.as_str(), work)))
        .collect();
    let options = Options {
        convention: &PROPAGATE,
        judge: Judge::Native,
        repeat_every: 1,
        jobs: 1,
        bisect_for: Duration::ZERO,
    };
    let started = Instant::now();
    let elements = works
        .par_iter()
        .map(|(prefix, work)| {
            let question = Question::new(work, prefix, options)?;
            Ok(question.expected().values().map(|tensor| tensor.data.len() as u64).sum::<u64>())
        })
        .sum::<Result<u64, mx_conformance::runner::InternalError>>()?;
    let seconds = started.elapsed().as_secs_f64();
    let threads = rayon::current_num_threads();
    let rate = elements as f64 / seconds / 1e6;
    println!(
        "{elements} elements in {seconds:.1} s by {threads} threads: {rate:.0} million a second"
    );
    Ok(())
}
