"""A PyTorch worker of two jobs, as a GAN has them: two_jobs_worker.py [--slow SECONDS] [--raise-at STEP]."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch_worker import data, network

import pushpull.torch as pp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--raise-at", type=int, default=-1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    left, right = pp.join(job="left"), pp.join(job="right")
    torch.manual_seed(left.seed)
    nets = network("mlp"), network("mlp")
    train, test = data()
    loaders = left.loader(train), right.loader(train)
    optimizers = left.optimizer(nets[0]), right.optimizer(nets[1])
    left.evaluation(test, lambda batch: {"loss": F.cross_entropy(nets[0](batch[0]), batch[1]), "correct": 0})
    for _ in zip(left.epochs(), right.epochs()):
        for (x, y), _ in zip(*loaders):
            if left._open.step == given.raise_at:
                raise RuntimeError("my own mistake")
            out = nets[0](x)
            # the second network learns what the first one answers
            losses = F.cross_entropy(out, y), F.mse_loss(nets[1](x), out.detach())
            losses[0].backward()
            time.sleep(given.slow)
            losses[1].backward()
            for optimizer, loss in zip(optimizers, losses):
                optimizer.step(loss=loss)
    print(f"END {left.rank} {right.rank}", flush=True)


if __name__ == "__main__":
    main()
