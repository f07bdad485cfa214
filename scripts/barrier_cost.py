#!/usr/bin/env python3
"""Measures the cost of checkpoints and evaluations for a training run: the same job without any, with checkpoints,
with evaluations, with both.

    scripts/barrier_cost.py [--bin DIR] [--rounds N] [--every STEPS] -- OPTIONS OF pushpull run

The runs alternate. Prints medians over the rounds: samples/s, and from the workers' traces the time of a step from one
push to the next, for steps that start at a barrier, for the steps after these, and for the others; and the wait for the
first weights in each. A step with an evaluation contains the worker's share of it.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

KINDS = ("barrier", "after it", "others")


def steps_of(trace):
    """Returns {step: (ms from the previous push to its own, ms of waiting for its first weights)}."""
    ends, waits = {}, {}
    for e in json.loads(trace.read_text()):
        step = e.get("args", {}).get("step")
        if e["name"] == "end of push":
            ends[step] = (e["ts"] + e["dur"]) / 1e3
        elif e["name"] == "wait for the first weights":
            waits[step] = waits.get(step, 0.0) + e["dur"] / 1e3
    order = sorted(ends)
    return {b: (ends[b] - ends[a], waits.get(b, 0.0)) for a, b in zip(order, order[1:])}


def kind_of(step, every):
    return {0: "barrier", 1: "after it"}.get(step % every, "others")


def run(args, keys):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        command = [shutil.which("pushpull", path=args.bin) or "pushpull", "run", *args.options,
                   *[word for key in keys for word in (f"--{key}", str(args.every))],
                   "--out", str(out / "out"), "--trace", str(out / "trace")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\nends with {done.returncode}: {done.stderr[-2000:]}")
        notices = [line for line in done.stderr.splitlines() if "earlier checkpoint" in line]
        summary = json.loads((out / "out" / "summary.json").read_text())
        steps = {kind: [] for kind in KINDS}
        for trace in sorted((out / "trace").glob("*.json")):
            for step, times in steps_of(trace).items():
                if step >= args.every:  # the first steps fill caches and pools
                    steps[kind_of(step, args.every)].append(times)
        return summary["samples_per_second"], steps, notices


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/release/bin", help="folder with pushpull")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=int, default=10, help="steps between barriers, at least 3")
    parser.add_argument("options", nargs="*", help="of pushpull run, after --")
    args = parser.parse_args()
    if args.every < 3:
        parser.error("--every is at least 3")
    variants = {"none": (), "checkpoints": ("checkpoint-every",), "evaluations": ("eval-every",),
                "both": ("checkpoint-every", "eval-every")}
    rates = {name: [] for name in variants}
    steps = {name: {kind: [] for kind in KINDS} for name in variants}
    lines = set()
    for _ in range(args.rounds):
        for name, keys in variants.items():
            rate, found, notices = run(args, keys)
            rates[name].append(rate)
            lines.update(notices)
            for kind in KINDS:
                steps[name][kind] += found[kind]
    print(f"every {args.every} steps: {' '.join(args.options)}, {args.rounds} rounds")
    print("| barriers | samples/s | over none | " + " | ".join(f"{k}: step, ms | wait, ms" for k in KINDS) + " |")
    print("|---|" + "---:|" * (2 + 2 * len(KINDS)))
    for name in variants:
        rate = statistics.median(rates[name])
        cells = [name, f"{rate:,.0f}", f"{rate / statistics.median(rates['none']):.3f}"]
        for kind in KINDS:
            for column in (0, 1):
                values = [times[column] for times in steps[name][kind]]
                cells.append(f"{statistics.median(values):.2f}" if values else "–")
        print("| " + " | ".join(cells) + " |")
    for line in sorted(lines):
        print(line)


if __name__ == "__main__":
    main()
