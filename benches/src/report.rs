//! Everything measured in one run, as data and as a table.

use crate::cast::{self, Measured};
use crate::measure::{Effort, copy};
use crate::plot::{Bar, bars};
use crate::product::{self, Gemm, Layer};
use mx_gpu::{Gpu, GpuError};
use mx_reference::gemm::GemmShape;
use serde::Serialize;
use std::fmt::Write;

/// The name and version of the JSON form of [`Report`].
pub const SCHEMA: &str = "mxcert-bench/1";

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Casts of a square of this many rows, beside a copy of as many bytes as its input; 0 for none.
    pub casts: usize,
    /// Square products from 1024 up to this size; 0 for none.
    pub gemms: usize,
    /// Square layers from 1024 up to this size, and grouped ones; 0 for none.
    pub layers: usize,
    /// The kernel preference of layers.
    pub kernel: &'static str,
    /// How often each is run.
    pub effort: Effort,
}

/// One run on one device.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The device.
    pub device: String,
    /// The driver's CUDA version.
    pub driver: i32,
    /// The digest of the kernels.
    pub kernels: String,
    /// Bytes a second of the copy before and after the casts.
    pub copies: Vec<f64>,
    /// Casts.
    pub casts: Vec<Measured>,
    /// Products.
    pub gemms: Vec<Gemm>,
    /// Training steps.
    pub layers: Vec<Layer>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
}

/// Groups of tokens, tokens, features in, features out: shapes of mixtures of experts.
const MIXTURES: [(usize, [usize; 3]); 2] = [(8, [16384, 5120, 8192]), (16, [32768, 2048, 4096])];

/// Measures; `said` is told what comes next.
///
/// # Errors
/// What the device reports. Running out of memory is not an error: what did not fit is listed.
pub fn run(gpu: &Gpu, request: Request, said: &dyn Fn(&str)) -> Result<Report, GpuError> {
    let Request { casts, gemms, layers, kernel, effort } = request;
    let mut report = Report {
        schema: SCHEMA,
        device: format!("{} ({})", gpu.name(), gpu.arch()),
        driver: gpu.found().driver,
        kernels: mx_gpu::program::digest(),
        copies: Vec::new(),
        casts: Vec::new(),
        gemms: Vec::new(),
        layers: Vec::new(),
        missing: Vec::new(),
    };
    if casts > 0 {
        let copied = copy(gpu, effort, 2 * casts * casts)?;
        report.copies.push(copied);
        for question in cast::questions() {
            said(&format!("{question:?}"));
            let measured = cast::measure(gpu, effort, (casts, casts), question, copied);
            keep(measured, &format!("{question:?}"), &mut report.casts, &mut report.missing)?;
        }
        report.copies.push(copy(gpu, effort, 2 * casts * casts)?);
    }
    for size in sizes(gemms) {
        let shape = GemmShape { m: size, n: size, k: size };
        said(&format!("product {size}"));
        let measured = product::gemm(gpu, effort, shape);
        keep(measured, &format!("product {size}"), &mut report.gemms, &mut report.missing)?;
    }
    let squares = sizes(layers).map(|size| (1, [size; 3]));
    let mixtures = if layers > 0 { &MIXTURES[..] } else { &[] };
    for (groups, [m, k, n]) in squares.chain(mixtures.iter().copied()) {
        let name = format!("layer {m} x {k} x {n}, {groups} groups");
        said(&name);
        let measured = product::layer(gpu, effort, GemmShape { m, n, k }, groups, kernel);
        keep(measured, &name, &mut report.layers, &mut report.missing)?;
    }
    Ok(report)
}

/// Powers of two from 1024.
fn sizes(largest: usize) -> impl Iterator<Item = usize> {
    (10..).map(|power| 1usize << power).take_while(move |&size| size <= largest)
}

fn keep<T>(
    measured: Result<T, GpuError>,
    name: &str,
    kept: &mut Vec<T>,
    missing: &mut Vec<String>,
) -> Result<(), GpuError> {
    match measured {
        Ok(measured) => kept.push(measured),
        Err(error @ GpuError::Unsupported(_)) => missing.push(format!("{name}: {error}")),
        Err(error) if error.is_out_of_memory() => missing.push(format!("{name}: {error}")),
        Err(error) => return Err(error),
    }
    Ok(())
}

impl Report {
    /// The tables. `predicted` gives the speed-up that a roofline allows for a layer, if one is known for the device.
    pub fn table(&self, predicted: &dyn Fn(&Layer) -> Option<f64>) -> String {
        let mut text = format!("{}, driver for CUDA {}\n", self.device, self.driver);
        // Writing to a string does not fail.
        if let Some(copied) = self.copies.first() {
            let _ = writeln!(text, "\ncast of bf16      mode   scales       GB/s   of copy");
            let _ =
                writeln!(text, "copy                               {:7.0}     100 %", copied / 1e9);
            for m in &self.casts {
                let name = format!("{:?} {}", m.direction, m.element).to_lowercase();
                let (rate, share) = (m.rate() / 1e9, 100.0 * m.of_copy);
                let _ = writeln!(
                    text,
                    "{name:<17} {:<6} {:<8} {rate:8.0}  {share:6.1} %",
                    m.mode, m.layout
                );
            }
        }
        if !self.gemms.is_empty() {
            let _ = writeln!(
                text,
                "\nproduct m n k              MX TFLOP/s   bf16 TFLOP/s   MX of bf16"
            );
            for g in &self.gemms {
                let [m, n, k] = g.shape;
                let (mx, bf16) =
                    (g.flops() / g.mx_seconds / 1e12, g.flops() / g.bf16_seconds / 1e12);
                let name = format!("{m} {n} {k}");
                let _ = writeln!(
                    text,
                    "{name:<26} {mx:10.0} {bf16:14.0} {:10.1} %",
                    100.0 * g.of_bf16()
                );
            }
        }
        if !self.layers.is_empty() {
            let _ = writeln!(
                text,
                "\nlayer m k n                groups  kernel           step ms   casts ms   bf16 ms  of bf16  roofline"
            );
            for l in &self.layers {
                let [m, k, n] = l.shape;
                let name = format!("{m} {k} {n}");
                let roofline =
                    predicted(l).map_or("-".to_owned(), |speedup| format!("{speedup:.2}"));
                let _ = writeln!(
                    text,
                    "{name:<26} {:>6}  {:<14} {:9.3} {:10.3} {:9.3} {:8.2} {roofline:>9}",
                    l.groups,
                    l.kernel,
                    1e3 * l.seconds,
                    1e3 * l.cast_seconds,
                    1e3 * l.bf16_seconds,
                    l.speedup()
                );
            }
        }
        for missing in &self.missing {
            let _ = writeln!(text, "not measured: {missing}");
        }
        text
    }

    /// Casts as bars, and the line of the copy.
    pub fn svg(&self) -> String {
        let bar = |m: &Measured| Bar {
            label: format!("{:?} {} {} {}", m.direction, m.element, m.mode, m.layout)
                .to_lowercase(),
            value: m.rate() / 1e9,
        };
        let all: Vec<Bar> = self.casts.iter().map(bar).collect();
        let copied = self.copies.first().copied().unwrap_or(0.0) / 1e9;
        bars(&format!("casts of bf16 on {}", self.device), "GB/s", ("copy", copied), &all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            schema: SCHEMA,
            device: "a device".to_owned(),
            driver: 13000,
            kernels: String::new(),
            copies: vec![4e12],
            casts: vec![Measured {
                direction: cast::Direction::Row,
                element: "e4m3",
                mode: "rceil",
                layout: "plain",
                seconds: 1e-3,
                bytes: 3_000_000_000,
                of_copy: 0.75,
            }],
            gemms: vec![Gemm { shape: [1024; 3], mx_seconds: 2e-6, bf16_seconds: 1e-6 }],
            layers: vec![Layer {
                shape: [1, 2, 3],
                groups: 1,
                kernel: "auto",
                seconds: 4e-3,
                cast_seconds: 1e-3,
                bf16_seconds: 2e-3,
            }],
            missing: vec!["a thing: no room".to_owned()],
        }
    }

    #[test]
    fn a_table_has_ratios() {
        let table = report().table(&|_| Some(1.25));
        for part in ["3000    75.0 %", "50.0 %", "0.50      1.25", "not measured: a thing"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert!(report().svg().contains("row e4m3 rceil plain"));
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(sizes(4096).collect::<Vec<_>>(), [1024, 2048, 4096]);
        assert_eq!(sizes(0).count(), 0);
    }
}
