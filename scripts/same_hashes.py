#!/usr/bin/env python3
"""Runs a list of small jobs with an old and a new build and compares the hashes of their weights.

  scripts/same_hashes.py OLD_BIN NEW_BIN [--only TEXT] [--timeout SECONDS]

The arguments are the folders of the programs (build/release/bin). Jobs with weights that depend on the job alone run
with both builds. If the order of arrival matters, each build records a run, and both builds replay it. Jobs that stop
and resume do so within each build, and from the old build's checkpoint under the new one. Exits with 1 if hashes differ
or a run fails.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

# Common to all jobs: one compute thread, the smallest data.
BASE = {"dataset": "digits", "train-samples": 256, "test-samples": 64, "global-batch": 32, "micro-batch": 8, "hidden": "32",
        "steps": 12, "lr": 0.05, "seed": 3, "threads": 1, "server-threads": 1, "slice-bytes": 4096, "eval-every": 6}
CONV = {"model": "convnet", "steps": 6, "eval-every": 0, "global-batch": 16}


def job(name, workers=2, servers=2, kind="exact", **keys):
    return {"name": name, "workers": workers, "servers": servers, "kind": kind,
            "keys": {**BASE, **{key.replace("_", "-"): value for key, value in keys.items()}}}


def conv(name, workers=2, servers=2, kind="exact", **keys):
    return job(name, workers, servers, kind, **{**{k.replace("-", "_"): v for k, v in CONV.items()}, **keys})


JOBS = [
    job("sync sgd, shm", strategy="sync", transport="shm"),
    job("sync momentum, ipc", 3, 1, strategy="sync", transport="ipc", optimizer="momentum"),
    job("sync nesterov, tcp", 1, 3, strategy="sync", transport="tcp", optimizer="nesterov", weight_decay=0.001),
    job("sync adam, clip-norm", 3, 2, strategy="sync", optimizer="adam", lr=0.01, clip_norm=0.5),
    job("sync lamb, clip-norm", 3, 2, strategy="sync", optimizer="lamb", lr=0.01, weight_decay=0.01, clip_norm=0.5),
    job("sync adamw, cosine, two connections", strategy="sync", transport="tcp", connections=2, optimizer="adamw", lr=0.01,
        weight_decay=0.01, lr_schedule="cosine", warmup_steps=3),
    job("sync step schedule, dummy data", 4, 2, strategy="sync", dataset="dummy", input="40", classes=4, lr_schedule="step",
        lr_step=4, lr_gamma=0.5),
    conv("sync convnet, shm", 2, 1, strategy="sync", transport="shm", optimizer="momentum"),
    conv("sync convnet, tcp, two connections", 1, 2, strategy="sync", transport="tcp", connections=2, optimizer="adam", lr=0.01),
    job("sync fp16", strategy="sync", codec="fp16"),
    job("sync bf16, pulls bf16", strategy="sync", codec="bf16", pull_codec="bf16", transport="ipc"),
    job("sync int8", 3, 1, strategy="sync", codec="int8", transport="tcp"),
    job("sync topk, fp32 biases", strategy="sync", codec="topk:0.1", codec_tensors="*.bias=fp32"),
    conv("sync convnet int8, pulls bf16", 2, 1, strategy="sync", codec="int8", pull_codec="bf16"),
    job("local:4", strategy="local:4"),
    job("local:4 adamw, outer momentum 0", 3, 1, strategy="local:4", optimizer="adamw", lr=0.01, outer_momentum=0, outer_lr=1,
        transport="tcp"),
    conv("local:2 convnet", 2, 2, strategy="local:2", transport="ipc"),
    job("allreduce:tree", 3, 1, strategy="allreduce:tree", optimizer="momentum"),
    job("allreduce:tree, clip-norm", 2, 2, strategy="allreduce:tree", optimizer="adam", lr=0.01, clip_norm=0.5),
    job("allreduce:tree lamb", 2, 1, strategy="allreduce:tree", optimizer="lamb", lr=0.01, weight_decay=0.01),
    job("allreduce:ring", 3, 1, strategy="allreduce:ring"),
    job("allreduce:gloo", 3, 1, strategy="allreduce:gloo"),
    job("sync resumed", 2, 2, "resumed", strategy="sync", optimizer="adam", lr=0.01),
    job("local:4 resumed", 2, 1, "resumed", strategy="local:4", optimizer="momentum"),
    job("allreduce:tree resumed", 2, 2, "resumed", strategy="allreduce:tree", optimizer="momentum"),
    conv("sync convnet resumed", 1, 2, "resumed", strategy="sync", optimizer="momentum"),
    job("async, shm", 2, 2, "recorded", strategy="async", transport="shm"),
    job("async momentum, clip-norm, tcp", 3, 1, "recorded", strategy="async", transport="tcp", optimizer="momentum", clip_norm=0.5),
    job("async adam, staleness-aware, delay compensation", 3, 2, "recorded", strategy="async", optimizer="adam", lr=0.01,
        staleness_aware="true", delay_compensation=0.1),
    job("async, pulls bf16, two connections", 2, 2, "recorded", strategy="async", pull_codec="bf16", transport="ipc",
        connections=2),
    # A lossy codec cannot be recorded, but with one worker there is only one order.
    job("async int8, pulls bf16, one worker", 1, 2, strategy="async", codec="int8", pull_codec="bf16"),
    conv("async convnet", 2, 1, "recorded", strategy="async"),
    job("ssp:2", 3, 2, "recorded", strategy="ssp:2", straggler="0:2"),
    job("ssp:2 topk, tcp, one worker", 1, 1, strategy="ssp:2", codec="topk:0.1", transport="tcp"),
    job("backup:1", 3, 2, "recorded", strategy="backup:1", optimizer="momentum"),
    job("backup:1 convnet, tcp", 3, 1, "recorded", strategy="backup:1", transport="tcp", model="convnet", steps=6, eval_every=0),
]


class Failed(Exception):
    """A run that failed. The message is one line."""


def call(words, timeout_s):
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PUSHPULL_")}
    try:
        done = subprocess.run([str(w) for w in words], env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(f"{pathlib.Path(words[0]).parent}: {words[1]} ended with {done.returncode}: {' '.join(lines[-2:])[-300:]}")


class Lab:
    """Runs jobs in new folders below `folder`."""

    def __init__(self, folder, timeout_s):
        self.folder = pathlib.Path(folder)
        self.timeout_s = timeout_s
        self.count = 0

    def fresh(self):
        self.count += 1
        return self.folder / str(self.count)

    def train(self, program_dir, entry, **more):
        """Runs a job and returns its output folder."""
        out = self.fresh()
        keys = {**entry["keys"], **more}
        flags = [word for key, value in keys.items() for word in (f"--{key}", value)]
        call([pathlib.Path(program_dir) / "pushpull", "run", "--workers", entry["workers"], "--servers", entry["servers"],
              "--out", out, *flags], self.timeout_s)
        return out

    def replay(self, program_dir, record):
        out = self.fresh()
        call([pathlib.Path(program_dir) / "pushpull", "replay", record, "--out", out], self.timeout_s)
        return out


def weights(out):
    found = json.loads((out / "summary.json").read_text()).get("weights_sha256")
    if not found:
        raise Failed(f"{out / 'summary.json'} has no weights_sha256")
    return found


def exact(lab, entry, old, new):
    return [("run", weights(lab.train(old, entry)), weights(lab.train(new, entry)))]


def resumed(lab, entry, old, new):
    """Compares with a run under the old build that stops at a third and resumes. (Under local:H a worker's own
    optimizer restarts, so this is not the uninterrupted run.)"""
    third = entry["keys"]["steps"] // 3

    def resumed_weights(program_dir, first):
        checkpoints = lab.train(first, entry, **{"stop-after": third}) / "checkpoints"
        return weights(lab.train(program_dir, entry, **{"checkpoint-dir": checkpoints, "resume": "true"}))

    wanted = resumed_weights(old, old)
    return [("stopped and resumed by new", wanted, resumed_weights(new, new)), ("old's checkpoint by new", wanted, resumed_weights(new, old))]


def recorded(lab, entry, old, new):
    found = []
    for who, program_dir in (("old", old), ("new", new)):
        record = lab.fresh().with_suffix(".rec")
        live = weights(lab.train(program_dir, entry, record=record))
        found += [(f"{who}'s record by {by}", live, weights(lab.replay(replayer, record))) for by, replayer in (("old", old), ("new", new))]
    return found


KINDS = {"exact": exact, "resumed": resumed, "recorded": recorded}


def run_all(jobs, old, new, lab, show=print):
    """Returns the number of jobs with different hashes, or that failed."""
    width = max(len(entry["name"]) for entry in jobs)
    wrong = 0
    for entry in jobs:
        began = time.monotonic()
        try:
            pairs = KINDS[entry["kind"]](lab, entry, old, new)
            different = [f"{what}: {a[:12]} and {b[:12]}" for what, a, b in pairs if a != b]
            verdict = "; ".join(different) or "equal"
            shown = pairs[0][1][:12]
        except Failed as error:
            different, verdict, shown = [str(error)], str(error), ""
        wrong += bool(different)
        shape = f"{entry['workers']}+{entry['servers']}"
        show(f"{entry['name']:{width}}  {shape:>4}  {shown:12}  {time.monotonic() - began:5.1f} s  {verdict}")
    return wrong


def main(words):
    parser = argparse.ArgumentParser(prog="same_hashes.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD_BIN", type=pathlib.Path)
    parser.add_argument("new", metavar="NEW_BIN", type=pathlib.Path)
    parser.add_argument("--only", metavar="TEXT", default="", help="only jobs with this text in their name")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=120, help="of each program [120]")
    arguments = parser.parse_args(words)
    for folder in (arguments.old, arguments.new):
        if not (folder / "pushpull").exists():
            parser.error(f"no {folder / 'pushpull'}; build it: cmake --preset release && cmake --build --preset release")
    jobs = [entry for entry in JOBS if arguments.only in entry["name"]]
    if not jobs:
        parser.error(f"no job's name contains {arguments.only}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="same-hashes-") as folder:
        wrong = run_all(jobs, arguments.old.resolve(), arguments.new.resolve(), Lab(folder, arguments.timeout),
                        show=lambda line: print(line, flush=True))
    seconds = time.monotonic() - began
    print(f"{len(jobs)} jobs in {seconds:.0f} s: " + ("all hashes are equal" if wrong == 0 else f"{wrong} differ or failed"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
