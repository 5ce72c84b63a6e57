// Steps along K: elements on their way into shared memory, and the loop that hands one stage after the other to what adds them up.

constexpr int WARP = HALF, THREADS = 128;     // each of four warps makes WARP by WARP outputs

struct Stage {
    u8 a[TILE * STEP];
    u8 b[TILE * STEP];
    Scales scales;
};

// Where a block lies: blocks change places within every four rows, so that the 8 bytes that each thread of a warp takes of it come
// from all banks.
__device__ __forceinline__ int block_place(int block, int row) { return (block ^ row & 3) * BLOCK; }

// What a thread copies of an operand: of every sixteenth row the same 16 bytes of each step.
struct Elements {
    const u8* from;                   // of the next step
    i64 sixteen_rows;
    int rows;                         // of TILE / 16
};

__device__ __forceinline__ Elements find_elements(const Side& side) {
    int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    return {side.elements + row * side.stride + chunk * 16, side.stride * 16, (side.rows - row + 15) / 16};
}

template <int ROW>
__device__ __forceinline__ void copy_16(u32 to, const u8* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %2], [%1], 16;" ::"r"(to), "l"(from), "n"(ROW * STEP) : "memory");
}

// Begins to copy a thread's part of `rows` sixteenths of the rows from ROW on.
template <int ROW>
__device__ __forceinline__ void copy_rows(u32 to, const u8* from, i64 sixteen_rows, int rows) {
    if constexpr (ROW < TILE) {
        if (ROW / 16 < rows) copy_16<ROW>(to, from);
        from += sixteen_rows;
        // Left to itself the compiler computes each address anew in each step.
        asm volatile("" : "+l"(from));
        copy_rows<ROW + 16>(to, from, sixteen_rows, rows);
    }
}

// Begins to copy the elements of the next step. What lies beyond the operand stays as it was: nothing of it reaches an output.
__device__ __forceinline__ void fetch(u8* to, Elements& elements, int blocks) {
    int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    u32 shared = (u32)__cvta_generic_to_shared(to + row * STEP + block_place(chunk / 2, row) + chunk % 2 * 16);
    if (chunk / 2 < blocks) {
        if (elements.rows == TILE / 16) {
            copy_rows<0>(shared, elements.from, elements.sixteen_rows, TILE / 16);
        } else {
            copy_rows<0>(shared, elements.from, elements.sixteen_rows, elements.rows);
        }
    }
    elements.from += STEP;
}

typedef float Sums[WARP / 16][WARP / 8][4];   // MMA tiles of 16 by 8

// Makes a CTA's tile. `add` adds to the sums of a warp, whose outputs begin at (row, column) of the tile, so many blocks of a stage.
// Elements of one step are on their way while those of the one before are added, in two stages.
template <class Add>
__device__ __forceinline__ void make_tile(const Gemm& gemm, Add add) {
    extern __shared__ __align__(128) u8 memory[];
    Stage* stages = (Stage*)memory;
    Tile tile;
    if (!find_tile(gemm, tile)) return;
    int warp = threadIdx.x / 32, row = warp / 2 * WARP, column = warp % 2 * WARP;
    Elements a = find_elements(tile.a), b = find_elements(tile.b);
    Source source = find_scales(tile);

    Sums sums = {};
    fetch(stages[0].a, a, tile.blocks);
    fetch(stages[0].b, b, tile.blocks);
    spread_scales(stages[0].scales, load_scales(source, tile.blocks));
    // Scales are on their way for a whole step before they are spread.
    uint2 words = load_scales(source, tile.blocks - BLOCKS);
    int parity = 0;
    for (int left = tile.blocks; left > 0; left -= BLOCKS) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        Stage& stage = stages[parity];
        parity ^= 1;
        Stage& next = stages[parity];
        fetch(next.a, a, left - BLOCKS);
        fetch(next.b, b, left - BLOCKS);
        spread_scales(next.scales, words);
        words = load_scales(source, left - 2 * BLOCKS);
        add(sums, stage, row, column, min(BLOCKS, left));
    }
    __syncthreads();
    store_sums(gemm, tile, sums, row, column, (float*)memory + warp * store_floats(WARP));
}
