"""PyTorch training of a model on the processor, as bench/peers/models_compare.py describes its job. Prints samples per second.
  models_torch.py alone|compile|ddp JOB_JSON STEPS
alone: one process, eager; compile: with torch.compile; ddp: DistributedDataParallel on Gloo with a process for each
micro-batch of a step. A process has one thread. The data are in memory; two warm-up steps are not timed. Attention is
scaled_dot_product_attention, AdamW is fused."""
import json
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/e2e"))
import torch_networks as networks  # noqa: E402
import ddp_train  # noqa: E402
from gloo_exchange import free_port  # noqa: E402

WARM_UP_STEPS = 2
WORDS = {"gpt": 65, "bert": 1024}


class Classifier(torch.nn.Module):
    """A module that gives the scores of a class."""
    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def losses(self, samples, _smoothing):
        images, labels = samples
        return {"class": torch.nn.functional.cross_entropy(self.scores(images), labels)}


def resnet50(_job):
    import torchvision
    return Classifier(torchvision.models.resnet50(num_classes=10))


def transformer(kind):
    return lambda job: kind(WORDS[job["model"]], job["sequence"], job["layers"], job["heads"], job["embed"])


NETWORKS = {"mlp": lambda _job: Classifier(ddp_train.mlp(784, 1024)), "convnet": lambda _job: Classifier(ddp_train.convnet()),
            "resnet18": lambda _job: networks.Resnet18(1, 10), "resnet50": resnet50,
            "gpt": transformer(networks.Gpt), "bert": transformer(networks.Bert)}


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


class Losses(torch.nn.Module):
    """The sum of a model's losses as its output, which DDP and torch.compile need."""
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, samples):
        return sum(self.model.losses(samples, 0.0).values())


def train(job, steps, model, parts):
    """Trains and returns the seconds of the timed steps. parts: micro-batches of a step in this process."""
    if job["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=job["lr"], weight_decay=job["weight-decay"], fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=job["lr"], momentum=0.9)
    batches = [batch(job, job["micro-batch"]) for _ in range(8)]

    def step(index):
        optimizer.zero_grad()
        for part in range(parts):
            (model(batches[(index + part) % len(batches)]) / parts).backward()
        if "clip-norm" in job:
            torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip-norm"])
        optimizer.step()

    for index in range(WARM_UP_STEPS):
        step(index)
    began = time.perf_counter()
    for index in range(steps):
        step(index)
    return time.perf_counter() - began


def process(rank, world_size, port, job, steps):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(Losses(NETWORKS[job["model"]](job)))
    took = train(job, steps, model, 1)
    if rank == 0:
        print(steps * job["global-batch"] / took, flush=True)
    torch.distributed.destroy_process_group()


def main():
    kind, job, steps = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    parts = job["global-batch"] // job["micro-batch"]
    if kind == "ddp":
        torch.multiprocessing.spawn(process, args=(parts, free_port(), job, steps), nprocs=parts)
        return
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Losses(NETWORKS[job["model"]](job))
    if kind == "compile":
        model = torch.compile(model)
    print(steps * job["global-batch"] / train(job, steps, model, parts))


if __name__ == "__main__":
    main()
