//! Products by NVIDIA's cuBLASLt as backends, one a mode.
//!
//! Per-tensor, per-row and 128-block FP8 are asked what FP8 hardware without MX scales can be asked, products under scales of 1, and that
//! is all that a certificate of theirs says; that scales are found where the library looks for them is a test of `mx-gpu`. bf16 is asked
//! MX products too: their operands are dequantised on the device first, which bf16 does exactly for all but the extreme scales, and others
//! are outside its claim.

use super::cuda::{Output, refusal};
use crate::algorithm::{Algorithm, shape};
use crate::backend::{Backend, Identity, Refusal};
use crate::capabilities::{Accumulate, Capabilities, Claim};
use crate::outputs::Outputs;
use mx_gpu::cublaslt::{self, CublasLt, Elements, Mode, Operand, Product, Scales, WORKSPACE};
use mx_gpu::{Arch, Buffer, Gpu, GpuError, View, ViewMut};
use mx_reference::gemm::Model;
use mx_reference::pack::PackOrder;
use mx_reference::{Convention, Element, Format};
use mx_vectors::op::{Factor, Scaling, Split};
use mx_vectors::{Call, Data, Float, Op, Tensor, Tensors};
use std::collections::BTreeMap;

/// One mode of cuBLASLt on the first device.
#[derive(Debug)]
pub struct Cublaslt {
    gpu: Gpu,
    library: CublasLt,
    mode: Mode,
    identity: Identity,
    capabilities: Capabilities,
    /// What the library chose, by formats and shape: chosen once, so that what was said is what is done.
    chosen: BTreeMap<([&'static str; 3], [usize; 3]), cublaslt::Algorithm>,
}

impl Cublaslt {
    /// Opens the library on the first device, and asks it which products of the mode it has.
    ///
    /// # Errors
    /// [`GpuError`]: what is missing here; [`GpuError::Unsupported`] if the device has no product of the mode.
    pub fn open(mode: Mode) -> Result<Self, GpuError> {
        let gpu = Gpu::open(0)?;
        let library = CublasLt::open(&gpu, WORKSPACE)?;
        let capabilities = claims(&library, mode, gpu.arch())?;
        let identity = Identity {
            name: "cublaslt".to_owned(),
            version: mx_gpu::probe::version_of(library.library().version),
            artifact: library.library().digest().map(str::to_owned),
            device: Some(format!("{} ({}), {mode}", gpu.name(), gpu.arch())),
        };
        Ok(Self { gpu, library, mode, identity, capabilities, chosen: BTreeMap::new() })
    }
}

/// The accumulation that a mode has on an architecture, where one is known.
fn model(mode: Mode, arch: Arch) -> Option<Model> {
    use Arch::{Sm80, Sm89, Sm90a, Sm100a, Sm120a};
    match (mode.elements, mode.a, arch) {
        (Elements::Fp8, Scales::Scalar, Sm89) => Some(Model::AdaFp8),
        (Elements::Fp8, Scales::Vec32, Sm100a | Sm120a) => Some(Model::BlackwellMxf8f6f4),
        (Elements::Fp8, Scales::Vec32, _) => None,
        (Elements::Fp8, _, Sm90a) if mode.fast_accumulation => Some(Model::HopperFp8),
        (Elements::Fp8, _, Sm90a) => Some(Model::HopperFp8Promote128),
        (Elements::Fp4, _, Sm100a | Sm120a) => Some(Model::BlackwellMxf4nvf4),
        (Elements::Bf16, _, Sm80 | Sm89) => Some(Model::AdaBf16),
        (Elements::Bf16, _, Sm90a | Sm100a | Sm120a) => Some(Model::HopperBf16),
        (Elements::F16, _, Sm90a | Sm100a | Sm120a) => Some(Model::HopperF16),
        _ => None,
    }
}

/// What rows and columns must be multiples of. FP8 has products where every row has whole 16 bytes, outputs included. bf16 and f16 have
/// products of any shape, and a known accumulation on those whose rows have whole 16 bytes: others go to kernels of other families,
/// which cut K into up to 99 parts by rules that no model here has.
const fn multiple(mode: Mode) -> (usize, usize) {
    match mode.elements {
        Elements::Fp8 => (8, 16),
        Elements::Fp4 => (16, 32),
        Elements::Bf16 | Elements::F16 => (8, 8),
    }
}

/// What the library says that it multiplies, of a mode: those outputs that any pair of formats has, and those pairs that have them all.
fn claims(library: &CublasLt, mode: Mode, arch: Arch) -> Result<Capabilities, GpuError> {
    let mut refused = None;
    let mut table = Vec::new();
    for &(a, b) in mode.elements.pairs() {
        let mut outputs = Vec::new();
        for output in Float::ALL {
            let product =
                Product { m: 128, n: 128, k: 256, a, b, d: output.format(), mode, strides: None };
            match library.algorithm(&product) {
                Ok(_) => outputs.push(output),
                Err(GpuError::Unsupported(reason)) => {
                    refused.get_or_insert(reason);
                }
                Err(error) => return Err(error),
            }
        }
        table.push(((a, b), outputs));
    }
    let outputs = Float::ALL.into_iter().filter(|f| table.iter().any(|(_, of)| of.contains(f)));
    let outputs: Vec<Float> = outputs.collect();
    let whole = table.iter().filter(|(_, of)| *of == outputs);
    let profiles = whole.flat_map(|((a, b), _)| profiles(mode, a, b)).collect();
    if outputs.is_empty() {
        return Err(GpuError::Unsupported(refused.unwrap_or_default()));
    }
    Ok(Capabilities {
        ops: Claim::Only(vec!["gemm".to_owned()]),
        profiles: Claim::Only(profiles),
        inputs: Claim::Only(outputs.iter().map(|output| output.name().to_owned()).collect()),
        accumulate: Some(Accumulate(model(mode, arch))),
        multiple: Some(multiple(mode)),
        ..Capabilities::default()
    })
}

/// The products that one pair of formats is asked.
fn profiles(mode: Mode, a: &Format, b: &Format) -> Vec<String> {
    let own = |scaling: Scaling| format!("{}-{}/{}", a.name, b.name, scaling.name());
    match (mode.elements, mode.a) {
        (Elements::Fp8, Scales::Vec32) => vec![own(Scaling::Mx)],
        (Elements::Fp8, _) => vec![own(Scaling::Unit)],
        (Elements::Fp4, _) => vec![own(Scaling::Nvfp4)],
        (Elements::F16, _) => vec![own(Scaling::Plain)],
        (Elements::Bf16, _) => {
            let mx = |a: Element| {
                Element::ALL.map(|b| format!("{}-{}/{}", a.name(), b.name(), Scaling::Mx.name()))
            };
            std::iter::once(own(Scaling::Plain))
                .chain(Element::ALL.into_iter().flat_map(mx))
                .collect()
        }
    }
}

impl Backend for Cublaslt {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn algorithm(&mut self, call: &Call) -> Result<Algorithm, Refusal> {
        let product = self.product(call).map_err(refusal)?;
        let algorithm = self.choose(&product).map_err(refusal)?;
        let split = Split { parts: algorithm.split, tile: self.mode.split_tile() };
        Ok(Algorithm { split, name: Some(algorithm.to_string()) })
    }

    fn execute(
        &mut self,
        call: &Call,
        _: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        self.answer(call, outputs).map_err(refusal)
    }

    fn duplicate(&self) -> Option<Box<dyn Backend>> {
        let gpu = self.gpu.fork().ok()?;
        let library = CublasLt::open(&gpu, WORKSPACE).ok()?;
        Some(Box::new(Self {
            gpu,
            library,
            mode: self.mode,
            identity: self.identity.clone(),
            capabilities: self.capabilities.clone(),
            chosen: self.chosen.clone(),
        }))
    }
}

impl Cublaslt {
    /// The library's product that a call asks for.
    fn product(&self, call: &Call) -> Result<Product, GpuError> {
        let (Op::Gemm(g), Some([m, n, k])) = (&call.op, shape(call)) else {
            return Err(GpuError::Unsupported(format!("{} is no product", call.op.name())));
        };
        // The formats that elements have when they are multiplied.
        let format = |factor: Factor| match self.mode.elements {
            Elements::Fp8 | Elements::Fp4 => factor.format(),
            Elements::Bf16 => Factor::Bf16.format(),
            Elements::F16 => Factor::F16.format(),
        };
        let (a, b, d) = (format(g.a), format(g.b), g.output.format());
        Ok(Product { m, n, k, a, b, d, mode: self.mode, strides: None })
    }

    fn choose(&mut self, product: &Product) -> Result<cublaslt::Algorithm, GpuError> {
        let Product { m, n, k, a, b, d, .. } = *product;
        let key = ([a.name, b.name, d.name], [m, n, k]);
        if let Some(&known) = self.chosen.get(&key) {
            return Ok(known);
        }
        let algorithm = self.library.algorithm(product)?;
        self.chosen.insert(key, algorithm);
        Ok(algorithm)
    }

    fn answer(&mut self, call: &Call, outputs: &mut Outputs) -> Result<(), GpuError> {
        let product = self.product(call)?;
        let Op::Gemm(g) = &call.op else { return Ok(()) };
        let algorithm = self.choose(&product)?;
        let (Product { m, n, k, .. }, inputs) = (product, &call.inputs);
        let (a_scales, b_scales) = (self.mode.a, self.mode.b);
        let a_codes = self.codes(g.a, inputs, ["a_elements", "a_scales"], (m, k))?;
        let b_codes = self.codes(g.b, inputs, ["b_elements", "b_scales"], (n, k))?;
        let a_scales = self.scales(a_scales, inputs, "a_scales", (m, k))?;
        let b_scales = self.scales(b_scales, inputs, "b_scales", (n, k))?;
        let mut output = Output::upload(&self.gpu, outputs, "output")?;
        let (a, a_scales) = (a_codes.view(), a_scales.as_ref().map(Held::view));
        let (b, b_scales) = (b_codes.view(), b_scales.as_ref().map(Held::view));
        let operands = [
            Operand { codes: &a, scales: a_scales.as_ref() },
            Operand { codes: &b, scales: b_scales.as_ref() },
        ];
        let alpha = tensor_scale(inputs);
        self.library.multiply(&product, &algorithm, operands, alpha, &mut output.view())?;
        output.download(&self.gpu, outputs, "output")
    }

    /// The elements of an operand as the library takes them: FP4 two a byte, MX dequantised for modes without scales.
    fn codes(
        &self,
        factor: Factor,
        inputs: &Tensors,
        [elements, scales]: [&str; 2],
        (rows, k): (usize, usize),
    ) -> Result<Held, GpuError> {
        let gpu = &self.gpu;
        let given = |name| Held::upload(gpu, input(inputs, name)?.data.as_bytes());
        let codes = given(elements)?;
        let wide = match (self.mode.elements, factor) {
            (Elements::Fp4, Factor::Element(element)) => {
                let mut packed = Held::allocate(gpu, rows * k / 2)?;
                let order = PackOrder::LittleEndian;
                gpu.pack(element, order, &codes.view(), &mut packed.view_mut())?;
                return Ok(packed);
            }
            (Elements::Bf16, Factor::Element(element)) => Some((element, Factor::Bf16)),
            (Elements::F16, Factor::Element(element)) => Some((element, Factor::F16)),
            _ => None,
        };
        let Some((element, wide)) = wide else { return Ok(codes) };
        let (scales, mut output) = (given(scales)?, Held::allocate(gpu, rows * k * 2)?);
        let (codes, scales, to) = (codes.view(), scales.view(), &mut output.view_mut());
        gpu.dequantize(element, (rows, k), &codes, &scales, wide.format(), to)?;
        Ok(output)
    }

    /// The scales of an operand as the library takes them: ones, or the call's in the blocked layout.
    fn scales(
        &self,
        scales: Scales,
        inputs: &Tensors,
        name: &str,
        (rows, k): (usize, usize),
    ) -> Result<Option<Held>, GpuError> {
        let len = scales.bytes(rows, k)?;
        let block = match scales {
            Scales::None => return Ok(None),
            Scales::Vec32 => 32,
            Scales::Vec16 => 16,
            Scales::Scalar | Scales::OuterVec | Scales::Vec128 | Scales::Blk128x128 => {
                return Held::upload(&self.gpu, &1f32.to_le_bytes().repeat(len / 4)).map(Some);
            }
        };
        let plain = Held::upload(&self.gpu, input(inputs, name)?.data.as_bytes())?;
        let mut blocked = Held::allocate(&self.gpu, len)?;
        self.gpu.swizzle((rows, k / block), &plain.view(), &mut blocked.view_mut())?;
        Ok(Some(blocked))
    }
}

/// A buffer on the device that may be empty.
struct Held {
    buffer: Buffer,
    len: usize,
}

impl Held {
    fn allocate(gpu: &Gpu, len: usize) -> Result<Self, GpuError> {
        Ok(Self { buffer: gpu.allocate(len)?, len })
    }

    fn upload(gpu: &Gpu, bytes: &[u8]) -> Result<Self, GpuError> {
        Ok(Self { buffer: gpu.upload(bytes)?, len: bytes.len() })
    }

    fn view(&self) -> View<'_> {
        self.buffer.slice(..self.len)
    }

    fn view_mut(&mut self) -> ViewMut<'_> {
        self.buffer.slice_mut(..self.len)
    }
}

fn input<'a>(inputs: &'a Tensors, name: &str) -> Result<&'a Tensor, GpuError> {
    inputs.get(name).ok_or_else(|| GpuError::Unsupported(format!("there is no input `{name}`")))
}

/// The product of both tensor scales, rounded once; 1 without any.
fn tensor_scale(inputs: &Tensors) -> f32 {
    match inputs.get("tensor_scale").map(|tensor| &tensor.data) {
        Some(Data::U32(words)) => words.iter().map(|&word| f32::from_bits(word)).product(),
        _ => 1.0,
    }
}
