// D = A * B^T over elements with one E8M0 scale for each 32 along K, on half-precision tensor cores.
//
// For each block of 32 the products are summed by two chained mma.sync m16n8k16 from zero, the first over k mod 4 in {0, 1}, the
// second over k mod 4 in {2, 3}; the sum t joins an f32 accumulator as fma(t, 2^(ea + eb), acc), rounded once to nearest. That is the
// model mx-block-f16-pair of the reference on sm_90, sm_100 and sm_120. Tensor cores of sm_80 and sm_89 take 8 products at a time
// (k mod 8 in {0, 1}, {4, 5}, {2, 3}, {6, 7}) and keep 24 bits below the largest, not 25: the same code, other low bits.

__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// The part of a thread in the operands of two MMAs: of 32 elements of a row it takes eight, as two words, whose lower halves are for the
// first MMA and whose upper halves are for the second.
struct Fragment {
    u32 first[2], second[2];
};

template <Element E>
__device__ __forceinline__ Fragment load_fragment(const u8* from) {
    uint2 words = *(const uint2*)from;
    Halves x = unpack<E>(words.x), y = unpack<E>(words.y);
    return {{x.low, y.low}, {x.high, y.high}};
}

__device__ __forceinline__ Fragment times(const Fragment& x, u32 factor) {
    return {{multiply_halves(x.first[0], factor), multiply_halves(x.first[1], factor)},
            {multiply_halves(x.second[0], factor), multiply_halves(x.second[1], factor)}};
}

// The fragment of the very values.
template <Element E>
__device__ __forceinline__ Fragment load_exact(const u8* from) {
    Fragment x = load_fragment<E>(from);
    return shift_of(E) == 0 ? x : times(x, (shift_of(E) + 15) * 0x04000400u);
}

typedef float Row[WARP / 8][4];       // MMA tiles side by side

// The sums of 32 products. Of two MMAs for the same outputs the second waits for the first, so others come between them.
__device__ __forceinline__ void multiply_block(Row& sums, const Fragment (&a)[2], const Fragment (&b)[WARP / 8]) {
    const float zero[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < WARP / 8; ++j) multiply(sums[j], {a[0].first[0], a[1].first[0], a[0].first[1], a[1].first[1]}, b[j].first, zero);
#pragma unroll
    for (int j = 0; j < WARP / 8; ++j) multiply(sums[j], {a[0].second[0], a[1].second[0], a[0].second[1], a[1].second[1]}, b[j].second, sums[j]);
}

// Adds a block the fast way; `power` is what common_power gave.
__device__ __forceinline__ void add_fast(Sums& sums, const Stage& stage, int row, int column, int block, float power) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, at = block_place(block, g) + t * 8;
    const u8* a_rows = stage.a + (row + g) * STEP + at;
    const u8* b_rows = stage.b + (column + g) * STEP + at;
    const u32* factors = stage.scales.factors[block] + (SCALES_B ? column : row) + g * 4;
    const float* values = stage.scales.values[block] + (SCALES_B ? row + g * 4 : column + t * 4);
    Fragment b[WARP / 8];
    float columns[WARP / 8][2];
#pragma unroll
    for (int j = 0; j < WARP / 8; ++j) {
        b[j] = load_fragment<B_ELEMENT>(b_rows + j * 8 * STEP);
        if (SCALES_B) {
            b[j] = times(b[j], factors[j / 4 * 32 + j % 4]);
        } else {
            float2 two = *(const float2*)(values + j / 2 * 16 + j % 2 * 2);
            columns[j][0] = __fmul_rn(two.x, power), columns[j][1] = __fmul_rn(two.y, power);
        }
    }
#pragma unroll
    for (int i = 0; i < WARP / 16; ++i) {
        Fragment a[2];
        float rows[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int eight = i * 2 + half, place = eight / 4 * 32 + eight % 4;
            a[half] = load_fragment<A_ELEMENT>(a_rows + eight * 8 * STEP);
            if (SCALES_B) {
                rows[half] = __fmul_rn(values[place], power);
            } else {
                a[half] = times(a[half], factors[place]);
            }
        }
        Row block_sums;
        multiply_block(block_sums, a, b);
#pragma unroll
        for (int j = 0; j < WARP / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = __fmaf_rn(block_sums[j][e], SCALES_B ? rows[e / 2] : columns[j][e % 2], sums[i][j][e]);
        }
    }
}

// Adds a block the general way.
__device__ __forceinline__ void add_general(Sums& sums, const Stage& stage, int row, int column, int block) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, at = block_place(block, g) + t * 8;
    const u8* a_rows = stage.a + (row + g) * STEP + at;
    const u8* b_rows = stage.b + (column + g) * STEP + at;
    const u32* row_words = stage.scales.words[0] + row + g;
    const u32* column_words = stage.scales.words[1] + column + t * 2;
    Fragment b[WARP / 8];
#pragma unroll
    for (int j = 0; j < WARP / 8; ++j) b[j] = load_exact<B_ELEMENT>(b_rows + j * 8 * STEP);
#pragma unroll
    for (int i = 0; i < WARP / 16; ++i) {
        Fragment a[2];
        Factors rows[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int eight = (i * 2 + half) * 8;
            a[half] = load_exact<A_ELEMENT>(a_rows + eight * STEP);
            rows[half] = factors_of(byte_of(row_words[eight], block));
        }
        Row block_sums;
        multiply_block(block_sums, a, b);
#pragma unroll
        for (int j = 0; j < WARP / 8; ++j) {
            float columns[2] = {value_of(byte_of(column_words[j * 8], block)), value_of(byte_of(column_words[j * 8 + 1], block))};
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = add_scaled(sums[i][j][e], block_sums[j][e], rows[e / 2], columns[e % 2]);
        }
    }
}

__device__ __forceinline__ void add_blocks(Sums& sums, const Stage& stage, int row, int column, int count) {
    Range of_a = stage.scales.ranges[0][row / WARP], of_b = stage.scales.ranges[1][column / WARP];
    float power = HAS_FAST ? common_power(SCALES_B ? of_b : of_a, SCALES_B ? of_a : of_b) : 0;
    if (power != 0) {
#pragma unroll 1
        for (int block = 0; block < count; ++block) add_fast(sums, stage, row, column, block, power);
    } else {
#pragma unroll 1
        for (int block = 0; block < count; ++block) add_general(sums, stage, row, column, block);
    }
}

// The grid is (rows of tiles * columns of tiles, groups along K or 1); rows of tiles are ceil(m / TILE), along M at most that and `groups`
// more. Dynamic shared memory: two stages. Pointers to elements are multiples of 16, to outputs of 8, to BLOCKED scales of 4; k is a
// multiple of 32.
extern "C" __global__ void __launch_bounds__(THREADS, 2) mx_gemm(const __grid_constant__ Gemm gemm) {
    make_tile(gemm, [](Sums& sums, const Stage& stage, int row, int column, int count) { add_blocks(sums, stage, row, column, count); });
}

static_assert(2 * sizeof(Stage) == 75840, "the dynamic shared memory of a launch");
