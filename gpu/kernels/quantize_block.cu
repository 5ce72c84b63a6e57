// Blocks of 32 along the first dimension, alone or with those along the last from one pass over the input, and 32x32 tiles.
//
// A warp takes 32 rows of 128 columns, a thread four columns of them in registers. Blocks along columns then need no exchange between
// threads, and packing the codes of four rows transposes them; they leave through shared memory as whole lines. The warps of a thread
// block lie below each other, so that it has 128 x 4 scales of each kind or twice that: whole tiles of the blocked layout.

enum Kind { COL, BOTH, TILE };

struct BlockJob {
    const void* input;
    u64 rows, cols; // of the input
    u8* row_elements;
    u8* col_elements;
    Scales row_scales, col_scales;
    Rule rule;
    u32 packed;
    u32 aligned;    // rows of the input start at multiples of 16 bytes
};

constexpr int SIZE = INPUT == F32 ? 4 : 2;
constexpr int COLUMNS = 4;                  // of a thread
constexpr int WORDS = COLUMNS * SIZE / 4;
constexpr int SPAN = 32 / COLUMNS;          // threads that a block along a row spans
constexpr int WIDTH = 32 * COLUMNS;         // columns of a thread block
constexpr int WARPS = INPUT == F32 ? 4 : 8; // so many that two thread blocks fit a multiprocessor
constexpr int ROWS = 32 * WARPS;
constexpr int THREADS = 32 * WARPS;
constexpr int PIECES = 2 * WARPS;           // 16-byte pieces of a column's codes

typedef u32 Part[32][WORDS];                // what a thread holds

// Scale bytes wait in shared memory until they are written as words: [row][block of the row], [column][block of the column].
typedef u8 RowBytes[4];
typedef u8 ColBytes[WARPS];

// ---- in

static __device__ void load(const BlockJob& job, u64 row, u64 column, Part& x) {
    const char* from = (const char*)job.input + (row * job.cols + column) * SIZE;
    const bool inside = column < job.cols;
#pragma unroll
    for (int r = 0; r < 32; r++) {
        if (INPUT == F32) {
            const uint4 loaded = inside ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
            x[r][0] = loaded.x, x[r][1] = loaded.y, x[r][2 % WORDS] = loaded.z, x[r][3 % WORDS] = loaded.w;
        } else {
            const uint2 loaded = inside ? *(const uint2*)from : make_uint2(0, 0);
            x[r][0] = loaded.x, x[r][1] = loaded.y;
        }
        from += job.cols * SIZE;
    }
}

static __device__ void load_unaligned(const BlockJob& job, u64 row, u64 column, Part& x) {
#pragma unroll
    for (int r = 0; r < 32; r++) {
        const u64 at = (row + r) * job.cols + column;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            u32 bits = 0;
            if (column + c < job.cols) bits = INPUT == F32 ? ((const u32*)job.input)[at + c] : ((const u16*)job.input)[at + c];
            if (INPUT == F32) x[r][c % WORDS] = bits;
            else x[r][c / 2] = c % 2 ? x[r][c / 2] | bits << 16 : bits;
        }
    }
}

// ---- codes

template <bool AGAIN> static __device__ float at(const Part& x, int r, int c) {
    return INPUT == F32 ? part(x[r][c % WORDS], 0) : part<AGAIN>(x[r][c / 2], c % 2);
}

static __device__ u32 codes_across(const Part& x, int r, float by) {
    return codes_of(__fmul_rn(at<false>(x, r, 0), by), __fmul_rn(at<false>(x, r, 1), by), __fmul_rn(at<false>(x, r, 2), by),
                    __fmul_rn(at<false>(x, r, 3), by));
}

static __device__ u32 codes_down(const Part& x, int r, int c, float by) {
    return codes_of(__fmul_rn(at<true>(x, r, c), by), __fmul_rn(at<true>(x, r + 1, c), by), __fmul_rn(at<true>(x, r + 2, c), by),
                    __fmul_rn(at<true>(x, r + 3, c), by));
}

// ---- along rows

static __device__ u32 amax_of_row(const Part& x, int r) {
    u32 amax = x[r][0];
#pragma unroll
    for (int w = 1; w < WORDS; w++) amax = max_of(amax, x[r][w]);
    return amax;
}

// Halves the rows that a thread looks after with each exchange, from all to those of four.
template <int DISTANCE, int LEFT, int N> static __device__ void exchange(u32 (&words)[N]) {
    const bool upper = threadIdx.x & DISTANCE;
#pragma unroll
    for (int i = 0; i < LEFT; i++) {
        const u32 send = upper ? words[i] : words[i + LEFT], own = upper ? words[i + LEFT] : words[i];
        words[i] = max_of(own, __shfl_xor_sync(~0u, send, DISTANCE));
    }
    if constexpr (DISTANCE > 1) exchange<DISTANCE / 2, LEFT / 2>(words);
}

// The amax of rows 4j to 4j + 3 over the SPAN threads of a block, for the j-th of these.
static __device__ void amaxes_of_rows(const Part& x, u32 (&amax)[4]) {
    constexpr int N = INPUT == F32 ? 32 : 16;
    u32 words[N];
#pragma unroll
    for (int i = 0; i < N; i++) words[i] = INPUT == F32 ? amax_of_row(x, i) : max_of_two(amax_of_row(x, 2 * i % 32), amax_of_row(x, (2 * i + 1) % 32));
    exchange<SPAN / 2, N / 2>(words);
#pragma unroll
    for (int i = 0; i < 4; i++) amax[i] = INPUT == F32 ? words[i] : words[i / 2] >> (16 * (i % 2)) & 0xffff;
}

static __device__ void store_row(u8* to, u32 codes, u32 packed) {
    if (code_bits == 8 || !packed) *(u32*)to = codes;
    else if (code_bits == 4) *(u16*)to = (u16)pack4(codes, 0);
    else {
        const u32 bits = pack6(codes);
        to[0] = (u8)bits, to[1] = (u8)(bits >> 8), to[2] = (u8)(bits >> 16);
    }
}

// `own` are the multipliers of the rows whose amaxes this thread has.
static __device__ void write_rows(const BlockJob& job, const Part& x, const float (&own)[4], u64 row, u64 column) {
    const u64 bits = job.packed ? code_bits : 8, pitch = job.cols * bits / 8;
    u8* to = job.row_elements + (row * job.cols + column) * bits / 8;
#pragma unroll
    for (int r = 0; r < 32; r++) {
        const float by = KIND == TILE ? own[0] : __shfl_sync(~0u, own[r % 4], (threadIdx.x & 31 & ~(SPAN - 1)) + r / 4);
        const u32 codes = codes_across(x, r, by);
        if (column < job.cols) store_row(to, codes, job.packed);
        to += pitch;
    }
}

static __device__ void rows_of(const BlockJob& job, const Part& x, RowBytes* bytes, u64 row, u64 column) {
    const u32 lane = threadIdx.x % 32;
    u32 amax[4];
    float own[4];
    if (KIND == TILE) {
        u32 all = amax_of_row(x, 0);
#pragma unroll
        for (int r = 1; r < 32; r++) all = max_of(all, amax_of_row(x, r));
#pragma unroll
        for (int distance = 1; distance < SPAN; distance *= 2) all = max_of(all, __shfl_xor_sync(~0u, all, distance));
#pragma unroll
        for (int i = 0; i < 4; i++) amax[i] = max_of_halves(all);
    } else {
        amaxes_of_rows(x, amax);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 byte = scale_byte(amax[i], job.rule);
        own[i] = multiplier(byte);
        bytes[lane % SPAN * 4 + i][lane / SPAN] = (u8)byte;
    }
    write_rows(job, x, own, row, column);
}

// ---- along columns

// Where a piece of a column's codes lies: permuted so that neither neighbouring threads nor the pieces of a column meet in a bank.
static __device__ int place_of_piece(int column, int index) { return column * PIECES + (index ^ (column / COLUMNS & 7)); }

static __device__ void columns_of(const BlockJob& job, const Part& x, uint4* pieces, ColBytes* bytes, int warp) {
    u32 amax[WORDS];
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        amax[w] = x[0][w];
#pragma unroll
        for (int r = 1; r < 32; r++) amax[w] = max_of(amax[w], x[r][w]);
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const int column = threadIdx.x % 32 * COLUMNS + c;
        const u32 byte = scale_byte(INPUT == F32 ? amax[c % WORDS] : amax[c / 2] >> (16 * (c % 2)) & 0xffff, job.rule);
        const float by = multiplier(byte);
        bytes[column][warp] = (u8)byte;
#pragma unroll
        for (int i = 0; i < 2; i++)
            pieces[place_of_piece(column, 2 * warp + i)] = make_uint4(codes_down(x, 16 * i, c, by), codes_down(x, 16 * i + 4, c, by),
                                                                     codes_down(x, 16 * i + 8, c, by), codes_down(x, 16 * i + 12, c, by));
    }
}

static __device__ void store16(u8* to, uint4 codes, u32 packed) {
    if (code_bits == 8 || !packed) {
        *(uint4*)to = codes;
    } else if (code_bits == 4) {
        *(uint2*)to = make_uint2(pack4(codes.x, codes.y), pack4(codes.z, codes.w));
    } else {
        const u32 a = pack6(codes.x), b = pack6(codes.y), c = pack6(codes.z), d = pack6(codes.w);
        u32* words = (u32*)to;
        words[0] = a | b << 24, words[1] = b >> 8 | c << 16, words[2] = c >> 16 | d << 8;
    }
}

static __device__ void write_columns(const BlockJob& job, const uint4* pieces, u64 row, u64 column) {
    constexpr int STEP = THREADS / PIECES;
    const int index = threadIdx.x % PIECES, first = threadIdx.x / PIECES;
    if (row + index * 16 >= job.rows) return;
    const u64 bits = job.packed ? code_bits : 8, line = job.rows * bits / 8;
    u8* to = job.col_elements + (column + first) * line + (row + index * 16) * bits / 8;
#pragma unroll
    for (int c = first; c < WIDTH; c += STEP) {
        if (column + c < job.cols) store16(to, pieces[place_of_piece(c, index)], job.packed);
        to += STEP * line;
    }
}

// ---- scales

// R x C scales, the first of which is (row, col), a word of four at a time; only every `every`-th row of them.
template <int R, int C> static __device__ void write_scales(const Scales& scales, const u8 (*bytes)[C], u64 row, u64 col, u32 every) {
    for (u32 i = threadIdx.x; i < R * C / 4; i += THREADS) {
        // Word i % 128 of the 128 x 4 tile i / 128.
        const u32 tile = i / 128, own = tile / (C / 4) * 128 + i % 4 * 32 + i % 128 / 4, offset = tile % (C / 4) * 4;
        const u64 r = row + own / every, c = col + offset;
        if (c >= scales.cols) continue;
        const u32 count = scales.cols - c < 4 ? (u32)(scales.cols - c) : 4;
        const u32 word = *(const u32*)&bytes[own][offset];
        if (scales.layout == BLOCKED) {
            // Padding is part of the layout.
            const u32 within = r < scales.rows ? word & ~0u >> (32 - 8 * count) : 0;
            if (r / 128 * 128 < scales.rows) keep(scales.to + blocked(scales.cols, r, c), within);
        } else if (r < scales.rows && own % every == 0) {
            if (scales.layout == PLAIN && scales.cols % C == 0) {
                if (C == 4) keep(scales.to + r * scales.cols + c, word);
                else if (offset == 0) keep(scales.to + r * scales.cols + c, *(const u64*)bytes[own]);
            } else {
                for (u32 k = 0; k < count; k++) put_scale(scales, place(scales, r, c + k), word >> (8 * k) & 255);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) quantize_block(BlockJob job) {
    __shared__ uint4 pieces[KIND == TILE ? 1 : WIDTH * PIECES];
    __shared__ __align__(8) RowBytes row_bytes[ROWS];
    __shared__ __align__(8) ColBytes col_bytes[WIDTH];
    // Thread blocks that follow each other go down the input where only transposed codes are written, and across it otherwise.
    const u64 down = (job.rows + ROWS - 1) / ROWS, across = (job.cols + WIDTH - 1) / WIDTH;
    const u64 row = (KIND == COL ? blockIdx.x % down : blockIdx.x / across) * ROWS;
    const u64 column = (KIND == COL ? blockIdx.x / down : blockIdx.x % across) * WIDTH;
    const int warp = threadIdx.x / 32;
    const u64 own_row = row + warp * 32, own_column = column + threadIdx.x % 32 * COLUMNS;
    if (own_row < job.rows) {
        Part x;
        if (job.aligned) load(job, own_row, own_column, x);
        else load_unaligned(job, own_row, own_column, x);
        if (KIND != COL) rows_of(job, x, row_bytes + warp * 32, own_row, own_column);
        if (KIND != TILE) columns_of(job, x, pieces, col_bytes, warp);
    }
    __syncthreads();
    if (KIND != TILE) {
        write_columns(job, pieces, row, column);
        write_scales<WIDTH, WARPS>(job.col_scales, col_bytes, column, row / 32, 1);
    }
    if (KIND != COL) {
        // A tile's scale stands once, or in blocked layouts once for each of its rows.
        const u32 every = KIND == TILE && job.row_scales.layout == PLAIN ? 32 : 1;
        write_scales<ROWS, 4>(job.row_scales, row_bytes, row / every, column / 32, every);
    }
}
