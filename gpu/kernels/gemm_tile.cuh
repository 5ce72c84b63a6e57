// What a launch of mx_gemm is asked, and which part of it falls to a CTA.

typedef long long i64;
typedef unsigned long long u64;

enum Layout { PLAIN, BLOCKED };       // of scales: row major, or tiles of 128 rows by 4 blocks, of each group for itself
enum Axis { NO_GROUPS, ALONG_M, ALONG_K };
enum Output { F32, BF16, F16 };

// Where a group of rows of A, or of blocks along K, ends, and where it starts if each before it is filled up to 128 rows or 4 blocks.
struct GroupEnd {
    i64 end, start;
};

// What the scales of TILE rows of an operand span.
struct Panel {
    u32 above;                        // 255 less the least byte, of A; of B the least of the common powers that gemm_panel.cu finds
    u32 largest;
    u32 general;                      // B: some are too far apart
    u32 reserved;
};

// True if gemm_wgmma.cu makes the tile: B's scales are multiplied into its elements, and what is left of a scale times a row's of A is
// a number of f32.
__device__ __forceinline__ bool folds(const Panel& a, const Panel& b) {
    int least = (255 - (int)a.above) + (255 - (int)b.above), largest = (int)a.largest + (int)b.largest;
    return !b.general && least >= 254 - 149 && largest <= 254 + 127;
}

// A [m, k]; B [n, k], along M [groups, n, k]; D [m, n], along K [groups, m, n].
struct Gemm {
    const u8* a;
    const u8* b;
    const u8* a_scales;
    const u8* b_scales;
    void* d;
    const GroupEnd* ends;
    i64 m, n, k;
    int groups, axis;
    int a_layout, b_layout;
    int output;
    // Without groups: panels of A and of B, if tiles that fold are made elsewhere.
    const Panel* a_panels;
    const Panel* b_panels;
};

// A CTA makes TILE by TILE outputs, from STEP elements of each row at a time.
constexpr int TILE = 128, BLOCK = 32, STEP = 128, BLOCKS = STEP / BLOCK;
// Rows of tiles whose CTAs run side by side, so that what they read stays in L2.
constexpr int BAND = 16;

__device__ __forceinline__ i64 up_to(i64 x, i64 multiple) { return (x + multiple - 1) / multiple * multiple; }

// One operand's part of a tile.
struct Side {
    const u8* elements;               // first row, first k
    i64 stride;                       // from row to row
    int rows;                         // of TILE
    int layout;
    const u8* scales;
    i64 scale_stride;                 // PLAIN: from row to row
};

struct Tile {
    Side a, b;
    int blocks;                       // along K
    i64 at;                           // of its first output in D
};

struct Group {
    i64 number, begin, end, start;
};

__device__ __forceinline__ Group group_at(const Gemm& gemm, i64 number) {
    return {number, number > 0 ? gemm.ends[number - 1].end : 0, gemm.ends[number].end, gemm.ends[number].start};
}

// The group along M that a row of tiles belongs to, of which all groups have whole numbers; a number below 0 if it is beyond them.
__device__ __forceinline__ Group find_group(const Gemm& gemm, i64 row) {
    for (int first = 0; first < gemm.groups; first += 32) {
        int g = first + threadIdx.x % 32;
        bool mine = false;
        if (g < gemm.groups) {
            Group group = group_at(gemm, g);
            mine = row >= group.start && row - group.start < group.end - group.begin;
        }
        u32 holders = __ballot_sync(~0u, mine);
        if (holders != 0) return group_at(gemm, first + __ffs(holders) - 1);
    }
    return {-1, 0, 0, 0};
}

// In tiles.
struct Place {
    i64 row, column;
};

// blockIdx.x counts tiles, BAND rows of them at a time and in each band column by column.
__device__ __forceinline__ Place find_place(const Gemm& gemm) {
    i64 columns = (gemm.n + TILE - 1) / TILE, rows = gridDim.x / columns;
    i64 first = blockIdx.x / (BAND * columns) * BAND, within = blockIdx.x % (BAND * columns);
    i64 height = min((i64)BAND, rows - first);
    return {first + within % height, within / height};
}

// The tile of this CTA; false if there is none. blockIdx.y counts groups along K.
__device__ __forceinline__ bool find_tile(const Gemm& gemm, Tile& tile) {
    Place place = find_place(gemm);
    if (gemm.a_panels != nullptr && folds(gemm.a_panels[place.row], gemm.b_panels[place.column])) return false;
    i64 columns = (gemm.n + TILE - 1) / TILE, row = place.row * TILE, column = place.column * TILE;

    i64 all_blocks = gemm.k / BLOCK;
    // Of this group: rows of A, the place of the tile in A and in B, blocks, and where BLOCKED scales begin.
    i64 m = gemm.m, a_row = row, b_row = column, first_block = 0, blocks = all_blocks;
    i64 a_begin = 0, b_begin = 0;
    tile.at = 0;
    if (gemm.axis == ALONG_M) {
        Group group = find_group(gemm, row);
        if (group.number < 0) return false;
        row -= group.start;
        m = group.end - group.begin;
        a_row = group.begin + row;
        b_row = group.number * gemm.n + column;
        a_begin = group.start * up_to(blocks, BLOCKS);
        b_begin = group.number * columns * TILE * up_to(blocks, BLOCKS);
        tile.at = group.begin * gemm.n;
    } else if (gemm.axis == ALONG_K) {
        Group group = group_at(gemm, blockIdx.y);
        first_block = group.begin;
        blocks = group.end - group.begin;
        a_begin = group.start * up_to(m, TILE);
        b_begin = group.start * columns * TILE;
        tile.at = blockIdx.y * m * gemm.n;
    }
    if (row >= m) return false;
    tile.at += row * gemm.n + column;
    tile.blocks = (int)blocks;

    auto side = [&](const u8* elements, const u8* scales, int layout, i64 at, i64 rows, i64 begin, i64 tile_row) {
        i64 scale = layout == BLOCKED ? begin + tile_row * up_to(blocks, BLOCKS) : at * all_blocks + first_block;
        return Side{elements + at * gemm.k + first_block * BLOCK, gemm.k, (int)min((i64)TILE, rows), layout, scales + scale, all_blocks};
    };
    tile.a = side(gemm.a, gemm.a_scales, gemm.a_layout, a_row, m - row, a_begin, row);
    tile.b = side(gemm.b, gemm.b_scales, gemm.b_layout, b_row, gemm.n - column, b_begin, column);
    return true;
}
