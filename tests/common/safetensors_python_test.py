"""Reads our safetensors files by hand and with the format's own library, if installed, and lets our reader read
theirs: safetensors_python_test.py SAFETENSORS_COPY"""

import json
import os
import struct
import subprocess
import sys
import tempfile

COPY = sys.argv[1]
TENSORS = {  # name: shape, values exact in floats
    "layer.weight": ([2, 3], [1.0, -2.5, 3.25, 0.0, 1024.0, -0.125]),
    "layer.bias": ([2], [0.5, 0.75]),
    "scale \u00e4\"\n": ([], [42.0]),
    "empty": ([0, 7], []),
}
METADATA = {"format": "pt", "note": "a \"quoted\" line\n"}


def write_by_hand(path):
    header, data = {"__metadata__": METADATA}, b""
    for name, (shape, values) in TENSORS.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_by_hand(path):
    with open(path, "rb") as file:
        content = file.read()
    (size,) = struct.unpack_from("<Q", content)
    assert (8 + size) % 8 == 0, "the data is not aligned"
    header, data = json.loads(content[8:8 + size]), content[8 + size:]
    metadata = header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32" and end <= len(data)
        values = struct.unpack_from(f"<{(end - begin) // 4}f", data, begin)
        tensors[name] = (entry["shape"], list(values))
    return tensors, metadata


def main():
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
        write_by_hand(theirs)
        subprocess.run([COPY, theirs, ours], check=True)
        assert read_by_hand(ours) == (TENSORS, METADATA), read_by_hand(ours)
        try:
            import numpy
            from safetensors.numpy import load_file, save_file
        except ImportError:
            print("read by hand; the safetensors library is absent")
            return
        arrays = {name: numpy.array(values, dtype=numpy.float32).reshape(shape)
                  for name, (shape, values) in TENSORS.items()}
        save_file(arrays, theirs, metadata=METADATA)
        subprocess.run([COPY, theirs, ours], check=True)
        loaded = load_file(ours)
        assert loaded.keys() == arrays.keys()
        for name, array in arrays.items():
            assert loaded[name].shape == array.shape and (loaded[name] == array).all(), name
        print("read by hand and by the safetensors library")


main()
