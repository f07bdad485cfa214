"""A PyTorch worker for the tests of whole jobs: torch_worker.py NETWORK [MISTAKE] [--threads N] [--loaders N] [--slow SECONDS] ..."""
import argparse
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import pushpull.torch as pp

CLASSES = 5
GROUPED = {"convnet": "1.weight", "mlp": "1.weight", "transformer": "words.weight"}  # parameters with a rate of their own


class Transformer(nn.Module):
    """Reads an image as 12 words of 12 numbers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Linear(12, 32)
        layer = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=48, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.output = nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.output(self.encoder(self.words(x[:, 0])).mean(1))


def network(name, dropout=0.2):
    if name == "transformer":
        return Transformer()
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, CLASSES))
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Dropout(dropout), nn.Linear(8 * 36, 32), nn.GELU(), nn.Linear(32, CLASSES))


def data(shift=0.0):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(600, 1, 12, 12, generator=generator)
    y = (x.flatten(1) @ torch.randn(144, CLASSES, generator=generator)).argmax(1)
    x = x + shift
    return TensorDataset(x[:500], y[:500]), TensorDataset(x[500:], y[500:])


def loss_of(mistake, count, out, y):
    if mistake == "vector":
        return F.cross_entropy(out, y, reduction="none")
    loss = F.cross_entropy(out, y)
    return loss * float("nan") if mistake == "nan" and count == 30 else loss


def begin_task(mistake, count, slow):
    time.sleep(slow)
    if mistake == "raise" and count == 30:
        raise RuntimeError("my own mistake")
    if mistake == "hang" and count == 30:
        time.sleep(1000)
    if mistake == "early" and count == 30:
        sys.exit(0)
    if mistake == "killed" and count == 30:
        os.kill(os.getpid(), 9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("mistake", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--no-dropout", action="store_true")
    parser.add_argument("--keys", type=json.loads, default={}, help="of the job, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    job = pp.join(**given.keys)
    torch.manual_seed(job.seed)
    model = network(given.network, 0.0 if given.no_dropout else 0.2)
    if given.mistake == "other-model":
        model[-1] = nn.Linear(model[-1].in_features, CLASSES + 1)
    train, test = data(1.0 if given.mistake == "other-data" else 0.0)
    job.attach(model.half() if given.mistake == "half" else model, train=train, test=test, num_workers=given.loaders,
               groups=[pp.group(GROUPED[given.network], lr=0.0007)])
    for count, task in enumerate(job.tasks(), 1):
        begin_task(given.mistake, count, given.slow)
        x, y = task.batch
        out = model(x)
        loss = loss_of(given.mistake, count, out, y)
        if task.training:
            task.backward(loss)
        else:
            task.report(loss=loss, correct=100 if given.mistake == "count" else (out.argmax(1) == y).sum())


if __name__ == "__main__":
    main()
