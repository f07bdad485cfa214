"""Single-process PyTorch training of a large network, as bench/peers/models_compare.py describes its job. Prints samples per
second.
  models_torch.py JOB_JSON STEPS THREADS
The data are in memory; two warm-up steps are not timed. Attention is scaled_dot_product_attention, AdamW is fused."""
import json
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/e2e"))
import torch_networks as networks  # noqa: E402

WARM_UP_STEPS = 2
WORDS = {"gpt": 65, "bert": 1024}


class Resnet50(torch.nn.Module):
    """torchvision's, with ten classes."""
    def __init__(self):
        super().__init__()
        import torchvision
        self.scores = torchvision.models.resnet50(num_classes=10)

    def losses(self, samples, _smoothing):
        images, labels = samples
        return {"class": torch.nn.functional.cross_entropy(self.scores(images), labels)}


def network(job):
    if job["model"] == "resnet18":
        return networks.Resnet18(1, 10)
    if job["model"] == "resnet50":
        return Resnet50()
    make = {"gpt": networks.Gpt, "bert": networks.Bert}[job["model"]]
    return make(WORDS[job["model"]], job["sequence"], job["layers"], job["heads"], job["embed"])


def batch(job, count):
    if "input" in job:
        return torch.rand(count, *map(int, job["input"].split("x"))), torch.randint(0, 10, (count,))
    length = job["sequence"]
    ids = torch.randint(0, WORDS[job["model"]], (count, length))
    if job["model"] == "gpt":
        return ids, ids
    start = torch.randint(0, length, (count,))
    types = (torch.arange(length) > length // 4).long().expand(count, length)
    return ids, torch.ones_like(ids), types, start, start, torch.randint(0, 5, (count,))


def main():
    job, steps, threads = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = network(job)
    if job["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=job["lr"], weight_decay=job["weight-decay"], fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=job["lr"], momentum=0.9)
    size, micro = job["global-batch"], job["micro-batch"]
    batches = [batch(job, micro) for _ in range(8)]

    def step(index):
        optimizer.zero_grad()
        for part in range(size // micro):
            losses = model.losses(batches[(index + part) % len(batches)], 0.0)
            (sum(losses.values()) * (micro / size)).backward()
        if "clip-norm" in job:
            torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip-norm"])
        optimizer.step()

    for index in range(WARM_UP_STEPS):
        step(index)
    began = time.perf_counter()
    for index in range(steps):
        step(index)
    print(steps * size / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
