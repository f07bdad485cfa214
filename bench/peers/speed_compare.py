"""Compares pushpull with its alternatives, and with the limits of the machine. run_speed.sh runs it.

A round measures everything once, one after the other, so that other load affects all alike. Compare the ratios: they
are taken within a round. Figures are medians over the rounds with (min-max). A peer that is not installed is reported
and skipped."""
import argparse
import json
import pathlib
import sys
import tempfile

import speed_measure as measure

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from figures import (BIN, KIB, MIB, Failed, caption, cell, machine, markdown, positive, ratios,  # noqa: E402
                     rounds_text, say, size_text, values)

SIZES = [4 * KIB, MIB, 25 * MIB, 100 * MIB]
QUICK = [4 * KIB, MIB]
TRANSPORTS = ["shm", "tcp"]
PARTS = ["exchange", "training"]


class Peers:
    """The available peers, and why others are skipped."""

    def __init__(self, folder, parts):
        self.skipped = {}
        self.program = None
        why = measure.missing_torch()
        if why:
            self.skipped["PyTorch"] = why
        if "exchange" in parts:
            self._find_mpi(folder)
        for name, why in self.skipped.items():
            say(f"skipped: {name}: {why}")

    def _find_mpi(self, folder):
        why = measure.missing_mpi()
        if why:
            self.skipped["Open MPI"] = why
            return
        try:
            self.program = measure.build_mpi(folder)
        except Failed as error:
            self.skipped["Open MPI"] = str(error)

    def take(self, name, function, *words):
        """Returns the function's measurements, or nothing if the peer is missing or fails."""
        if name in self.skipped:
            return {}
        try:
            return function(*words)
        except Failed as error:
            self.skipped[name] = str(error)
            say(f"skipped from now on: {name}: {error}")
            return {}


def exchange_round(bin_dir, sizes, peers):
    return {**measure.floors(bin_dir, sizes), **measure.exchanges(bin_dir, sizes),
            **peers.take("PyTorch", measure.gloo, sizes),
            **peers.take("Open MPI", measure.mpi, peers.program, sizes)}


def training_round(bin_dir, names, quick, peers):
    found = {}
    for name in names:
        _, steps, seconds = measure.JOBS[name]
        steps, seconds = (steps // 10, seconds / 10) if quick else (steps, seconds)
        for strategy in ("sync", "async"):
            found.update(measure.pushpull_rate(bin_dir, name, strategy, steps))
        for kind in ("ddp", "alone"):
            found.update(peers.take("PyTorch", measure.torch_rate, kind, name, seconds))
    return found


def exchange_rows(rounds, sizes):
    rows = []
    for transport in TRANSPORTS:
        for size in sizes:
            ours = ("pushpull", transport, size)
            rows.append({"transport": transport, "bytes": size, "pushpull_us": values(rounds, ours),
                         "floor_us": values(rounds, ("floor", transport, size)),
                         "over_floor": ratios(rounds, ours, ("floor", transport, size)),
                         "gloo_us": values(rounds, ("gloo", size)),
                         "over_gloo": ratios(rounds, ours, ("gloo", size)),
                         "mpi_us": values(rounds, ("mpi", transport, size)),
                         "over_mpi": ratios(rounds, ours, ("mpi", transport, size))})
    return rows


def alone_rows(rounds, sizes):
    rows = []
    for size in sizes:
        row = {"bytes": size}
        for way in ("push", "pull"):
            ours, raw = (way, "tcp", size), ("raw " + way, "tcp", size)
            row |= {f"{way}_us": values(rounds, ours), f"raw_{way}_us": values(rounds, raw),
                    f"{way}_over_raw": ratios(rounds, ours, raw)}
        row["push_over_zmq"] = ratios(rounds, ("push", "tcp", size), ("zmq push", "tcp", size))
        rows.append(row)
    return rows


def training_rows(rounds, names):
    rows = []
    for name in names:
        row = {"model": name}
        for kind in ("sync", "async", "ddp", "alone"):
            row[f"{kind}_samples_per_s"] = values(rounds, (kind, name))
        for over, under in (("sync", "ddp"), ("async", "ddp"), ("async", "sync"), ("sync", "alone")):
            row[f"{over}_over_{under}"] = ratios(rounds, (over, name), (under, name))
        rows.append(row)
    return rows


def exchange_table(rows):
    head = ["transport, size", "pushpull, ms", "floor, ms", "over floor", "Gloo + SGD, ms",
            "over Gloo + SGD", "Open MPI, ms", "over Open MPI"]
    return markdown(head, [[f"{row['transport']}, {size_text(row['bytes'])}",
                            cell(row["pushpull_us"], 1e-3), cell(row["floor_us"], 1e-3),
                            cell(row["over_floor"]), cell(row["gloo_us"], 1e-3),
                            cell(row["over_gloo"]), cell(row["mpi_us"], 1e-3), cell(row["over_mpi"])]
                           for row in rows])


def alone_table(rows):
    head = ["size", "push, ms", "raw TCP, ms", "over raw TCP", "over bare ZeroMQ", "pull, ms",
            "raw TCP, ms", "over raw TCP"]
    return markdown(head, [[size_text(row["bytes"]), cell(row["push_us"], 1e-3),
                            cell(row["raw_push_us"], 1e-3), cell(row["push_over_raw"]),
                            cell(row["push_over_zmq"]), cell(row["pull_us"], 1e-3),
                            cell(row["raw_pull_us"], 1e-3), cell(row["pull_over_raw"])]
                           for row in rows])


def training_table(rows):
    head = ["model", "sync", "async", "DDP", "no exchange", "sync / DDP", "async / DDP", "async / sync",
            "sync / no exchange"]
    kinds = ("sync_samples_per_s", "async_samples_per_s", "ddp_samples_per_s", "alone_samples_per_s",
             "sync_over_ddp", "async_over_ddp", "async_over_sync", "sync_over_alone")
    return markdown(head, [[measure.TITLES[row["model"]], *(cell(row[kind]) for kind in kinds)]
                           for row in rows])


def result_of(rounds, parts, sizes, names):
    result = {}
    if "exchange" in parts:
        result["exchange"] = exchange_rows(rounds, sizes)
        result["alone"] = alone_rows(rounds, sizes)
    if "training" in parts:
        result["training"] = training_rows(rounds, names)
    return result


def print_tables(result, command):
    titles = {"exchange": ("Full sync exchange, 2 workers, 1 server, momentum", exchange_table),
              "alone": ("One worker alone over TCP", alone_table),
              "training": ("Training with plain SGD, 2 workers with one thread each, samples/s",
                           training_table)}
    for key, (title, table) in titles.items():
        if key in result:
            print(f"**{title}**\n\n{table(result[key])}\n")
    print(f"{caption(command, result['machine'])} {rounds_text(result['rounds'])}"
          + (f" PyTorch {result['torch']}." if result["torch"] else ""))
    for name, why in result["skipped"].items():
        print(f"Skipped: {name}: {why}.")


def arguments_of(words):
    parser = argparse.ArgumentParser(prog="run_speed.sh", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, to test the script")
    parser.add_argument("--only", choices=PARTS, help="exchange or training")
    parser.add_argument("--models", default=",".join(measure.JOBS), help="of the training")
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--out", metavar="FILE.json", help="also write every measurement to this file")
    arguments = parser.parse_args(words)
    arguments.models = arguments.models.split(",")
    unknown = [name for name in arguments.models if name not in measure.JOBS]
    if unknown:
        parser.error(f"--models: no {unknown[0]}; there are {', '.join(measure.JOBS)}")
    if not (arguments.bin / "pushpull").exists():
        parser.error(f"no {arguments.bin}/pushpull; build it: cmake --preset release && "
                     "cmake --build --preset release")
    return arguments


def main():
    arguments = arguments_of(sys.argv[1:])
    parts = [arguments.only] if arguments.only else PARTS
    sizes = QUICK if arguments.quick else SIZES
    count = 1 if arguments.quick else arguments.rounds
    found, rounds = machine(), []
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(folder, parts)
        for index in range(count):
            values_of_round = {}
            if "exchange" in parts:
                values_of_round.update(exchange_round(arguments.bin, sizes, peers))
            if "training" in parts:
                values_of_round.update(training_round(arguments.bin, arguments.models,
                                                      arguments.quick, peers))
            rounds.append(values_of_round)
            say(f"round {index + 1} of {count} is done")
    result = {"machine": found, "rounds": count, "torch": measure.torch_version(),
              "skipped": peers.skipped, **result_of(rounds, parts, sizes, arguments.models)}
    if arguments.out:
        raw = [{" ".join(map(str, key)): value for key, value in r.items()} for r in rounds]
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({**result, "measurements": raw}, file, indent=2)
    print_tables(result, " ".join(["bench/peers/run_speed.sh", *sys.argv[1:]]))


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
