#!/usr/bin/env python3
"""Measures the speed of a new build relative to an old one. The builds alternate, so that other load affects both.

  bench/old_new.py OLD_BIN NEW_BIN [--rounds 7] [--seconds 6] [--only exchange,training] [--out FILE.json]

Measures exchanges of two workers and one server over shm and tcp (1, 25 and 100 MiB, momentum on the server), and
training of `mlp` and `convnet` with two workers. A figure is a time (for training, seconds per sample) and the
processor seconds of all processes, from start to end. A round measures one figure after the other: each with the old
build, the new build and the old build again, alternating, until each has run for --seconds; each round begins with
another of the three. Of each it keeps the median: a process that starts anew may be lucky or unlucky on two cores, so
many short runs say more than few long ones. new/old and old/old are computed within a round; the result is their
median over the rounds. The new build holds its speed if the median of new/old is at most 1.02, or at most 0.01 above
old/old in the same rounds. Exits with 1 if it does not.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial

from figures import MIB, Failed, caption, cell, environment, machine, markdown, positive, ratios, rounds_text, say, size_text, values

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import speed_measure  # noqa: E402

SIZES = {MIB: 300, 25 * MIB: 24, 100 * MIB: 8}  # and the number of exchanges of each
WARM_UP = 2
DEADLINE_S = 300
TRANSPORTS = ["shm", "tcp"]
MODELS = ["mlp", "convnet"]
PARTS = ["exchange", "training"]
WORKERS = 2
MOST = 1.02   # limit of new / old, in the median
NOISE = 0.01  # or of the excess over old / old


def exchange_time(bin_dir, transport, size, words=(), job=()):
    """Returns microseconds: the median over the exchanges of the slower worker's time. Runs the programs that
    `pushpull bench` starts, which would measure floors too. words: arguments of all programs. job: arguments of the
    program that reads the job."""
    keys = {"strategy": "sync", "model": "mlp", "dataset": "dummy", "global-batch": WORKERS, "micro-batch": 1, "epochs": 0,
            "steps": WARM_UP + SIZES[size], "eval-every": 0, "transport": transport, "optimizer": "momentum", "lr": 0.1}
    with tempfile.TemporaryDirectory() as folder:
        address, announced = os.pipe()
        quiet = {"env": environment(), "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        programs = [subprocess.Popen([bin_dir / "pushpull-server", "--listen", "tcp://127.0.0.1:*", "--workers", str(WORKERS), "--out",
                                      f"{folder}/out", "--announce-fd", str(announced), *words, *job,
                                      *(str(word) for key, value in keys.items() for word in (f"--{key}", value))],
                                     pass_fds=[announced], **quiet)]
        os.close(announced)
        with os.fdopen(address) as lines:
            join = lines.readline().strip()
        times = [pathlib.Path(folder) / f"times-{i}" for i in range(WORKERS)]
        programs += [subprocess.Popen([bin_dir / "pushpull-worker", "--join", join, "--exchange-bytes", str(size), "--exchange-times", file, *words],
                                      **quiet) for file in times]
        codes = ends(programs)
        if any(codes):
            raise Failed(f"[bench] exchange of {size} bytes over {transport} with {bin_dir}: exit codes {codes}")
        return statistics.median(map(max, zip(*(lasting(file) for file in times), strict=True)))


def ends(programs):
    """Returns the programs' exit codes. Kills programs that outlive the deadline."""
    try:
        return [program.wait(DEADLINE_S) for program in programs]
    except subprocess.TimeoutExpired:
        raise Failed(f"[bench] an exchange has not ended within {DEADLINE_S} s; killed") from None
    finally:
        for program in programs:
            program.kill()
            program.wait()


def lasting(file):
    """Returns the microseconds of a worker's exchanges. A line has the start, the end of the push
    and the end, in nanoseconds."""
    rows = [line.split() for line in file.read_text().splitlines()[1 + WARM_UP:]]
    return [(int(row[-1]) - int(row[0])) / 1e3 for row in rows]


def training_time(bin_dir, model):
    """Returns microseconds per sample."""
    return 1e6 / speed_measure.pushpull_rate(bin_dir, model, "sync", speed_measure.JOBS[model][1])["sync", model]


def figures_of(parts):
    """Returns a map from figure to the function that measures it with a build."""
    found = {}
    if "exchange" in parts:
        for transport in TRANSPORTS:
            for size in SIZES:
                found[f"exchange {transport}, {size_text(size)}"] = partial(exchange_time, transport=transport, size=size)
    if "training" in parts:
        for model in MODELS:
            found[f"training {model}"] = partial(training_time, model=model)
    return found


def processor_seconds():
    """Returns the processor seconds of all children that have ended, and of their children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_figure(measure, old, new, seconds, number=0):
    """Returns {"old", "new", "again"} and {"old cpu", ...}: medians. number: of the round."""
    turns = [("old", old), ("new", new), ("again", old)]
    found = {}
    begin, first = time.monotonic(), number
    while first == number or time.monotonic() - begin < len(turns) * seconds:
        for turn in range(len(turns)):
            who, bin_dir = turns[(first + turn) % len(turns)]
            before = processor_seconds()
            found.setdefault(who, []).append(measure(bin_dir))
            found.setdefault(f"{who} cpu", []).append(processor_seconds() - before)
        first += 1
    return {who: statistics.median(own) for who, own in found.items()}


def holds(new_over_old, old_over_old):
    """Returns whether the new build holds its speed. Both arguments are medians."""
    return new_over_old <= MOST or new_over_old <= old_over_old + NOISE


def summary(rounds):
    """Returns a map from figure to spreads of its times and ratios, and whether it holds, in the order of the
    figures."""
    names = list(dict.fromkeys(what for r in rounds for what in r))
    found = {}
    for what in names:
        own = [r[what] for r in rounds if what in r]
        # Both relative to the round's first old run: if that was lucky, both ratios are above 1.
        new_over_old, old_over_old = ratios(own, "new", "old"), ratios(own, "again", "old")
        found[what] = {"old_us": values(own, "old"), "new_us": values(own, "new"), "new_over_old": new_over_old,
                       "old_over_old": old_over_old, "cpu_new_over_old": ratios(own, "new cpu", "old cpu"),
                       "cpu_old_over_old": ratios(own, "again cpu", "old cpu"),
                       "holds": holds(new_over_old["median"], old_over_old["median"])}
    return found


def table(found):
    return markdown(["", "new / old", "old / old", "processor: new / old", "old / old", "verdict"],
                    [[what, cell(row["new_over_old"]), cell(row["old_over_old"]), cell(row["cpu_new_over_old"]), cell(row["cpu_old_over_old"]),
                      "holds" if row["holds"] else "SLOWER"] for what, row in found.items()])


def verdict(found):
    slower = [what for what, row in found.items() if not row["holds"]]
    if not found:
        return "nothing was measured"
    return f"{len(slower)} of {len(found)} are slower: " + ", ".join(slower) if slower else f"all {len(found)} hold their speed"


def parts_of(text):
    names = text.split(",")
    if any(name not in PARTS for name in names):
        raise ValueError
    return names


parts_of.__name__ = "list of " + ", ".join(PARTS)


def main(words):
    parser = argparse.ArgumentParser(prog="old_new.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD_BIN", type=pathlib.Path)
    parser.add_argument("new", metavar="NEW_BIN", type=pathlib.Path)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each build for each figure in a round; at least one run")
    parser.add_argument("--only", type=parts_of, default=PARTS)
    parser.add_argument("--out", metavar="FILE.json", help="also write every round to this file")
    arguments = parser.parse_args(words)
    for folder in (arguments.old, arguments.new):
        if not (folder / "pushpull").exists():
            parser.error(f"no {folder / 'pushpull'}; build it: cmake --preset release && cmake --build --preset release")
    here = machine()
    rounds = []
    try:
        for number in range(arguments.rounds):
            say(f"round {number + 1} of {arguments.rounds}")
            rounds.append({what: measure_figure(measure, arguments.old, arguments.new, arguments.seconds, number)
                           for what, measure in figures_of(arguments.only).items()})
    except Failed as error:
        sys.exit(str(error))
    found = summary(rounds)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps({"machine": here, "rounds": rounds, "summary": found}, indent=2))
    print(table(found) + "\n\n" + caption(" ".join(["bench/old_new.py", *words]), here) + " " + rounds_text(len(rounds)))
    print(verdict(found))
    return 0 if found and all(row["holds"] for row in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
