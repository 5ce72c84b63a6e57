// From 16- and 32-bit floats to E8M0 scales and element codes. INPUT, ELEMENT and CONVENTION are given when compiling.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum Element { E4M3, E5M2, E3M2, E2M3, E2M1, INT8 };
enum Input { F32, BF16, F16 };
enum Convention { PROPAGATE, TE };

#if __CUDA_ARCH__ >= 890
#define FP8_CONVERSION
#endif
#if defined(__CUDA_ARCH_FEAT_SM100_ALL) || defined(__CUDA_ARCH_FEAT_SM120_ALL)
#define MX_CONVERSION
#endif

static __device__ float float_of(u32 bits) { return __int_as_float((int)bits); }
static __device__ u32 bits_of(float x) { return (u32)__float_as_int(x); }

// Element formats: mantissa bits, exponent of the smallest normal, largest value.
constexpr int mantissa = ELEMENT == E4M3 || ELEMENT == E2M3 ? 3 : ELEMENT == E2M1 ? 1 : ELEMENT == INT8 ? 6 : 2;
constexpr int min_exponent = ELEMENT == E4M3 ? -6 : ELEMENT == E5M2 ? -14 : ELEMENT == E3M2 ? -2 : 0;
constexpr float max_value = ELEMENT == E4M3   ? 448.0f
                            : ELEMENT == E5M2 ? 57344.0f
                            : ELEMENT == E3M2 ? 28.0f
                            : ELEMENT == E2M3 ? 7.5f
                            : ELEMENT == E2M1 ? 6.0f
                                              : 1.984375f;
constexpr int sign_bit = ELEMENT == E4M3 || ELEMENT == E5M2 || ELEMENT == INT8 ? 7 : ELEMENT == E2M1 ? 3 : 5;

// Ratios are formed 2^-ratio_shift times smaller where a wider format's conversion then rounds as the narrow one would: with its
// smallest normal moved onto the wider one's and the same mantissa, codes are the same bits.
//   e3m2 -> e5m2: 2^-2 -> 2^-14.   e2m3 -> e4m3: 2^0 -> 2^-6.   e2m1 -> f16, then ten mantissa bits to one: 2^0 -> 2^-14.
#ifdef FP8_CONVERSION
constexpr bool narrow_by_fp8 = ELEMENT == E3M2 || ELEMENT == E2M3;
#else
constexpr bool narrow_by_fp8 = false;
#endif
#ifdef MX_CONVERSION
constexpr bool by_mx = ELEMENT == E3M2 || ELEMENT == E2M3 || ELEMENT == E2M1;
#else
constexpr bool by_mx = false;
#endif
constexpr bool narrow_by_f16 = ELEMENT == E2M1 && INPUT == BF16;
constexpr int ratio_shift = by_mx                             ? 0
                            : narrow_by_fp8 && ELEMENT == E3M2 ? 12
                            : narrow_by_fp8 && ELEMENT == E2M3 ? 6
                            : narrow_by_f16                    ? 14
                                                               : 0;

// ---- amax: a pair of 16-bit magnitudes, or one of 32 bits, in a word. NaN propagates or is passed over, by the convention.

static __device__ u32 magnitudes(u32 word) { return word & (INPUT == F32 ? 0x7fffffffu : 0x7fff7fffu); }

// The larger magnitude. From sm_86 on the hardware ignores signs, and what it leaves in the sign bit is to be masked off at the end.
#if __CUDA_ARCH__ >= 860
#define OF_MAGNITUDES ".xorsign.abs"
static __device__ u32 before_max(u32 word) { return word; }
#else
#define OF_MAGNITUDES ""
static __device__ u32 before_max(u32 word) { return magnitudes(word); }
#endif

static __device__ u32 max_of(u32 a, u32 b) {
    u32 d;
    a = before_max(a), b = before_max(b);
    if (INPUT == BF16) {
        if (CONVENTION == TE) asm("max" OF_MAGNITUDES ".bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
        else asm("max.NaN" OF_MAGNITUDES ".bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    } else if (INPUT == F16) {
        if (CONVENTION == TE) asm("max" OF_MAGNITUDES ".f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
        else asm("max.NaN" OF_MAGNITUDES ".f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    } else {
        if (CONVENTION == TE) asm("max" OF_MAGNITUDES ".f32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
        else asm("max.NaN" OF_MAGNITUDES ".f32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    }
    return d;
}

// Two rows or steps in one word: the larger magnitudes of both halves of `a` in its low half, of `b` in its high half.
static __device__ u32 max_of_two(u32 a, u32 b) { return max_of(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632)); }

// The larger of the two halves, in both; a 32-bit magnitude as it is.
static __device__ u32 max_of_halves(u32 word) {
    return INPUT == F32 ? word : max_of(word, __byte_perm(word, 0, 0x1032));
}

static __device__ float f32_of_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// The low (0) or high (1) half of a word as f32: exact. A word of f32 has one part. `AGAIN` says the same in other instructions: a second
// pass over the same words then does not make the compiler keep, and spill, all that the first one unpacked.
template <bool AGAIN = false> static __device__ float part(u32 word, int half) {
    if (INPUT == BF16 && AGAIN) return float_of(__byte_perm(word, 0, half ? 0x3244 : 0x1044));
    if (INPUT == F32) return float_of(word);
    if (INPUT == BF16) return float_of(half ? word & 0xffff0000u : word << 16);
    return f32_of_f16((u16)(half ? word >> 16 : word));
}

// ---- scales

// A scale mode as numbers: byte = exponent field of (amax * factor) - p, one more where what the fraction lacks to the mode's threshold
// carries over. For RCEIL factor is f32(1/max) and every fraction but 0 carries: the product that hardware forms, rounded up to a power
// of two as cvt.rp.ue8m0x2.f32 does. For the others factor is 1.
struct Rule {
    u32 factor; // f32
    u32 carry;
    u32 p;
    u32 top;    // the largest byte of a finite amax
    u32 rceil;
};

// The scale byte of an amax given as one magnitude word. One shift normalises the subnormals that matter: without their top bit they are
// below 2^-127, and so is their byte 0.
static __device__ u32 scale_byte(u32 amax_word, const Rule& rule) {
    const float amax = part(magnitudes(max_of(amax_word, 0)), 0); // max: a NaN that the convention passes over is 0
    const u32 bits = bits_of(__fmul_rn(amax, float_of(rule.factor)));
    const u32 special = CONVENTION == TE && bits_of(amax) == 0x7f800000 ? 254 : 255;
#ifdef MX_CONVERSION
    if (rule.rceil) {
        u16 pair;
        if (CONVENTION == TE) asm("cvt.rp.satfinite.ue8m0x2.f32 %0, %1, %1;" : "=h"(pair) : "f"(float_of(bits)));
        else asm("cvt.rp.ue8m0x2.f32 %0, %1, %1;" : "=h"(pair) : "f"(float_of(bits)));
        return bits_of(amax) < 0x7f800000 ? pair & 255 : special;
    }
#endif
    const u32 subnormal = bits < 0x800000;
    const int byte = (int)(((bits << subnormal) + rule.carry) >> 23) - (int)subnormal - (int)rule.p;
    const u32 finite = (u32)min(max(byte, 0), (int)rule.top);
    return bits_of(amax) < 0x7f800000 ? finite : special;
}

// What elements are multiplied by under a scale byte, 2^(127 - byte - ratio_shift); NaN under 0xFF. Subnormal from 2^-127 down.
static __device__ float multiplier(u32 byte) {
    int field = 254 - (int)byte - ratio_shift;
    u32 power = field > 0 ? (u32)field << 23 : 0x800000u >> (1 - field);
    return float_of(byte == 255 ? 0x7fc00000 : power);
}

// ---- codes

// Any format, any architecture: the grid's step is brought to an f32's last place by adding 1.0 in the place above, so that the
// addition rounds to nearest even.
static __device__ u32 code_of(float ratio) {
    u32 sign = bits_of(ratio) >> 31 << sign_bit;
    float magnitude = fminf(fabsf(ratio), max_value); // NaN becomes the largest: codes of formats without NaN are free there
    int field = (int)(bits_of(magnitude) >> 23);
    int exponent = field < min_exponent + 127 ? min_exponent + 127 : field;
    u32 one = (u32)(exponent + 23 - mantissa) << 23;
    u32 steps = bits_of(__fadd_rn(magnitude, float_of(one))) - one;
    u32 code = ((u32)(exponent - min_exponent - 127) << mantissa) + steps;
    if ((ELEMENT == E4M3 || ELEMENT == E5M2) && ratio != ratio) code = 0x7f;
    return code | sign;
}

static __device__ u32 bytes(u32 a, u32 b, u32 c, u32 d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// Two's complement in units of 2^-6, which is the last place of f32 at 1.5 * 2^17.
static __device__ u32 int8_of(float ratio) {
    float clamped = fminf(fmaxf(ratio, -max_value), max_value);
    return bits_of(__fadd_rn(clamped, 196608.0f));
}

#ifdef FP8_CONVERSION
// PTX puts the first operand into the upper half.
static __device__ u32 fp8_of(float a, float b, float c, float d) {
    u16 low, high;
    if (ELEMENT == E4M3 || ELEMENT == E2M3) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
    }
    return (u32)high << 16 | low;
}
#endif

#ifdef MX_CONVERSION
static __device__ u32 mx_of(float a, float b, float c, float d) {
    u32 codes;
    if (ELEMENT == E2M1) {
        asm("{ .reg .b8 low, high; cvt.rn.satfinite.e2m1x2.f32 low, %2, %1; cvt.rn.satfinite.e2m1x2.f32 high, %4, %3;\n"
            "  mov.b32 %0, {low, high, low, high}; }"
            : "=r"(codes) : "f"(a), "f"(b), "f"(c), "f"(d));
        u32 low = codes & 255, high = codes >> 8 & 255;
        return bytes(low & 15, low >> 4, high & 15, high >> 4);
    }
    u16 low, high;
    if (ELEMENT == E3M2) {
        asm("cvt.rn.satfinite.e3m2x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
        asm("cvt.rn.satfinite.e3m2x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
    } else {
        asm("cvt.rn.satfinite.e2m3x2.f32 %0, %2, %1;" : "=h"(low) : "f"(a), "f"(b));
        asm("cvt.rn.satfinite.e2m3x2.f32 %0, %2, %1;" : "=h"(high) : "f"(c), "f"(d));
    }
    return (u32)high << 16 | low;
}
#endif

// Four FP8 codes of shifted ratios to FP6: above 0x1f saturates, the sign moves from bit 7 to bit 5.
static __device__ u32 fp6_of_fp8(u32 codes) {
    u32 over = (codes | codes >> 1) & 0x20202020;
    return ((codes | (over - (over >> 5))) & 0x1f1f1f1f) | (codes >> 2 & 0x20202020);
}

// Two ratios, 2^-14 times too small, to E2M1 in the low nibble of each half. An f16 holds what a bf16 has there exactly down to a ratio
// of 1/8, and everything below 1/4 becomes zero; so this rounds once.
static __device__ u32 e2m1_of_f16(float a, float b) {
    u32 pair, clamped;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(a), "f"(b));
#if __CUDA_ARCH__ >= 860
    asm("min.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(clamped) : "r"(pair), "r"(0x0e000e00));
#else
    asm("min.f16x2 %0, %1, %2;" : "=r"(clamped) : "r"(pair & 0x7fff7fff), "r"(0x0e000e00));
    clamped |= pair & 0x80008000;
#endif
    u32 rounded = clamped + 0x00ff00ff + (clamped >> 9 & 0x00010001);
    return (rounded >> 9 & 0x00070007) | (rounded >> 12 & 0x00080008);
}

// The codes of four ratios, one a byte, the first in the lowest.
static __device__ u32 codes_of(float a, float b, float c, float d) {
    if (ELEMENT == INT8) return bytes(int8_of(a), int8_of(b), int8_of(c), int8_of(d));
#ifdef MX_CONVERSION
    if (by_mx) return mx_of(a, b, c, d);
#endif
#ifdef FP8_CONVERSION
    if (ELEMENT == E4M3 || ELEMENT == E5M2) return fp8_of(a, b, c, d);
    if (narrow_by_fp8) return fp6_of_fp8(fp8_of(a, b, c, d));
#endif
    if (narrow_by_f16) return __byte_perm(e2m1_of_f16(a, b), e2m1_of_f16(c, d), 0x6420);
    return bytes(code_of(a), code_of(b), code_of(c), code_of(d));
}

// ---- packing, little endian

// Eight codes of four bits.
static __device__ u32 pack4(u32 low, u32 high) {
    low = (low | low >> 4) & 0x00ff00ff;
    high = (high | high >> 4) & 0x00ff00ff;
    return __byte_perm(low, high, 0x6420);
}

// The E2M1 codes of eight ratios, packed.
static __device__ u32 nibbles_of(const float (&y)[8]) {
    if (narrow_by_f16)
        return e2m1_of_f16(y[0], y[4]) + (e2m1_of_f16(y[1], y[5]) << 4) + (e2m1_of_f16(y[2], y[6]) << 8) + (e2m1_of_f16(y[3], y[7]) << 12);
    return pack4(codes_of(y[0], y[1], y[2], y[3]), codes_of(y[4], y[5], y[6], y[7]));
}

// Four codes of six bits, in the low 24.
static __device__ u32 pack6(u32 codes) {
    return (codes & 0x3f) | (codes >> 2 & 0xfc0) | (codes >> 4 & 0x3f000) | (codes >> 6 & 0xfc0000);
}

constexpr int code_bits = ELEMENT == E2M1 ? 4 : ELEMENT == E3M2 || ELEMENT == E2M3 ? 6 : 8;
