"""Single-process PyTorch training of the same convnet. Prints samples per second.
  convnet_torch.py STEPS THREADS MICRO_BATCHES
A step has 200 samples of 1x28x28 in MICRO_BATCHES parts, the sum of their gradients, and one update of SGD with
momentum. The data are in memory; three warm-up steps are not timed."""
import sys
import time

import torch
from torch import nn

GLOBAL_BATCH = 200
SAMPLES = 4000
WARM_UP_STEPS = 3


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.MaxPool2d(2)]


def main():
    steps, threads, parts = map(int, sys.argv[1:4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(SAMPLES, 1, 28, 28)
    labels = torch.randint(0, 10, (SAMPLES,))
    micro_batch = GLOBAL_BATCH // parts

    def step(index):
        first = index * GLOBAL_BATCH % SAMPLES
        optimizer.zero_grad()
        for lo in range(first, first + GLOBAL_BATCH, micro_batch):
            logits = model(images[lo:lo + micro_batch])
            loss = nn.functional.cross_entropy(logits, labels[lo:lo + micro_batch]) / parts
            loss.backward()
        optimizer.step()

    for index in range(WARM_UP_STEPS):
        step(index)
    began = time.perf_counter()
    for index in range(steps):
        step(index)
    print(steps * GLOBAL_BATCH / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
