// Scale layouts and packing of sub-byte codes. One thread writes one 32-bit word, or one group of codes.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Layout {
    const u8* from;
    u8* to;
    u64 rows;           // of the scales
    u64 cols;
    const int* ends;    // cumulative ends of groups, along rows (M) or columns (K)
    u64 groups;
    u64 words;          // 32-bit words, or groups of codes, to write
};

static __device__ u64 this_thread() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ u64 round_up(u64 x, u64 multiple) {
    return (x + multiple - 1) / multiple * multiple;
}

// The four scales that word `w` of the blocked layout of rows x cols scales holds: 128x4 tiles of 512 bytes, in which row r lies at
// (r % 32) * 16 + r / 32 * 4 (cuBLASLt VEC32_UE8M0). `row0`, `col0` and `stride` place them in the plain tensor.
static __device__ u32 blocked_word(const u8* plain, u64 rows, u64 cols, u64 row0, u64 col0, u64 stride, u64 w) {
    u64 across = (cols + 3) / 4;
    u64 tile = w / 128, within = w % 128;
    u64 r = tile / across * 128 + within % 4 * 32 + within / 4;
    u64 c = tile % across * 4;
    u32 word = 0;
    if (r < rows) {
        for (u64 i = 0; i < 4 && c + i < cols; i++) {
            word |= (u32)plain[(row0 + r) * stride + col0 + c + i] << (8 * i);
        }
    }
    return word;
}

extern "C" __global__ void swizzle(Layout job) {
    u64 w = this_thread();
    if (w < job.words) {
        ((u32*)job.to)[w] = blocked_word(job.from, job.rows, job.cols, 0, 0, job.cols, w);
    }
}

extern "C" __global__ void unswizzle(Layout job) {
    u64 i = this_thread();
    if (i >= job.words) return;
    u64 r = i / job.cols, c = i % job.cols;
    u64 tile = r / 128 * ((job.cols + 3) / 4) + c / 4;
    job.to[i] = job.from[tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4];
}

// Groups along M: group i is blocked on its own, at padded row sum of round_up(size, 128) over the groups before it.
extern "C" __global__ void swizzle_groups_m(Layout job) {
    u64 w = this_thread();
    if (w >= job.words) return;
    u64 width = round_up(job.cols, 4);
    u64 start = 0, before = 0;
    u32 word = 0;
    for (u64 g = 0; g < job.groups; g++) {
        u64 size = (u64)job.ends[g] - before;
        u64 words = round_up(size, 128) * width / 4;
        if (w - start < words) {
            word = blocked_word(job.from, size, job.cols, before, 0, job.cols, w - start);
            break;
        }
        start += words;
        before += size;
    }
    ((u32*)job.to)[w] = word;
}

// Groups along K: group i is blocked on its own, at padded column sum of round_up(size, 4) over the groups before it.
extern "C" __global__ void swizzle_groups_k(Layout job) {
    u64 w = this_thread();
    if (w >= job.words) return;
    u64 height = round_up(job.rows, 128);
    u64 start = 0, before = 0;
    u32 word = 0;
    for (u64 g = 0; g < job.groups; g++) {
        u64 size = (u64)job.ends[g] - before;
        u64 words = height * round_up(size, 4) / 4;
        if (w - start < words) {
            word = blocked_word(job.from, job.rows, size, 0, before, job.cols, w - start);
            break;
        }
        start += words;
        before += size;
    }
    ((u32*)job.to)[w] = word;
}

// Experts: `groups` tensors of rows x cols scales, each blocked on its own.
extern "C" __global__ void swizzle_experts(Layout job) {
    u64 w = this_thread();
    if (w >= job.words) return;
    u64 each = round_up(job.rows, 128) * round_up(job.cols, 4) / 4;
    u64 expert = w / each;
    ((u32*)job.to)[w] = blocked_word(job.from, job.rows, job.cols, expert * job.rows, 0, job.cols, w % each);
}

// FP4, two codes a byte: element 0 in the low nibble (cuBLASLt, CUTLASS), or in the high one (torchao 0.14.1).
static __device__ void pack4(Layout job, bool high_first) {
    u64 i = this_thread();
    if (i >= job.words) return;
    u32 a = job.from[2 * i] & 15, b = job.from[2 * i + 1] & 15;
    job.to[i] = high_first ? a << 4 | b : b << 4 | a;
}

extern "C" __global__ void pack4_little_endian(Layout job) { pack4(job, false); }
extern "C" __global__ void pack4_high_nibble_first(Layout job) { pack4(job, true); }

// FP6, four codes in three bytes, a dense little-endian bit stream.
extern "C" __global__ void pack6_little_endian(Layout job) {
    u64 i = this_thread();
    if (i >= job.words) return;
    u32 word = 0;
    for (int j = 0; j < 4; j++) word |= (job.from[4 * i + j] & 63u) << (6 * j);
    for (int j = 0; j < 3; j++) job.to[3 * i + j] = word >> (8 * j);
}

// torchao's FP6 before PR 3382: two bytes of upper nibbles, one byte of lower bit pairs.
extern "C" __global__ void pack6_torchao_fp6(Layout job) {
    u64 i = this_thread();
    if (i >= job.words) return;
    u32 a = job.from[4 * i] & 63, b = job.from[4 * i + 1] & 63, c = job.from[4 * i + 2] & 63, d = job.from[4 * i + 3] & 63;
    job.to[3 * i] = a >> 2 << 4 | b >> 2;
    job.to[3 * i + 1] = d >> 2 << 4 | c >> 2;
    job.to[3 * i + 2] = (a & 3) << 6 | (b & 3) << 4 | (d & 3) << 2 | (c & 3);
}

extern "C" __global__ void pack8_little_endian(Layout job) {
    u64 i = this_thread();
    if (i < job.words) job.to[i] = job.from[i];
}

extern "C" __global__ void unpack4_little_endian(Layout job) {
    u64 i = this_thread();
    if (i >= job.words) return;
    u32 byte = job.from[i];
    job.to[2 * i] = byte & 15;
    job.to[2 * i + 1] = byte >> 4;
}

extern "C" __global__ void unpack6_little_endian(Layout job) {
    u64 i = this_thread();
    if (i >= job.words) return;
    u32 word = 0;
    for (int j = 0; j < 3; j++) word |= (u32)job.from[3 * i + j] << (8 * j);
    for (int j = 0; j < 4; j++) job.to[4 * i + j] = word >> (6 * j) & 63;
}
