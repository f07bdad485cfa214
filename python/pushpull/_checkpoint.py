"""Reads checkpoints of a job (docs/checkpoints.md)."""
import json
import pathlib
import struct

from pushpull._error import DATA, Error


def read_checkpoint(path, ema=False):
    """Returns the tensors of a checkpoint by name, for `load_state_dict(..., strict=False)`.

    path: the folder of the checkpoints, of which the newest complete one is read, the folder of one checkpoint, or a
    safetensors file with 32-bit floats.
    ema: the averaged weights (the key `ema`) in place of the model's.
    Raises Error if there is none, or it cannot be read.
    """
    import torch

    file = _file_of(pathlib.Path(path), "ema.safetensors" if ema else "model.safetensors")
    if ema and not file.exists():
        raise Error(f"[checkpoint] {file.parent} has no averaged weights: its job has ema = 0", DATA)
    try:
        with open(file, "rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(length))
            data = bytearray(opened.read())
    except (ValueError, struct.error, OverflowError, MemoryError) as error:
        raise Error(f"[checkpoint] {file} is no safetensors file: {error}", DATA) from None
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise Error(f"[checkpoint] {name} in {file} is {entry['dtype']}: expected F32, as jobs write it", DATA)
    return {name: torch.frombuffer(data, dtype=torch.float32, offset=entry["data_offsets"][0],
                                   count=torch.Size(entry["shape"]).numel()).reshape(entry["shape"])
            for name, entry in header.items()}


def _file_of(path, name):
    if path.is_file():
        return path
    complete = [path] if (path / "DONE").exists() else sorted(step.parent for step in path.glob("step-*/DONE"))
    if not complete:
        raise Error(f"[checkpoint] no complete checkpoint in {path}", DATA)
    return complete[-1] / name
