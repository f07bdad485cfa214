#!/usr/bin/env python3
"""Runs real jobs under faults that a seed selects: fault x role x strategy, and how the job recovers (recovery), what it
encrypts (encrypt), and whether its programs start by hand or by `pushpull run`. Judges the results of the job, and
checks that it reports its waits, and that no process or file is left behind.

  chaos.py --bin DIR --runs N --seed S [--table FILE] [--only TEXT]

Run i uses seed S + i. A seed determines all of them, the process that the fault hits, and the time. A failure
prints the command that repeats it. --table FILE appends one line of JSON for each run; --show FILE prints the table of
all its lines, so that runs add up.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import time

from faults import FAULTS, starts_of
from hanging_files_test import frozen_later
from job import STRATEGIES, Failed, Verdicts, base

COMBINATIONS = [(fault, role, strategy) for fault, (_, roles) in FAULTS.items() for role in roles
                for strategy in STRATEGIES]
STRIDE = 61  # neighbouring seeds differ in fault, role and strategy
VARIANTS = [(recovery, encrypt, start) for start in ("hand", "run") for recovery in ("checkpoint", "peers")
            for encrypt in ("control", "all")]


class ChaosLab(base.Lab):
    """A lab with its own folder for temporary files, so that they can be counted."""

    def __init__(self, bin_dir, scale):
        super().__init__(bin_dir, scale)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.environment["TMPDIR"] = str(self.temporary)

    def end_processes(self):
        """Kills all processes, also those that others of them have started."""
        while pids := base.living_below(os.getpid()):
            for pid in pids:
                for number in (signal.SIGCONT, signal.SIGKILL):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(0.05)

    @contextlib.contextmanager
    def mounted(self):
        """A folder on a file system of its own, and functions that freeze and thaw it."""
        with frozen_later(self) as (folder, freeze, thaw):
            try:
                yield folder, freeze, thaw
            finally:
                thaw()
                self.end_processes()

    def nothing_is_left(self, segments):
        left = self.left_behind()
        if left:
            raise Failed(f"processes are left: {left}")
        files = [str(path) for path in self.temporary.rglob("*")]
        if files:
            raise Failed(f"temporary files are left: {files}")
        more = named_segments() - segments
        if more:
            raise Failed(f"shared memory is left: {sorted(more)}")


class Case:
    """One run: a seed, and what it determines. After each len(COMBINATIONS) seeds the variants move on by one."""

    def __init__(self, seed, verdicts):
        self.seed = seed
        self.fault, self.role, self.strategy = COMBINATIONS[seed * STRIDE % len(COMBINATIONS)]
        around, place = divmod(seed, len(COMBINATIONS))
        self.recovery, self.encrypt, self.start = VARIANTS[(around + place) % len(VARIANTS)]
        possible = starts_of(self.fault, self.role)
        self.start = self.start if self.start in possible else possible[0]
        self.rng = random.Random(seed)
        self.verdicts = verdicts
        self.lab = None
        self.job = None

    def name(self):
        return " / ".join((self.fault, self.role, self.strategy, self.recovery, self.encrypt, self.start))

    def run(self, bin_dir, scale, keep):
        """Returns (kind, text): passed, failed or skipped, and why."""
        segments = named_segments()
        self.lab = ChaosLab(bin_dir, scale)
        try:
            verdict = FAULTS[self.fault][0](self)
            silence = self.job.silence.end()
            if silence:
                raise Failed(silence)
            self.lab.nothing_is_left(segments)
            return "passed", verdict
        except Failed as failure:
            if keep:
                self.keep_logs(keep)
            return "failed", str(failure)
        except base.Skipped as reason:
            return "skipped", str(reason)
        finally:
            if self.job:
                self.job.silence.end()
            self.lab.close()

    def keep_logs(self, folder):
        target = folder / f"seed-{self.seed}"
        target.mkdir(parents=True, exist_ok=True)
        for log in self.lab.folder.glob("*.log"):
            (target / log.name).write_bytes(log.read_bytes())


def named_segments():
    return {path.name for path in pathlib.Path("/dev/shm").glob("*pushpull*") if path.is_file()}


def print_table(rows):
    """Prints fault and role by strategy: passed runs out of all."""
    counts = collections.defaultdict(collections.Counter)
    for row in rows:
        counts[row["fault"], row["role"], row["strategy"]][row["verdict"]] += 1
    width = max(len(s) for s in STRATEGIES) + 2
    print(f"{'fault':14}{'role':13}" + "".join(f"{s:>{width}}" for s in STRATEGIES))
    for fault, (_, roles) in FAULTS.items():
        for role in roles:
            cells = []
            for strategy in STRATEGIES:
                cell = counts[fault, role, strategy]
                done = cell["passed"] + cell["failed"]
                cells.append(f"{cell['passed']}/{done}" if done else "skipped" if cell["skipped"] else "-")
            print(f"{fault:14}{role:13}" + "".join(f"{cell:>{width}}" for cell in cells))
    for name in ("recovery", "encrypt", "start"):
        variants = collections.defaultdict(collections.Counter)
        for row in rows:
            variants[row.get(name, "-")][row["verdict"]] += 1
        print(f"{name}: " + ", ".join(f"{variant} {cell['passed']}/{cell['passed'] + cell['failed']}"
                                      for variant, cell in sorted(variants.items())))
    total = collections.Counter(row["verdict"] for row in rows)
    print(f"{len(rows)} runs: {total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", help="run these seeds instead, separated by commas")
    parser.add_argument("--for-s", type=float, default=0, help="start no run after this many seconds")
    parser.add_argument("--table", type=pathlib.Path, help="append a line of JSON for each run to this file")
    parser.add_argument("--show", type=pathlib.Path, help="print the table of such a file, and exit")
    parser.add_argument("--logs", type=pathlib.Path, help="keep the logs of failed runs in this folder")
    parser.add_argument("--only", default="",
                        help="only seeds with this text in 'fault / role / strategy / recovery / encrypt / start'")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of all deadlines")
    found = parser.parse_args()
    if not found.show and not found.bin:
        parser.error("--bin DIR is missing")
    return found


def run_all(options):
    verdicts = Verdicts()
    scale = options.scale * float(os.environ.get("PUSHPULL_TEST_SCALE", "1"))
    seeds = [int(word) for word in options.seeds.split(",")] if options.seeds else \
        range(options.seed, options.seed + options.runs)
    rows, began = [], time.monotonic()
    for seed in seeds:
        case = Case(seed, verdicts)
        if options.only not in case.name():
            continue
        if options.for_s and time.monotonic() - began > options.for_s:
            break
        start = time.monotonic()
        kind, text = case.run(options.bin.resolve(), scale, options.logs)
        row = {"seed": seed, "fault": case.fault, "role": case.role, "strategy": case.strategy,
               "recovery": case.recovery, "encrypt": case.encrypt, "start": case.start, "verdict": kind,
               "text": text, "seconds": round(time.monotonic() - start, 1)}
        rows.append(row)
        print(f"{seed}: {case.name()}: {kind}: {text} ({row['seconds']} s)", flush=True)
        if kind == "failed":
            print(f"  again: python3 tests/chaos/chaos.py --bin {options.bin} --runs 1 --seed {seed}", flush=True)
        if options.table:
            options.table.parent.mkdir(parents=True, exist_ok=True)
            with open(options.table, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    return rows


def main():
    options = arguments()
    if options.show:
        print_table([json.loads(line) for line in options.show.read_text().splitlines()])
        return 0
    base.LIBC.prctl(base.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):  # no file system stays frozen or mounted
        signal.signal(number, signal.default_int_handler)
    rows = run_all(options)
    print_table(rows)
    return 1 if not rows or any(row["verdict"] == "failed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
