// Blocks of 32 along the last dimension. A row holds whole blocks, so that the tensor is one line of blocks.

struct RowJob {
    const void* input;
    u8* elements;
    Scales scales;
    u64 count;      // elements
    u32 mode;
    u32 packed;
};

// Eight elements a thread, four threads a block; STEPS of them in flight.
constexpr int STEPS = INPUT == F32 ? 2 : 4;
constexpr int WORDS = INPUT == F32 ? 8 : 4;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS) quantize_row(RowJob job) {
    const u64 first = (u64)blockIdx.x * (THREADS * STEPS) + threadIdx.x;
    u32 x[STEPS][WORDS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        u64 at = first + s * THREADS;
#pragma unroll
        for (int v = 0; v < WORDS / 4; v++) {
            uint4 loaded = make_uint4(0, 0, 0, 0);
            if (at * 8 < job.count) loaded = __ldcs((const uint4*)job.input + at * (WORDS / 4) + v);
            x[s][4 * v] = loaded.x, x[s][4 * v + 1] = loaded.y, x[s][4 * v + 2] = loaded.z, x[s][4 * v + 3] = loaded.w;
        }
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        u64 at = first + s * THREADS;
        u32 amax = magnitudes(x[s][0]);
#pragma unroll
        for (int w = 1; w < WORDS; w++) amax = max_of(amax, magnitudes(x[s][w]));
        amax = max_of(amax, __shfl_xor_sync(~0u, amax, 1));
        amax = max_of(amax, __shfl_xor_sync(~0u, amax, 2));
        u32 byte = scale_byte(magnitudes(max_of_halves(max_of(amax, 0))), job.mode);
        float by = multiplier(byte);
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = __fmul_rn(INPUT == F32 ? part(x[s][i], 0) : part(x[s][i / 2], i % 2), by);
        u32 low = codes_of(y[0], y[1], y[2], y[3]), high = codes_of(y[4], y[5], y[6], y[7]);
        if (at * 8 >= job.count) continue;
        if (code_bits == 8 || !job.packed) {
            __stcs((uint2*)job.elements + at, make_uint2(low, high));
        } else if (code_bits == 4) {
            __stcs((u32*)job.elements + at, pack4(low, high));
        } else {
            u32 a = pack6(low), b = pack6(high);
            u16* to = (u16*)job.elements + at * 3;
            to[0] = (u16)a, to[1] = (u16)(a >> 16 | b << 8), to[2] = (u16)(b >> 8);
        }
        if (at % 4 == 0) {
            u64 offset = place_of_index(job.scales, at / 4);
            if (offset != nowhere) job.scales.to[offset] = (u8)byte;
        }
    }
}
