// Operands laid out as the warpgroups of gemm_wgmma.cu take them: panels of TILE rows, steps of two blocks along K, of which each is one
// piece of memory that is copied as it is.
//
// A stays codes: a thread takes eight of each block of a row, as two words. B is widened to f16 with its scales multiplied in, less a
// power of two that is common to a block of the panel (see gemm_scales.cuh, of which this is the fast way).

constexpr int PAIR = 2;               // blocks of a step

struct AStep {
    u8 codes[TILE * PAIR * BLOCK];
    float scales[PAIR][TILE];
};

struct BStep {
    unsigned short halves[TILE * PAIR * BLOCK];  // rows of 128 bytes, their 16-byte chunks in the order of SWIZZLE_128B
};

// The common powers of a step; more than that to be a whole 16 bytes.
struct BPowers {
    float power[PAIR];
    float reserved[2];
};

// Where a block of a row lies in AStep: blocks change places within every four rows, so that the threads of a warp read all banks.
__device__ __forceinline__ int a_place(int row, int block) { return row * PAIR * BLOCK + (block ^ row / 2 & 1) * BLOCK; }
