"""A PyTorch worker with a loop of its own for the tests of whole jobs: torch_loop_worker.py [--leave N RANK] ..."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch_worker import GROUPED, data, network

import pushpull.torch as pp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--leave", type=int, nargs=2, metavar=("BATCHES", "RANK"),
                        help="ends after so many batches; RANK -1: all")
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="loops over range(EPOCHS), not over job.epochs()")
    parser.add_argument("--state", help="a folder for a state of the script's own")
    given = parser.parse_args()
    torch.set_num_threads(1)
    job = pp.join()
    torch.manual_seed(job.seed)
    model = network("convnet")
    train, test = data()
    loader = job.loader(train, num_workers=given.loaders, accumulate=given.accumulate)
    optimizer = job.optimizer(model, groups=[pp.group(GROUPED["convnet"], lr=0.0007)])
    job.evaluation(test, lambda batch: results(model, *batch))
    kept = {"batches": 0, "average": 0.0}
    if given.state:
        job.state(given.state, get=lambda: kept, set=kept.update)
    batches = 0
    for _ in job.epochs() if given.epochs is None else range(given.epochs):
        for x, y in loader:
            if batches % given.accumulate == 0:
                optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            (loss / given.accumulate).backward()
            batches += 1
            job.log(samples=len(x), rank=torch.tensor(float(job.rank)), nothing=float("nan"))
            if batches % given.accumulate == 0:
                optimizer.step(loss=loss)
            kept.update(batches=kept["batches"] + 1, average=0.9 * kept["average"] + 0.1 * loss.item())
            time.sleep(given.slow)
            if given.leave and batches == given.leave[0] and given.leave[1] in (-1, job.rank):
                print(f"LEAVES {job.rank}", flush=True)
                return
    found = job.evaluated() or {}
    bias = model[-1].bias.sum().item()
    print(f"END {job.rank} {job.world_size} {batches} {bias:.9g} {found.get('step')} {found.get('accuracy')}", flush=True)
    if given.state:
        print(f"STATE {job.rank} {kept['batches']} {kept['average']:.9g}", flush=True)


def results(model, x, y):
    out = model(x)
    return {"loss": F.cross_entropy(out, y), "correct": (out.argmax(1) == y).sum()}


if __name__ == "__main__":
    main()
