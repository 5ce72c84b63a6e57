// codes x E8M0 scales -> f32, bf16 or f16. ELEMENT and OUTPUT are given when compiling.
//
// The product of a code's value and a power of two is one f32 multiplication: every code times every scale is exact in f32, subnormals
// included, or overflows to infinity as it would in every output type. The second rounding is then the only one.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum Element { E4M3, E5M2, E3M2, E2M3, E2M1, INT8 };
enum Output { F32, BF16, F16 };

struct Dequantize {
    const u8* elements; // one code a byte
    const u8* scales;   // one for 32 codes
    void* output;
    u64 count;          // codes, a multiple of 32
};

static __device__ float float_of(u32 bits) { return __int_as_float((int)bits); }

static __device__ float value(u32 code) {
    if (ELEMENT == INT8) return __fmul_rn((float)(signed char)code, 0.015625f);
    const int mantissa = ELEMENT == E4M3 || ELEMENT == E2M3 ? 3 : ELEMENT == E2M1 ? 1 : 2;
    const int width = ELEMENT == E4M3 || ELEMENT == E5M2 ? 8 : ELEMENT == E2M1 ? 4 : 6;
    const int bias = ELEMENT == E4M3 ? 7 : ELEMENT == E5M2 ? 15 : ELEMENT == E3M2 ? 3 : 1;
    u32 sign = (code >> (width - 1) & 1) << 31;
    u32 magnitude = code & ((1u << (width - 1)) - 1);
    if (ELEMENT == E4M3 && magnitude == 0x7f) return float_of(0x7fc00000);
    if (ELEMENT == E5M2 && magnitude >= 0x7c) return float_of(sign | (magnitude == 0x7c ? 0x7f800000 : 0x7fc00000));
    // Exponent and fraction moved to where f32 has them, then the difference of the biases: exact for subnormals, too.
    float shifted = float_of(sign | magnitude << (23 - mantissa));
    return __fmul_rn(shifted, float_of((u32)(254 - bias) << 23));
}

static __device__ float scale_value(u32 byte) {
    return float_of(byte == 255 ? 0x7fc00000 : byte == 0 ? 0x00400000 : byte << 23);
}

static __device__ u16 bf16_of(float x) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

static __device__ u16 f16_of(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Eight codes a thread.
extern "C" __global__ void dequantize(Dequantize job) {
    u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= job.count) return;
    float scale = scale_value(job.scales[i / 32]);
    u64 codes = *(const u64*)(job.elements + i);
    u32 out[8];
    for (int j = 0; j < 8; j++) {
        float x = __fmul_rn(value((u32)(codes >> (8 * j)) & 255), scale);
        out[j] = OUTPUT == F32 ? (u32)__float_as_int(x) : OUTPUT == BF16 ? bf16_of(x) : f16_of(x);
    }
    if (OUTPUT == F32) {
        uint4* to = (uint4*)((u32*)job.output + i);
        to[0] = make_uint4(out[0], out[1], out[2], out[3]);
        to[1] = make_uint4(out[4], out[5], out[6], out[7]);
    } else {
        *(uint4*)((u16*)job.output + i) = make_uint4(out[0] | out[1] << 16, out[2] | out[3] << 16, out[4] | out[5] << 16, out[6] | out[7] << 16);
    }
}
