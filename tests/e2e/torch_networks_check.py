"""Trains mlp, convnet, gpt, bert and resnet18 for twenty steps with real processes and with PyTorch, from the same initial weights
on the same batches, and compares each tensor. PyTorch computes in f64. With the packages transformers and torchvision it also
compares their modules' output: torch_networks_check.py BIN_DIR DIGITS_DIR. With --f32 it also prints how far PyTorch in f32 is from
f64. With --device one worker and PyTorch compute on that device, the worker in fp32, and each model is a row for
scripts/gpu-check.sh (bench/gpu_parts.h), which judges it. Exit code 77 (skipped) without PyTorch."""
import argparse
import copy
import importlib.util
import json
import math
import os
import struct
import sys
import tempfile

try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: {error}; on Debian they are the packages python3-torch and python3-numpy, for /usr/bin/python3")
    sys.exit(77)

import torch_networks as networks
import torch_reference as reference
from cluster import Cluster, JobFailed

# Largest ||ours - theirs|| / ||theirs|| of a tensor after twenty steps; a network may have a bound of its own.
TOLERANCE = 1e-4
# Largest distance of all weights, relative to the way that they have gone since the start.
OF_THE_WAY = 0.1
# Their exact gradient is 0: softmax does not change if all scores of a query, or of a sample's tokens, get the same number more,
# nor a batch normalisation if a channel does. Both have only rounding noise there, which Adam turns into steps. They are
# compared after momentum, by their largest difference.
WITHOUT_GRADIENT = (".key.bias", "qa_outputs.bias", "layer1.0.bias", "layer2.0.bias")
NOISE = 1e-6
# A wrong setting must change at least one tensor by this much.
VISIBLE = 10 * TOLERANCE

WORDS, LENGTH = 50, 16
STEPS = {"steps": 20, "shuffle": "false", "seed": 3}
SMALL = {"layers": 2, "heads": 2, "embed": 32, "global-batch": 16, "micro-batch": 4}
ADAMW = {"optimizer": "adamw", "lr": 0.002, "weight-decay": 0.1, "clip-norm": 1, "lr-schedule": "linear", "lr-min": 1e-5, "warmup-fraction": 0.2}
MOMENTUM = {"optimizer": "momentum", "lr": 0.05, "weight-decay": 0.01, "clip-norm": 0.5}
# At the rate of 0.05 rounding decides where resnet18 goes after a few steps: PyTorch in f32 then differs as much from f64.
SMALL_STEPS = {**MOMENTUM, "lr": 0.002}
DECAY_ALL = {"no-decay": "none"}  # default of mlp and convnet; in the other models biases and norms have no weight decay
RECIPE = {"label-smoothing": 0.1, "head-weights": "start:0.5,end-position:2,class:0.7"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        raw = numpy.ascontiguousarray(array).tobytes()
        kind = {"float32": "F32", "int32": "I32"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        raw = file.read()
    size, = struct.unpack_from("<Q", raw)
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    return {name: torch.from_numpy(numpy.frombuffer(data[slice(*t["data_offsets"])], dtype=numpy.float32).reshape(t["shape"]).copy())
            for name, t in header.items() if name != "__metadata__"}


ALL = ("weight-decay", "lr-schedule", "warmup-fraction", "label-smoothing", "head-weights", "no-decay", "clip-norm")


class TextJob:
    """gpt on windows of a text."""
    tolerance = TOLERANCE
    checked = ALL

    def __init__(self, folder):
        draw = numpy.random.default_rng(1)
        letters = [chr(code) for code in range(ord("A"), ord("A") + WORDS)]
        text = "".join(draw.choice(letters, 400 * LENGTH))
        with open(f"{folder}/text.txt", "w") as file:
            file.write(text)
        self.keys = {"model": "gpt", "dataset": "text", "data-dir": f"{folder}/text.txt", "sequence": LENGTH, **SMALL}
        ids = {letter: i for i, letter in enumerate(sorted(set(text)))}
        self.ids = torch.tensor([ids[letter] for letter in text])
        self.words = len(ids)

    def module(self):
        return networks.Gpt(self.words, LENGTH, 2, 2, 32)

    def batch(self, first, count):
        starts = range(first * LENGTH, (first + count) * LENGTH, LENGTH)
        return tuple(torch.stack([self.ids[s + shift:s + shift + LENGTH] for s in starts]) for shift in (0, 1))


class QuestionJob:
    """bert on random questions: some have no answer, and their lengths differ."""
    tolerance = TOLERANCE
    checked = ALL

    def __init__(self, folder):
        draw = numpy.random.default_rng(2)
        count = 16 * 20
        lengths = draw.integers(6, LENGTH + 1, count)
        places = numpy.arange(LENGTH)
        tensors = {"ids": draw.integers(0, WORDS, (count, LENGTH)), "mask": (places < lengths[:, None]).astype(int),
                   "types": ((places >= 3) & (places < lengths[:, None])).astype(int)}
        start = draw.integers(3, lengths)
        end = draw.integers(start, lengths)
        none = draw.random(count) < 0.3
        none[:4] = True  # a micro-batch without any answer
        tensors.update(start=numpy.where(none, -1, start), end=numpy.where(none, -1, end))
        tensors["class"] = draw.integers(0, 5, count)
        self.tensors = {name: array.astype(numpy.int32) for name, array in tensors.items()}
        os.mkdir(f"{folder}/qa")
        for split in ("train", "test"):
            write_safetensors(f"{folder}/qa/{split}.safetensors", self.tensors)
        self.keys = {"model": "bert", "dataset": "qa", "data-dir": f"{folder}/qa", "sequence": LENGTH, "vocab": WORDS, **SMALL, **RECIPE}

    def module(self):
        return networks.Bert(WORDS, LENGTH, 2, 2, 32)

    def batch(self, first, count):
        return tuple(torch.from_numpy(self.tensors[name][first:first + count].astype(numpy.int64))
                     for name in ("ids", "mask", "types", "start", "end", "class"))


class ImageJob:
    """A model on the digits."""
    checked = ()  # the others check them, and PyTorch needs most of a minute

    def __init__(self, digits, model, module, tolerance=TOLERANCE, **keys):
        self.images, self.labels = reference.read_digits(digits, "train")
        self.keys = {"model": model, "dataset": "digits", "global-batch": 16, "micro-batch": 8, **keys}
        self.make, self.tolerance = module, tolerance

    def module(self):
        return reference.with_micro_batch_norm(self.make())

    def batch(self, first, count):
        return self.images[first:first + count].double(), self.labels[first:first + count]


def jobs(folder, digits):
    """Returns a list of jobs, each with its optimizers, workers and servers."""
    return [
        # No step of these two comes closer to a tie (torch_reference.py) than 2e-6, which is far above f32's rounding.
        (ImageJob(digits, "mlp", lambda: networks.Mlp(64, [64, 32], 10), hidden="64,32", **DECAY_ALL), (MOMENTUM,), 2, 2),
        (ImageJob(digits, "convnet", lambda: networks.Convnet([1, 8, 8], 10), **DECAY_ALL), (MOMENTUM,), 2, 1),
        (TextJob(folder), (ADAMW, MOMENTUM), 2, 2),
        (QuestionJob(folder), (ADAMW, MOMENTUM), 2, 1),
        # A ReLU or a maximum that switches sides changes a micro-batch's statistics, so roundings grow: `--f32` shows PyTorch in
        # f32 as far from f64 as we are, by up to 1e-3 for other initial weights and processors.
        (ImageJob(digits, "resnet18", lambda: networks.Resnet18(1, 10), 5e-3, stem="cifar"), (SMALL_STEPS,), 2, 1)]


def has(package):
    return importlib.util.find_spec(package) is not None


# Largest difference of a score between our module and the library's, which computes parts in f32.
SAME = 1e-5


def library_difference(data, module):
    """Loads the module's state into the library's module of the same name. Returns the largest difference of their scores, or
    None if the library is not installed."""
    module = copy.deepcopy(module).double().eval()
    state = module.state_dict()
    batch = data.batch(0, 4)
    if data.keys["model"] == "resnet18":
        if not has("torchvision"):
            return None
        import torchvision
        theirs = torchvision.models.resnet18(num_classes=10)
        theirs.conv1, theirs.maxpool = torch.nn.Conv2d(1, 64, 3, padding=1, bias=False), torch.nn.Identity()
        inputs, scores = (batch[0],), lambda x: [theirs(x)]
    elif not has("transformers"):
        return None
    elif data.keys["model"] == "gpt":
        import transformers
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=data.words, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2))
        state["lm_head.weight"] = state["transformer.wte.weight"]
        inputs, scores = batch[:1], lambda ids: [theirs(ids).logits]
    else:
        import transformers
        config = transformers.BertConfig(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
                                         max_position_embeddings=LENGTH)
        theirs = transformers.BertModel(config)
        state = {name[len("bert."):]: tensor for name, tensor in state.items() if name.startswith("bert.")}
        inputs = batch[:3]

        def scores(ids, mask, types):
            found = theirs(ids, mask, types)
            pooled = found.pooler_output
            span = module.qa_outputs(found.last_hidden_state)
            return [span[..., 0], span[..., 1], module.reg_start(pooled)[:, 0], module.reg_end(pooled)[:, 0], module.classifier(pooled)]
    loaded = theirs.load_state_dict(state, strict=False)
    unknown = [n for n in (*loaded.missing_keys, *loaded.unexpected_keys) if not n.endswith(("num_batches_tracked", "position_ids"))]
    if unknown:
        raise ValueError(f"{data.keys['model']}: the library's module has other names: {unknown}")
    theirs.double().eval()
    with torch.no_grad():
        ours = module(*inputs)
        return max((a - b).abs().max().item() for a, b in zip(ours if isinstance(ours, tuple) else [ours], scores(*inputs)))


def weights_of_heads(job):
    pairs = [pair.split(":") for pair in job.get("head-weights", "").split(",") if pair]
    return {name: float(weight) for name, weight in pairs}


def train(model, keys, data):
    """Trains on the device and in the precision of the model's parameters."""
    model.train()
    weights = next(model.parameters())
    plain = ",".join(name for name, parameter in model.named_parameters() if parameter.dim() == 1)
    optimizer = reference.make_optimizer(keys, reference.decay_groups({**keys, "no-decay": keys.get("no-decay", plain)}, model))
    schedule = reference.make_schedule(keys, optimizer)
    heads = weights_of_heads(keys)
    size, micro = keys["global-batch"], keys["micro-batch"]
    for step in range(keys["steps"]):
        optimizer.zero_grad()
        for first in range(step * size, (step + 1) * size, micro):
            batch = tuple(t.to(weights if t.is_floating_point() else weights.device) for t in data.batch(first, micro))
            losses = model.losses(batch, keys.get("label-smoothing", 0.0))
            loss = sum(heads.get(name, 1.0) * value for name, value in losses.items()) * (micro / size)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), keys["clip-norm"])
        optimizer.step()
        schedule.step()
        for module in model.modules():
            if isinstance(module, reference.MicroBatchNorm):
                module.update_running()
    return model


def start_of(data):
    """Returns a module whose norms and biases do not start at 1 and 0."""
    torch.manual_seed(11)
    module = data.module()
    for name, tensor in module.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        if tensor.dim() == 1:
            is_scale = name.endswith(("running_var", "weight"))
            tensor.copy_(torch.empty_like(tensor).uniform_(0.5, 1.5) if is_scale else torch.empty_like(tensor).normal_(std=0.2))
    return module


def floats_of(module):
    return {name: tensor.float() for name, tensor in module.state_dict().items() if not name.endswith("num_batches_tracked")}


def apart(tensors):
    """Returns the tensors with gpt's biases of queries, keys and values as three tensors."""
    result = {}
    for name, tensor in tensors.items():
        if name.endswith("c_attn.bias"):
            result.update(zip((name.replace("bias", f"{part}.bias") for part in ("query", "key", "value")), tensor.chunk(3)))
        else:
            result[name] = tensor
    return result


def distances(ours, theirs):
    ours = apart(ours)
    return {name: distance(ours[name], tensor) for name, tensor in apart(theirs).items() if not name.endswith(WITHOUT_GRADIENT)}


def distance(ours, theirs):
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def part_of_way(ours, theirs, start):
    """Returns the distance of all tensors, relative to the way from `start` to `theirs`."""
    def squares(a, b):
        return sum((a[n].double() - b[n].double()).square().sum().item() for n in theirs)
    return (squares(ours, theirs) / squares(theirs, start)) ** 0.5


def check(bin_dir, folder, data, optimizer, workers, servers, show_f32, device):
    """Returns the distance of the worst tensor, and a text for each failure."""
    keys = {**data.keys, **STEPS, **optimizer}
    label = f"{keys['model']} {keys['optimizer']}, workers {workers}, servers {servers}"
    start = start_of(data)
    name = f"{keys['model']}-{keys['optimizer']}"
    write_safetensors(f"{folder}/{name}.safetensors", {n: t.numpy() for n, t in floats_of(start).items()})
    out = Cluster(bin_dir, folder).run({**keys, "precision": "fp32", "init-from": f"{folder}/{name}.safetensors"}, servers, workers, out=name,
                                       worker_flags=["--device", device or "cpu"])
    ours = read_safetensors(f"{out}/checkpoints/step-{keys['steps']:08d}/model.safetensors")
    model = train(copy.deepcopy(start).to(device or "cpu", torch.float64), keys, data).cpu()
    theirs = floats_of(model)
    failures = []
    difference = library_difference(data, model)
    if difference is not None:
        print(f"  the library's module from these weights: largest difference of a score {difference:.1e} of {SAME:.0e}")
        if difference > SAME:
            failures.append(f"scores of the library's module differ by {difference:.1e}")
    if {n: t.shape for n, t in ours.items()} != {n: t.shape for n, t in theirs.items()}:
        return math.inf, [f"{label}: names or shapes: {sorted(ours.keys() ^ theirs.keys())}"]
    far = distances(ours, theirs)
    worst = max(far, key=far.get)
    way = part_of_way(ours, theirs, floats_of(start))
    print(f"{label}: worst {worst} {far[worst]:.1e} of {data.tolerance:.0e}; all weights {way:.1e} of {OF_THE_WAY} of their way")
    failures += [f"{n} {far[n]:.1e}" for n in far if not far[n] <= data.tolerance][:20]
    if not way <= OF_THE_WAY:
        failures.append(f"all weights {way:.1e} of their way")
    if show_f32:
        plain = floats_of(train(copy.deepcopy(start).to(device or "cpu"), keys, data).cpu())
        print(f"  PyTorch in f32: worst {max(distances(plain, theirs).values()):.1e}; "
              f"all weights {part_of_way(plain, theirs, floats_of(start)):.1e} of their way")
    ours, theirs = apart(ours), apart(theirs)
    exempt = [n for n in theirs if n.endswith(WITHOUT_GRADIENT)]
    if exempt and keys["optimizer"] == "momentum":
        noise = max((ours[n] - theirs[n]).abs().max().item() for n in exempt)
        print(f"  without gradient: {', '.join(exempt)}: largest difference {noise:.1e} of {NOISE:.0e}")
        if not noise <= NOISE:
            failures.append(f"tensors without gradient differ by {noise:.1e}")
    if device is None:
        failures += [f"{key} moves no tensor" for key in data.checked if not matters(key, keys, start, floats_of(model), data)]
    return far[worst], failures


def print_row(bin_dir, folder, data, optimizers, device):
    """Prints the row of a model with the distance of its worst tensor, or why there is none."""
    name = f"{data.keys['model']}, 20 steps beside PyTorch in f64"
    try:
        results = [check(bin_dir, folder, data, each, 1, 1, False, device) for each in optimizers]
    except (JobFailed, RuntimeError) as error:
        print(f"fail\t{name}\t{str(error).splitlines()[0][:300]}", flush=True)
        return
    distance_, failures = max(far for far, _ in results), [text for _, texts in results for text in texts]
    if math.isfinite(distance_):
        print(f"row\t{name}\t{distance_:.1e}\tof the norm\t-\t{distance_:.1e}\t<={data.tolerance:.0e}", flush=True)
    if failures and not data.tolerance < distance_ < math.inf:  # otherwise the row says it
        print(f"fail\t{name}, weights\t{'; '.join(failures)}", flush=True)


def matters(key, keys, start, theirs, data):
    """Checks that the comparison can fail: without this setting PyTorch's result differs."""
    neutral = {"weight-decay": 0.0, "lr-schedule": "constant", "warmup-fraction": 0.0, "label-smoothing": 0.0, "head-weights": "",
               "no-decay": "none", "clip-norm": 1e9}[key]
    if key not in keys and key != "no-decay":
        return True
    other = train(copy.deepcopy(start).double(), {**keys, key: neutral}, data)
    moved = max(distances(floats_of(other), theirs).values())
    return moved > VISIBLE


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", type=os.path.abspath)
    parser.add_argument("digits_dir", type=os.path.abspath)
    parser.add_argument("--model", help="only this one")
    parser.add_argument("--f32", action="store_true", help="train with PyTorch in f32 as well, and print its distance from f64")
    parser.add_argument("--device", help="of the worker and of PyTorch: cuda:0, cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        chosen = [job for job in jobs(folder, arguments.digits_dir) if arguments.model in (None, job[0].keys["model"])]
        if not chosen:
            parser.error(f"no model {arguments.model}")
        for data, optimizers, workers, servers in chosen:
            if arguments.device:
                print_row(arguments.bin_dir, folder, data, optimizers, arguments.device)
                continue
            for each in optimizers:
                _, failures = check(arguments.bin_dir, folder, data, each, workers, servers, arguments.f32, None)
                for text in failures:
                    print(f"  FAILED: {text}")
                failed |= bool(failures)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
