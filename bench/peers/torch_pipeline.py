#!/usr/bin/env python3
"""The peer of bench/pipeline.py: the same GPT as two stages of torch.distributed.pipelining on Gloo, one thread each (PyTorch 2.4 or newer).

  bench/peers/torch_pipeline.py [--schedule 1f1b|gpipe] [--micro 16] [--steps 6]

Prints the samples per second of the median step."""
import argparse
import os
import socket
import time

import torch
import torch.multiprocessing
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HEADS, EMBED, SEQ, VOCAB = 6, 6, 384, 256, 65


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(EMBED), nn.LayerNorm(EMBED)
        self.qkv, self.out = nn.Linear(EMBED, 3 * EMBED), nn.Linear(EMBED, EMBED)
        self.up, self.down = nn.Linear(EMBED, 4 * EMBED), nn.Linear(4 * EMBED, EMBED)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (a.view(b, t, HEADS, c // HEADS).transpose(1, 2) for a in self.qkv(self.n1(x)).split(c, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Part(nn.Module):
    """Blocks [begin, end) with the embedding before the first and the head behind the last (weights not tied)."""

    def __init__(self, begin, end):
        super().__init__()
        self.first, self.last = begin == 0, end == LAYERS
        if self.first:
            self.tokens, self.places = nn.Embedding(VOCAB, EMBED), nn.Embedding(SEQ, EMBED)
        self.blocks = nn.ModuleList(Block() for _ in range(begin, end))
        if self.last:
            self.norm, self.head = nn.LayerNorm(EMBED), nn.Linear(EMBED, VOCAB, bias=False)

    def forward(self, x):
        if self.first:
            x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.last else x


def loss_of(scores, target):
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def batch(n):
    x = torch.randint(0, VOCAB, (n, SEQ + 1))
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


def stage(rank, a, port):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = Part(0, LAYERS // 2) if rank == 0 else Part(LAYERS // 2, LAYERS)
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = (Schedule1F1B if a.schedule == "1f1b" else ScheduleGPipe)(stage, n_microbatches=a.micro, loss_fn=loss_of)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for _ in range(a.steps):
        x, y = batch(a.micro)
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        schedule.step(x) if rank == 0 else schedule.step(target=y)
        optimizer.step()
        dist.barrier()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"{a.micro / sorted(times[1:])[len(times[1:]) // 2]:.3f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", default="1f1b", choices=("1f1b", "gpipe"))
    parser.add_argument("--micro", type=int, default=16, help="micro-batches of a step, of one sample each")
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(stage, (arguments, port), nprocs=2)


if __name__ == "__main__":
    main()
