#!/usr/bin/env python3
"""Measures the seconds from the death of a process (SIGKILL) until the next step, by the process and the source of its
weights.

  bench/recovery_times.py BIN [--runs 5] [--dataset digits]

Each run is a `pushpull run` of two servers and two workers, sync, with a checkpoint every 500 steps. One process is
killed after step 1200; the launcher starts it again. Times are seconds since the kill, median and worst over the
runs: the coordinator has noticed; a replacement has joined; it has its weights or work, and training continues; the
first line of metrics.jsonl with a new step (a line is written every 0.25 s). `repeated` counts steps that were
computed again.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from figures import Failed, environment, positive, say

KILL_AFTER = 1200
PATIENCE_S = 90
KEYS = {"model": "mlp", "hidden": "128,64", "global-batch": 64, "micro-batch": 8, "optimizer": "momentum", "momentum": 0.9,
        "steps": 100_000_000, "checkpoint-every": 500, "on-worker-loss": "wait"}
LOSSES = {
    "worker": ("worker", 1, {}),
    "server 1, from the checkpoint": ("server", 1, {"recovery": "checkpoint"}),
    "server 1, from its peers": ("server", 1, {"recovery": "peers"}),
    "coordinator": ("server", 0, {}),
}
# Words in the launcher's output: noticed, joined, has its weights or work.
EVENTS = {"worker": ("[job] lost worker", "takes the free place", "micro-batches"),
          "server": ("[job] lost server", "joined from", "has the weights of step|training goes on"),
          "coordinator": ("starting a replacement", "joined, ", "training goes on")}


class Job:
    """A running `pushpull run`. Each line of its output has its arrival time."""

    def __init__(self, bin_dir, folder, keys):
        self.out = folder / "out"
        flags = [word for key, value in keys.items() for word in (f"--{key}", str(value))]
        self.process = subprocess.Popen([bin_dir / "pushpull", "run", "--servers", "2", "--workers", "2", "--out", self.out, *flags],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env=environment())
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def wait(self, what, found):
        """Polls `found` and returns its result once that is not None."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and self.process.poll() is None:
            value = found()
            if value is not None:
                return value
            time.sleep(0.005)
        raise Failed(f"[recovery] no {what} within {PATIENCE_S} s: " + " ".join(line for _, line in self.lines[-3:]).strip())

    def line_after(self, since, words):
        def found():
            return next((at for at, line in list(self.lines) if at >= since and any(w in line for w in words.split("|"))), None)
        return self.wait(f"line with '{words}'", found)

    def steps(self):
        try:
            text = (self.out / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line).get("step") for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def end(self):
        """Stops the run and returns its summary."""
        self.process.terminate()
        try:
            self.process.wait(60)
            return json.loads((self.out / "summary.json").read_text())
        except (subprocess.TimeoutExpired, FileNotFoundError):
            raise Failed(f"[recovery] the run did not stop with a summary: {self.lines[-1:]}") from None

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()


def one(bin_dir, name, keys):
    role, rank, more = LOSSES[name]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(bin_dir, pathlib.Path(folder), {**keys, **more})
        try:
            job.wait(f"step {KILL_AFTER}", lambda: True if max([s for s in job.steps() if s], default=0) >= KILL_AFTER else None)
            members = json.loads((job.out / "members.json").read_text())["members"]
            pid = next(m["pid"] for m in members if (m["role"], m["rank"]) == (role, rank))
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            events = EVENTS["coordinator" if name == "coordinator" else role]
            times = [job.line_after(killed, words) for words in events]
            known = len(job.steps())
            job.wait("step", lambda: True if len([s for s in job.steps()[known:] if s]) > 0 else None)
            times.append(time.monotonic())
            return [at - killed for at in times], job.end()["steps_repeated"]
        finally:
            job.kill()


def cell(values):
    return f"{statistics.median(values):.2f} ({max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--runs", type=positive, default=5)
    parser.add_argument("--dataset", default="digits")
    args = parser.parse_args()
    found = {name: [] for name in LOSSES}
    for _ in range(args.runs):  # alternating, so that other load affects all of them
        for name in LOSSES:
            found[name].append(one(args.bin.resolve(), name, {**KEYS, "dataset": args.dataset}))
    print("| lost | noticed | another joined | ready | next step | steps repeated |\n|---|---:|---:|---:|---:|---:|")
    for name, runs in found.items():
        columns = [cell([times[i] for times, _ in runs]) for i in range(4)]
        repeated = [count for _, count in runs]
        print(f"| {name} | {' | '.join(columns)} | {statistics.median(repeated):.0f} ({max(repeated)}) |")


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        say(str(e))
        sys.exit(1)
