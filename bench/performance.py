#!/usr/bin/env python3
"""Measures the tables of docs/performance.md and prints them as Markdown; --update writes them into the page.

The page has each table between `<!-- measured: NAME -->` and `<!-- end -->`. Needs an idle machine: a table takes
minutes, and other load distorts its figures."""
import argparse
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from figures import (BIN, KIB, MIB, ROOT, Failed, bench_rows, caption, cell, free_port, google_benchmark, machine,
                     markdown, positive, rounds_text, say, size_text, spread)

PAGE = ROOT / "docs" / "performance.md"
MEMORY_SIZES = [4 * KIB, MIB, 25 * MIB, 100 * MIB, 400 * MIB]
LINK_SIZES = [4 * KIB, MIB, 25 * MIB, 100 * MIB]
LINKS = {"tcp": "raw TCP", "unix": "unix socket", "shm": "shared memory, one copy",
         "zmq_tcp": "bare ZeroMQ, tcp", "zmq_ipc": "bare ZeroMQ, ipc"}
OPTIMIZERS = ["sgd", "momentum", "nesterov", "adam", "adamw"]
# rows: bytes, workers, options
COSTS = {"zmq": (4 * KIB, 1, ["--transport", "zmq"]),
         **{f"{transport}, `wait = {wait}`": (4 * KIB, 1, ["--transport", transport, "--wait", wait])
            for transport in ("tcp", "shm") for wait in ("sleep", "auto", "spin")},
         **{f"{transport}, 1 MiB, 2 workers": (MIB, 2, ["--transport", transport]) for transport in ("tcp", "shm")}}
FEW_STEPS, MANY_STEPS = 2000, 22000
WAITS = ["sleep", "auto", "spin"]
SMALL_SIZES = [4 * KIB, 64 * KIB, 256 * KIB, 512 * KIB, MIB]
SLICE, LARGE = MIB, 64 * MIB


def measured(arguments, program, pattern, seconds=0.5):
    """Returns a function (benchmark, counter) -> cell: the spread of the counter over the rounds."""
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append(google_benchmark(arguments.bin / program, f"--benchmark_min_time={seconds}",
                                       f"--benchmark_filter={pattern}"))
    return lambda name, counter, factor=1.0: cell(spread([r[name][counter] for r in rounds]), factor)


def one_of(sizes):
    return "(" + "|".join(map(str, sizes)) + ")/"


def memory(arguments):
    pattern = "^memory_.*bytes:" + one_of(MEMORY_SIZES)
    value = measured(arguments, "floors_bench", pattern)
    rows = []
    for name, title in (("copy", "memcpy"), ("axpy", "w -= lr g"), ("momentum", "update of two workers")):
        for threads in (1, 2):
            rows.append([f"{title}, {threads} thread{'s' * (threads > 1)}",
                         *(value(f"memory_{name}/bytes:{size}/threads:{threads}/real_time", "GB_s")
                           for size in MEMORY_SIZES)])
    head = ["GB/s", *map(size_text, MEMORY_SIZES)]
    return markdown(head, rows), f"floors_bench --benchmark_filter='{pattern}'"


def links(arguments):
    sizes = one_of(LINK_SIZES)
    pattern = f"^link_.*_(push|pull)/bytes:{sizes}clients:1|_exchange/bytes:{sizes}clients:2"
    value = measured(arguments, "floors_bench", pattern)

    def cells(kind, verb, clients, counter, factor=1.0):
        return [value(f"link_{kind}_{verb}/bytes:{size}/clients:{clients}/real_time", counter, factor)
                for size in LINK_SIZES]
    rows = []
    for kind, title in LINKS.items():
        rows.append([f"{title}: push, GB/s", *cells(kind, "push", 1, "GB_s")])
        rows.append([f"{title}: pull, GB/s", *cells(kind, "pull", 1, "GB_s")])
        rows.append([f"{title}: exchange of two, ms", *cells(kind, "exchange", 2, "p50_us", 1e-3)])
    return markdown(["", *map(size_text, LINK_SIZES)], rows), \
        f"floors_bench --benchmark_filter='{pattern}'"


def optimizer(arguments):
    value = measured(arguments, "optimizer_bench", "^update/")
    rows = []
    for name in OPTIMIZERS:
        row = [name]
        for size in (SLICE, LARGE):
            entry = f"update/{name}/bytes:{size}/manual_time"
            row += [value(entry, "p50_us"), value(entry, "GB_s"), value(entry, "of_floor")]
        rows.append(row)
    head = ["one thread", *(f"{size_text(size)}, {what}" for size in (SLICE, LARGE)
                            for what in ("µs", "GB/s", "over floor"))]
    return markdown(head, rows), "optimizer_bench --benchmark_filter='^update/'"


def frames(arguments):
    value = measured(arguments, "frames_bench", "frames", seconds=0.05)
    shapes = [(1, 4 * KIB), (1, MIB), (16, MIB), (100, MIB)]
    rows = []
    for name in ("push", "weights"):
        for slices, size in shapes:
            rows.append([f"{name}, {slices} × {size_text(size)}",
                         *(value(f"{verb}_frames/{name}/slices:{slices}/bytes:{size}", "cpu_time", 1e-3)
                           for verb in ("encode", "decode"))])
    return markdown(["message", "encode, µs", "decode, µs"], rows), \
        "frames_bench --benchmark_filter='frames'"


@contextlib.contextmanager
def every_core_taken():
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def waits(arguments):
    """Exchanges of 4 KiB with each value of the key `wait`, in turns, with and without other programs on the cores."""
    rounds = []
    for _ in range(arguments.rounds):
        found = {}
        for workers in (1, 2):
            for wait in WAITS:
                for taken in (False, True):
                    with every_core_taken() if taken else contextlib.nullcontext():
                        row, = bench_rows(arguments.bin, [4 * KIB], workers, 1, ["shm"], more=["--wait", wait])
                    found[workers, wait, taken] = row["exchange_us_p50"]
        rounds.append(found)
    rows = [[f"{workers} worker{'s'[:workers != 1]}, 1 server{', each core taken by another program' * taken}",
             *(cell(spread([r[workers, wait, taken] for r in rounds])) for wait in WAITS)]
            for taken in (False, True) for workers in (1, 2)]
    return markdown(["exchange of 4 KiB, µs", *(f"`wait = {wait}`" for wait in WAITS)], rows), \
        "pushpull bench --bytes 4096 --transport shm --optimizer momentum --workers W --wait WAIT"


def direct(arguments):
    """Exchanges over direct connections and over ZeroMQ alone, in turns."""
    rounds = [{(workers, row["transport"], row["bytes"]): row["exchange_us_p50"]
               for workers in (1, 2) for row in bench_rows(arguments.bin, SMALL_SIZES, workers, 1, ["tcp", "zmq"])}
              for _ in range(arguments.rounds)]
    rows = [[f"{workers} worker{'s'[:workers != 1]}, `{transport}`",
             *(cell(spread([r[workers, transport, size] for r in rounds])) for size in SMALL_SIZES)]
            for workers in (1, 2) for transport in ("tcp", "zmq")]
    return markdown(["exchange with 1 server, µs", *map(size_text, SMALL_SIZES)], rows), \
        f"pushpull bench --bytes {','.join(map(str, SMALL_SIZES))} --transport tcp,zmq --optimizer momentum --workers W"


def exchanges(bin_dir, steps, size, workers, flags):
    """Runs exchanges between workers and one server. Returns the times of the first worker in µs, and what the kernel counted for it and
    for the server."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"tcp://127.0.0.1:{free_port()}"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        server = subprocess.Popen([bin_dir / "pushpull-server", "--listen", address, "--insecure", "--out", f"{folder}/out", "--strategy", "sync",
                                   "--model", "mlp", "--dataset", "dummy", "--workers", str(workers), "--global-batch", str(workers),
                                   "--micro-batch", "1", "--epochs", "0", "--steps", str(steps), "--optimizer", "momentum", "--lr", "0.1",
                                   *flags], **quiet)
        all_workers = [subprocess.Popen([bin_dir / "pushpull-worker", "--join", address, "--insecure", "--exchange-bytes", str(size),
                                         "--exchange-times", f"{folder}/times{i}"], **quiet) for i in range(workers)]
        used = {}
        for name, process in (*(("worker", worker) for worker in reversed(all_workers)), ("server", server)):
            _, status, used[name] = os.wait4(process.pid, 0)
            if status != 0:
                raise Failed(f"[bench] the {name} of an exchange ended with {os.waitstatus_to_exitcode(status)}")
        rows = [line.split() for line in pathlib.Path(f"{folder}/times0").read_text().splitlines() if line[:1].isdigit()]
        return [(int(row[-1]) - int(row[0])) / 1e3 for row in rows], used


def costs(arguments):
    """What an exchange costs each process: what many steps take more than few, so that the start does not count."""
    rounds = []
    for _ in range(arguments.rounds):
        found = {}
        for name, shape in COSTS.items():
            (_, few), (times, many) = (exchanges(arguments.bin, steps, *shape) for steps in (FEW_STEPS, MANY_STEPS))
            found[name] = {"time": statistics.median(times)}
            for process, (before, after) in {p: (few[p], many[p]) for p in few}.items():
                extra = {"cpu": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e6,
                         "sleeps": after.ru_nvcsw - before.ru_nvcsw}
                found[name] |= {(process, what): max(0.0, count) / (MANY_STEPS - FEW_STEPS) for what, count in extra.items()}
        rounds.append(found)
    columns = ["time", *((process, what) for what in ("sleeps", "cpu") for process in ("worker", "server"))]
    rows = [[name, *(cell(spread([r[name][column] for r in rounds])) for column in columns)] for name in COSTS]
    return markdown(["one server; 4 KiB, one worker", "µs", "a worker sleeps", "server sleeps", "a worker computes, µs",
                     "server computes, µs"], rows), \
        f"pushpull-worker --exchange-bytes BYTES --exchange-times FILE` and `pushpull-server --steps {MANY_STEPS}"


def script(arguments, *words):
    """Runs a script of this repository that prints its own table and caption."""
    elsewhere = ["--bin", arguments.bin] if arguments.bin != BIN else []
    done = subprocess.run([ROOT / words[0], *map(str, [*words[1:], *elsewhere])], check=False,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(f"[bench] {words[0]} ended with {done.returncode}")
    return done.stdout.strip(), None


TABLES = {"memory": memory, "links": links, "optimizer": optimizer, "frames": frames, "waits": waits, "costs": costs, "direct": direct,
          "exchange": lambda a: script(a, "bench/exchange.py"),
          "speed": lambda a: script(a, "bench/peers/run_speed.sh", "--only", "exchange", "--rounds", a.rounds),
          "ps-lite": lambda a: script(a, "bench/peers/ps_lite_compare.py", "--rounds", a.rounds),
          "training": lambda a: script(a, "bench/peers/run_speed.sh", "--only", "training", "--rounds", a.rounds),
          "models": lambda a: script(a, "bench/peers/run_models.sh", "--rounds", a.rounds)}


def block(name, arguments):
    here = machine()
    table, words = TABLES[name](arguments)
    if words is None:
        return table
    return f"{table}\n\n" + caption(f"build/release/bin/{words}", here) + \
        " " + rounds_text(arguments.rounds)


def replaced(page, name, text):
    """Returns the page with the block of this name replaced, or None if the page does not have exactly one."""
    pattern = re.compile(rf"(<!-- measured: {re.escape(name)} -->\n)(?:(?!<!-- ).)*(<!-- end -->)",
                         re.DOTALL)
    if len(pattern.findall(page)) != 1:
        return None
    return pattern.sub(lambda found: found.group(1) + text + "\n" + found.group(2), page)


def names(text):
    wanted = text.split(",")
    if any(name not in TABLES for name in wanted):
        raise ValueError
    return wanted


names.__name__ = "list of " + ", ".join(TABLES)


def main():
    parser = argparse.ArgumentParser(prog="performance.py", description=__doc__)
    parser.add_argument("--only", type=names, default=list(TABLES), help=", ".join(TABLES))
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of the programs")
    parser.add_argument("--update", action="store_true", help=f"write into {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    for name in arguments.only:
        say(f"measuring: {name}")
        text = block(name, arguments)
        print(f"{text}\n", flush=True)
        if arguments.update:
            page = replaced(PAGE.read_text(encoding="utf-8"), name, text)
            if page is None:
                raise Failed(f"[bench] {PAGE} does not have exactly one '<!-- measured: {name} -->'")
            PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
