"""Training with PyTorch's DistributedDataParallel on Gloo, one thread per process, plain SGD, data in memory.
  ddp_train.py ddp|alone MODEL PROCESSES SECONDS
Prints samples per second of all processes together. `alone` runs the same processes without an exchange: the upper
limit, at which an exchange costs nothing. Three warm-up steps are not timed."""
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402

from gloo_exchange import free_port  # noqa: E402

WARM_UP_STEPS = 3


def mlp(inputs, width):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, 10))


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.MaxPool2d(2)]


def convnet():
    return nn.Sequential(*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def many():
    """100 layers of 72 weights: 200 small tensors."""
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(99)), nn.Linear(8, 10))


# model, samples of a micro-batch, shape of a sample: the same as JOBS of speed_measure.py
MODELS = {"mlp": (lambda: mlp(784, 1024), 128, (784,)),
          "convnet": (convnet, 100, (1, 28, 28)),
          "mlp-wide": (lambda: mlp(4096, 4096), 64, (4096,)),
          "many": (many, 8, (8,))}


def process(rank, processes, port, kind, name, seconds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=processes)
    torch.manual_seed(0)
    make, batch, shape = MODELS[name]
    model = make()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(4 * batch, *shape), torch.randint(0, 10, (4 * batch,))
    order = torch.randperm(4 * batch).reshape(4, batch).tolist()

    def step(index):
        drawn = order[index % 4]
        step_on(images[drawn], labels[drawn])

    def step_on(images, labels):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def timed(steps):
        dist.barrier()
        began = time.perf_counter()
        for index in range(steps):
            step(index)
        dist.barrier()
        return time.perf_counter() - began

    timed(WARM_UP_STEPS)
    one = torch.tensor([timed(2) / 2])
    dist.all_reduce(one)  # all ranks run the same number of steps
    steps = max(4, int(seconds * processes / float(one)))
    took = timed(steps)
    if rank == 0:
        print(steps * batch * processes / took, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(process, args=(int(sys.argv[3]), free_port(), sys.argv[1], sys.argv[2],
                            float(sys.argv[4])), nprocs=int(sys.argv[3]))
