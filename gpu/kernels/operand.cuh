// Element codes as the tensor cores take them. Every code of all six formats is a number of f16, so nothing is rounded here, and NaN
// and infinity stay what they are. No code but some of E5M2 is a subnormal number of f16, not even where unpack makes it too small.

typedef unsigned char u8;
typedef unsigned int u32;

enum Element { E4M3, E5M2, E3M2, E2M3, E2M1, INT8 };

// Pairs of f16: of the codes in bytes 0 and 1 of a word, and of those in bytes 2 and 3.
struct Halves {
    u32 low, high;
};

__device__ __forceinline__ u32 multiply_halves(u32 x, u32 y) {
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
    return product;
}

// By how many powers of two what unpack makes of a format is too small.
__device__ constexpr int shift_of(Element e) { return e == E3M2 ? 4 : e == E2M3 || e == E2M1 ? 6 : 0; }

template <Element E>
__device__ __forceinline__ Halves unpack(u32 word);

#if __CUDA_ARCH__ >= 890
template <>
__device__ __forceinline__ Halves unpack<E4M3>(u32 word) {
    Halves halves;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(halves.low), "=r"(halves.high)
        : "r"(word));
    return halves;
}
#else
// Two codes in the upper bytes of halves, and all ones for the exponent of a NaN. Where f16 has them, the bits of a code are its value
// times 2^-8, subnormal where the code is; a multiplication by 2^8 undoes that.
__device__ __forceinline__ u32 widen(u32 codes, u32 nan) {
    u32 bits = (codes & 0x80008000u) | (codes >> 1 & 0x3f803f80u);
    return multiply_halves(bits, 0x5c005c00u) | nan;
}

template <>
__device__ __forceinline__ Halves unpack<E4M3>(u32 word) {
    // S.1111.111 is NaN: 1 more carries into the sign's place.
    u32 carry = ((word & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
    u32 nan = carry - (carry >> 5);
    return {widen(__byte_perm(word, 0, 0x1404), __byte_perm(nan, 0, 0x1404)), widen(__byte_perm(word, 0, 0x3424), __byte_perm(nan, 0, 0x3424))};
}
#endif

// The upper half of an f16.
template <>
__device__ __forceinline__ Halves unpack<E5M2>(u32 word) {
    return {__byte_perm(word, 0, 0x1404), __byte_perm(word, 0, 0x3424)};
}

// The narrower formats as E4M3 with the same bits, whose bias is larger by shift_of. Bits above a code are not looked at.
template <>
__device__ __forceinline__ Halves unpack<E3M2>(u32 word) {
    return unpack<E4M3>((word & 0x20202020u) << 2 | (word & 0x1f1f1f1fu) << 1);
}

template <>
__device__ __forceinline__ Halves unpack<E2M3>(u32 word) {
    return unpack<E4M3>((word & 0x20202020u) << 2 | (word & 0x1f1f1f1fu));
}

template <>
__device__ __forceinline__ Halves unpack<E2M1>(u32 word) {
    return unpack<E4M3>((word & 0x08080808u) << 4 | (word & 0x07070707u) << 2);
}

// With the sign flipped a code is its value plus 128, and 0x64 above it makes that 1024 + 128 + value: (1152 + value) / 64 - 18.
__device__ __forceinline__ u32 unbias(u32 biased) {
    u32 halves;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(halves) : "r"(biased), "r"(0x24002400u), "r"(0xcc80cc80u));
    return halves;
}

template <>
__device__ __forceinline__ Halves unpack<INT8>(u32 word) {
    word ^= 0x80808080u;
    return {unbias(__byte_perm(word, 0x64646464u, 0x4140)), unbias(__byte_perm(word, 0x64646464u, 0x4342))};
}

// floor(log2) of the least and of the largest number of a format.
__device__ constexpr int lowest_exponent(Element e) { return e == E4M3 ? -9 : e == E5M2 ? -16 : e == E3M2 ? -4 : e == E2M3 ? -3 : e == E2M1 ? -1 : -6; }
__device__ constexpr int highest_exponent(Element e) { return e == E4M3 ? 8 : e == E5M2 ? 15 : e == E3M2 ? 4 : e == INT8 ? 1 : 2; }
