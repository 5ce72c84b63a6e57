#!/usr/bin/env python3
"""Validates vector packs without Rust: validate.py PACK_FOLDER...  (needs jsonschema and numpy)"""

import hashlib
import json
import pathlib
import re
import sys

import jsonschema
import numpy

HERE = pathlib.Path(__file__).parent
DTYPES = {"U8": "<u1", "U16": "<u2", "U32": "<u4", "I32": "<i4"}
# A tensor of a case, in files that name their cases.
CASE = re.compile(r"([a-z0-9-]+)#\d+\.(in|out|care|low|high)\.[a-z_]+")
BETWEEN = 4


def schema(name):
    return jsonschema.Draft202012Validator(json.loads((HERE / f"{name}.schema.json").read_text()))


def load(data):
    """All that reading a pack's safetensors file takes: its tensors by name."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    body, tensors = memoryview(data)[end:], {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        tensor = numpy.frombuffer(body[start:stop], DTYPES[entry["dtype"]])
        tensors[name] = tensor.reshape(entry["shape"])
    if sum(tensor.nbytes for tensor in tensors.values()) != len(body):
        raise ValueError("tensors do not fill the file")
    return tensors


def check_lines(text, record):
    lines = text.splitlines()
    if len(lines) != record["cases"]:
        yield f"expected {record['cases']} lines, got {len(lines)}"
    validator = schema("smoke")
    for number, line in enumerate(lines, 1):
        try:
            yield from (f"line {number}: {e.json_path}: {e.message}" for e in validator.iter_errors(json.loads(line)))
        except ValueError as error:
            yield f"line {number}: {error}"


def ordered(bits):
    """Integers in the order of the numbers that 16 or 32 bits are; both zeros are 0."""
    sign = 1 << 8 * bits.itemsize - 1
    magnitude = (bits & (sign - 1)).astype("i8")
    return numpy.where(bits & sign, -magnitude, magnitude)


def check_care(tensors):
    """Care codes are known ones, and intervals lie where they say and hold the outputs."""
    for name, care in tensors.items():
        if name == "care" and care.max(initial=0) > 2:
            yield f"tensor {name}: expected codes to 2, got {care.max()}"
        if ".care." not in name:
            continue
        output, low, high = (tensors.get(name.replace(".care.", way)) for way in (".out.", ".low.", ".high."))
        if output is None or care.shape != output.shape or care.max(initial=0) > BETWEEN or not care.any():
            yield f"tensor {name}: expected codes to {BETWEEN}, not all 0, in the shape of the output"
            continue
        between = care == BETWEEN
        if any((end is not None) != between.any() for end in (low, high)):
            yield f"tensor {name}: expected low and high where there is code {BETWEEN}, and nowhere else"
        elif low is not None:
            if not low.dtype == high.dtype == output.dtype or not low.shape == high.shape == output.shape:
                yield f"tensor {name}: expected low and high in the type and shape of the output"
            elif not numpy.where(
                between,
                (ordered(low) <= ordered(output)) & (ordered(output) <= ordered(high)),
                (low == output) & (output == high),
            ).all():
                yield f"tensor {name}: an output lies outside its interval, or an interval where there is none"


def check_names(tensors, record, classes):
    """Tensors of cases are of classes that there are and beside an output, and the file has as many cases as it says."""
    cases = set()
    for name in tensors:
        if "." not in name:
            continue
        match = CASE.fullmatch(name)
        if not match or match[1] not in classes:
            yield f"tensor {name}: no tensor of a case"
            continue
        case, way, output = name.split(".")
        cases.add(case)
        if way in ("low", "high", "care") and not {f"{case}.out.{output}", f"{case}.care.{output}"} <= tensors.keys():
            yield f"tensor {name}: there is no such output, or no care"
    if cases and len(cases) != record["cases"]:
        yield f"expected {record['cases']} cases, got {len(cases)}"


def check_tensors(data, record, classes):
    tensors = load(data)
    yield from check_names(tensors, record, classes)
    yield from check_care(tensors)
    kind = lambda t: f"{t.dtype.kind.upper()}{8 * t.itemsize}"
    stored = {name: [kind(t), list(t.shape)] for name, t in tensors.items()}
    listed = {name: [t["dtype"], t["shape"]] for name, t in record["tensors"].items()}
    for name in sorted(stored.keys() | listed.keys()):
        if stored.get(name) != listed.get(name):
            yield f"tensor {name}: expected {listed.get(name)}, got {stored.get(name)}"


def check_pack(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    errors = [f"manifest.json: {e.json_path}: {e.message}" for e in schema("manifest").iter_errors(manifest)]
    if errors:
        yield from errors
        return
    classes = {entry["name"] for entry in manifest["classes"]}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for extra in sorted(there - {record["path"] for record in manifest["files"]} - {"manifest.json"}):
        yield f"{extra}: is not listed in the manifest"
    for record in manifest["files"]:
        path = record["path"]
        if path not in there:
            yield f"{path}: is listed in the manifest and missing"
            continue
        data = (folder / path).read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if (len(data), digest) != (record["bytes"], record["sha256"]):
            yield f"{path}: expected {record['bytes']} bytes, {record['sha256']}, got {len(data)}, {digest}"
        try:
            if path.endswith(".jsonl"):
                found = check_lines(data.decode(), record)
            else:
                found = check_tensors(data, record, classes)
            yield from (f"{path}: {error}" for error in found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield f"{path}: cannot be read: {type(error).__name__}: {error}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    failures = 0
    for folder in map(pathlib.Path, sys.argv[1:]):
        try:
            errors = list(check_pack(folder))
        except (OSError, ValueError) as error:
            errors = [f"manifest.json: {error}"]
        for error in errors:
            print(f"{folder}/{error}", file=sys.stderr)
        failures += len(errors)
    sys.exit(f"{failures} failures" if failures else 0)


if __name__ == "__main__":
    main()
