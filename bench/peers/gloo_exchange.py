"""One exchange as in PyTorch DDP: Gloo all-reduce of a flat gradient, then SGD with momentum in every process, one
thread each.
  gloo_exchange.py PROCESSES BYTES [BYTES ...]
Prints "BYTES microseconds" for each size, the median of the first process's steps."""
import os
import socket
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

WARM_UP_STEPS = 3


def measure(rank, processes, size):
    weights = torch.nn.Parameter(torch.zeros(size // 4))
    weights.grad = torch.full((size // 4,), 1e-3)
    optimizer = torch.optim.SGD([weights], lr=1e-3, momentum=0.9)
    seconds = []
    for step in range(WARM_UP_STEPS + max(5, min(200, (200 << 20) // size))):
        dist.barrier()  # a step of `pushpull bench` begins for all workers at once, too
        began = time.perf_counter()
        dist.all_reduce(weights.grad)
        weights.grad.div_(processes)
        optimizer.step()
        if step >= WARM_UP_STEPS:
            seconds.append(time.perf_counter() - began)
    if rank == 0:
        print(size, 1e6 * statistics.median(seconds), flush=True)


def process(rank, processes, port, sizes):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=processes)
    for size in sizes:
        measure(rank, processes, size)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    count, *all_sizes = map(int, sys.argv[1:])
    mp.spawn(process, args=(count, free_port(), all_sizes), nprocs=count)
