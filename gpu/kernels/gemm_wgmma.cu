// D = A * B^T over elements with one E8M0 scale for each 32 along K, on the warpgroup MMAs of sm_90a: the same sums, bit for bit, as those
// of gemm.cu, of tiles whose scales allow the fast way; tiles whose scales do not are left to gemm.cu.
//
// wgmma m64n128k16 aligns and truncates as mma.sync m16n8k16 does there. Two warpgroups make 64 rows of a tile each. While the tensor
// cores multiply one block, a warpgroup adds the sums of the block before to its accumulators; a third warpgroup copies.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int STAGES = 8, MAKERS = 256, COPIERS = 128;

struct Job {
    Gemm gemm;
    const AStep* a;
    const BStep* b;
    const BPowers* powers;
};

// The halves first: a descriptor's swizzle counts from multiples of 1024 bytes.
struct Stage {
    BStep b;
    AStep a;
    BPowers powers;
    u8 filler[1024 - (sizeof(AStep) + sizeof(BPowers)) % 1024];
};

struct Memory {
    Stage stages[STAGES];
    u64 full[STAGES], empty[STAGES];
};

__device__ __forceinline__ u32 shared(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void await(const u64& barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared(&barrier)), "r"(parity)
        : "memory");
}

__device__ __forceinline__ void copy(void* to, const void* from, u32 bytes, const u64& barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared(to)), "l"(from), "r"(bytes),
                 "r"(shared(&barrier))
                 : "memory");
}

// Copies every step of a tile's panels, each as soon as its stage is free.
__device__ __forceinline__ void copy_steps(const Job& job, Memory& memory, i64 a_panel, i64 b_panel, int steps) {
    const AStep* a = job.a + a_panel * steps;
    const BStep* b = job.b + b_panel * steps;
    const BPowers* powers = job.powers + b_panel * steps;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        int at = step % STAGES;
        if (step >= STAGES) await(memory.empty[at], step / STAGES - 1 & 1);
        Stage& stage = memory.stages[at];
        const u64& full = memory.full[at];
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(&full)), "r"((u32)(sizeof(AStep) + sizeof(BStep) + sizeof(BPowers)))
                     : "memory");
        copy(&stage.b, b + step, sizeof(BStep), full);
        copy(&stage.a, a + step, sizeof(AStep), full);
        copy(&stage.powers, powers + step, sizeof(BPowers), full);
    }
}

typedef float Tiles[TILE / 8][4];     // MMA tiles of 16 by 8, side by side

#define FOUR(T, J) "+f"(T[J][0]), "+f"(T[J][1]), "+f"(T[J][2]), "+f"(T[J][3])

// sums = A * B^T, or sums + A * B^T: 16 along K of 64 rows and 128 columns. A descriptor holds bits 4 to 17 of the address, 64 * 16 bytes from
// eight rows to the next eight, and SWIZZLE_128B.
template <bool ADD>
__device__ __forceinline__ void multiply(Tiles& sums, const u32 (&a)[4], u32 b) {
    u64 descriptor = 1ull << 62 | 64ull << 32 | 1ull << 16 | b >> 4 & 0x3fff;
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, add, 1, 1, 0;\n"
        "}"
        : FOUR(sums, 0), FOUR(sums, 1), FOUR(sums, 2), FOUR(sums, 3), FOUR(sums, 4), FOUR(sums, 5), FOUR(sums, 6), FOUR(sums, 7), FOUR(sums, 8), FOUR(sums, 9),
          FOUR(sums, 10), FOUR(sums, 11), FOUR(sums, 12), FOUR(sums, 13), FOUR(sums, 14), FOUR(sums, 15)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "n"((int)ADD));
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void await_sums(Tiles& sums) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) asm volatile("" : FOUR(sums, j)::"memory");
}

// The scales of the two rows of a thread, times the common power.
struct Rows {
    float upper, lower;
};

__device__ __forceinline__ Rows scales_of(const Stage& stage, int block, int row) {
    float power = stage.powers.power[block];
    return {__fmul_rn(stage.a.scales[block][row], power), __fmul_rn(stage.a.scales[block][row + 8], power)};
}

// Begins to multiply a block of a stage; `row` is the thread's first of two.
__device__ __forceinline__ void begin(Tiles& sums, const Stage& stage, int block, int row) {
    int t = threadIdx.x % 4 * 8;
    uint2 upper = *(const uint2*)(stage.a.codes + a_place(row, block) + t), lower = *(const uint2*)(stage.a.codes + a_place(row + 8, block) + t);
    Halves a = unpack<A_ELEMENT>(upper.x), b = unpack<A_ELEMENT>(lower.x), c = unpack<A_ELEMENT>(upper.y), d = unpack<A_ELEMENT>(lower.y);
    u32 halves = shared(stage.b.halves) + block * 64;
    fence();
    multiply<false>(sums, {a.low, b.low, c.low, d.low}, halves);
    multiply<true>(sums, {a.high, b.high, c.high, d.high}, halves + 32);
    commit();
}

__device__ __forceinline__ void add(Tiles& all, const Tiles& sums, Rows rows) {
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) all[j][e] = __fmaf_rn(sums[j][e], e < 2 ? rows.upper : rows.lower, all[j][e]);
    }
}

__device__ __forceinline__ void release(const u64& empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(&empty)) : "memory");
}

// The sums of one block of a step are added while the tensor cores multiply the other, or blocks of the other warpgroup.
__device__ __forceinline__ void make_rows(Tiles (&all)[1], Memory& memory, int blocks) {
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, steps = blocks / PAIR;
    Tiles first = {}, second = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        int at = step % STAGES;
        const Stage& stage = memory.stages[at];
        await(memory.full[at], step / STAGES & 1);
        begin(first, stage, 0, row);
        begin(second, stage, 1, row);
        Rows first_rows = scales_of(stage, 0, row), second_rows = scales_of(stage, 1, row);
        await_sums<1>(first);
        add(all[0], first, first_rows);
        await_sums<0>(second);
        release(memory.empty[at]);
        add(all[0], second, second_rows);
    }
    if (blocks % PAIR != 0) {
        int at = steps % STAGES;
        await(memory.full[at], steps / STAGES & 1);
        begin(first, memory.stages[at], 0, row);
        await_sums<0>(first);
        add(all[0], first, scales_of(memory.stages[at], 0, row));
    }
}

// The grid is one CTA a tile, as mx_gemm's of gemm.cu without groups. Dynamic shared memory: SHARED bytes.
extern "C" __global__ void __launch_bounds__(MAKERS + COPIERS, 1) mx_gemm_wgmma(const __grid_constant__ Job job) {
    extern __shared__ __align__(1024) u8 bytes[];
    Memory& memory = *(Memory*)(bytes + (1024 - shared(bytes) % 1024) % 1024);
    Place place = find_place(job.gemm);
    if (!folds(job.gemm.a_panels[place.row], job.gemm.b_panels[place.column])) return;
    int blocks = (int)(job.gemm.k / BLOCK);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&memory.full[stage])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(&memory.empty[stage])), "n"(MAKERS / 32) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= MAKERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == MAKERS) copy_steps(job, memory, place.row, place.column, (blocks + PAIR - 1) / PAIR);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Tiles all[1] = {};
    make_rows(all, memory, blocks);
    // Stages become room for outputs once both warpgroups are done with them.
    asm volatile("bar.sync 1, 256;" ::: "memory");
    int warp = threadIdx.x / 32;
    Tile tile = {};
    tile.a.rows = (int)min((i64)TILE, job.gemm.m - place.row * TILE);
    tile.b.rows = (int)min((i64)TILE, job.gemm.n - place.column * TILE);
    tile.at = place.row * TILE * job.gemm.n + place.column * TILE;
    store_sums(job.gemm, tile, all, warp * 16, 0, (float*)&memory + warp * store_floats(TILE));
}

static_assert(sizeof(Memory) + 1024 == 214144, "the dynamic shared memory of a launch");

#endif
