"""Reads checkpoints of a job (docs/checkpoints.md)."""
import json
import pathlib
import struct

from pushpull._error import DATA, USAGE, Error


def read_checkpoint(path, ema=False):
    """Returns the tensors of a checkpoint by name, for `load_state_dict(..., strict=False)`.

    path: the folder of the checkpoints, of which the newest complete one is read, the folder of one checkpoint, or a
    safetensors file with 32-bit floats.
    ema: the averaged weights (the key `ema`) in place of the model's.
    Raises Error if there is none, or it cannot be read.
    """
    path = pathlib.Path(path)
    if path.is_file():
        return _read_tensors(path)
    folder = _folder_of(path)
    if ema and not (folder / "ema.safetensors").exists():
        raise Error(f"[checkpoint] {folder} has no averaged weights: its job has ema = 0", DATA)
    return _read_tensors(folder / ("ema.safetensors" if ema else "model.safetensors"))


def optimizer_state(path, optimizer, model):
    """Returns the optimizer's state of a checkpoint for `optimizer.load_state_dict`, with the settings that the optimizer has.

    path: the folder of the checkpoints, or of one, as for read_checkpoint.
    optimizer: a SGD, Adam, AdamW, RMSprop or Adagrad of torch.optim.
    model: has the optimizer's parameters, by their names in the checkpoint.
    Raises Error if the checkpoint has the state of another optimizer, or lacks a parameter.
    """
    import torch

    folder = _folder_of(pathlib.Path(path))
    facts = json.loads((folder / "state.json").read_text())
    job = dict(line.split(" = ", 1) for line in facts["job"].splitlines() if " = " in line)
    slots = _slots_of(optimizer)
    if job.get("strategy", "").startswith("local"):
        raise Error(f"[checkpoint] {folder.name} is of strategy = {job['strategy']}: it has no state of the workers' optimizers", DATA)
    if slots != facts["slots"]:
        raise Error(f"[checkpoint] {folder.name} is of optimizer = {job.get('optimizer')} with {facts['slots'] or 'no state'}, and "
                    f"{type(optimizer).__name__} as it is set has {slots or 'no state'}: give one that fits", DATA)
    found = _read_tensors(folder / "optimizer.safetensors")
    names = {parameter: name for name, parameter in model.named_parameters()}
    given = optimizer.state_dict()
    state = {}
    for group, numbers in zip(optimizer.param_groups, given["param_groups"]):
        for parameter, number in zip(group["params"], numbers["params"]):
            name = names.get(parameter)
            if not parameter.requires_grad or not slots:
                continue
            if f"{name}.{slots[0]}" not in found:
                raise Error(f"[checkpoint] {folder.name} has no {slots[0]} of {name or 'a parameter that the model lacks'}: give the "
                            f"model that the job has trained", DATA)
            state[number] = {slot: found[f"{name}.{slot}"] for slot in slots}
            if slots != ["momentum_buffer"]:
                state[number]["step"] = torch.tensor(float(facts["updates"]))
    return {"state": state, "param_groups": given["param_groups"]}


def _slots_of(optimizer):
    """Returns the names of the state of an optimizer of torch.optim, which are those of checkpoints."""
    kind, options = type(optimizer).__name__, optimizer.param_groups[0]
    momentum = ["momentum_buffer"] if options.get("momentum") else []
    known = {"SGD": momentum, "Adam": ["exp_avg", "exp_avg_sq"], "AdamW": ["exp_avg", "exp_avg_sq"],
             "RMSprop": ["square_avg"] + momentum, "Adagrad": ["sum"]}
    if kind not in known or options.get("amsgrad") or options.get("centered"):
        raise Error(f"[checkpoint] the optimizer is a {kind}{' with amsgrad or centered' if kind in known else ''}: expected SGD, Adam, "
                    f"AdamW, RMSprop or Adagrad, as jobs have them", USAGE)
    return known[kind]


def _read_tensors(file):
    import torch

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


def _folder_of(path):
    complete = [path] if (path / "DONE").exists() else sorted(step.parent for step in path.glob("step-*/DONE"))
    if not complete:
        raise Error(f"[checkpoint] no complete checkpoint in {path}", DATA)
    return complete[-1]
