#!/usr/bin/env python3
"""What keys cost: exchanges of two workers and a server with the default, with `encrypt = all`, and without keys.

  bench/keys_cost.py BIN [--rounds 7]

A round measures each mode once, in turns, each time another one begins. Printed are medians over the rounds of each time over that of the first
exchange without keys in the same round; `again` is a second one without keys, and shows what the machine's noise is.
"""
import argparse
import pathlib
import statistics
import sys

from figures import MIB, Failed, positive, say, size_text
from old_new import TRANSPORTS, exchange_time

SIZES = (MIB, 25 * MIB, 100 * MIB)
MODES = {"insecure": (("--insecure",), ()), "default": ((), ()), "all": ((), ("--encrypt", "all")), "again": (("--insecure",), ())}


def measure(bin_dir, rounds):
    """Rows of the table: (transport, size, {mode: ratio to "insecure"})."""
    for transport in TRANSPORTS:
        for size in SIZES:
            found = {mode: [] for mode in MODES}
            for number in range(rounds):
                names = list(MODES)
                times = {}
                for name in names[number % len(names):] + names[:number % len(names)]:
                    words, job = MODES[name]
                    times[name] = exchange_time(bin_dir, transport, size, words, job)
                for name in MODES:
                    found[name].append(times[name] / times["insecure"])
            yield transport, size, {name: statistics.median(own) for name, own in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--rounds", type=positive, default=7)
    args = parser.parse_args()
    print("| | default / insecure | all / insecure | insecure / insecure |\n|---|---:|---:|---:|")
    for transport, size, ratio in measure(args.bin.resolve(), args.rounds):
        print(f"| {transport}, {size_text(size)} | {ratio['default']:.2f} | {ratio['all']:.2f} | {ratio['again']:.2f} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        say(str(e))
        sys.exit(1)
