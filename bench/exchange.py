#!/usr/bin/env python3
"""Measures full sync exchanges (all workers push, the servers update, all workers have the new weights) with real
processes: `pushpull bench` for each number of workers and servers. Writes one JSON file and one Markdown table."""
import argparse
import json
import pathlib
import sys

from figures import (BIN, KIB, MIB, Failed, bench_rows, caption, machine, markdown, number, positive,
                     positives, say, size_text)

SIZES = [4 * KIB, MIB, 25 * MIB, 100 * MIB, 400 * MIB]
QUICK = [4 * KIB, MIB]
TRANSPORTS = ["shm", "ipc", "tcp"]


def shape(workers, servers):
    return f"{workers} worker{'s'[:workers != 1]}, {servers} server{'s'[:servers != 1]}"


def measure(bin_dir, sizes, workers, servers, transports, steps):
    rows, failed = [], []
    for s in servers:
        for w in workers:
            say(shape(w, s))
            try:
                found = bench_rows(bin_dir, sizes, w, s, transports, steps, timeout_s=1800)
                rows += [{**row, "workers": w, "servers": s} for row in found]
            except Failed as error:
                failed.append(f"{shape(w, s)}: {error}")
                say(failed[-1])
    return rows, failed


def exchange_cell(row):
    """Returns the milliseconds of an exchange and, in brackets, the ratio to its floor."""
    if row is None or not row.get("exchange_us_p50"):
        return "–"
    ratio = f" ({row['ratio']:.2f})" if row.get("ratio") else ""
    return number(row["exchange_us_p50"] / 1e3) + ratio


def table(rows):
    """Returns a table with a row per transport and cluster, and a column per size."""
    found = {(row["transport"], row["servers"], row["workers"], row["bytes"]): row for row in rows}
    sizes = sorted({row["bytes"] for row in rows})
    shapes = sorted({key[:3] for key in found}, key=lambda k: (TRANSPORTS.index(k[0]), k[1], k[2]))
    head = ["transport, workers + servers", *(f"{size_text(size)}, ms" for size in sizes)]
    return markdown(head, [[f"{t}, {w} + {s}", *(exchange_cell(found.get((t, s, w, n))) for n in sizes)]
                           for t, s, w in shapes])


def notes(rows):
    """Returns the notes of `pushpull bench`, such as a transport that was not available."""
    found = {f"{row['transport']}: {row['note']}" for row in rows if row.get("note")}
    return "".join(f"\n{note}." for note in sorted(found))


def transports_of(text):
    names = text.split(",")
    if any(name not in TRANSPORTS for name in names):
        raise ValueError
    return names


transports_of.__name__ = "list of " + ", ".join(TRANSPORTS)


def main():
    parser = argparse.ArgumentParser(prog="exchange.py", description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--bytes", type=positives, help="sizes of the tensor, 4096,1048576,...")
    parser.add_argument("--workers", type=positives, default=[1, 2, 4])
    parser.add_argument("--servers", type=positives, default=[1, 2])
    parser.add_argument("--transport", type=transports_of, default=TRANSPORTS)
    parser.add_argument("--steps", type=positive, help="measured steps of each exchange; default: by size")
    parser.add_argument("--quick", action="store_true", help="small tensors only")
    parser.add_argument("--out", metavar="FILE.json", help="also write every row to this file")
    arguments = parser.parse_args()
    here = machine()
    rows, failed = measure(arguments.bin, arguments.bytes or (QUICK if arguments.quick else SIZES),
                           arguments.workers, arguments.servers, arguments.transport,
                           arguments.steps)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"machine": here, "rows": rows, "failed": failed}, file, indent=2)
    print(table(rows) + "\n\n" + caption(" ".join(["bench/exchange.py", *sys.argv[1:]]), here)
          + notes(rows))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
