#!/usr/bin/env python3
"""Measures the time from SIGTERM to a job until its last process has ended, with its checkpoint on disk.

  bench/stop_times.py BIN [--runs 10] [--hidden 4096] [--strategy sync] [--servers 1] [--workers 2] [--out DIR]

Each run is a `pushpull run` of `mlp` on the digits, stopped at a random time after its first steps. Prints each time, then
the median and the worst, the size of the checkpoint, and the time that this disk takes to write as many bytes (fsync).
"""
import argparse
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from figures import Failed, environment, positive, say

STOPPED = 75
PATIENCE_S = 120


def trains(run, log):
    end = time.monotonic() + PATIENCE_S
    while ", strategy " not in log.read_text(errors="replace"):
        if run.poll() is not None or time.monotonic() > end:
            raise Failed(f"[stop] the run has not begun: {log.read_text(errors='replace')[-400:]}")
        time.sleep(0.01)


def stop_once(arguments, folder, rng):
    """Returns the seconds of a stop, and the bytes of its checkpoint."""
    log = folder / "log"
    words = [arguments.bin / "pushpull", "run", "--model", "mlp", "--hidden", arguments.hidden, "--dataset", "digits", "--global-batch", 64,
             "--micro-batch", 8, "--optimizer", "momentum", "--momentum", 0.9, "--lr", 0.01, "--steps", 100_000_000, "--strategy",
             arguments.strategy, "--servers", arguments.servers, "--workers", arguments.workers, "--out", folder / "out"]
    with open(log, "wb") as output:
        run = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment())
    try:
        trains(run, log)
        time.sleep(rng.uniform(0.5, 1.5))
        begin = time.monotonic()
        run.send_signal(signal.SIGTERM)
        code = run.wait(PATIENCE_S)
        took = time.monotonic() - begin
    finally:
        run.kill()
        run.wait()
    if code != STOPPED:
        raise Failed(f"[stop] exit code {code}: {log.read_text(errors='replace')[-400:]}")
    checkpoints = list((folder / "out" / "checkpoints").glob("step-*/DONE"))
    if len(checkpoints) != 1:
        raise Failed(f"[stop] {len(checkpoints)} checkpoints instead of one")
    return took, sum(path.stat().st_size for path in checkpoints[0].parent.iterdir())


def disk_seconds(folder, size):
    """Returns the time to write a file of this size durably."""
    block = os.urandom(1 << 20)
    begin = time.monotonic()
    with open(folder / "plain", "wb") as file:
        for left in range(size, 0, -len(block)):
            file.write(block[:min(left, len(block))])
        file.flush()
        os.fsync(file.fileno())
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--runs", type=positive, default=10)
    parser.add_argument("--hidden", default="4096")
    parser.add_argument("--strategy", default="sync")
    parser.add_argument("--servers", type=positive, default=1)
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--out", type=pathlib.Path, help="folder on the disk to measure; a temporary one by default")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.resolve()
    rng = random.Random(1)
    times, disk, size = [], [], 0
    try:
        for _ in range(arguments.runs):
            with tempfile.TemporaryDirectory(prefix="pushpull-stop-", dir=arguments.out) as name:
                took, size = stop_once(arguments, pathlib.Path(name), rng)
                times.append(took)
                disk.append(disk_seconds(pathlib.Path(name), size))
                say(f"stop {len(times)}: {took:.3f} s")
    except Failed as failure:
        sys.exit(str(failure))
    say(f"mlp {arguments.hidden}, {arguments.strategy}, {arguments.servers} + {arguments.workers}, checkpoint of {size / 1e6:.1f} MB: SIGTERM to exit "
        f"median {statistics.median(times):.3f} s, worst {max(times):.3f} s of {len(times)}; the disk alone {statistics.median(disk):.3f} s")


if __name__ == "__main__":
    main()
