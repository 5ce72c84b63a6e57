#!/usr/bin/env python3
"""Validates vector packs without Rust: validate.py PACK_FOLDER...  (needs jsonschema and numpy)"""

import hashlib
import json
import pathlib
import sys

import jsonschema
import numpy

HERE = pathlib.Path(__file__).parent
DTYPES = {"U8": "<u1", "U16": "<u2", "U32": "<u4"}


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


def check_tensors(data, record):
    stored = {name: [f"U{8 * t.itemsize}", list(t.shape)] for name, t in load(data).items()}
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
            found = check_lines(data.decode(), record) if path.endswith(".jsonl") else check_tensors(data, record)
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
