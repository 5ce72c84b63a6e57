//! The project's own CUDA kernels as a backend.

use crate::backend::{Backend, Fault, Identity, Refusal};
use crate::capabilities::{Accumulate, Capabilities, Claim};
use crate::outputs::Outputs;
use mx_gpu::gemm::{By, Operand, Product};
use mx_gpu::layer::{Preference, Step};
use mx_gpu::quantize::{Arrangement, Blocks, Cast, Target};
use mx_gpu::{Arch, Buffer, Gpu, GpuError, View, ViewMut};
use mx_reference::gemm::{GemmShape, GroupAxis, Model};
use mx_reference::grouped_layout::GroupedLayout;
use mx_reference::pack::packed_len;
use mx_reference::{Axis, BlockShape, Convention, Element, ScaleLayout, ScaleMode};
use mx_vectors::op::{Factor, Gemm, GroupSwizzle, Linear, Quantize};
use mx_vectors::{Call, Data, Op, Tensor, Tensors};
use std::ops::Range;

/// The kernels of `mx-gpu` on the first device.
#[derive(Clone, Debug)]
pub struct Cuda {
    gpu: Gpu,
    other_way: bool,
    identity: Identity,
    capabilities: Capabilities,
}

impl Cuda {
    /// Opens the first device.
    ///
    /// # Errors
    /// [`GpuError`]: what is missing here, or what the driver refused.
    pub fn open() -> Result<Self, GpuError> {
        let gpu = Gpu::open(0)?;
        mx_gpu::probe::compiler()?;
        let capabilities = claims(gpu.arch());
        let identity = Identity {
            name: "cuda".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            artifact: Some(mx_gpu::program::digest()),
            device: Some(format!("{} ({})", gpu.name(), gpu.arch())),
        };
        Ok(Self { gpu, other_way: false, identity, capabilities })
    }
}

/// What the kernels do. Products are claimed where their accumulation is known.
fn claims(arch: Arch) -> Capabilities {
    let only = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
    let mut ops = only(&["quantize", "dequantize", "pack", "swizzle", "group_swizzle"]);
    let elements = Element::ALL.map(Element::name);
    let casts = elements
        .iter()
        .flat_map(|element| ScaleMode::ALL.map(|mode| format!("{element}/{}", mode.name())));
    let mut profiles: Vec<String> = casts.collect();
    if matches!(arch, Arch::Sm90a | Arch::Sm100a | Arch::Sm120a) {
        ops.extend(only(&["gemm", "grouped_gemm", "linear"]));
        let pairs = |a| elements.iter().map(move |b| format!("{a}-{b}/mx"));
        profiles.extend(elements.iter().flat_map(pairs));
    }
    Capabilities {
        ops: Claim::Only(ops),
        profiles: Claim::Only(profiles),
        conventions: Claim::Only(only(&["propagate", "te"])),
        recipes: Claim::Only(only(&["mxfp8_rceil", "mxfp8_cublas", "mxfp8_cublas_rceil"])),
        accumulate: Some(Accumulate(Some(Model::MxBlockF16Pair))),
        ..Capabilities::default()
    }
}

impl Backend for Cuda {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        self.other_way = !self.other_way;
        self.answer(call, convention, outputs).map_err(refusal)
    }

    fn duplicate(&self) -> Option<Box<dyn Backend>> {
        let gpu = self.gpu.fork().ok()?;
        Some(Box::new(Self { gpu, ..self.clone() }))
    }
}

/// How an error of the device is judged.
pub(super) fn refusal(error: GpuError) -> Refusal {
    match error {
        GpuError::Unsupported(reason) => Refusal::Unsupported(reason),
        error if error.is_fatal() => {
            let status = error.to_string();
            Fault::Crashed { status, stderr: String::new() }.into()
        }
        error => Fault::Raised { reason: error.to_string() }.into(),
    }
}

/// An input on the device.
pub(super) struct Input {
    buffer: Buffer,
    len: usize,
}

impl Input {
    pub(super) fn upload(gpu: &Gpu, tensor: &Tensor) -> Result<Self, GpuError> {
        let bytes = tensor.data.as_bytes();
        Ok(Self { buffer: gpu.upload(bytes)?, len: bytes.len() })
    }

    fn empty(gpu: &Gpu, len: usize) -> Result<Self, GpuError> {
        Ok(Self { buffer: gpu.allocate(len)?, len })
    }

    pub(super) fn view(&self) -> View<'_> {
        self.buffer.slice(..self.len)
    }

    fn view_mut(&mut self) -> ViewMut<'_> {
        self.buffer.slice_mut(..self.len)
    }
}

/// An output on the device: a copy of the host's, guard bands and poison included.
pub(super) struct Output {
    buffer: Buffer,
    payload: Range<usize>,
}

impl Output {
    pub(super) fn upload(gpu: &Gpu, outputs: &mut Outputs, name: &str) -> Result<Self, GpuError> {
        let (bytes, payload) = outputs.guarded_mut(name).unwrap_or((&mut [], 0..0));
        Ok(Self { buffer: gpu.upload(bytes)?, payload })
    }

    pub(super) fn view(&mut self) -> ViewMut<'_> {
        self.buffer.slice_mut(self.payload.clone())
    }

    /// Brings everything back, what was written outside the payload too.
    pub(super) fn download(
        self,
        gpu: &Gpu,
        outputs: &mut Outputs,
        name: &str,
    ) -> Result<(), GpuError> {
        if let Some((bytes, _)) = outputs.guarded_mut(name) {
            gpu.download_into(&self.buffer.slice(..bytes.len()), bytes)?;
        }
        Ok(())
    }
}

/// A tensor that the suite always sends; an empty one stands for one that is missing.
fn input<'a>(inputs: &'a Tensors, name: &str) -> Result<&'a Tensor, GpuError> {
    inputs.get(name).ok_or_else(|| GpuError::Unsupported(format!("there is no input `{name}`")))
}

/// Rows and columns of a matrix.
fn shape(tensor: &Tensor) -> Result<(usize, usize), GpuError> {
    match tensor.shape[..] {
        [rows, cols] => Ok((rows, cols)),
        _ => Err(GpuError::Unsupported(format!("expected a matrix, got shape {:?}", tensor.shape))),
    }
}

fn ends(inputs: &Tensors) -> Result<&[i32], GpuError> {
    match &input(inputs, "offsets")?.data {
        Data::I32(ends) => Ok(ends),
        _ => Err(GpuError::Unsupported("offsets must be I32".to_owned())),
    }
}

impl Cuda {
    fn answer(
        &self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), GpuError> {
        let (gpu, inputs) = (&self.gpu, &call.inputs);
        let on_device = |name: &str| Input::upload(gpu, input(inputs, name)?);
        match &call.op {
            Op::Quantize(q) => self.quantize(q, convention, inputs, outputs),
            Op::Linear(l) => self.step(l, inputs, outputs),
            Op::Gemm(g) => self.multiply(g, None, inputs, outputs),
            Op::GroupedGemm(g) => self.multiply(&g.gemm, Some(g.axis), inputs, outputs),
            Op::Dequantize(d) => {
                let shape = shape(input(inputs, "elements")?)?;
                let (elements, scales) = (on_device("elements")?, on_device("scales")?);
                let mut output = Output::upload(gpu, outputs, "output")?;
                let format = d.output.format();
                gpu.dequantize(
                    d.element,
                    shape,
                    &elements.view(),
                    &scales.view(),
                    format,
                    &mut output.view(),
                )?;
                output.download(gpu, outputs, "output")
            }
            Op::Pack(p) => {
                let codes = on_device("elements")?;
                let mut packed = Output::upload(gpu, outputs, "packed")?;
                gpu.pack(p.element, p.order, &codes.view(), &mut packed.view())?;
                packed.download(gpu, outputs, "packed")
            }
            Op::Swizzle => {
                let plain = on_device("scales")?;
                let mut blocked = Output::upload(gpu, outputs, "scales")?;
                let shape = shape(input(inputs, "scales")?)?;
                gpu.swizzle(shape, &plain.view(), &mut blocked.view())?;
                blocked.download(gpu, outputs, "scales")
            }
            Op::GroupSwizzle(g) => {
                let tensor = input(inputs, "scales")?;
                let plain = on_device("scales")?;
                let mut blocked = Output::upload(gpu, outputs, "scales")?;
                match (g, &tensor.shape[..]) {
                    (GroupSwizzle::Axis(axis), _) => gpu.swizzle_groups(
                        *axis,
                        shape(tensor)?,
                        ends(inputs)?,
                        &plain.view(),
                        &mut blocked.view(),
                    )?,
                    (GroupSwizzle::Experts, &[experts, rows, cols]) => gpu.swizzle_experts(
                        (experts, rows, cols),
                        &plain.view(),
                        &mut blocked.view(),
                    )?,
                    (GroupSwizzle::Experts, other) => {
                        let text = format!("expected [experts, rows, cols], got {other:?}");
                        return Err(GpuError::Unsupported(text));
                    }
                }
                blocked.download(gpu, outputs, "scales")
            }
            op => Err(GpuError::Unsupported(format!("{} has no kernel", op.name()))),
        }
    }

    /// Quantises by the kernel of this direction with one code a byte, or, every other call, packed and by the kernel that does both
    /// directions. Every question is asked twice, so both ways are judged.
    fn quantize(
        &self,
        q: &Quantize,
        convention: &'static Convention,
        inputs: &Tensors,
        outputs: &mut Outputs,
    ) -> Result<(), GpuError> {
        let gpu = &self.gpu;
        let tensor = input(inputs, "input")?;
        let (rows, cols) = shape(tensor)?;
        let x = Input::upload(gpu, tensor)?;
        let layout = match q.layout {
            ScaleLayout::Plain => Arrangement::Plain,
            ScaleLayout::Blocked => Arrangement::Blocked,
            ScaleLayout::Transposed => {
                return Err(GpuError::Unsupported("no kernel transposes scales".to_owned()));
            }
        };
        let packed = self.other_way;
        let (element, mode, input) = (q.element, q.mode, q.input.format());
        let cast = Cast { element, mode, convention, input, packed };
        let mut elements = Output::upload(gpu, outputs, "elements")?;
        let mut scales = Output::upload(gpu, outputs, "scales")?;
        let lines = if q.axis == Axis::Row { (rows, cols) } else { (cols, rows) };
        let bytes = lines.0 * packed_len(element, lines.1)?;
        let mut wire = gpu.allocate(bytes)?;
        {
            let mut view = if packed { wire.slice_mut(..bytes) } else { elements.view() };
            let mut scales = scales.view();
            let target = Target { elements: &mut view, scales: &mut scales, layout };
            let both = q.block == BlockShape::MX
                && rows.is_multiple_of(32)
                && cols.is_multiple_of(32)
                && rows * cols > 0;
            if packed && both {
                let count = rows * cols;
                let other = packed_len(element, count)?;
                let (mut codes, mut bytes) = (gpu.allocate(other)?, gpu.allocate(count / 32)?);
                let (mut codes, mut bytes) =
                    (codes.slice_mut(..other), bytes.slice_mut(..count / 32));
                let layout = Arrangement::Plain;
                let unused = Target { elements: &mut codes, scales: &mut bytes, layout };
                let blocks = match q.axis {
                    Axis::Row => Blocks::Both(target, unused),
                    Axis::Col => Blocks::Both(unused, target),
                };
                gpu.quantize(cast, (rows, cols), &x.view(), blocks)?;
            } else {
                let blocks = match q.axis {
                    _ if q.block == BlockShape::TILE => Blocks::Tile(target),
                    Axis::Row => Blocks::Row(target),
                    Axis::Col => Blocks::Col(target),
                };
                gpu.quantize(cast, (rows, cols), &x.view(), blocks)?;
            }
        }
        if packed {
            gpu.unpack(element, &wire.slice(..bytes), &mut elements.view())?;
        }
        elements.download(gpu, outputs, "elements")?;
        scales.download(gpu, outputs, "scales")
    }

    /// Multiplies with plain scales, or, every other call, with blocked ones; by each of the kernels that take the product, which must agree.
    fn multiply(
        &self,
        g: &Gemm,
        groups: Option<GroupAxis>,
        inputs: &Tensors,
        outputs: &mut Outputs,
    ) -> Result<(), GpuError> {
        let (Factor::Element(a), Factor::Element(b)) = (g.a, g.b) else {
            return Err(GpuError::Unsupported("operands must be of element formats".to_owned()));
        };
        let gpu = &self.gpu;
        let (m, k) = shape(input(inputs, "a_elements")?)?;
        let (experts, n) = match input(inputs, "b_elements")?.shape[..] {
            [n, _] => (1, n),
            [experts, n, _] => (experts, n),
            ref other => {
                let text = format!("expected B as [n, k] or [groups, n, k], got {other:?}");
                return Err(GpuError::Unsupported(text));
            }
        };
        let block_ends: Option<(GroupAxis, Vec<i32>)> = match groups {
            None => None,
            Some(GroupAxis::M) => Some((GroupAxis::M, ends(inputs)?.to_vec())),
            Some(GroupAxis::K) => {
                Some((GroupAxis::K, ends(inputs)?.iter().map(|end| end / 32).collect()))
            }
        };
        let on_device = |name: &str| Input::upload(gpu, input(inputs, name)?);
        let (a_elements, b_elements) = (on_device("a_elements")?, on_device("b_elements")?);
        let (mut a_scales, mut b_scales) = (on_device("a_scales")?, on_device("b_scales")?);
        let blocked = self.other_way;
        if blocked {
            let shapes = ((m, k / 32), (experts, n, k / 32));
            (a_scales, b_scales) = self.block(shapes, block_ends.as_ref(), &a_scales, &b_scales)?;
        }
        let groups = match &block_ends {
            None => None,
            Some((axis, ends)) => Some(gpu.groups(*axis, ends)?),
        };
        let mut output = Output::upload(gpu, outputs, "output")?;
        let (a_codes, a_bytes) = (a_elements.view(), a_scales.view());
        let (b_codes, b_bytes) = (b_elements.view(), b_scales.view());
        let mut product = Product {
            shape: GemmShape { m, n, k },
            a: Operand { element: a, elements: &a_codes, scales: &a_bytes, blocked },
            b: Operand { element: b, elements: &b_codes, scales: &b_bytes, blocked },
            groups: groups.as_ref(),
            output: g.output.format(),
            by: By::Warps,
        };
        gpu.multiply(&product, &mut output.view())?;
        if gpu.takes_warpgroups(&product) {
            let mut again = Output::upload(gpu, outputs, "output")?;
            product.by = By::Warpgroups;
            gpu.multiply(&product, &mut again.view())?;
            let [one, other] =
                [&output, &again].map(|output| gpu.download(&output.buffer.as_view()));
            if let Some(byte) = one?.iter().zip(&other?).position(|(one, other)| one != other) {
                let text = format!(
                    "kernels of warps and of warpgroups differ, first at byte {byte} of the output"
                );
                return Err(GpuError::Unsupported(text));
            }
        }
        output.download(gpu, outputs, "output")
    }

    /// Both operands' scales in the layouts of their groups.
    fn block(
        &self,
        ((m, blocks), (experts, n, _)): ((usize, usize), (usize, usize, usize)),
        groups: Option<&(GroupAxis, Vec<i32>)>,
        a: &Input,
        b: &Input,
    ) -> Result<(Input, Input), GpuError> {
        let gpu = &self.gpu;
        let tiles = |rows: usize| ScaleLayout::Blocked.len(rows, blocks).unwrap_or(0);
        let grouped = |axis, shape, ends: &[i32]| GroupedLayout::new(axis, shape, ends);
        let (a_len, b_len) = match groups {
            None => (tiles(m), tiles(n)),
            Some((GroupAxis::M, ends)) => {
                (grouped(GroupAxis::M, (m, blocks), ends)?.len(), experts * tiles(n))
            }
            Some((GroupAxis::K, ends)) => (
                grouped(GroupAxis::K, (m, blocks), ends)?.len(),
                grouped(GroupAxis::K, (n, blocks), ends)?.len(),
            ),
        };
        let (mut a_to, mut b_to) = (Input::empty(gpu, a_len)?, Input::empty(gpu, b_len)?);
        let (a, b) = (a.view(), b.view());
        match groups {
            None => {
                gpu.swizzle((m, blocks), &a, &mut a_to.view_mut())?;
                gpu.swizzle((n, blocks), &b, &mut b_to.view_mut())?;
            }
            Some((axis, ends)) => {
                gpu.swizzle_groups(*axis, (m, blocks), ends, &a, &mut a_to.view_mut())?;
                let to = &mut b_to.view_mut();
                match axis {
                    GroupAxis::M => gpu.swizzle_experts((experts, n, blocks), &b, to)?,
                    GroupAxis::K => gpu.swizzle_groups(*axis, (n, blocks), ends, &b, to)?,
                }
            }
        }
        Ok((a_to, b_to))
    }

    /// The whole step of a layer: six casts and three products.
    fn step(&self, l: &Linear, inputs: &Tensors, outputs: &mut Outputs) -> Result<(), GpuError> {
        if l.grouped {
            return Err(GpuError::Unsupported("groups of tokens as a step".to_owned()));
        }
        let gpu = &self.gpu;
        let config = l.config();
        let ((m, k), (_, n)) = (shape(input(inputs, "x")?)?, shape(input(inputs, "grad_output")?)?);
        let shape = GemmShape { m, n, k };
        let mut step = Step::new(gpu, &config, Preference::from(config.kernel), shape, None)?;
        let on_device = |name: &str| Input::upload(gpu, input(inputs, name)?);
        let (x, w, g) = (on_device("x")?, on_device("w")?, on_device("grad_output")?);
        let names = ["y", "grad_input", "grad_weight"];
        let mut to = [
            Output::upload(gpu, outputs, names[0])?,
            Output::upload(gpu, outputs, names[1])?,
            Output::upload(gpu, outputs, names[2])?,
        ];
        {
            let [y, dx, dw] = &mut to;
            let (mut y, mut dx, mut dw) = (y.view(), dx.view(), dw.view());
            step.run([&x.view(), &w.view(), &g.view()], [&mut y, &mut dx, &mut dw])?;
        }
        for (output, name) in to.into_iter().zip(names) {
            output.download(gpu, outputs, name)?;
        }
        Ok(())
    }
}
