#!/usr/bin/env python3
"""Compares pushpull with ps-lite and BytePS's server over TCP loopback, interleaved: one worker that pushes and pulls
alone, and the whole exchange of two workers. Downloads and builds BytePS's source distribution, or takes --source.

A round measures each variant once, one after the other. Ratios are taken within a round. For ps-lite, the fastest of
its variants and of three key sizes counts, in each round and for each tensor size."""
import argparse
import json
import pathlib
import sys

import ps_lite_measure as measure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from figures import (BIN, KIB, MIB, ROOT, Failed, bench_rows, caption, cell, machine, markdown,  # noqa: E402
                     positive, ratios, rounds_text, say, size_text, values)

SIZES = [4 * KIB, MIB, 25 * MIB, 100 * MIB]
QUICK = [4 * KIB, MIB]
WORKERS = 2  # of the exchange
# (work of the server, van, heap): ps-lite at its best only stores; to do the work of pushpull it updates
ALONE = [("store", "released", "default"), ("store", "sleeping", "default"), ("store", "sleeping", "kept"),
         ("update", "sleeping", "kept")]
EXCHANGE = [("exchange", "released", "default"), ("exchange", "sleeping", "default"),
            ("exchange", "sleeping", "kept"), ("byteps", "sleeping", "kept")]
TITLES = {"store": "ps-lite, server stores", "update": "ps-lite, server updates",
          "exchange": "ps-lite, server sums and updates", "byteps": "BytePS's server sums, workers update",
          "released": "as released", "sleeping": "receivers sleep", "default": "", "kept": "heap kept"}


def title(variant):
    return ", ".join(TITLES[word] for word in variant if TITLES[word])


def pushpull(bin_dir, size):
    row, = bench_rows(bin_dir, [size], WORKERS, 1, ["tcp"])
    return {("pushpull", what, size): row[f"{what}_us_p50"] for what in ("push", "pull", "exchange")}


class Variants:
    """The measured variants of ps-lite. A variant that fails is reported, and skipped in later rounds of that size."""

    def __init__(self, programs):
        self.programs, self.skipped = programs, {}

    def take(self, variant, workers, size):
        kind, van, heap = variant
        if (variant, size) in self.skipped:
            return {}
        try:
            found = measure.measured(self.programs, van, heap, kind, workers, size)
        except Failed as error:
            self.skipped[variant, size] = str(error)
            say(f"skipped from now on: {title(variant)}, {size_text(size)}: {error}")
            return {}
        return {(variant, *key): value for key, value in found.items()}


def measured_size(bin_dir, size, variants):
    """Measures all variants of one size, right after each other."""
    found = pushpull(bin_dir, size)
    for workers, group in ((1, ALONE), (WORKERS, EXCHANGE)):
        for variant in group:
            found |= variants.take(variant, workers, size)
    return with_best(found)


def with_best(found):
    """Adds ("best", kind of server, push, pull or exchange, bytes): the fastest variant of the round. A pull does not
    depend on the kind of server."""
    best = dict(found)
    for (variant, what, size), value in found.items():
        if variant == "pushpull":
            continue
        key = ("best", "any" if what == "pull" else variant[0], what, size)
        best[key] = min(value, best.get(key, value))
    return best


def rows_of(rounds, sizes):
    """Returns one row for each size and for each of push, pull and exchange."""
    rows = []
    for what, kinds in (("push", ("store", "update")), ("pull", ("any",)), ("exchange", ("exchange", "byteps"))):
        variants = EXCHANGE if what == "exchange" else ALONE
        for size in sizes:
            ours = ("pushpull", what, size)
            rows.append({"what": what, "bytes": size, "pushpull_us": values(rounds, ours),
                         "variants_us": {title(v): values(rounds, (v, what, size)) for v in variants},
                         "over": {kind: ratios(rounds, ours, ("best", kind, what, size)) for kind in kinds}})
    return rows


OVER = {"store": "over ps-lite that stores", "update": "over ps-lite that updates", "any": "over ps-lite",
        "exchange": "over ps-lite", "byteps": "over BytePS's server"}


def table(rows, what):
    """Returns a table with a column per size, in µs or ms, and below the times the ratios of pushpull to the peers:
    less is faster."""
    rows = [row for row in rows if row["what"] == what]
    units = [("µs", 1) if row["bytes"] < MIB else ("ms", 1e-3) for row in rows]

    def times(found):
        return [cell(one, factor) for one, (_, factor) in zip(found, units)]
    lines = [["pushpull", *times([row["pushpull_us"] for row in rows])]]
    for name in rows[0]["variants_us"]:
        lines.append([name, *times([row["variants_us"][name] for row in rows])])
    for kind in rows[0]["over"]:
        lines.append([f"**{OVER[kind]}**", *(cell(row["over"][kind]) for row in rows)])
    head = [what, *(f"{size_text(row['bytes'])}, {unit}" for row, (unit, _) in zip(rows, units))]
    return markdown(head, lines)


def print_tables(result, command):
    titles = {"push": "One worker alone pushes, TCP loopback", "pull": "One worker alone pulls, TCP loopback",
              "exchange": "Full sync exchange over TCP loopback, 2 workers, 1 server, momentum"}
    for what, name in titles.items():
        print(f"**{name}**\n\n{table(result['rows'], what)}\n")
    print(f"{caption(command, result['machine'])} {rounds_text(result['rounds'])} {measure.WHAT}, libzmq of Debian.")
    for name, why in result["skipped"].items():
        print(f"Skipped: {name}: {why}.")


def arguments_of(words):
    parser = argparse.ArgumentParser(prog="ps_lite_compare.py", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of small tensors, to test the script")
    parser.add_argument("--source", type=pathlib.Path, metavar="PATH",
                        help=f"archive or folder of {measure.RELEASE}; default: pip downloads it")
    parser.add_argument("--scratch", type=pathlib.Path, default=ROOT / "build" / "ps_lite",
                        help="folder for downloads and builds")
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--out", metavar="FILE.json", help="also write every measurement to this file")
    arguments = parser.parse_args(words)
    if not (arguments.bin / "pushpull").exists():
        parser.error(f"no {arguments.bin}/pushpull; build it: cmake --preset release && "
                     "cmake --build --preset release")
    return arguments


def main():
    arguments = arguments_of(sys.argv[1:])
    sizes, count = (QUICK, 1) if arguments.quick else (SIZES, arguments.rounds)
    variants = Variants(measure.build(arguments.source, arguments.scratch))
    here, rounds = machine(), []
    for index in range(count):
        rounds.append({})
        for size in sizes:
            rounds[-1] |= measured_size(arguments.bin, size, variants)
        say(f"round {index + 1} of {count} is done")
    result = {"machine": here, "rounds": count, "peer": measure.WHAT,
              "skipped": {f"{title(v)}, {size_text(size)}": why
                          for (v, size), why in variants.skipped.items()},
              "rows": rows_of(rounds, sizes)}
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    print_tables(result, " ".join(["bench/peers/ps_lite_compare.py", *sys.argv[1:]]))


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
