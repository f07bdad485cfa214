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

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/e2e"))
import torch_networks as networks  # noqa: E402
from model_jobs import WORDS  # noqa: E402

WARM_UP_STEPS = 2
CLASSES = 10


def shape_of(job):
    return [int(size) for size in job["input"].split("x")]


def mlp(job):
    return networks.Mlp(shape_of(job)[0], [int(width) for width in job["hidden"].split(",")], CLASSES)


def convnet(job):
    return networks.Convnet(shape_of(job), CLASSES)


def resnet18(job):
    return networks.Resnet18(shape_of(job)[0], CLASSES)


class Resnet50(networks.Classifier):
    def __init__(self):
        super().__init__()
        import torchvision
        self.scores = torchvision.models.resnet50(num_classes=CLASSES)

    def forward(self, x):
        return self.scores(x)


def transformer(kind):
    return lambda job: kind(WORDS[job["model"]], job["sequence"], job["layers"], job["heads"], job["embed"])


NETWORKS = {"mlp": mlp, "convnet": convnet, "resnet18": resnet18, "resnet50": lambda _job: Resnet50(),
            "gpt": transformer(networks.Gpt), "bert": transformer(networks.Bert)}


def batch(job, count):
    if "input" in job:
        return torch.rand(count, *shape_of(job)), torch.randint(0, CLASSES, (count,))
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


def make_optimizer(job, model):
    if job["optimizer"] == "adamw":
        fused = {"fused": True} if torch.__version__ >= "2" else {}
        return torch.optim.AdamW(model.parameters(), lr=job["lr"], weight_decay=job["weight-decay"], **fused)
    return torch.optim.SGD(model.parameters(), lr=job["lr"], momentum=0.9)


def clip(job, model):
    if "clip-norm" in job:
        torch.nn.utils.clip_grad_norm_(model.parameters(), job["clip-norm"])


def train(job, steps, model, parts):
    """Trains and returns the seconds of the timed steps. parts: micro-batches of a step in this process."""
    optimizer = make_optimizer(job, model)
    batches = [batch(job, job["micro-batch"]) for _ in range(8)]

    def step(index):
        optimizer.zero_grad()
        for part in range(parts):
            (model(batches[(index + part) % len(batches)]) / parts).backward()
        clip(job, model)
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
        from gloo_exchange import free_port  # lets Gloo use the loopback interface
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
