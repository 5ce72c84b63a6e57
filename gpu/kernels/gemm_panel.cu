// Lays out one operand for gemm_wgmma.cu. OF_A says which.

struct Operand {
    const u8* codes;                  // [rows, k]
    const u8* scales;
    i64 rows, k;
    int layout;
    int reserved;
    void* steps;                      // AStep or BStep [panels][steps]
    BPowers* powers;                  // B: [panels][steps]
    Panel* panels;                    // zeros before
};

constexpr Element E = OF_A ? A_ELEMENT : B_ELEMENT;
constexpr int ROWS = TILE, THREADS = ROWS * PAIR;

__device__ __forceinline__ i64 scale_place(const Operand& operand, i64 row, i64 block) {
    i64 blocks = operand.k / BLOCK;
    if (operand.layout == PLAIN) return row * blocks + block;
    return (row / 128 * ((blocks + 3) / 4) + block / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

// True if all elements are zeros of either sign: whatever finite scale they have, their products are the same zeros.
__device__ __forceinline__ bool are_zeros(const u32 (&words)[8]) {
    constexpr u32 mask = (E == INT8 ? 0xffu : E == E2M1 ? 0x07u : E == E3M2 || E == E2M3 ? 0x1fu : 0x7fu) * 0x01010101u;
    u32 any = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) any |= words[w];
    return (any & mask) == 0;
}

__device__ __forceinline__ void store_a(AStep& to, int row, int block, const u32 (&words)[8], u32 byte) {
    uint4* codes = (uint4*)(to.codes + a_place(row, block));
    codes[0] = make_uint4(words[0], words[1], words[2], words[3]);
    codes[1] = make_uint4(words[4], words[5], words[6], words[7]);
    to.scales[block][row] = value_of(byte);
}

// Halves of 16 bytes: for the first MMA of a block, then for the second, in the order of the words that threads take of A.
__device__ __forceinline__ void store_b(BStep& to, int row, int block, const u32 (&words)[8], u32 factor) {
    u32 low[8], high[8];
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        Halves x = unpack<E>(words[w]);
        low[w] = multiply_halves(x.low, factor);
        high[w] = multiply_halves(x.high, factor);
    }
    uint4* chunks = (uint4*)to.halves + row * 8;
    int first = block * 4;
    chunks[first + 0 ^ row & 7] = make_uint4(low[0], low[2], low[4], low[6]);
    chunks[first + 1 ^ row & 7] = make_uint4(low[1], low[3], low[5], low[7]);
    chunks[first + 2 ^ row & 7] = make_uint4(high[0], high[2], high[4], high[6]);
    chunks[first + 3 ^ row & 7] = make_uint4(high[1], high[3], high[5], high[7]);
}

// The grid is (steps, panels). A thread takes one block; rows and blocks that are not there are zeros under a scale of 1.
extern "C" __global__ void __launch_bounds__(THREADS) lay_out(const __grid_constant__ Operand operand) {
    __shared__ u32 least_of[PAIR], largest_of[PAIR];
    int row = threadIdx.x / PAIR, block = threadIdx.x % PAIR;
    i64 at = (i64)blockIdx.y * ROWS + row, k = ((i64)blockIdx.x * PAIR + block) * BLOCK;
    if (threadIdx.x < PAIR) least_of[threadIdx.x] = 255, largest_of[threadIdx.x] = 0;
    __syncthreads();

    u32 words[8] = {}, byte = 127;
    bool there = at < operand.rows && k < operand.k;
    if (there) {
        const uint4* from = (const uint4*)(operand.codes + at * operand.k + k);
        uint4 x = __ldg(from), y = __ldg(from + 1);
        words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
        words[4] = y.x, words[5] = y.y, words[6] = y.z, words[7] = y.w;
        byte = __ldg(operand.scales + scale_place(operand, at, k / BLOCK));
    }
    bool free = !there || byte != 255 && are_zeros(words);
    if (!free) {
        atomicMin(&least_of[block], byte);
        atomicMax(&largest_of[block], byte);
    }
    __syncthreads();
    // Without a single number in it, a block counts as one under a scale of 1.
    u32 least = least_of[block], largest = largest_of[block];
    if (least > largest) least = largest = 127;

    Panel& panel = operand.panels[blockIdx.y];
    i64 step = (i64)blockIdx.y * gridDim.x + blockIdx.x;
    if (OF_A) {
        store_a(((AStep*)operand.steps)[step], row, block, words, free ? 127 : byte);
        if (row == 0) {
            // Free blocks are among them.
            atomicMax(&panel.above, 255 - min(least, 127u));
            atomicMax(&panel.largest, max(largest, 127u));
        }
    } else {
        int common = (int)largest - UP + shift_of(A_ELEMENT);
        bool fits = common >= 1 && largest < 255 && (int)(largest - least) <= DOWN + UP;
        u32 own = free || !fits ? largest : byte;
        store_b(((BStep*)operand.steps)[step], row, block, words, (own - largest + UP + SHIFT + 15) * 0x04000400u);
        if (row == 0) {
            operand.powers[step].power[block] = __uint_as_float((u32)max(common, 1) << 23);
            atomicMax(&panel.above, 255 - (u32)max(common, 0));
            atomicMax(&panel.largest, (u32)max(common, 0));
            if (!fits) atomicMax(&panel.general, 1u);
        }
    }
}
