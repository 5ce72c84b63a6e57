//! Matrix products of MX operands by our own kernels: D = A·Bᵀ with both operands contiguous along K, one or one for each of many groups
//! of tokens in a single launch.

use crate::arch::Arch;
use crate::device::Gpu;
use crate::error::GpuError;
use crate::launch::{pointer, pointer_mut, sized};
use crate::program::{GEMM, GEMM_BLOCK_SCALED, element_define};
use crate::quantize::Groups;
use crate::warpgroup::{gains, multiplies};
use crate::{View, ViewMut};
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::{DeviceRepr, LaunchConfig};
use mx_reference::gemm::{GemmShape, GroupAxis, group_ranges};
use mx_reference::grouped_layout::GroupedLayout;
use mx_reference::{Axis, Element, Format, ScaleLayout, ShapeError};

/// Outputs of a thread block, along either side.
const TILE: usize = 128;
/// Elements under one scale.
const BLOCK: usize = 32;
/// Threads of a thread block.
const THREADS: u32 = 128;
/// Two stages of a thread block, in bytes; the kernel asserts it.
const SHARED: u32 = 75_840;

/// One side of a product.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// The element format.
    pub element: Element,
    /// Codes, one a byte: A [m, k], B [n, k], along M [groups, n, k].
    pub elements: &'a View<'a>,
    /// E8M0 bytes, one for 32 elements along K.
    pub scales: &'a View<'a>,
    /// Whether scales lie in tiles of 128×4, those of each group on their own, and not row major.
    pub blocked: bool,
}

/// How blocks are multiplied and summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Half-precision tensor cores and an f32 multiply-add for each block: on `sm_90`, `sm_100` and `sm_120` the model
    /// `mx-block-f16-pair`. The faster of the two kernels below.
    Halves,
    /// The same by `mma.sync`, on every architecture.
    Warps,
    /// The same by `wgmma`, on `sm_90a`, without groups and where B is not E5M2.
    Warpgroups,
    /// Tensor cores that know block scales, as the model `blackwell-mxf8f6f4` has them: `sm_120`, and no INT8. Nobody has run it yet.
    BlockScales,
}

/// A product.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// Rows of A, rows of B (of one group along M), and the contraction.
    pub shape: GemmShape,
    /// A.
    pub a: Operand<'a>,
    /// B.
    pub b: Operand<'a>,
    /// Groups of rows of A, each with a B of its own, or of blocks along K, each with a D of its own.
    pub groups: Option<&'a Groups>,
    /// The type of D: f32, bf16 or f16.
    pub output: &'static Format,
    /// The kernel.
    pub by: By,
}

/// `struct Gemm` of `gemm_tile.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) a_scales: u64,
    pub(crate) b_scales: u64,
    d: u64,
    ends: u64,
    m: i64,
    n: i64,
    k: i64,
    groups: i32,
    axis: i32,
    pub(crate) a_layout: i32,
    pub(crate) b_layout: i32,
    output: i32,
    reserved: i32,
    pub(crate) a_panels: u64,
    pub(crate) b_panels: u64,
}

#[expect(unsafe_code, reason = "kernel parameter")]
// SAFETY: plain integers, laid out as `struct Gemm` of `gemm_tile.cuh`.
unsafe impl DeviceRepr for Job {}

/// Bytes of every buffer, and the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    elements: [usize; 2],
    scales: [usize; 2],
    output: usize,
    /// Tiles, and groups along K; 0 where D is empty.
    grid: (u32, u32),
}

impl Sizes {
    /// What a shape calls for, with groups along an axis that have these cumulative ends (rows of A, or blocks along K).
    fn new(
        shape: GemmShape,
        groups: Option<(GroupAxis, &[i32])>,
        blocked: [bool; 2],
        output: &Format,
    ) -> Result<Self, GpuError> {
        let GemmShape { m, n, k } = shape;
        if !k.is_multiple_of(BLOCK) {
            let axis = Axis::Row.name();
            return Err(ShapeError::PartialBlock { axis, length: k, block: BLOCK }.into());
        }
        let blocks = k / BLOCK;
        let too_large = || GpuError::Unsupported(format!("a product of {shape:?} in one launch"));
        let all = |factors: &[usize]| {
            factors.iter().try_fold(1usize, |all, &factor| all.checked_mul(factor))
        };
        let plain = |rows: usize, count: usize| all(&[rows, blocks, count]);
        let tiled = |rows: usize, count: usize| {
            ScaleLayout::Blocked.len(rows, blocks).and_then(|len| len.checked_mul(count))
        };
        let (mut along_m, mut along_k) = (1, 1);
        let mut scales =
            [(m, 1), (n, 1)].map(|(rows, count)| (plain(rows, count), tiled(rows, count)));
        if let Some((axis, ends)) = groups {
            let grouped = |rows| GroupedLayout::new(axis, (rows, blocks), ends).map(|l| l.len());
            scales[0].1 = Some(grouped(m)?);
            match axis {
                GroupAxis::M => {
                    group_ranges(ends, m, 1)?;
                    along_m = ends.len();
                    scales[1] = (plain(n, along_m), tiled(n, along_m));
                }
                GroupAxis::K => {
                    group_ranges(ends, blocks, 1)?;
                    along_k = ends.len();
                    scales[1].1 = Some(grouped(n)?);
                }
            }
        }
        let scales = [0, 1].map(|i| if blocked[i] { scales[i].1 } else { scales[i].0 });
        let [Some(a_scales), Some(b_scales)] = scales else { return Err(too_large()) };
        let a = all(&[m, k]).ok_or_else(too_large)?;
        let b = all(&[n, k, along_m]).ok_or_else(too_large)?;
        let width = output.bits as usize / 8;
        let outputs = all(&[m, n, along_k, width]).ok_or_else(too_large)?;
        // Along M each group may begin a tile that it does not fill.
        let padding = groups.map_or(0, |(axis, ends)| match axis {
            GroupAxis::M => ends.len(),
            GroupAxis::K => 0,
        });
        let tiles = all(&[m.div_ceil(TILE) + padding, n.div_ceil(TILE)]).ok_or_else(too_large)?;
        let tiles = u32::try_from(tiles).ok().filter(|&tiles| tiles < 1 << 31);
        let along_k = u32::try_from(along_k).ok().filter(|&groups| groups < 1 << 16);
        let blocks = i32::try_from(blocks).ok();
        let (Some(tiles), Some(along_k), Some(_)) = (tiles, along_k, blocks) else {
            return Err(too_large());
        };
        let grid = if outputs == 0 { (0, 0) } else { (tiles, along_k) };
        Ok(Self { elements: [a, b], scales: [a_scales, b_scales], output: outputs, grid })
    }
}

/// The number that the kernel knows an output type by.
fn output_code(output: &Format) -> Result<i32, GpuError> {
    match output.name {
        "f32" => Ok(0),
        "bf16" => Ok(1),
        "f16" => Ok(2),
        name => Err(GpuError::Unsupported(format!("products with outputs of {name}"))),
    }
}

impl Gpu {
    /// Whether [`By::Warpgroups`] takes a product.
    pub fn takes_warpgroups(&self, product: &Product<'_>) -> bool {
        product.groups.is_none() && multiplies(self.arch(), product.b.element)
    }

    /// D = A·Bᵀ, or of each group: along M D [m, n], whose rows beyond the last group are left alone; along K D [groups, m, n], zero for
    /// empty groups.
    ///
    /// # Errors
    /// [`GpuError::Shape`] unless K is whole blocks and groups fit; [`GpuError::Size`] for buffers of other sizes than the shape calls
    /// for; [`GpuError::Unsupported`] for a kernel that this device or these formats do not have, and for elements that do not start at
    /// a multiple of 16 bytes, outputs of 8, blocked scales of 4; [`GpuError::Compile`]; [`GpuError::Driver`].
    #[expect(unsafe_code, reason = "kernel launch")]
    pub fn multiply(&self, product: &Product<'_>, to: &mut ViewMut<'_>) -> Result<(), GpuError> {
        let Product { shape, a, b, groups, output, by } = *product;
        let program = match by {
            By::Warpgroups if !self.takes_warpgroups(product) => {
                let what = if groups.is_some() { "of groups" } else { "of these formats" };
                let family = self.arch().family();
                return Err(GpuError::Unsupported(format!(
                    "products {what} on {family} by warpgroups"
                )));
            }
            By::Halves | By::Warps | By::Warpgroups => GEMM,
            By::BlockScales if self.arch() != Arch::Sm120a => {
                let family = self.arch().family();
                return Err(GpuError::Unsupported(format!(
                    "{family} has no mma.sync with block scales"
                )));
            }
            By::BlockScales if [a.element, b.element].contains(&Element::Int8) => {
                return Err(GpuError::Unsupported("int8 under block scales".to_owned()));
            }
            By::BlockScales => GEMM_BLOCK_SCALED,
        };
        let code = output_code(output)?;
        let ends = groups.map(|groups| (groups.axis, groups.ends.as_slice()));
        let sizes = Sizes::new(shape, ends, [a.blocked, b.blocked], output)?;
        sized("elements of A", sizes.elements[0], a.elements.len())?;
        sized("elements of B", sizes.elements[1], b.elements.len())?;
        sized("scales of A", sizes.scales[0], a.scales.len())?;
        sized("scales of B", sizes.scales[1], b.scales.len())?;
        sized("output", sizes.output, to.len())?;
        let (tiles, along_k) = sizes.grid;
        if tiles == 0 || along_k == 0 {
            return Ok(());
        }
        let mut job = Job {
            a: pointer(self, a.elements),
            b: pointer(self, b.elements),
            a_scales: pointer(self, a.scales),
            b_scales: pointer(self, b.scales),
            d: pointer_mut(self, to),
            ends: groups.map_or(0, |groups| pointer(self, &groups.buffer.as_view())),
            m: shape.m as i64,
            n: shape.n as i64,
            k: shape.k as i64,
            groups: ends.map_or(0, |(_, ends)| ends.len() as i32),
            axis: ends.map_or(0, |(axis, _)| if axis == GroupAxis::M { 1 } else { 2 }),
            a_layout: a.blocked.into(),
            b_layout: b.blocked.into(),
            output: code,
            reserved: 0,
            a_panels: 0,
            b_panels: 0,
        };
        let aligned = |blocked: bool, scales: u64| !blocked || scales.is_multiple_of(4);
        if !(job.a | job.b).is_multiple_of(16)
            || !job.d.is_multiple_of(8)
            || !aligned(a.blocked, job.a_scales)
            || !aligned(b.blocked, job.b_scales)
        {
            return Err(GpuError::Unsupported(
                "products: elements must start at a multiple of 16 bytes, outputs of 8, blocked scales of 4"
                    .to_owned(),
            ));
        }
        let defines =
            [element_define("A_ELEMENT", a.element), element_define("B_ELEMENT", b.element)];
        let function = self.kernel(program, &defines, "mx_gemm")?;
        function
            .set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED as i32)
            .map_err(GpuError::driver("reserving shared memory"))?;
        let config = LaunchConfig {
            grid_dim: (tiles, along_k, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: SHARED,
        };
        // SAFETY: `Job` is `struct Gemm`; buffers have the sizes that shape and groups call for, and the kernel stays within those.
        let warps = |job: &Job| unsafe { self.launch(&function, config, job) };
        let warpgroups = match by {
            By::Warpgroups => true,
            By::Halves => self.takes_warpgroups(product) && gains(shape),
            By::Warps | By::BlockScales => false,
        };
        if warpgroups {
            match self.multiply_by_warpgroups(product, &mut job, tiles, warps) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // The other kernel needs no memory of its own.
                Err(error) if by == By::Halves && error.is_out_of_memory() => {}
                Err(error) => return Err(error),
            }
        }
        (job.a_panels, job.b_panels) = (0, 0);
        warps(&job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_reference::format::{BF16, F16, F32};
    use rstest::rstest;

    const SHAPE: GemmShape = GemmShape { m: 130, n: 5, k: 96 };

    #[rstest]
    #[case::plain([false; 2], [130 * 3, 15])]
    #[case::blocked([true; 2], [1024, 512])]
    #[case::one_of_each([true, false], [1024, 15])]
    fn sizes_of_one_product(#[case] blocked: [bool; 2], #[case] scales: [usize; 2]) {
        let sizes = Sizes::new(SHAPE, None, blocked, &BF16).unwrap();
        let elements = [130 * 96, 5 * 96];
        assert_eq!(sizes, Sizes { elements, scales, output: 1300, grid: (2, 1) });
    }

    #[rstest]
    #[case::plain(false, [130 * 3, 3 * 15])]
    #[case::blocked(true, [(130 + 3 * 128) * 4, 3 * 512])]
    fn sizes_of_groups_along_m(#[case] blocked: bool, #[case] scales: [usize; 2]) {
        let groups = Some((GroupAxis::M, &[1, 1, 120][..]));
        let sizes = Sizes::new(SHAPE, groups, [blocked; 2], &F32).unwrap();
        let elements = [130 * 96, 3 * 5 * 96];
        assert_eq!(sizes, Sizes { elements, scales, output: 2600, grid: (5, 1) });
    }

    #[rstest]
    #[case::plain(false, [130 * 3, 15])]
    #[case::blocked(true, [256 * 11, 128 * 11])]
    fn sizes_of_groups_along_k(#[case] blocked: bool, #[case] scales: [usize; 2]) {
        let groups = Some((GroupAxis::K, &[0, 3][..]));
        let sizes = Sizes::new(SHAPE, groups, [blocked; 2], &F16).unwrap();
        let elements = [130 * 96, 5 * 96];
        assert_eq!(sizes, Sizes { elements, scales, output: 2600, grid: (2, 2) });
    }

    #[rstest]
    #[case::no_rows(GemmShape { m: 0, ..SHAPE }, None, 0)]
    #[case::no_columns(GemmShape { n: 0, ..SHAPE }, None, 0)]
    #[case::no_groups(SHAPE, Some((GroupAxis::K, &[][..])), 0)]
    #[case::nothing_to_sum(GemmShape { k: 0, ..SHAPE }, None, 2)]
    fn empty_outputs_launch_nothing(
        #[case] shape: GemmShape,
        #[case] groups: Option<(GroupAxis, &[i32])>,
        #[case] tiles: u32,
    ) {
        assert_eq!(Sizes::new(shape, groups, [false; 2], &F32).unwrap().grid.0, tiles);
    }

    #[rstest]
    #[case::partial_block(GemmShape { k: 48, ..SHAPE }, None)]
    #[case::decreasing(SHAPE, Some((GroupAxis::M, &[5, 4][..])))]
    #[case::beyond_m(SHAPE, Some((GroupAxis::M, &[131][..])))]
    #[case::beyond_k(SHAPE, Some((GroupAxis::K, &[4][..])))]
    fn shapes_that_do_not_fit_are_refused(
        #[case] shape: GemmShape,
        #[case] groups: Option<(GroupAxis, &[i32])>,
    ) {
        let refused = Sizes::new(shape, groups, [false; 2], &F32);
        assert!(matches!(refused, Err(GpuError::Shape(_))), "{refused:?}");
    }

    #[rstest]
    #[case::elements(GemmShape { m: usize::MAX, ..SHAPE })]
    #[case::outputs(GemmShape { m: 1 << 32, n: 1 << 32, k: 0 })]
    #[case::tiles(GemmShape { m: 1 << 30, n: 1 << 20, k: 0 })]
    #[case::blocks(GemmShape { m: 1, n: 1, k: 1 << 37 })]
    fn products_beyond_one_launch_are_refused(#[case] shape: GemmShape) {
        let refused = Sizes::new(shape, None, [false; 2], &F32);
        assert!(matches!(refused, Err(GpuError::Unsupported(_))), "{refused:?}");
    }

    #[test]
    fn outputs_are_of_three_types() {
        assert_eq!([&F32, &BF16, &F16].map(|f| output_code(f).unwrap()), [0, 1, 2]);
        assert!(output_code(&mx_reference::format::E4M3).is_err());
    }
}
