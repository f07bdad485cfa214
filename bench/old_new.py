#!/usr/bin/env python3
"""Speed of a new build over an old one, in turns: each round measures old, new and old again, so that what else the machine does meets all three.

  bench/old_new.py OLD_BIN NEW_BIN [--rounds 7] [--only exchange,training] [--out FILE.json]

Exchanges of two workers and one server over shm and tcp (`pushpull bench`, 1, 25 and 100 MiB), and training of `mlp` and `convnet` with two workers.
A figure is a time, or for training the seconds per sample; new/old and old/old are taken within a round, then their medians over the rounds.
The new build holds its speed where new/old is at most 1.02 in the median, or at most 0.01 above old/old in the same rounds. Ends with 1 where it does not.
"""
import argparse
import json
import pathlib
import sys

from figures import (MIB, Failed, bench_rows, caption, cell, machine, markdown, positive, positives, ratios, rounds_text, say,
                     size_text, values)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import speed_measure  # noqa: E402

SIZES = [MIB, 25 * MIB, 100 * MIB]
TRANSPORTS = ["shm", "tcp"]
MODELS = ["mlp", "convnet"]
PARTS = ["exchange", "training"]
WORKERS = 2
MOST = 1.02   # new over old, in the median
NOISE = 0.01  # or above old over old


def exchange_times(bin_dir, sizes, steps):
    """(what, microseconds) of each exchange."""
    rows = bench_rows(bin_dir, sizes, WORKERS, 1, TRANSPORTS, steps)
    return {f"exchange {row['transport']}, {size_text(row['bytes'])}": row["exchange_us_p50"] for row in rows}


def training_times(bin_dir, models):
    """(what, microseconds per sample) of each training."""
    found = {}
    for name in models:
        steps = speed_measure.JOBS[name][1]
        found[f"training {name}"] = 1e6 / speed_measure.pushpull_rate(bin_dir, name, "sync", steps)["sync", name]
    return found


def measure_round(measure, old, new):
    """Figure -> {"old", "new", "again"}, measured in this order; a figure that one of them lacks is left out."""
    found = {who: measure(bin_dir) for who, bin_dir in (("old", old), ("new", new), ("again", old))}
    return {what: {who: found[who][what] for who in found} for what in found["old"]
            if all(found[who].get(what) for who in found)}


def holds(new_over_old, old_over_old):
    """Medians."""
    return new_over_old <= MOST or new_over_old <= old_over_old + NOISE


def summary(rounds):
    """Figure -> spreads of its times and ratios, and whether it holds; in the order in which the figures came."""
    names = list(dict.fromkeys(what for r in rounds for what in r))
    found = {}
    for what in names:
        own = [r[what] for r in rounds if what in r]
        # both over the round's first old one: where that was lucky, both are above 1
        new_over_old, old_over_old = ratios(own, "new", "old"), ratios(own, "again", "old")
        found[what] = {"old_us": values(own, "old"), "new_us": values(own, "new"), "new_over_old": new_over_old,
                       "old_over_old": old_over_old, "holds": holds(new_over_old["median"], old_over_old["median"])}
    return found


def table(found):
    return markdown(["", "new / old", "old / old", "verdict"],
                    [[what, cell(row["new_over_old"]), cell(row["old_over_old"]), "holds" if row["holds"] else "SLOWER"]
                     for what, row in found.items()])


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
    parser.add_argument("--only", type=parts_of, default=PARTS)
    parser.add_argument("--bytes", type=positives, default=SIZES, help="sizes of the tensor")
    parser.add_argument("--steps", type=positive, help="measured of each exchange; else by its size")
    parser.add_argument("--out", metavar="FILE.json", help="every round, for later")
    arguments = parser.parse_args(words)
    for folder in (arguments.old, arguments.new):
        if not (folder / "pushpull").exists():
            parser.error(f"no {folder / 'pushpull'}; build it: cmake --preset release && cmake --build --preset release")
    here = machine()
    measures = {"exchange": lambda bin_dir: exchange_times(bin_dir, arguments.bytes, arguments.steps),
                "training": lambda bin_dir: training_times(bin_dir, MODELS)}
    rounds = []
    try:
        for number in range(arguments.rounds):
            say(f"round {number + 1} of {arguments.rounds}")
            rounds.append({})
            for part in arguments.only:
                rounds[-1].update(measure_round(measures[part], arguments.old, arguments.new))
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
