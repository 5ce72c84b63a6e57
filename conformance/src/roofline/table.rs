//! Estimates as a table for people.

use super::{Estimate, Gpu, Recipe, Roofline};

const COLUMNS: usize = 11;

const HEADER: [&str; COLUMNS] = [
    "M",
    "K",
    "N",
    "bf16 us",
    "mx gemm us",
    "cast us",
    "step us",
    "speedup",
    "fused cast us",
    "fused step us",
    "fused speedup",
];

/// What the figures are, and a line a shape. Times are in microseconds.
pub fn render(roofline: &Roofline) -> String {
    let Roofline { gpu, recipe, .. } = roofline;
    let mut text = format!(
        "roofline of a linear layer's training step (forward and backward) on {}: {} against bf16\n{}{}",
        gpu.name,
        recipe.name,
        figures(gpu),
        caveat(gpu, recipe),
    );
    let header = HEADER.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(roofline.shapes.iter().map(row)).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        widths = std::array::from_fn(|column| widths[column].max(row[column].len()));
    }
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}"));
        text += &(cells.collect::<Vec<_>>().join("  ") + "\n");
    }
    text
}

fn figures(gpu: &Gpu) -> String {
    let tera = |value| short(value / 1e12);
    let fp4 = gpu.fp4_peak.map(|peak| format!(", fp4 {}", tera(peak.value))).unwrap_or_default();
    format!(
        "  bf16 {}, fp8 {}{fp4} TFLOP/s at {:.0} %; {} TB/s at {:.0} %; no kernel under {} us\n",
        tera(gpu.bf16_peak.value),
        tera(gpu.fp8_peak.value),
        gpu.gemm_fraction.value * 100.0,
        tera(gpu.bandwidth.value),
        gpu.memory_fraction.value * 100.0,
        short(gpu.kernel_floor.value * 1e6),
    )
}

fn caveat(gpu: &Gpu, recipe: &Recipe) -> String {
    if recipe.emulated {
        "  GEMMs in bf16, since the recipe emulates them; dequantising counted as free\n".to_owned()
    } else if gpu.block_scaled {
        String::new()
    } else {
        format!(
            "  {} has no GEMM that applies MX scales: the FP8 peak stands in, which an MX GEMM cannot exceed\n",
            gpu.name
        )
    }
}

fn row(estimate: &Estimate) -> [String; COLUMNS] {
    let Estimate { shape, bf16, unfused, fused, speedup } = estimate;
    let us = |seconds: f64| format!("{:.2}", seconds * 1e6);
    let times = |ratio: f64| format!("{ratio:.3}");
    [
        shape.m.to_string(),
        shape.k.to_string(),
        shape.n.to_string(),
        us(bf16.seconds),
        us(unfused.gemm_seconds),
        us(unfused.cast_seconds),
        us(unfused.seconds),
        times(speedup.unfused),
        us(fused.cast_seconds),
        us(fused.seconds),
        times(speedup.fused),
    ]
}

/// At most two decimals, and none that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
