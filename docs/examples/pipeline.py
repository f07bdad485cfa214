"""A network on the digits that come with pushpull, in stages: each script of a group computes some of its layers.

    pushpull run --job docs/examples/pipeline.ini --workers 4 --worker 'python3 docs/examples/pipeline.py'

Four scripts are two groups of two stages. `--stages 1` trains the same network undivided, to the same weights.
"""
import collections
import pathlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import pushpull.torch as pp

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "digits"
WIDTH = 128  # of what passes from layer to layer


def read_idx(name):
    """Returns the array of an IDX file (http://yann.lecun.com/exdb/mnist) as a tensor of bytes."""
    raw = (DIGITS / name).read_bytes()
    sizes = [int.from_bytes(raw[4 * i:4 * i + 4], "big") for i in range(1, raw[3] + 1)]
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=4 + 4 * raw[3]).reshape(sizes)


class Digits(torch.utils.data.Dataset):
    def __init__(self, split):
        self.images = read_idx(f"{split}-images.idx3-ubyte").flatten(1).float() / 16
        self.labels = read_idx(f"{split}-labels.idx1-ubyte").long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def layers():
    """Returns the layers of the whole network, by name."""
    sizes = [64, WIDTH, WIDTH, WIDTH]
    found = [(f"hidden{i}", nn.Sequential(nn.Linear(*pair), nn.ReLU())) for i, pair in enumerate(zip(sizes, sizes[1:]))]
    return found + [("output", nn.Linear(WIDTH, 10))]


def part(stage, stages):
    """Returns the layers of a stage. Their names are those in the whole network, as in its checkpoints."""
    whole = layers()
    cut = [len(whole) * i // stages for i in range(stages + 1)]
    return nn.Sequential(collections.OrderedDict(whole[cut[stage]:cut[stage + 1]]))


def compute(task, model, stage, stages):
    """Computes a stage of a micro-batch or of a chunk of the test data."""
    x, labels = task.batch
    if stage > 0:
        x = torch.empty(len(labels), WIDTH)
        dist.recv(x, stage - 1)
        x.requires_grad_(task.training)
    out = model(x)
    if stage + 1 < stages:
        dist.send(out.detach(), stage + 1)
        if task.training:
            gradient = torch.empty_like(out)
            dist.recv(gradient, stage + 1)
            task.backward(out, gradient=gradient)
        else:
            task.report()
    else:
        loss = F.cross_entropy(out, labels)
        if task.training:
            task.backward(loss)
        else:
            task.report(loss=loss, correct=(out.argmax(1) == labels).sum())
    if stage > 0 and task.training:
        dist.send(x.grad, stage - 1)


def main():
    torch.set_num_threads(1)  # of each worker
    job = pp.join()
    torch.manual_seed(job.seed)
    model = part(job.stage, job.stages)
    job.attach(model, train=Digits("train"), test=Digits("t10k"), stage=(job.stage, job.stages))
    for group in job.groups():  # another one if a script of this one is lost
        with group:
            dist.init_process_group("gloo", store=group.store, rank=group.stage, world_size=group.stages)
            for task in job.tasks():
                compute(task, model, group.stage, group.stages)


if __name__ == "__main__":
    main()
