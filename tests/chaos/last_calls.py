#!/usr/bin/env python3
"""A coordinator that is killed at each of its system calls from the last checkpoint to its exit, in turn: `pushpull
run` starts it again, and the run ends with 0 and with the bits of the undisturbed run.

  last_calls.py --bin DIR --library FILE [--points N | --from CALL --to CALL] [--strategy NAME]

--library is kill_at_call.cpp, built. --points N takes N calls at equal distances; without it every call is taken.
"""
import argparse
import collections
import pathlib
import sys
import time

from job import base
from lab import MLP, Failed, expect, metrics_of, summary_of

STEPS = 40
KEYS = {**MLP, "steps": STEPS, "checkpoint-every": 0, "on-server-loss": "restart", "replacement-timeout": 30}
LONGEST_S = 25  # a coordinator that waits for members that have ended takes replacement-timeout
SAME = ("samples", "pushes_applied", "steps", "test_total", "initial_weights_sha256")
BITS = ("data_order_sha256", "weights_sha256", "test_correct")


def launch(lab, library, keys, call):
    """A run whose coordinator does not make this call; 0: makes all. Returns the process and the mark's file."""
    mark = lab.folder / lab.name("mark")
    lab.environment.update(LD_PRELOAD=str(library), KILL_MARK=str(mark), KILL_FROM=f"step-{STEPS:08d}", KILL_CALL="",
                           KILL_AFTER=str(call))
    job = lab.job(keys)
    run = lab.launch(job, 2, 2)
    run.job = job
    del lab.environment["LD_PRELOAD"]
    return run, mark


def calm(lab, library, keys):
    """The undisturbed summary, and the number of calls."""
    run, mark = launch(lab, library, keys, 0)
    expect(run.ends(60) == 0, f"exit code {run.returncode}: {run.output()[-800:]}")
    return summary_of(run.out), int(mark.read_text().split()[0])


def killed_at(lab, library, keys, call, want):
    """Returns what the second coordinator did, and the call."""
    begin = time.monotonic()
    run, mark = launch(lab, library, keys, call)
    code = run.ends(60)
    took = time.monotonic() - begin
    words = mark.read_text().split()
    expect(words, f"call {call}: the coordinator was not killed: {run.output()[-800:]}")
    what = " ".join([words[1], *(pathlib.Path(word).name for word in words[3:])])
    where = f"call {call} ({what})"
    expect(code == 0, f"{where}: exit code {code}: {run.output()[-1500:]}")
    got = summary_of(run.out)
    for key in SAME + (BITS if keys["strategy"] in ("sync", "allreduce:tree") else ()):
        expect(got[key] == want[key], f"{where}: {key}: {got[key]}, undisturbed {want[key]}: {run.output()[-1500:]}")
    if what.endswith(" term.json") and words[1] in ("remove", "unlink"):  # its end was reported: the next start clears the file away
        again = lab.launch(run.job, 2, 2, out=run.out)
        expect(again.ends(30) == 0 and "has ended; telling" in again.output(), f"{where}: again: {again.output()[-800:]}")
    expect(not (run.out / "term.json").exists(), f"{where}: term.json is left")
    expect(metrics_of(run.out)[-1]["step"] == STEPS, f"{where}: metrics end at {metrics_of(run.out)[-1]}")
    lab.until(lambda: not lab.left_behind(), 10, lambda: f"{where}: left behind: {lab.left_behind()}")
    expect(took < lab.seconds(LONGEST_S), f"{where}: took {took:.0f} s: {run.output()[-1500:]}")
    output = run.output()
    trained = "training goes on" in output and f"steps {STEPS} to {STEPS}," not in output
    expect(not trained or words[2] == "0", f"{where}: the last checkpoint is left out: {output[-1500:]}")
    if words[1] == "exit":
        return "not killed", what
    if "has ended; telling" in output:
        return "found it ended", what
    if f"steps {STEPS} to {STEPS}," in output:
        return "only evaluated", what
    if trained:
        return "trained again", what
    return "had done its work", what


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--points", type=int, default=0)
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--to", type=int, default=0, dest="last")
    parser.add_argument("--strategy", default="sync")
    parser.add_argument("--scale", type=float, default=1.0)
    return parser.parse_args()


def main():
    args = arguments()
    lab = base.Lab(args.bin.resolve(), args.scale)
    base.LIBC.prctl(base.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keys = {**KEYS, "strategy": args.strategy}
    done = collections.Counter()
    try:
        want, calls = calm(lab, args.library.resolve(), keys)
        last = args.last or calls
        points = range(args.first, last + 1)
        if args.points:
            points = sorted({args.first + (last - args.first) * i // max(1, args.points - 1) for i in range(args.points)})
        for call in points:
            outcome, what = killed_at(lab, args.library.resolve(), keys, call, want)
            done[outcome] += 1
            print(f"call {call} of {calls} ({what}): {outcome}", flush=True)
        print(f"{sum(done.values())} runs of {args.strategy}: " + ", ".join(f"{n} {k}" for k, n in sorted(done.items())))
        return 0
    except Failed as failure:
        print(f"FAILED: {failure}")
        return 1
    finally:
        lab.close()


if __name__ == "__main__":
    sys.exit(main())
