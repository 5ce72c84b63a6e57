// Block scales on their way from memory to sums, in two ways that give the same bits.
//
// The general way adds t * 2^(ea + eb) to an accumulator for scales of every size. The fast way multiplies the scales of one operand,
// less a common power of two, into its elements before they are multiplied. That changes no bit where elements remain normal numbers
// of f16: tensor cores align products by the exponents of their factors, and every product of a dot product moves by the same power.
// E5M2 has subnormal numbers of f16, so it is never the operand that is scaled.

constexpr bool HAS_FAST = A_ELEMENT != E5M2 || B_ELEMENT != E5M2, SCALES_B = B_ELEMENT != E5M2;
constexpr Element SCALED = SCALES_B ? B_ELEMENT : A_ELEMENT, OTHER = SCALES_B ? A_ELEMENT : B_ELEMENT;
// How far elements of that operand can be moved down, and up; factors are numbers of f16, too.
constexpr int HIGHEST = highest_exponent(SCALED), SHIFT = shift_of(SCALED);
constexpr int DOWN = lowest_exponent(SCALED) + 14, UP = 15 - (HIGHEST > SHIFT ? HIGHEST : SHIFT);

constexpr int HALF = TILE / 2;        // rows of an operand that a warp takes

struct Range {
    int least, largest;               // scale bytes
};

struct Scales {
    u32 words[2][TILE];               // of A and of B as they came, one byte a block
    Range ranges[2][2];               // of each half of the rows of A and of B
    // For the fast way, rows in the order in which threads want them. Of the scaled operand pairs of f16, 2^(e - common); of the other
    // f32, 2^e.
    u32 factors[BLOCKS][TILE];
    float values[BLOCKS][TILE];
};

// The order for operands that are scaled, and for A: a thread wants every eighth row.
__device__ __forceinline__ int place(int row) { return row / 32 * 32 + row % 8 * 4 + row / 8 % 4; }
// The order for B where A is scaled: a thread wants rows 2t and 2t + 1 of each eight.
__device__ __forceinline__ int column_place(int row) { return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2; }

// The scales that a thread of a warp brings in: rows `lane` and `lane` + 32 of half of A (warps 0 and 1) or of B (2 and 3).
struct Source {
    const u8* from;                   // of the next step
    i64 second;                       // from the first row to the second
    int advance;                      // from step to step
    int rows;                         // of the two
    bool words;                       // four scales are an aligned word
};

__device__ __forceinline__ Source find_scales(const Tile& tile) {
    bool of_a = threadIdx.x < TILE / 2;
    int half = threadIdx.x / 32 % 2, lane = threadIdx.x % 32, row = half * HALF + lane;
    const u8* scales = of_a ? tile.a.scales : tile.b.scales;
    int all = of_a ? tile.a.rows : tile.b.rows, rows = (row < all) + (row + 32 < all);
    if ((of_a ? tile.a.layout : tile.b.layout) == BLOCKED) return {scales + lane * 16 + half * 8, 4, TILE * BLOCKS, rows, true};
    i64 stride = tile.a.scale_stride;
    return {scales + row * stride, 32 * stride, BLOCKS, rows, (stride % BLOCKS | (u64)scales % BLOCKS) == 0};
}

// Of the bytes of a word `count` are there; for the others stands 0x7f, which is 1.
__device__ __forceinline__ u32 load_word(const u8* from, bool words, int count) {
    if (words && count >= BLOCKS) return __ldg((const u32*)from);
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) word |= (i < count ? __ldg(from + i) : 127u) << 8 * i;
    return word;
}

__device__ __forceinline__ uint2 load_scales(Source& source, int blocks) {
    const u8* from = source.from;
    source.from += source.advance;
    return make_uint2(load_word(from, source.words, source.rows > 0 ? blocks : 0),
                      load_word(from + source.second, source.words, source.rows > 1 ? blocks : 0));
}

__device__ __forceinline__ u32 byte_of(u32 word, int at) { return word >> 8 * at & 0xff; }

__device__ __forceinline__ float value_of(u32 byte) {
    return __uint_as_float(byte == 0 ? 0x00400000u : byte == 255 ? 0x7fffffffu : byte << 23);
}

__device__ __forceinline__ void spread_scales(Scales& scales, uint2 words) {
    int warp = threadIdx.x / 32, side = warp / 2, half = warp % 2, row = half * HALF + threadIdx.x % 32;
    scales.words[side][row] = words.x;
    scales.words[side][row + 32] = words.y;
    u32 bytes[2][BLOCKS], least = 255, largest = 0;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
        bytes[0][i] = byte_of(words.x, i);
        bytes[1][i] = byte_of(words.y, i);
        least = min(least, min(bytes[0][i], bytes[1][i]));
        largest = max(largest, max(bytes[0][i], bytes[1][i]));
    }
    least = __reduce_min_sync(~0u, least);
    largest = __reduce_max_sync(~0u, largest);
    if (threadIdx.x % 32 == 0) scales.ranges[side][half] = {(int)least, (int)largest};
    if (!HAS_FAST) return;
    if (side == SCALES_B) {
        // 2^(byte - largest + UP) and the shift, in both halves.
        constexpr int bias = UP + SHIFT + 15;
        u32* to = scales.factors[0] + place(row);
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) {
            to[i * TILE] = (bytes[0][i] - largest + bias) * 0x04000400u;
            to[i * TILE + 32] = (bytes[1][i] - largest + bias) * 0x04000400u;
        }
    } else {
        float* to = scales.values[0] + (SCALES_B ? place(row) : column_place(row));
        if (least > 0 && largest < 255) {
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i) {
                to[i * TILE] = __uint_as_float(bytes[0][i] << 23);
                to[i * TILE + 32] = __uint_as_float(bytes[1][i] << 23);
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < BLOCKS; ++i) {
                to[i * TILE] = value_of(byte_of(words.x, i));
                to[i * TILE + 32] = value_of(byte_of(words.y, i));
            }
        }
    }
}

// The power of two that is common to the scaled operand's scales, with which those of the other operand are multiplied; 0 if the fast
// way is not for these. It is if factors keep elements normal, and every product is an f32: from 2^-149 to 2^127.
__device__ __forceinline__ float common_power(Range scaled, Range other) {
    int common = scaled.largest - UP + shift_of(OTHER);
    bool normal = common >= 1 && scaled.largest < 255 && scaled.largest - scaled.least <= DOWN + UP;
    bool narrow = common + other.least >= 254 - 149 && common + other.largest <= 254 + 127;
    return normal && narrow ? __uint_as_float((u32)common << 23) : 0;
}

// A row's scale 2^e as two factors, for the general way. Every sum t of a block is a multiple of 2^-32 and at most 2^37, those of E5M2
// are the widest, so t times the first, 2^e1 with -110 <= e1 <= 88, is exact; -17 <= e - e1 <= 39 is left, to be multiplied into a
// column's scale.
struct Factors {
    float first, second;
};

__device__ __forceinline__ Factors factors_of(u32 byte) {
    u32 first = min(max(byte, 127u - 110), 127u + 88);
    return {byte == 255 ? value_of(255) : value_of(first), value_of(byte - first + 127)};
}

__device__ __forceinline__ float min_or_nan(float x, float y) {
    float least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(x), "f"(y));
    return least;
}

// acc + t * row * column, rounded once. The column's part may overflow; the largest f32 is as good then, because what it is multiplied
// by is 0 or at least 2^(88 - 32), which is beyond f32 with either.
__device__ __forceinline__ float add_scaled(float acc, float t, Factors row, float column) {
    column = min_or_nan(__fmul_rn(row.second, column), __uint_as_float(0x7f7fffffu));
    return __fmaf_rn(__fmul_rn(t, row.first), column, acc);
}
