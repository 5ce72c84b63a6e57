//! Casts of a 16384×16384 bf16 tensor beside a copy.
use mx_benches::{cast, measure};
fn main() -> Result<(), mx_gpu::GpuError> {
    let gpu = mx_gpu::Gpu::open(0)?;
    let effort = measure::Effort::USUAL;
    let copy = measure::copy(&gpu, effort, 1 << 30)?;
    println!("copy {:.0} GB/s", copy / 1e9);
    for q in cast::questions() {
        let m = cast::measure(&gpu, effort, (16384, 16384), q, copy)?;
        println!(
            "{:?} {} {} {} {:.0} GB/s {:.1} %",
            m.direction,
            m.element,
            m.mode,
            m.layout,
            m.rate() / 1e9,
            100.0 * m.of_copy
        );
    }
    println!("copy {:.0} GB/s", measure::copy(&gpu, effort, 1 << 30)? / 1e9);
    Ok(())
}
