//! The right answer for somebody's own tensors.

use mx_reference::format::{E4M3, E5M2, E8M0, UE4M3};
use mx_reference::gemm::{Model, Scheme};
use mx_reference::pack::{PackOrder, pack, packed_len};
use mx_reference::{
    Axis, BlockShape, Blocking, Convention, Element, Format, Number, Overflow, Profile, Rounding,
    ScaleLayout, ShapeError,
};
use mx_vectors::answer::{self, AnswerError};
use mx_vectors::op::{Cast, Dequantize, Factor, Gemm, Scaling, Split, Test, View};
use mx_vectors::packs::container::{self, ContainerError, Dtype, File, TensorRef};
use mx_vectors::{Float, Op, Tensor, Tensors};
use std::collections::BTreeMap;
use std::path::Path;
use zerocopy::IntoBytes;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The tensors do not fit the op.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// A tensor of a type that the op does not read.
    #[error("tensor `{name}` holds {got}; expected {expected}")]
    Dtype {
        /// Its name.
        name: String,
        /// What the op reads.
        expected: String,
        /// What the file holds.
        got: String,
    },
    /// A product of operands that no block size of this kind is for.
    #[error("block 16 is NVFP4, whose operands are both e2m1; got {a} and {b} (MX blocks are 32)")]
    Block {
        /// A's element.
        a: &'static str,
        /// B's element.
        b: &'static str,
    },
    /// A product whose last block of scales is not whole.
    #[error(
        "K is {k}, which is not a multiple of the {block} elements that share a scale; fill A and B up along K with zero elements, and with a scale a row for each block that this adds"
    )]
    PartialK {
        /// Columns of A and of B.
        k: usize,
        /// Elements a scale.
        block: usize,
    },
    /// Scales that a product needs and the file does not have.
    #[error(
        "tensor `{name}` is missing; operands without scales of their own have scales of 1, bytes of {one:#04X} and shape [{rows}, {blocks}]"
    )]
    NoScales {
        /// Their name.
        name: &'static str,
        /// The byte of a scale of 1.
        one: u8,
        /// Rows of the operand.
        rows: usize,
        /// Blocks of a row.
        blocks: usize,
    },
    /// An output that memory does not hold.
    #[error(
        "the product has {m} x {n} outputs; at most {most} are computed at once, so cut A or B into parts"
    )]
    TooLarge {
        /// Rows of A.
        m: usize,
        /// Rows of B.
        n: usize,
        /// The limit.
        most: usize,
    },
    /// Raw bits without a word on what they are.
    #[error("tensor `{name}` holds raw {got} bits; say what they are with --dtype {choices}")]
    NeedsDtype {
        /// Its name.
        name: String,
        /// The stored type.
        got: String,
        /// What they may be.
        choices: String,
    },
}

impl From<ShapeError> for GoldenError {
    fn from(error: ShapeError) -> Self {
        Self::Answer(error.into())
    }
}

/// How to quantise.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeRequest {
    /// Element format, mode and convention.
    pub profile: Profile,
    /// Axis, block and padding.
    pub blocking: Blocking,
    /// Layout of the scales.
    pub layout: ScaleLayout,
    /// What raw bits are; typed tensors say it themselves.
    pub dtype: Option<Float>,
}

/// Reads `input`, writes `scales`, `elements` and `packed`.
///
/// # Errors
/// [`GoldenError`]; nothing is written then.
pub fn quantize(request: &QuantizeRequest, from: &Path, to: &Path) -> Result<(), GoldenError> {
    let (tensor, float) = load_floats(from, request.dtype)?;
    let (rows, cols) = answer::matrix_shape("input", &tensor)?;
    request.blocking.code_shape(rows, cols)?;
    let view = View::contiguous((rows, cols));
    let x = answer::matrix(&tensor, float, view)?;
    let done = mx_native::quantize(x, request.profile, request.blocking)?;
    drop(tensor);
    let (scales, scale_shape) =
        answer::arrange_scales(&done, request.blocking.shape, request.layout)?;
    let element = request.profile.element;
    let width = packed_len(element, done.cols)?;
    // Codes of a whole byte are their own wire bytes.
    let packed = match element.format().bits {
        8 => None,
        _ => Some(pack(element, PackOrder::LittleEndian, &done.elements)?),
    };
    let u8s = |shape, bytes| TensorRef { dtype: Dtype::U8, shape, bytes };
    let code_shape = [done.rows, done.cols];
    let packed_shape = [done.rows, width];
    let packed = packed.as_deref().unwrap_or(&done.elements);
    let outputs = BTreeMap::from([
        ("elements", u8s(&code_shape[..], &done.elements[..])),
        ("packed", u8s(&packed_shape[..], packed)),
        ("scales", u8s(&scale_shape[..], &scales[..])),
    ]);
    Ok(container::write_refs(to, &outputs, None)?)
}

/// Reads `elements` and plain `scales`, writes `output` as a typed tensor.
///
/// # Errors
/// [`GoldenError`]; nothing is written then.
pub fn dequantize(
    op: Dequantize,
    block: BlockShape,
    from: &Path,
    to: &Path,
) -> Result<(), GoldenError> {
    let mut file = container::open(from)?;
    let elements = load_bytes(&mut file, "elements", typed(op.element.format()))?;
    let scales = load_bytes(&mut file, "scales", typed(&E8M0))?;
    let shape = answer::matrix_shape("elements", &elements)?;
    let scale_shape = answer::matrix_shape("scales", &scales)?;
    Blocking { axis: Axis::Row, shape: block, pad: false }.code_shape(shape.0, shape.1)?;
    let expected = (shape.0 / block.rows(), shape.1 / block.cols());
    if scale_shape != expected {
        return Err(GoldenError::Dtype {
            name: "scales".to_owned(),
            expected: format!("U8 [{}, {}], one scale a block", expected.0, expected.1),
            got: format!("U8 [{}, {}]", scale_shape.0, scale_shape.1),
        });
    }
    let codes = answer::bytes("elements", &elements)?;
    let bytes = answer::bytes("scales", &scales)?;
    let bits = mx_native::dequantize(op.element, shape, block, codes, bytes, op.output.format())?;
    let data = answer::narrow(op.output, bits);
    let output =
        TensorRef { dtype: stored(op.output), shape: &elements.shape, bytes: data.as_bytes() };
    Ok(container::write_refs(to, &BTreeMap::from([("output", output)]), None)?)
}

/// Reads `input` of any shape, writes `elements`.
///
/// # Errors
/// [`GoldenError`]; nothing is written then.
pub fn cast(
    make: impl FnOnce(Float) -> Cast,
    dtype: Option<Float>,
    convention: &'static Convention,
    from: &Path,
    to: &Path,
) -> Result<(), GoldenError> {
    let (tensor, float) = load_floats(from, dtype)?;
    let inputs = Tensors::from([("input".to_owned(), tensor)]);
    let outputs = crate::backends::native::answer(&Op::Cast(make(float)), convention, &inputs)?;
    Ok(container::write(to, &outputs, None)?)
}

const ONE: Number = Number::finite(false, 1, 0);

/// Outputs that one product may have.
const MOST_OUTPUTS: usize = 1 << 30;

/// How to multiply.
#[derive(Clone, Copy, Debug)]
pub struct GemmRequest {
    /// Elements of A.
    pub a: Factor,
    /// Elements of B.
    pub b: Factor,
    /// Elements a scale: 32 for MX, 16 for NVFP4.
    pub block: usize,
    /// Type of the output.
    pub output: Float,
    /// The accumulation.
    pub accumulate: Model,
}

/// Reads `a_elements`, `a_scales`, `b_elements`, `b_scales` (and `c`, and `tensor_scale` of NVFP4), writes `output` and `magnitude`.
///
/// # Errors
/// [`GoldenError`]; nothing is written then.
pub fn gemm(request: &GemmRequest, from: &Path, to: &Path) -> Result<(), GoldenError> {
    let &GemmRequest { a, b, block, output, accumulate } = request;
    let fp4 = Factor::Element(Element::E2m1);
    let scaling = match (block, a.is_element() || b.is_element()) {
        (_, false) => Scaling::Plain,
        (16, true) if (a, b) == (fp4, fp4) => Scaling::Nvfp4,
        (16, true) => return Err(GoldenError::Block { a: a.name(), b: b.name() }),
        (_, true) => Scaling::Mx,
    };
    let mut file = container::open(from)?;
    let scaled = ["a_scales", "b_scales"].into_iter().find(|name| file.dtype(name).is_some());
    if let (Scaling::Plain, Some(name)) = (scaling, scaled) {
        let expected = "no such tensor: bf16 and f16 operands have no scales".to_owned();
        return Err(GoldenError::Dtype { name: name.to_owned(), expected, got: "one".to_owned() });
    }
    let mut inputs = Tensors::new();
    for (factor, elements, scales) in [(a, "a_elements", "a_scales"), (b, "b_elements", "b_scales")]
    {
        inputs.insert(elements.to_owned(), load_factor(&mut file, elements, factor)?);
        if let Some((block, format)) = scaling.block() {
            let (rows, k) = answer::matrix_shape(elements, &inputs[elements])?;
            if !k.is_multiple_of(block) {
                return Err(GoldenError::PartialK { k, block });
            }
            if file.dtype(scales).is_none() {
                let one = format.encode(ONE, Rounding::NearestEven, Overflow::Propagate) as u8;
                return Err(GoldenError::NoScales { name: scales, one, rows, blocks: k / block });
            }
            inputs.insert(scales.to_owned(), load_bytes(&mut file, scales, typed(format))?);
        }
    }
    for name in ["c", "tensor_scale"] {
        if file.dtype(name).is_some() {
            inputs.insert(name.to_owned(), load_words(&mut file, name)?);
        }
    }
    if scaling != Scaling::Nvfp4 && inputs.contains_key("tensor_scale") {
        let (expected, got) = ("no such tensor: tensor scales belong to --block 16", "one");
        let (name, expected) = ("tensor_scale".to_owned(), expected.to_owned());
        return Err(GoldenError::Dtype { name, expected, got: got.to_owned() });
    }
    let (accumulate, split, test) = (Some(accumulate), Split::NONE, Test::Modelled);
    let op = Gemm { a, b, scaling, output, accumulate, split, test };
    let product = answer::product(&op, &inputs)?;
    let shape = product.shape();
    if let Some(c) = inputs.get("c")
        && c.shape != [shape.m, shape.n]
    {
        let expected = format!("F32 [{}, {}]", shape.m, shape.n);
        let (name, got) = ("c".to_owned(), format!("F32 {:?}", c.shape));
        return Err(GoldenError::Dtype { name, expected, got });
    }
    // Output, magnitude, and what is written of both: asked for before anything is computed.
    let fits = |outputs: usize| {
        outputs <= MOST_OUTPUTS && Vec::<u128>::new().try_reserve_exact(outputs).is_ok()
    };
    if !shape.m.checked_mul(shape.n).is_some_and(fits) {
        return Err(GoldenError::TooLarge { m: shape.m, n: shape.n, most: MOST_OUTPUTS });
    }
    let accumulation = op.accumulation();
    accumulation.check(&product).map_err(AnswerError::from)?;
    let (exact, magnitude) = mx_native::gemm_with_magnitude(&product, output.format());
    let bits = match accumulation.scheme {
        Scheme::Exact => exact,
        _ => mx_native::accumulate(&product, &accumulation, output.format())
            .map_err(AnswerError::from)?,
    };
    let data = answer::narrow(output, bits);
    let shape = [shape.m, shape.n];
    let outputs = BTreeMap::from([
        ("magnitude", TensorRef { dtype: Dtype::F64, shape: &shape, bytes: magnitude.as_bytes() }),
        ("output", TensorRef { dtype: stored(output), shape: &shape, bytes: data.as_bytes() }),
    ]);
    Ok(container::write_refs(to, &outputs, None)?)
}

/// Elements of a product: bytes, or 16-bit floats as raw bits or typed.
fn load_factor(file: &mut File, name: &'static str, factor: Factor) -> Result<Tensor, GoldenError> {
    if factor.is_element() {
        let tensor = load_bytes(file, name, typed(factor.format()))?;
        let codes = factor.format().codes();
        let wide = (0..tensor.data.len()).find(|&i| u64::from(tensor.data.get(i)) >= codes);
        return match wide {
            None => Ok(tensor),
            Some(i) => Err(GoldenError::Dtype {
                name: name.to_owned(),
                expected: format!("{} codes below {codes:#x}, one a byte", factor.name()),
                got: format!("{:#04x} at {i}", tensor.data.get(i)),
            }),
        };
    }
    let typed = if factor == Factor::Bf16 { Dtype::BF16 } else { Dtype::F16 };
    match file.dtype(name) {
        Some(dtype) if dtype == typed || dtype == Dtype::U16 => Ok(file.load(name)?),
        None => Ok(file.load(name)?),
        Some(other) => Err(GoldenError::Dtype {
            name: name.to_owned(),
            expected: format!("{typed:?}, or U16 bits"),
            got: format!("{other:?}"),
        }),
    }
}

/// An f32 tensor, typed or as raw bits.
fn load_words(file: &mut File, name: &'static str) -> Result<Tensor, GoldenError> {
    match file.dtype(name) {
        Some(Dtype::F32 | Dtype::U32) | None => Ok(file.load(name)?),
        Some(other) => Err(GoldenError::Dtype {
            name: name.to_owned(),
            expected: "F32, or U32 bits".to_owned(),
            got: format!("{other:?}"),
        }),
    }
}

/// Loads `input`, typed or raw.
fn load_floats(from: &Path, said: Option<Float>) -> Result<(Tensor, Float), GoldenError> {
    let mut file = container::open(from)?;
    let name = "input";
    let tensor = file.load(name)?;
    let got = file.dtype(name).map(|dtype| format!("{dtype:?}")).unwrap_or_default();
    let typed = match file.dtype(name) {
        Some(Dtype::F32) => Some(Float::F32),
        Some(Dtype::BF16) => Some(Float::Bf16),
        Some(Dtype::F16) => Some(Float::F16),
        _ => None,
    };
    let raw: &[Float] = match file.dtype(name) {
        Some(Dtype::U32) => &[Float::F32],
        Some(Dtype::U16) => &[Float::Bf16, Float::F16],
        _ => &[],
    };
    let name = name.to_owned();
    match (typed, said) {
        (Some(float), None) => Ok((tensor, float)),
        (Some(float), Some(said)) if float == said => Ok((tensor, float)),
        (None, Some(said)) if raw.contains(&said) => Ok((tensor, said)),
        (None, None) if !raw.is_empty() => {
            let choices = raw.iter().map(|float| float.name()).collect::<Vec<_>>().join("|");
            Err(GoldenError::NeedsDtype { name, got, choices })
        }
        (Some(_), Some(said)) => {
            let expected = format!("{} as --dtype says", said.name());
            Err(GoldenError::Dtype { name, expected, got })
        }
        (None, Some(said)) if !raw.is_empty() => {
            let expected = format!("raw bits of {} as --dtype says", said.name());
            Err(GoldenError::Dtype { name, expected, got })
        }
        (None, _) => {
            let expected = "F32, BF16, F16, or raw U32 or U16 bits".to_owned();
            Err(GoldenError::Dtype { name, expected, got })
        }
    }
}

/// Bytes, raw or of the type that a format has in safetensors files.
fn load_bytes(
    file: &mut File,
    name: &'static str,
    typed: Option<Dtype>,
) -> Result<Tensor, GoldenError> {
    match file.dtype(name) {
        Some(Dtype::U8) | None => Ok(file.load(name)?),
        Some(dtype) if Some(dtype) == typed => Ok(file.load(name)?),
        Some(other) => {
            let typed = typed.map_or_else(String::new, |typed| format!("{typed:?} or "));
            let view = match other.bitsize() {
                8 => " (bytes as they are: `tensor.view(torch.uint8)`)",
                _ => "",
            };
            Err(GoldenError::Dtype {
                name: name.to_owned(),
                expected: format!("{typed}U8, one code a byte{view}"),
                got: format!("{other:?}"),
            })
        }
    }
}

/// The type of safetensors files that stands for a format's codes, one a byte.
fn typed(format: &Format) -> Option<Dtype> {
    match format {
        _ if *format == E4M3 || *format == UE4M3 => Some(Dtype::F8_E4M3),
        _ if *format == E5M2 => Some(Dtype::F8_E5M2),
        _ if *format == E8M0 => Some(Dtype::F8_E8M0),
        _ => None,
    }
}

const fn stored(float: Float) -> Dtype {
    match float {
        Float::F32 => Dtype::F32,
        Float::Bf16 => Dtype::BF16,
        Float::F16 => Dtype::F16,
    }
}

/// The element format and mode of `ELEMENT/MODE`, or a sentence with the nearest name.
///
/// # Errors
/// The sentence.
pub fn parse_profile(text: &str) -> Result<(Element, mx_reference::ScaleMode), String> {
    use crate::suggest::nearest;
    use mx_reference::ScaleMode;
    let Some((element, mode)) = text.split_once('/') else {
        return Err(format!("`{text}` is not ELEMENT/MODE, for example e4m3/rceil"));
    };
    let elements = Element::ALL.map(Element::name);
    let modes = ScaleMode::ALL.map(ScaleMode::name);
    let unknown = |what: &str, given: &str, names: &[&str]| {
        format!("unknown {what} `{given}`{}; known: {}", nearest(given, names), names.join(", "))
    };
    match (Element::from_name(element), ScaleMode::from_name(mode)) {
        (Some(element), Some(mode)) => Ok((element, mode)),
        (None, _) => Err(unknown("element format", element, &elements)),
        (_, None) => Err(unknown("scale mode", mode, &modes)),
    }
}
