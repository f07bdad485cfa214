#!/usr/bin/env python3
"""Measures the cost of a hostile member to the others: their rate, and the server's memory, while a worker with the
job's key does harm.

  bench/hostile.py BIN [--seconds 600] [--phase 20]

For each way to do harm (bench/hostile_member.cpp), a job of one server and two workers trains over tcp, in async.
Phases of `--phase` seconds alternate: calm; the hostile member in this job; the same member in another job on the
same machine, with its workers paused. The last phase uses the same processor time, so that the ratio to it is the cost
of the harm itself. Ratios are medians over the phases. Memory is the server's resident set: at the end of the first
calm phase, and the largest value after it.
"""
import argparse
import itertools
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from figures import MIB, Failed, environment, positive, say

HOWS = ("unread", "pushes", "hellos")
KEYS = {"model": "mlp", "dataset": "digits", "hidden": "1024,512", "global-batch": 64, "micro-batch": 32, "steps": 100_000_000, "lr": 0.0001,
        "strategy": "async", "transport": "tcp", "on-worker-loss": "continue", "checkpoint-every": 0, "eval-every": 0}
PATIENCE_S = 60


class Job:
    """A job that trains in `folder`: one server and two workers."""

    def __init__(self, bin_dir, folder, keys):
        self.folder, self.bin_dir, self.processes = folder, bin_dir, []
        folder.mkdir()
        (folder / "job.ini").write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
        self.server = self.start("pushpull-server", "--job", "job.ini", "--listen", "tcp://127.0.0.1:*", "--out", "out", "--workers", "2")
        self.address = self.wait("address", self.announced)
        for _ in range(2):
            self.start("pushpull-worker", "--join", self.address)
        self.wait("first step", self.samples)

    def start(self, program, *words):
        with open(self.folder / f"{program}-{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen([self.bin_dir / program, *words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=environment())
        self.processes.append(process)
        return process

    def announced(self):
        for word in (self.folder / "pushpull-server-0.log").read_text().split():
            if word.startswith("tcp://127.0.0.1:") and word.rstrip(",;.")[-1].isdigit():
                return word.rstrip(",;.")
        return None

    def samples(self):
        """Returns the samples that count so far, from the newest line of the metrics, or None before the first."""
        try:
            lines = (self.folder / "out" / "metrics.jsonl").read_text().splitlines(keepends=True)
        except FileNotFoundError:
            return None
        found = [json.loads(line).get("samples") for line in lines[-5:] if line.endswith("\n")]
        return next((value for value in reversed(found) if value), None)

    def wait(self, what, found):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.server.poll() is not None:
                raise Failed(f"[hostile] the server has ended with {self.server.returncode}: see {self.folder}")
            value = found()
            if value is not None:
                return value
            time.sleep(0.02)
        raise Failed(f"[hostile] no {what} within {PATIENCE_S} s")

    def rate(self, seconds):
        """Returns samples per second."""
        before, began = self.samples(), time.monotonic()
        time.sleep(seconds)
        return (self.samples() - before) / (time.monotonic() - began)

    def memory(self):
        for line in pathlib.Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise Failed("[hostile] the server has ended")

    def pause_workers(self):
        for worker in self.processes[1:3]:
            worker.send_signal(signal.SIGSTOP)

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()


def hostile_in(job, how, seconds):
    number = len(job.processes)
    member = job.start("hostile_member", "--join", job.address, "--how", how, "--for-s", str(seconds))
    job.wait("hostile member", lambda: "takes part" in (job.folder / f"hostile_member-{number}.log").read_text() or None)
    return member


def end_of(member, job):
    try:
        member.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        member.kill()
        member.wait()
    job.processes.remove(member)


def measure(bin_dir, folder, how, seconds, phase):
    """Returns the ratios of the rate to a calm phase and to a phase with the same harm elsewhere, memory before and at
    most, and the number of phases."""
    job = other = None
    try:
        other = Job(bin_dir, folder / f"{how}-other", {**KEYS, "heartbeat-timeout": 100_000})
        other.pause_workers()
        job = Job(bin_dir, folder / how, KEYS)
        end, to_calm, to_other, most, before = time.monotonic() + seconds, [], [], 0, None
        for number in itertools.count():
            rates = {}
            order = ("calm", "here", "other")
            for name in order[number % 3:] + order[:number % 3] if before else order:
                target = {"calm": None, "here": job, "other": other}[name]
                member = hostile_in(target, how, phase + 1) if target else None
                rates[name] = job.rate(phase)
                most = max(most, job.memory())
                before = before or job.memory()
                if member:
                    end_of(member, target)
            to_calm.append(rates["here"] / rates["calm"])
            to_other.append(rates["here"] / rates["other"])
            if time.monotonic() > end:
                return statistics.median(to_calm), statistics.median(to_other), before, most, len(to_calm)
    finally:
        for each in (job, other):
            if each:
                each.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--seconds", type=positive, default=600, help="for each way to do harm")
    parser.add_argument("--phase", type=positive, default=20, help="seconds of a phase")
    parser.add_argument("--how", choices=HOWS, help="measure only this one")
    args = parser.parse_args()
    print("| harm | rate / calm | rate / the same elsewhere | server before | server at most | rounds |\n|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="pushpull-hostile-") as folder:
        for how in [args.how] if args.how else HOWS:
            calm, other, before, most, rounds = measure(args.bin.resolve(), pathlib.Path(folder), how, args.seconds, args.phase)
            print(f"| {how} | {calm:.2f} | {other:.2f} | {before / MIB:.0f} MiB | {most / MIB:.0f} MiB | {rounds} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        say(str(e))
        sys.exit(1)
