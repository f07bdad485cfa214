"""Tests jobs that start from a part of a model (init-from-missing)."""
import json
import struct

import lab as base
from lab import MLP, expect, first

DATA = 3


def tensors_of(path):
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (entry, data[8 + length:][slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_tensors(path, tensors):
    header, body = {}, b""
    for name, (entry, data) in tensors.items():
        header[name] = {**entry, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


@first("init-from")
def a_network_gets_a_new_head(lab):
    lab.train(lab.job({**MLP, "steps": 5}), out=lab.folder / "trained")
    tensors = tensors_of(lab.folder / "trained" / "checkpoints" / "step-00000005" / "model.safetensors")
    head = sorted(name for name in tensors if name.startswith("layers.2"))
    body = {name: tensor for name, tensor in tensors.items() if name not in head}
    body["pooler.weight"] = body["layers.0.bias"]
    path = lab.folder / "body.safetensors"
    write_tensors(path, body)
    keys = {**MLP, "steps": 3, "init-from": path}
    run = lab.run(lab.job(keys))
    expect(run.code == DATA and "init-from-missing = allow" in run.text or "unknown to the model" in run.text, run.text[-600:])
    run = lab.run(lab.job({**keys, "init-from-missing": "allow"}), 2, 2)
    expect(run.code == 0 and "drawn anew: layers.2.weight, layers.2.bias" in run.text and "lacks: pooler.weight" in run.text, run.text)
    summary = run.summary()
    expect(sorted(summary["drawn_tensors"]) == head and summary["unused_tensors"] == ["pooler.weight"], summary)
    again = lab.train(lab.job({**keys, "init-from-missing": "allow"}), 1, 3)
    expect(again["weights_sha256"] == summary["weights_sha256"], "other bits")
    expect(lab.train(lab.job({**MLP, "steps": 3}))["drawn_tensors"] == [], "tensors of a fresh run are listed")


if __name__ == "__main__":
    base.main(globals())
