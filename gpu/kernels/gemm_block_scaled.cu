// D = A * B^T on tensor cores that know block scales: sm_120a. Compiled in CI, not run: there is no such device here.
//
// One mma.sync m16n8k32 a block, accumulators chained along K, scales joined to the exponents by the tensor cores. That is another
// accumulation than gemm.cu's: the reference has it as blackwell-mxf8f6f4, from the literature. INT8 has no such instruction.
//
// Which lane brings which scale: PTX ISA, "Block scaling for mma.sync", scale_vec::1X with both thread-ids 0: in each four lanes the
// first two bring those of rows g and g + 8 of A, the first that of column g of B; byte-id picks the block's byte of a word.

#ifdef __CUDA_ARCH_FEAT_SM120_ALL

// E2M1 lies in the middle of its byte, other codes at its lower end.
template <Element E>
__device__ __forceinline__ u32 in_register(u32 word) { return E == E2M1 ? word << 2 & 0x3c3c3c3cu : word; }

#define LOWER_E4M3 "e4m3"
#define LOWER_E5M2 "e5m2"
#define LOWER_E3M2 "e3m2"
#define LOWER_E2M3 "e2m3"
#define LOWER_E2M1 "e2m1"
#define JOINED(PREFIX, NAME) PREFIX##NAME
#define LOWER(NAME) JOINED(LOWER_, NAME)

template <int BYTE>
__device__ __forceinline__ void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 a_scales, u32 b_scales) {
    asm("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32." LOWER(A_ELEMENT) "." LOWER(B_ELEMENT) ".f32.ue8m0 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {%12, 0}, %11, {%12, 0};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scales), "r"(b_scales), "n"(BYTE));
}

template <int BLOCK_OF_STEP>
__device__ __forceinline__ void add_block(Sums& sums, const Stage& stage, int row, int column) {
    int lane = threadIdx.x % 32, g = lane / 4, at = block_place(BLOCK_OF_STEP, g) + lane % 4 * 8;
    const u8* a_rows = stage.a + (row + g) * STEP + at;
    const u8* b_rows = stage.b + (column + g) * STEP + at;
    u32 b[WARP / 8][2], b_scales[WARP / 8];
#pragma unroll
    for (int j = 0; j < WARP / 8; ++j) {
        uint2 words = *(const uint2*)(b_rows + j * 8 * STEP);
        b[j][0] = in_register<B_ELEMENT>(words.x), b[j][1] = in_register<B_ELEMENT>(words.y);
        b_scales[j] = stage.scales.words[1][column + j * 8 + g];
    }
#pragma unroll
    for (int i = 0; i < WARP / 16; ++i) {
        uint2 upper = *(const uint2*)(a_rows + i * 16 * STEP), lower = *(const uint2*)(a_rows + (i * 16 + 8) * STEP);
        u32 a[4] = {in_register<A_ELEMENT>(upper.x), in_register<A_ELEMENT>(lower.x), in_register<A_ELEMENT>(upper.y),
                    in_register<A_ELEMENT>(lower.y)};
        u32 a_scales = stage.scales.words[0][row + i * 16 + lane % 2 * 8 + g];
#pragma unroll
        for (int j = 0; j < WARP / 8; ++j) multiply_add<BLOCK_OF_STEP>(sums[i][j], a, b[j], a_scales, b_scales[j]);
    }
}

// Launched as gemm.cu's kernel is.
extern "C" __global__ void __launch_bounds__(THREADS, 2) mx_gemm(const __grid_constant__ Gemm gemm) {
    make_tile(gemm, [](Sums& sums, const Stage& stage, int row, int column, int count) {
        add_block<0>(sums, stage, row, column);
        if (count > 1) add_block<1>(sums, stage, row, column);
        if (count > 2) add_block<2>(sums, stage, row, column);
        if (count > 3) add_block<3>(sums, stage, row, column);
    });
}

#endif
