// Where scales lie.

enum Layout { PLAIN, BLOCKED, GROUPS_M, GROUPS_K };

// Scales of a tensor: rows x cols in plain order.
struct Scales {
    u8* to;
    u64 rows, cols;
    const u64* groups;  // end and start of each group: ends along rows (M) or columns (K), starts padded as the layout pads them
    u32 count;          // of groups
    u32 layout;
    u32 inverse, shift; // x / cols = x * inverse >> shift for x below 2^31, if shift is not 0
};

// Tiles of 128 rows x 4 columns, 512 bytes each.
static __device__ u64 blocked(u64 cols, u64 r, u64 c) {
    return (r / 128 * ((cols + 3) / 4) + c / 4) * 512 + r % 32 * 16 + r % 128 / 32 * 4 + c % 4;
}

constexpr u64 nowhere = ~0ull;

// The offset of scale (r, c); `nowhere` for one that belongs to no group.
static __device__ u64 place(const Scales& s, u64 r, u64 c) {
    if (s.layout == PLAIN) return r * s.cols + c;
    if (s.layout == BLOCKED) return blocked(s.cols, r, c);
    u64 along = s.layout == GROUPS_M ? r : c;
    u32 low = 0, high = s.count; // the first group that ends beyond `along`
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (s.groups[2 * middle] > along) high = middle;
        else low = middle + 1;
    }
    if (low == s.count) return nowhere;
    u64 begin = low ? s.groups[2 * low - 2] : 0, size = s.groups[2 * low] - begin, start = s.groups[2 * low + 1];
    if (s.layout == GROUPS_M) return start * ((s.cols + 3) / 4 * 4) + blocked(s.cols, r - begin, c);
    return start * ((s.rows + 127) / 128 * 128) + blocked(size, r, c - begin);
}

// The same of the scale with that index in plain order.
static __device__ u64 place_of_index(const Scales& s, u64 index) {
    if (s.layout == PLAIN) return index;
    u64 r = s.shift ? (u64)(u32)index * s.inverse >> s.shift : index / s.cols;
    return place(s, r, index - r * s.cols);
}

// Stores of scales ask to stay in the L2 cache: a sector of them fills over several thread blocks, and one that leaves half filled costs a
// read and another write.
template <class T> static __device__ void keep(void* to, T value) {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    if constexpr (sizeof(T) == 1) asm volatile("st.global.L2::cache_hint.u8 [%0], %1, %2;" ::"l"(to), "r"((u32)value), "l"(policy) : "memory");
    if constexpr (sizeof(T) == 4) asm volatile("st.global.L2::cache_hint.u32 [%0], %1, %2;" ::"l"(to), "r"(value), "l"(policy) : "memory");
    if constexpr (sizeof(T) == 8) asm volatile("st.global.L2::cache_hint.u64 [%0], %1, %2;" ::"l"(to), "l"(value), "l"(policy) : "memory");
}

static __device__ void put_scale(const Scales& scales, u64 offset, u32 byte) {
    if (offset != nowhere) keep(scales.to + offset, (u8)byte);
}
