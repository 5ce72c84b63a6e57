// Blocks of 32 along the first dimension, alone or with those along the last from one pass over the input, and 32x32 tiles.
//
// A thread holds 32 rows of COLUMNS neighbouring columns in registers: blocks along columns then need no exchange between threads, and
// packing the codes of four rows transposes them. Blocks along rows span 32 / COLUMNS threads. A thread block covers 128 rows, so that
// the transposed codes leave through shared memory as whole lines of 128 bytes.

enum Kind { COL, BOTH, TILE };

struct ColJob {
    const void* input;
    u64 rows, cols; // of the input
    u8* row_elements;
    u8* col_elements;
    Scales row_scales, col_scales;
    u32 mode;
    u32 packed;
    u32 aligned;    // rows of the input start at multiples of 16 bytes
};

constexpr int COLUMNS = INPUT == F32 ? 4 : 8;   // 16 bytes of a row
constexpr int WORDS = 4;
constexpr int WARPS = 4;
constexpr int WIDTH = 32 * COLUMNS;             // columns of a thread block
constexpr int SPAN = 32 / COLUMNS;              // threads that a block along a row spans

// Sixteen-byte pieces of a column's 128 codes are permuted so that neither the columns of neighbouring threads nor the pieces of one
// column meet in the same banks.
static __device__ int piece(int column, int index) { return column * 8 + (index ^ (column / COLUMNS & 7)); }

static __device__ float at(const u32 (&x)[32][WORDS], int r, int c) {
    return INPUT == F32 ? part(x[r][c % WORDS], 0) : part(x[r][c / 2], c % 2);
}

// Codes 16 * i of a line of the output, packed as the job says; `to` is the first byte of the line.
static __device__ void store16(u8* to, u64 i, uint4 codes, u32 packed) {
    if (code_bits == 8 || !packed) {
        __stcs((uint4*)to + i, codes);
    } else if (code_bits == 4) {
        __stcs((uint2*)to + i, make_uint2(pack4(codes.x, codes.y), pack4(codes.z, codes.w)));
    } else {
        u32 a = pack6(codes.x), b = pack6(codes.y), c = pack6(codes.z), d = pack6(codes.w);
        u32* words = (u32*)to + 3 * i;
        words[0] = a | b << 24, words[1] = b >> 8 | c << 16, words[2] = c >> 16 | d << 8;
    }
}

// The COLUMNS codes that a thread holds of a row.
static __device__ void store_row(u8* to, u64 index, u32 low, u32 high, u32 packed) {
    u64 i = index / COLUMNS;
    if (COLUMNS == 8) {
        if (code_bits == 8 || !packed) __stcs((uint2*)to + i, make_uint2(low, high));
        else if (code_bits == 4) __stcs((u32*)to + i, pack4(low, high));
        else {
            u32 a = pack6(low), b = pack6(high);
            u16* words = (u16*)to + 3 * i;
            words[0] = (u16)a, words[1] = (u16)(a >> 16 | b << 8), words[2] = (u16)(b >> 8);
        }
    } else {
        if (code_bits == 8 || !packed) __stcs((u32*)to + i, low);
        else if (code_bits == 4) ((u16*)to)[i] = (u16)pack4(low, 0);
        else {
            u32 a = pack6(low);
            to[3 * i] = (u8)a, to[3 * i + 1] = (u8)(a >> 8), to[3 * i + 2] = (u8)(a >> 16);
        }
    }
}

static __device__ void load(const ColJob& job, u64 row, u64 column, u32 (&x)[32][WORDS]) {
    if (job.aligned) {
        const uint4* from = (const uint4*)job.input + (row * job.cols + column) / COLUMNS;
        const bool inside = column < job.cols;
#pragma unroll
        for (int r = 0; r < 32; r++) {
            uint4 loaded = make_uint4(0, 0, 0, 0);
            if (inside) loaded = __ldcs(from + r * (job.cols / COLUMNS));
            x[r][0] = loaded.x, x[r][1] = loaded.y, x[r][2] = loaded.z, x[r][3] = loaded.w;
        }
    } else {
#pragma unroll
        for (int r = 0; r < 32; r++) {
            const u64 start = (row + r) * job.cols + column;
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                u32 word = 0;
                if (INPUT == F32) {
                    if (column + w < job.cols) word = ((const u32*)job.input)[start + w];
                } else {
                    if (column + 2 * w < job.cols) word = ((const u16*)job.input)[start + 2 * w];
                    if (column + 2 * w + 1 < job.cols) word |= (u32)((const u16*)job.input)[start + 2 * w + 1] << 16;
                }
                x[r][w] = word;
            }
        }
    }
}

// The amaxes of two rows as they lie in a thread's registers, over all threads that their blocks span: row r in the low half, r + 1 in the
// high one. Of f32, one row a word.
static __device__ u32 across(u32 amax) {
#pragma unroll
    for (int distance = 1; distance < SPAN; distance *= 2) amax = max_of(amax, __shfl_xor_sync(~0u, amax, distance));
    return amax;
}

static __device__ u32 amax_of_row(const u32 (&x)[32][WORDS], int r) {
    return max_of(max_of(magnitudes(x[r][0]), magnitudes(x[r][1])), max_of(magnitudes(x[r][2]), magnitudes(x[r][3])));
}

static __device__ u32 byte_of(u32 amax, u32 mode) { return scale_byte(magnitudes(max_of(amax, 0)), mode); }

static __device__ void write_row(const ColJob& job, const u32 (&x)[32][WORDS], int r, float by, u64 row, u64 column) {
    u32 low = codes_of(__fmul_rn(at(x, r, 0), by), __fmul_rn(at(x, r, 1), by), __fmul_rn(at(x, r, 2), by), __fmul_rn(at(x, r, 3), by));
    u32 high = 0;
    if (COLUMNS == 8)
        high = codes_of(__fmul_rn(at(x, r, 4), by), __fmul_rn(at(x, r, 5), by), __fmul_rn(at(x, r, 6), by), __fmul_rn(at(x, r, 7), by));
    if (column < job.cols) store_row(job.row_elements, (row + r) * job.cols + column, low, high, job.packed);
}

static __device__ void put_scale(const Scales& scales, u64 r, u64 c, u32 byte) {
    u64 offset = place(scales, r, c);
    if (offset != nowhere) scales.to[offset] = (u8)byte;
}

// Scale bytes wait in shared memory until all threads write them out: [row][block of the row], [column][block of the column].
typedef u8 RowBytes[32 * WARPS][WIDTH / 32];
typedef u8 ColBytes[WIDTH][WARPS];

static __device__ void rows_of(const ColJob& job, const u32 (&x)[32][WORDS], RowBytes& bytes, u64 row, u64 column) {
    const int block = threadIdx.x / SPAN;
    const bool first = threadIdx.x % SPAN == 0;
#pragma unroll
    for (int r = 0; r < 32; r += 2) {
        u32 a = amax_of_row(x, r), b = amax_of_row(x, r + 1);
        if (INPUT == F32) {
            a = across(a), b = across(b);
        } else {
            // Half the exchanges: the two halves of each row are combined, then both rows travel in one word.
            u32 both = across(max_of(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632)));
            a = both & 0xffff, b = both >> 16;
        }
        const u32 of_a = byte_of(a, job.mode), of_b = byte_of(b, job.mode);
        write_row(job, x, r, multiplier(of_a), row, column);
        write_row(job, x, r + 1, multiplier(of_b), row, column);
        if (first) {
            bytes[threadIdx.y * 32 + r][block] = (u8)of_a;
            bytes[threadIdx.y * 32 + r + 1][block] = (u8)of_b;
        }
    }
}

static __device__ void tile_of(const ColJob& job, const u32 (&x)[32][WORDS], RowBytes& bytes, u64 row, u64 column) {
    u32 amax = amax_of_row(x, 0);
#pragma unroll
    for (int r = 1; r < 32; r++) amax = max_of(amax, amax_of_row(x, r));
    const u32 byte = byte_of(max_of_halves(across(amax)), job.mode);
    const float by = multiplier(byte);
#pragma unroll
    for (int r = 0; r < 32; r++) write_row(job, x, r, by, row, column);
    if (threadIdx.x % SPAN == 0) {
        for (int r = 0; r < 32; r++) bytes[threadIdx.y * 32 + r][threadIdx.x / SPAN] = (u8)byte;
    }
}

static __device__ void columns_of(const ColJob& job, const u32 (&x)[32][WORDS], uint4* codes, ColBytes& bytes, int warp) {
    u32 amax[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        amax[w] = magnitudes(x[0][w]);
#pragma unroll
        for (int r = 1; r < 32; r++) amax[w] = max_of(amax[w], magnitudes(x[r][w]));
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const u32 of_column = INPUT == F32 ? amax[c % WORDS] : amax[c / 2] >> (16 * (c % 2)) & 0xffff;
        const u32 byte = byte_of(of_column, job.mode);
        const float by = multiplier(byte);
        const int column = threadIdx.x * COLUMNS + c;
        bytes[column][warp] = (u8)byte;
        u32 word[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            word[i] = codes_of(__fmul_rn(at(x, 4 * i, c), by), __fmul_rn(at(x, 4 * i + 1, c), by),
                               __fmul_rn(at(x, 4 * i + 2, c), by), __fmul_rn(at(x, 4 * i + 3, c), by));
        codes[piece(column, 2 * warp)] = make_uint4(word[0], word[1], word[2], word[3]);
        codes[piece(column, 2 * warp + 1)] = make_uint4(word[4], word[5], word[6], word[7]);
    }
}

static __device__ void write_columns(const ColJob& job, const uint4* codes, const ColBytes& bytes, int warps, u64 row, u64 column) {
    const int thread = threadIdx.y * 32 + threadIdx.x;
    const u64 line = job.rows * (job.packed ? code_bits : 8) / 8;
#pragma unroll 4
    for (int i = thread; i < WIDTH * 8; i += 32 * WARPS) {
        const int c = i / 8, index = i % 8;
        if (column + c < job.cols && index < 2 * warps)
            store16(job.col_elements + (column + c) * line, row / 16 + index, codes[piece(c, index)], job.packed);
    }
    const bool whole = warps == WARPS && (job.col_scales.layout == BLOCKED || job.col_scales.layout == PLAIN && job.rows % 128 == 0);
    for (int c = thread; c < WIDTH && column + c < job.cols; c += 32 * WARPS) {
        if (whole) {
            // Four blocks of a column are one word in both layouts.
            *(u32*)(job.col_scales.to + place(job.col_scales, column + c, row / 32)) = *(const u32*)bytes[c];
        } else {
            for (int w = 0; w < warps; w++) put_scale(job.col_scales, column + c, row / 32 + w, bytes[c][w]);
        }
    }
}

static __device__ void write_row_scales(const ColJob& job, const RowBytes& bytes, bool tiles, int warps, u64 row, u64 column) {
    const int thread = threadIdx.y * 32 + threadIdx.x;
    const u64 first = column / 32, blocks = (job.cols - column) / 32 < WIDTH / 32 ? (job.cols - column) / 32 : WIDTH / 32;
    const int step = tiles && job.row_scales.layout == PLAIN ? 32 : 1;
    for (int r = thread * step; r < 32 * warps; r += 32 * WARPS * step) {
        for (int c = 0; c < blocks; c += 4) {
            const u64 offset = place(job.row_scales, (row + r) / step, first + c);
            if (c + 4 <= blocks && job.row_scales.layout <= BLOCKED && offset % 4 == 0) {
                *(u32*)(job.row_scales.to + offset) = *(const u32*)&bytes[r][c];
            } else {
                for (int i = c; i < c + 4 && i < blocks; i++) put_scale(job.row_scales, (row + r) / step, first + i, bytes[r][i]);
            }
        }
    }
}

template <bool ROWS, bool COLS, bool TILES> static __device__ void quantize(const ColJob& job) {
    __shared__ uint4 codes[COLS ? WIDTH * 8 : 1];
    __shared__ __align__(4) ColBytes col_bytes;
    __shared__ __align__(4) RowBytes row_bytes;
    const u64 strips = (job.rows + 32 * WARPS - 1) / (32 * WARPS);
    const u64 strip = blockIdx.x % strips, stripe = blockIdx.x / strips;
    const u64 row = strip * (32 * WARPS), own_row = row + threadIdx.y * 32;
    const u64 column = stripe * WIDTH, own_column = column + threadIdx.x * COLUMNS;
    if (own_row < job.rows) {
        u32 x[32][WORDS];
        load(job, own_row, own_column, x);
        if (ROWS) rows_of(job, x, row_bytes, own_row, own_column);
        if (COLS) columns_of(job, x, codes, col_bytes, threadIdx.y);
        if (TILES) tile_of(job, x, row_bytes, own_row, own_column);
    }
    __syncthreads();
    const int warps = job.rows - row < 32 * WARPS ? (int)(job.rows - row) / 32 : WARPS;
    if (COLS) write_columns(job, codes, col_bytes, warps, row, column);
    if (ROWS || TILES) write_row_scales(job, row_bytes, TILES, warps, row, column);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) quantize_block(ColJob job) {
    quantize<KIND == BOTH, KIND == COL || KIND == BOTH, KIND == TILE>(job);
}
