"""A PyTorch worker that says the learning rate, and computes metrics of named sums: torch_said_worker.py [--rate KIND] ..."""
import argparse
import time

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, ReduceLROnPlateau
from torch_worker import CLASSES, data, network

import pushpull.torch as pp

DROPS = (10, 20)  # steps at which the rate of `lambda` halves


def factor(step):
    return 0.5 ** sum(step >= drop for drop in DROPS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", default="lambda", choices=("none", "lambda", "onecycle", "plateau", "tasks", "group", "nan"))
    parser.add_argument("--slow", type=float, default=0.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    job = pp.join()
    torch.manual_seed(job.seed)
    model = network("mlp")
    train, test = data()
    if given.rate == "tasks":
        return loop_over_tasks(job, model, train, test)
    loader = job.loader(train)
    optimizer = job.optimizer(model, groups=[pp.group("1.weight", lr=0.001)])
    job.evaluation(test, lambda batch: results(model, *batch), metrics=METRICS)
    plateau = None
    if given.rate == "lambda":
        job.scheduler(LambdaLR(optimizer, factor))
    elif given.rate == "onecycle":
        job.scheduler(OneCycleLR(optimizer, [2 * group["lr"] for group in optimizer.param_groups], total_steps=job._session.facts.steps,
                                 cycle_momentum=False))
    elif given.rate == "plateau":
        plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.05)
    for epoch in job.epochs():
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if given.rate == "nan" and epoch == 1:
                optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = float("nan")
            if given.rate == "group" and epoch == 1:
                optimizer.param_groups[1]["lr"] *= 3
            say(job)
            optimizer.step(loss=loss)
            time.sleep(given.slow)
        if plateau and job.loss is not None:
            plateau.step(job.loss)
    print(f"LOSS {job.rank} end {number(job.loss)}", flush=True)
    print(f"FOUND {job.rank} {job.evaluated()}", flush=True)


def loop_over_tasks(job, model, train, test):
    job.attach(model, train, test, groups=[pp.group("1.weight", lr=0.001)], metrics=METRICS)
    for task in job.tasks():
        x, y = task.batch
        if task.training:
            job.lr = 0.003 * factor(task.step)
            say(job)
            task.backward(F.cross_entropy(model(x), y))
        else:
            task.report(**results(model, x, y))
    print(f"FOUND {job.rank} {job.evaluated()}", flush=True)


def say(job):
    task = job._open
    print(f"STEP {job.rank} {task.step} {task.micro_batch} {job.lr!r} {number(job.loss)}", flush=True)


def number(value):
    return "none" if value is None else repr(value)


def results(model, x, y):
    out = model(x)
    predicted = out.argmax(1)
    first = predicted == 0
    sums = {"all": len(y), "right": (predicted == y).sum(), "tp": (first & (y == 0)).sum(), "fp": (first & (y != 0)).sum(),
            "fn": (~first & (y == 0)).sum()}
    return {"loss": F.cross_entropy(out, y), "correct": (predicted == y).sum(), "sums": sums}


METRICS = {
    "Right_share": lambda s: s["right"] / s["all"],
    "f1": lambda s: 2 * s["tp"] / (2 * s["tp"] + s["fp"] + s["fn"]),
    "wrong": pp.cost(lambda s: 1 - s["right"] / s["all"]),
    "never": lambda s: 1 / (s["all"] - s["all"]),
}
assert CLASSES == 5

if __name__ == "__main__":
    main()
