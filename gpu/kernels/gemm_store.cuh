// Sums out of registers into D.

__device__ __forceinline__ u32 to_halves(float2 value, int output) {
    u32 pair;
    if (output == BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value.y), "f"(value.x));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value.y), "f"(value.x));
    }
    return pair;
}

// Writes outputs `at` and at + 1, the second if there is one.
__device__ __forceinline__ void store(const Gemm& gemm, i64 at, float2 value, bool both) {
    bool pair = both && gemm.n % 2 == 0;
    if (gemm.output == F32) {
        float* to = (float*)gemm.d + at;
        if (pair) {
            *(float2*)to = value;
        } else {
            to[0] = value.x;
            if (both) to[1] = value.y;
        }
    } else {
        u32 halves = to_halves(value, gemm.output);
        unsigned short* to = (unsigned short*)gemm.d + at;
        if (pair) {
            *(u32*)to = halves;
        } else {
            to[0] = (unsigned short)halves;
            if (both) to[1] = (unsigned short)(halves >> 16);
        }
    }
}

// Floats of shared memory that store_sums wants for each warp whose outputs are COLUMNS wide; rows begin at other banks.
__device__ constexpr int pitch(int columns) { return columns + 8; }
__device__ constexpr int store_floats(int columns) { return 16 * pitch(columns); }

// A warp's outputs from (row, column) of the tile on, MMA tiles of 16 by 8, through shared memory so that whole rows are written.
template <int M, int N>
__device__ __forceinline__ void store_sums(const Gemm& gemm, const Tile& tile, const float (&sums)[M][N][4], int row, int column, float* memory) {
    constexpr int PITCH = pitch(N * 8);
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < M; ++i) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < N; ++j) {
            float* to = memory + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
            *(float2*)to = make_float2(sums[i][j][0], sums[i][j][1]);
            *(float2*)(to + 8 * PITCH) = make_float2(sums[i][j][2], sums[i][j][3]);
        }
        __syncwarp();
        int rows = min(16, tile.a.rows - row - i * 16), columns = min(N * 8, tile.b.rows - column);
#pragma unroll 1
        for (int r = 0; r < rows; ++r) {
#pragma unroll 1
            for (int c = lane * 2; c < columns; c += 64) {
                store(gemm, tile.at + (row + i * 16 + r) * gemm.n + column + c, *(const float2*)(memory + r * PITCH + c), c + 1 < columns);
            }
        }
    }
}
