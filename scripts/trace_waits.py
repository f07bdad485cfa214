#!/usr/bin/env python3
"""Prints the waits of a worker per step, from a trace written by pushpull-worker --trace FILE.

    scripts/trace_waits.py FILE...     a table: per file the steps, and medians per step of each kind of event
"""
import collections
import json
import statistics
import sys

KINDS = ("compute", "push", "wait", "evaluate")  # "pull" takes no time by itself
SHOWN_MS = 0.001  # shorter waits are not listed: a network has one for each tensor
OUTSIDE = ("wait for the first weights", "end of push")


def per_step(events):
    """Returns {step: {category: seconds}}, and {name: seconds} of the waits."""
    steps = collections.defaultdict(lambda: dict.fromkeys(KINDS, 0.0))
    waits = collections.Counter()
    for e in events:
        if e["ph"] != "X" or e["cat"] not in KINDS:
            continue
        steps[e["args"]["step"]][e["cat"]] += e["dur"] / 1e6
        if e["cat"] == "wait":
            waits[e["name"]] += e["dur"] / 1e6
        if e["cat"] in ("wait", "push") and e["name"] not in OUTSIDE:
            steps[e["args"]["step"]]["compute"] -= e["dur"] / 1e6  # it is part of forward or backward
    return steps, waits


def main(files):
    if not files or files[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if files else 2
    for name in files:
        with open(name) as f:
            steps, waits = per_step(json.load(f))
        if not steps:
            print(f"{name}: no steps")
            continue
        medians = "  ".join(f"{k} {1e3 * statistics.median(s[k] for s in steps.values()):.3f}" for k in KINDS)
        print(f"{name}: {len(steps)} steps, median ms per step: {medians}")
        for what, seconds in waits.most_common():
            mean_ms = 1e3 * seconds / len(steps)
            if mean_ms >= SHOWN_MS:
                print(f"    {mean_ms:9.3f} ms per step (mean)  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
