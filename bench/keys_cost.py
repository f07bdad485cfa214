#!/usr/bin/env python3
"""Measures the cost of keys: exchanges of two workers and a server with the default, with `encrypt = all`, and without
keys.

  bench/keys_cost.py BIN [--rounds 7] [--transport tcp] [--without-all]

A round measures each mode once; each round begins with the next mode. Prints medians over the rounds of each time
relative to the first exchange without keys in the same round. `again` is a second exchange without keys, and shows
the noise of the machine.
"""
import argparse
import pathlib
import statistics
import sys

from figures import MIB, Failed, positive, say, size_text
from old_new import TRANSPORTS, exchange_time

SIZES = (MIB, 25 * MIB, 100 * MIB)
MODES = {"insecure": (("--insecure",), ()), "default": ((), ()), "all": ((), ("--encrypt", "all")), "again": (("--insecure",), ())}


def measure(bin_dir, rounds, transports, names):
    """Yields rows of the table: (transport, size, {mode: ratio to "insecure"})."""
    for transport in transports:
        for size in SIZES:
            found = {name: [] for name in names}
            for number in range(rounds):
                times = {}
                for name in names[number % len(names):] + names[:number % len(names)]:
                    words, job = MODES[name]
                    times[name] = exchange_time(bin_dir, transport, size, words, job)
                for name in names:
                    found[name].append(times[name] / times["insecure"])
            yield transport, size, {name: statistics.median(own) for name, own in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--transport", choices=TRANSPORTS, help="measure only this one")
    parser.add_argument("--without-all", action="store_true", help="skip `encrypt = all`, which takes most of the time")
    args = parser.parse_args()
    names = [name for name in MODES if name != "all" or not args.without_all]
    transports = [args.transport] if args.transport else TRANSPORTS
    titles = {"default": "default / insecure", "all": "all / insecure", "again": "insecure / insecure"}
    print("| | " + " | ".join(titles[name] for name in names[1:]) + " |\n|---|" + "---:|" * (len(names) - 1))
    for transport, size, ratio in measure(args.bin.resolve(), args.rounds, transports, names):
        print(f"| {transport}, {size_text(size)} | " + " | ".join(f"{ratio[name]:.2f}" for name in names[1:]) + " |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        say(str(e))
        sys.exit(1)
