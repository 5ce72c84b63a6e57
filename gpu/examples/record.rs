//! Records what products of MX operands come to on this machine's device: raw outputs, next to the operands that they are of.
//!
//! `cargo run --release -p mx-gpu --example record -- FOLDER` writes `mx.bin` and `mx.json`, which says how the file lies. Nothing
//! here knows a model: that the outputs are what one predicts is for a test of the reference to find.

#![expect(clippy::print_stdout, reason = "a program")]

use mx_gpu::gemm::{By, Operand, Product};
use mx_gpu::{Gpu, GpuError};
use mx_reference::format::F32;
use mx_reference::gemm::GemmShape;
use mx_reference::{Element, Format};
use serde_json::{Value, json};
use std::path::Path;

/// Rows of either operand on the device: several tiles of outputs, the last of them not full.
const ROWS: usize = 300;
/// Rows of A and of B that are kept.
const KEPT: [[usize; 6]; 2] = [[0, 7, 66, 130, 255, 299], [1, 12, 64, 127, 200, 299]];

/// What operands are made of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Any finite element, under scales of a few octaves.
    Near,
    /// Any finite element, under any scale.
    Any,
    /// Near, with NaN and infinity among elements and scales.
    Special,
    /// Near, with most products next to others that are their negatives.
    Cancelling,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Near, Self::Any, Self::Special, Self::Cancelling];

    const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Any => "any",
            Self::Special => "special",
            Self::Cancelling => "cancelling",
        }
    }
}

/// Numbers that look random (Marsaglia, "Xorshift RNGs", J. Stat. Softw. 8(14), 2003).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn code(&mut self, format: &Format, kind: Kind) -> u8 {
        loop {
            let code = self.below(format.codes()) as u32;
            let number = format.decode(code);
            if number.exponent().is_some() || number.is_zero() {
                return code as u8;
            }
            if matches!(kind, Kind::Special) && self.below(8) == 0 {
                return code as u8;
            }
        }
    }

    fn scale(&mut self, kind: Kind) -> u8 {
        let byte = match kind {
            Kind::Any => self.below(255),
            Kind::Special if self.below(200) == 0 => 255,
            _ => 122 + self.below(11),
        };
        byte as u8
    }
}

/// Codes and scale bytes of one operand, row by row.
struct Side {
    element: Element,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Side {
    fn new(element: Element, k: usize, kind: Kind, noise: &mut Noise) -> Self {
        let format = element.format();
        let codes = (0..ROWS * k).map(|_| noise.code(format, kind)).collect();
        let scales = (0..ROWS * k / 32).map(|_| noise.scale(kind)).collect();
        Self { element, codes, scales }
    }

    /// Repeats most elements of even places at the next; with the other sign if so asked.
    fn repeat(&mut self, flip: bool) {
        let sign = match self.element {
            Element::Int8 => 0,
            _ => 1u8 << (self.element.format().bits - 1),
        };
        for (at, pair) in self.codes.chunks_exact_mut(2).enumerate() {
            if at % 8 != 5 {
                let negated = if sign == 0 { pair[0].wrapping_neg() } else { pair[0] ^ sign };
                pair[1] = if flip { negated } else { pair[0] };
            }
        }
    }

    /// The rows that are kept, of so many bytes each.
    fn kept(bytes: &[u8], width: usize, rows: &[usize]) -> Vec<u8> {
        rows.iter().flat_map(|row| &bytes[row * width..][..width]).copied().collect()
    }
}

/// The f32 bits of D, as the device gives them, and the kernel that made them: that of warpgroups where it takes the product and is asked
/// for.
fn outputs(
    gpu: &Gpu,
    (a, b): (&Side, &Side),
    k: usize,
    warpgroups: bool,
) -> Result<(Vec<u8>, &'static str), GpuError> {
    let buffers = [&a.codes, &a.scales, &b.codes, &b.scales].map(|bytes| gpu.upload(bytes));
    let [a_codes, a_scales, b_codes, b_scales] = buffers;
    let (a_codes, a_scales, b_codes, b_scales) = (a_codes?, a_scales?, b_codes?, b_scales?);
    let views = [a_codes.as_view(), a_scales.as_view(), b_codes.as_view(), b_scales.as_view()];
    let operand = |element, i| Operand {
        element,
        elements: &views[i],
        scales: &views[i + 1],
        blocked: false,
    };
    let mut product = Product {
        shape: GemmShape { m: ROWS, n: ROWS, k },
        a: operand(a.element, 0),
        b: operand(b.element, 2),
        groups: None,
        output: &F32,
        by: By::Warps,
    };
    let mut kernel = "mma.sync";
    if warpgroups && gpu.takes_warpgroups(&product) {
        (product.by, kernel) = (By::Warpgroups, "wgmma");
    }
    let mut d = gpu.upload(&vec![0xa5; ROWS * ROWS * 4])?;
    gpu.multiply(&product, &mut d.as_view_mut())?;
    Ok((gpu.download(&d.as_view())?, kernel))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("name a folder to write to")?;
    let folder = Path::new(&folder);
    let gpu = Gpu::open(0).map_err(|missing| missing.to_string())?;
    let (mut data, mut sets) = (Vec::new(), Vec::new());
    let mut put = |bytes: &[u8]| {
        data.extend_from_slice(bytes);
        data.len() - bytes.len()
    };
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for (i, left) in Element::ALL.into_iter().enumerate() {
        for (j, right) in Element::ALL.into_iter().enumerate() {
            for (at, kind) in Kind::ALL.into_iter().enumerate() {
                let k = [32, 96, 160, 416, 64, 1184][(i + 2 * j + 5 * at) % 6];
                let mut a = Side::new(left, k, kind, &mut noise);
                let mut b = Side::new(right, k, kind, &mut noise);
                if matches!(kind, Kind::Cancelling) {
                    a.repeat(true);
                    b.repeat(false);
                }
                let (d, kernel) = outputs(&gpu, (&a, &b), k, (i + j + at) % 2 == 1)?;
                let d: Vec<u8> = KEPT[0]
                    .iter()
                    .flat_map(|row| KEPT[1].map(|column| &d[(row * ROWS + column) * 4..][..4]))
                    .flatten()
                    .copied()
                    .collect();
                let set: Value = json!({
                    "kind": kind.name(),
                    "kernel": kernel,
                    "a": left.format().name,
                    "b": right.format().name,
                    "m": KEPT[0].len(),
                    "n": KEPT[1].len(),
                    "k": k,
                    "a_at": put(&Side::kept(&a.codes, k, &KEPT[0])),
                    "a_scales_at": put(&Side::kept(&a.scales, k / 32, &KEPT[0])),
                    "b_at": put(&Side::kept(&b.codes, k, &KEPT[1])),
                    "b_scales_at": put(&Side::kept(&b.scales, k / 32, &KEPT[1])),
                    "d_at": put(&d),
                });
                sets.push(set);
            }
        }
    }
    let manifest = json!({
        "device": format!("{} ({})", gpu.name(), gpu.arch()),
        "kernels": mx_gpu::program::digest(),
        "rows": KEPT,
        "of": ROWS,
        "layout": "rows of A and of B and their outputs, out of products of 300 rows each: a [m][k], b [n][k] codes, one a byte; a_scales [m][k/32], b_scales [n][k/32] E8M0 bytes; d [m][n] f32 bits as the device gave them, little endian; at byte offsets of mx.bin",
        "sets": sets,
    });
    std::fs::write(folder.join("mx.bin"), &data)?;
    std::fs::write(folder.join("mx.json"), serde_json::to_string_pretty(&manifest)? + "\n")?;
    println!("{} products, {} bytes", sets.len(), data.len());
    Ok(())
}
