#!/usr/bin/env python3
"""Put your kernel behind mxcert: copy this file and replace `quantize` at the end. Needs Python 3.8 and numpy.

    mxcert certify --backend 'cmd:python3 conformance/adapters/numpy_adapter.py'

The first part speaks the protocol: JSON lines on the standard streams, tensors in safetensors files. The second part is
a complete backend in numpy, as the example to replace.
"""
import json
import os
import sys

import numpy as np

DTYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I32": np.int32}


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[slice(*info["data_offsets"])], DTYPES[info["dtype"]]).reshape(info["shape"])
        for name, info in header.items()
    }


def write(path, tensors):
    header, chunks, offset = {}, [], 0
    for name, array in tensors.items():
        chunks.append(np.ascontiguousarray(array).tobytes())
        end = offset + len(chunks[-1])
        dtype = "U%d" % (8 * array.dtype.itemsize)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def floats(bits, kind):
    """Raw input bits as float32, which holds every bf16 and f16 value."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16 if kind == "bf16" else bits).view(np.float32)


def serve(hello, ops):
    """Answers requests until `bye`. Whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "bye":
            return
        if request["op"] == "hello":
            answer = hello
        else:
            answer = {"id": request["id"], "status": "ok"}
            try:
                outputs = ops[request["op"]](request["profile"], **read(request["in"]))
                write(request["out"], outputs)
            except NotImplementedError as reason:
                answer.update(status="unsupported", reason=str(reason))
            except Exception as reason:  # the harness wants to know, and goes on
                answer.update(status="error", reason=repr(reason))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


# ---- your kernel: from here on, replace -----------------------------------------------------------------------------

# element: exponent of max, mantissa bits, bias, largest magnitude code, fraction of max in f32 bits, sign bit
FORMATS = {
    "e4m3": (8, 3, 7, 0x7E, 0x600000, 0x80),
    "e5m2": (15, 2, 15, 0x7B, 0x600000, 0x80),
    "e3m2": (4, 2, 3, 0x1F, 0x600000, 0x20),
    "e2m3": (2, 3, 1, 0x1F, 0x700000, 0x20),
    "e2m1": (2, 1, 1, 0x07, 0x400000, 0x08),
}


def values(mantissa_bits, bias, largest):
    codes = np.arange(largest + 1)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    normal = np.ldexp(1 + mantissa / 2**mantissa_bits, exponent - bias)
    return np.where(exponent == 0, np.ldexp(mantissa / 2**mantissa_bits, 1 - bias), normal)


def quantize(profile, input):
    p, mantissa_bits, bias, largest, max_fraction, sign_bit = FORMATS[profile["element"]]
    x = floats(input, profile["input"])
    x = x.T if profile["axis"] == "col" else x
    blocks = np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1] // 32, 32)
    amax = np.abs(blocks).max(axis=2).view(np.uint32)  # NaN wins
    e, fraction = (amax >> 23).astype(np.int32), amax & 0x7FFFFF
    bump = {
        "floor": np.zeros_like(e),
        "ceil": fraction > 0,
        "even": fraction >= 0x800000 - (1 << (22 - mantissa_bits)),
        "rceil": fraction > max_fraction,
    }[profile["mode"]]
    byte = np.clip(e - p + bump, 0, 254)
    if profile["mode"] == "rceil":  # up to 2^-127 · max, and the one f32 above whose product rounds down to 2^-127
        low = ((p << 23) | max_fraction) + 1
        byte = np.where(amax <= low, 0, byte)
    byte = np.where(amax >= 0x7F800000, 255, byte).astype(np.uint8)
    with np.errstate(all="ignore"):
        ratio = np.ldexp(np.abs(blocks).astype(np.float64), 127 - byte.astype(np.int32)[..., None])
    table = values(mantissa_bits, bias, largest)
    middles = (table[:-1] + table[1:]) / 2
    codes = np.searchsorted(middles, ratio)
    tie = (codes < largest) & (middles[np.minimum(codes, largest - 1)] == ratio)
    codes = codes + (tie & (codes & 1 == 1))  # a tie goes to the even code
    codes = np.where(np.signbit(blocks), codes | sign_bit, codes)
    codes = np.where(byte[..., None] == 255, 0x7F if sign_bit == 0x80 else 0, codes)
    return {"scales": byte, "elements": codes.reshape(x.shape).astype(np.uint8)}


if __name__ == "__main__":
    serve(
        {
            "name": "numpy-example",
            "version": np.__version__,
            "ops": ["quantize"],
            "profiles": [e + "/" + m for e in FORMATS for m in ("floor", "ceil", "even", "rceil")],
            "axes": ["row", "col"],
            "layouts": ["plain"],
            "blocks": ["32"],
            "conventions": ["propagate"],
        },
        {"quantize": quantize},
    )
