#!/usr/bin/env python3
"""Measures what watching a job costs: its rate with event files and /metrics, read once a second, over its rate without.

  bench/watching_cost.py [--bin DIR] [--pairs 7] [--seconds 10] [--hidden 1024,1024]

Runs with and without follow each other in pairs, in turns first and second. Each is `pushpull run` of `mlp` on dummy data
with two workers. Prints both rates of each pair, then the median of the ratios.
"""
import argparse
import contextlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from figures import BIN, Failed, caption, environment, machine, positive, say

PATIENCE_S = 300
WARM_UP_STEPS = 50


def read_page(page):
    with contextlib.suppress(urllib.error.URLError, OSError):
        urllib.request.urlopen(f"{page}/metrics", timeout=5).read()


def rate(arguments, steps, watched):
    """Returns the samples per second of a run."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        words = [arguments.bin / "pushpull", "run", "--model", "mlp", "--hidden", arguments.hidden, "--dataset", "dummy",
                 "--global-batch", 256, "--micro-batch", 128, "--lr", 0.01, "--steps", steps, "--workers", 2, "--out", folder / "out"]
        if watched:
            words += ["--tensorboard", folder / "events", "--metrics-listen", "127.0.0.1:*"]
        log = folder / "log"
        with open(log, "wb") as output:
            run = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   env=environment())
        end = time.monotonic() + PATIENCE_S
        page = None
        while run.poll() is None:
            if time.monotonic() > end:
                run.kill()
                raise Failed(f"[watch] the run has not ended within {PATIENCE_S} s; killed")
            found = re.search(r"http://[\d.:]+", log.read_text(errors="replace")) if watched and not page else None
            page = found.group() if found else page
            if page:
                read_page(page)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(1)
        if run.returncode != 0 or (watched and not page):
            raise Failed(f"[watch] exit code {run.returncode}: {log.read_text(errors='replace')[-400:]}")
        return json.loads((folder / "out" / "summary.json").read_text())["samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--pairs", type=positive, default=7)
    parser.add_argument("--seconds", type=positive, default=10, help="of a run")
    parser.add_argument("--hidden", default="1024,1024")
    arguments = parser.parse_args()
    found = machine()
    steps = max(WARM_UP_STEPS, int(arguments.seconds * rate(arguments, WARM_UP_STEPS, False) / 256))
    ratios = []
    for pair in range(arguments.pairs):
        rates = {watched: rate(arguments, steps, watched) for watched in (pair % 2 == 0, pair % 2 == 1)}
        ratios.append(rates[True] / rates[False])
        say(f"pair {pair + 1}: {rates[True]:.0f} samples/s watched, {rates[False]:.0f} alone: {ratios[-1]:.3f}")
    print(caption("bench/watching_cost.py", found), f"mlp {arguments.hidden}, {steps} steps a run.")
    print(f"watched over alone, median of {len(ratios)} pairs: {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
