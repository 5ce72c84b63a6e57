#!/usr/bin/env python3
"""Put your matrix product behind mxcert: copy this file beside numpy_adapter.py and replace `gemm`. Needs numpy.

    mxcert certify --backend 'cmd:python3 conformance/adapters/numpy_gemm.py'
    mxcert fingerprint --backend 'cmd:python3 conformance/adapters/numpy_gemm.py'

`profiles` are pairs of elements, with `/mx`, `/nvfp4` or `/plain` where not every scaling is meant. `accumulate` names the
accumulation: `f32` (f32 additions in any order), or a model that `mxcert list --models` prints.
"""
import numpy as np
from numpy_adapter import serve

# element: mantissa bits, bias, exponent bits
FORMATS = {"e4m3": (3, 7, 4), "e5m2": (2, 15, 5), "e3m2": (2, 3, 3), "e2m3": (3, 1, 2), "e2m1": (1, 1, 2)}


def table(element):
    """The value of every code."""
    mantissa_bits, bias, exponent_bits = FORMATS[element]
    bits = 1 + exponent_bits + mantissa_bits
    codes = np.arange(1 << bits)
    magnitude = codes & ((1 << (bits - 1)) - 1)
    exponent, mantissa = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
    fraction = mantissa / 2**mantissa_bits
    value = np.where(exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent - bias))
    if element == "e4m3":
        value[magnitude == 0x7F] = np.nan
    if element == "e5m2":
        value[magnitude == 0x7C] = np.inf
        value[magnitude > 0x7C] = np.nan
    return np.where(codes >> (bits - 1), -value, value)


def scale_values(scales):
    return np.where(scales == 255, np.nan, np.ldexp(1.0, scales.astype(np.int32) - 127))


def narrowed(values, output):
    """float64 to the bits of the output type, to nearest even."""
    single = values.astype(np.float32)
    if output == "f32":
        return single.view(np.uint32)
    if output == "f16":
        return single.astype(np.float16).view(np.uint16)
    bits = single.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(single), 0x7FC0, rounded).astype(np.uint16)


def gemm(profile, a_elements, a_scales, b_elements, b_scales):
    a, b = table(profile["a_element"])[a_elements], table(profile["b_element"])[b_elements]
    (m, k), n = a.shape, b.shape[0]
    total = np.zeros((m, n))
    with np.errstate(all="ignore"):
        for block in range(k // 32):
            lanes = slice(32 * block, 32 * block + 32)
            scale = np.outer(scale_values(a_scales[:, block]), scale_values(b_scales[:, block]))
            total += a[:, lanes] @ b[:, lanes].T * scale
        return {"output": narrowed(total, profile["output"])}


if __name__ == "__main__":
    serve(
        {
            "name": "numpy-gemm-example",
            "version": np.__version__,
            "ops": ["gemm"],
            "profiles": ["e4m3-e4m3/mx", "e5m2-e4m3/mx", "e2m1-e2m1/mx"],
            "accumulate": "f32",
        },
        {"gemm": gemm},
    )
