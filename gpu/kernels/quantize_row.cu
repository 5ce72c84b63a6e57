// Blocks of 32 along the last dimension. A row holds whole blocks, so that the tensor is one line of blocks.

struct RowJob {
    const void* input;
    u8* elements;
    Scales scales;
    u64 count;  // elements
    Rule rule;
    u32 packed;
};

// A warp takes 32 consecutive blocks in four steps that are all in flight: eight elements a thread and step, four threads a block. Each of
// the four threads finds the scale of one step, so that the 32 scales of a warp are found once, and by all its threads at a time.
//
// Loads and stores have no cache hints: streaming loads (ld.global.cs, L1::no_allocate) take a tenth longer on an H200.
constexpr int STEPS = 4;
constexpr int WORDS = INPUT == F32 ? 8 : 4;
constexpr int THREADS = 256;

static __device__ u32 amax_of(const u32 (&x)[WORDS]) {
    u32 amax = x[0];
#pragma unroll
    for (int w = 1; w < WORDS; w++) amax = max_of(amax, x[w]);
    return amax;
}

// From each thread's amaxes of four steps, the amax of step lane % 4 over the four threads of a block.
static __device__ u32 amax_of_step(const u32 (&amax)[STEPS], u32 lane) {
    const bool upper = lane & 2, odd = lane & 1;
    if (INPUT == F32) {
        const u32 a = max_of(upper ? amax[2] : amax[0], __shfl_xor_sync(~0u, upper ? amax[0] : amax[2], 2));
        const u32 b = max_of(upper ? amax[3] : amax[1], __shfl_xor_sync(~0u, upper ? amax[1] : amax[3], 2));
        return max_of(odd ? b : a, __shfl_xor_sync(~0u, odd ? a : b, 1));
    }
    const u32 a = max_of_two(amax[0], amax[1]), b = max_of_two(amax[2], amax[3]);
    u32 pair = max_of(upper ? b : a, __shfl_xor_sync(~0u, upper ? a : b, 2));
    pair = max_of(pair, __shfl_xor_sync(~0u, pair, 1));
    return odd ? pair >> 16 : pair & 0xffff;
}

static __device__ void store(const RowJob& job, u64 at, const float (&y)[8]) {
    if (code_bits == 4 && job.packed) {
        ((u32*)job.elements)[at] = nibbles_of(y);
        return;
    }
    const u32 low = codes_of(y[0], y[1], y[2], y[3]), high = codes_of(y[4], y[5], y[6], y[7]);
    if (code_bits == 6 && job.packed) {
        const u32 a = pack6(low), b = pack6(high);
        u16* to = (u16*)job.elements + at * 3;
        to[0] = (u16)a, to[1] = (u16)(a >> 16 | b << 8), to[2] = (u16)(b >> 8);
    } else {
        ((uint2*)job.elements)[at] = make_uint2(low, high);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) quantize_row(RowJob job) {
    const u32 lane = threadIdx.x % 32;
    const u64 warp = (u64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const u64 first = warp * (32 * STEPS) + lane, end = job.count / 8;
    u32 x[STEPS][WORDS];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const u64 at = first + s * 32;
#pragma unroll
        for (int v = 0; v < WORDS / 4; v++) {
            uint4 loaded = make_uint4(0, 0, 0, 0);
            if (at < end) loaded = ((const uint4*)job.input)[at * (WORDS / 4) + v];
            x[s][4 * v] = loaded.x, x[s][4 * v + 1] = loaded.y, x[s][4 * v + 2] = loaded.z, x[s][4 * v + 3] = loaded.w;
        }
    }
    const u32 amax[STEPS] = {amax_of(x[0]), amax_of(x[1]), amax_of(x[2]), amax_of(x[3])};
    const u32 byte = scale_byte(amax_of_step(amax, lane), job.rule);
    const float own = multiplier(byte);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const u64 at = first + s * 32;
        const float by = __shfl_sync(~0u, own, (lane & ~3u) + s);
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; i++) y[i] = __fmul_rn(INPUT == F32 ? part(x[s][i], 0) : part(x[s][i / 2], i % 2), by);
        if (at < end) store(job, at, y);
    }
    const u64 block = warp * 32 + lane % 4 * 8 + lane / 4;
    if (block < end / 4) put_scale(job.scales, place_of_index(job.scales, block), byte);
}
