"""Helpers of the measuring scripts: running programs, medians, ratios within a round, Markdown."""
import decimal
import json
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "release" / "bin"
KIB, MIB = 1 << 10, 1 << 20


class Failed(Exception):
    """A program failed or misbehaved. The message is one line."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def environment():
    """Returns the environment without PUSHPULL_ variables, which would change every job."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PUSHPULL_")}


def run(words, timeout_s=600, **variables):
    """Runs a program and returns its standard output."""
    words = [str(word) for word in words]
    name = os.path.basename(words[0])
    try:
        done = subprocess.run(words, env={**environment(), **variables}, timeout=timeout_s,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failed(f"[bench] no {words[0]}; build it: cmake --preset release && "
                     "cmake --build --preset release") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"[bench] {name} has not ended within {timeout_s} s; killed") from None
    if done.returncode != 0:
        last = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])[-400:]
        raise Failed(f"[bench] {name} ended with {done.returncode}: {last}")
    return done.stdout


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def google_benchmark(program, *flags):
    """Runs a Google Benchmark program. Returns a map from name to entry of its JSON; counters are fields."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        run([program, f"--benchmark_out={out}", "--benchmark_out_format=json", *flags])
        entries = json.loads(out.read_text())["benchmarks"]
    bad = [entry for entry in entries if entry.get("error_occurred")]
    if bad:
        raise Failed(f"[bench] {bad[0]['name']}: {bad[0].get('error_message')}")
    return {entry["name"]: entry for entry in entries}


def bench_rows(bin_dir, sizes, workers, servers, transports, steps=None, timeout_s=600, more=()):
    """Returns rows of `pushpull bench`, with momentum on the servers. steps: measured steps; None = chosen by
    bench. more: further flags."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        run([bin_dir / "pushpull", "bench", "--bytes", ",".join(map(str, sizes)), "--workers", workers,
             "--servers", servers, "--transport", ",".join(transports), "--optimizer", "momentum",
             "--out", out, *(["--steps", steps] if steps else []), *more], timeout_s)
        return json.loads(out.read_text())["rows"]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(rounds, over, under):
    """Returns the spread of rounds[i][over] / rounds[i][under] over the rounds with both, or None without any."""
    values = [r[over] / r[under] for r in rounds if r.get(over) and r.get(under)]
    return spread(values) if values else None


def values(rounds, key):
    """Returns the spread of rounds[i][key], or None if no round has it."""
    found = [r[key] for r in rounds if r.get(key)]
    return spread(found) if found else None


def number(value, digits=3):
    """Formats three significant digits without an exponent: 0.123, 12.3, 4,560."""
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if abs(value) >= 100 else format(decimal.Decimal(text), "f")


def cell(found, factor=1.0):
    """Formats a spread as "median (min-max)", or None as a dash."""
    if found is None:
        return "–"
    median, low, high = (number(found[key] * factor) for key in ("median", "min", "max"))
    return median if low == high else f"{median} ({low}-{high})"


def size_text(count):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit():
    """Returns the commit of the sources. Changed pages do not make it dirty: a measurement may be writing into
    them."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/docs", ":!/*.md")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def machine():
    return {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "commit": commit(),
            "kernel": platform.release(), "load_average": os.getloadavg()[0]}


def caption(command, found):
    """Returns the caption of a table: the origin of its figures."""
    return (f"`{command}` on {found['cores']} cores of {found['processor']}, Linux {found['kernel']}, "
            f"commit {found['commit']}, load average {found['load_average']:.1f} before it began.")


def rounds_text(count):
    return "One round." if count == 1 else f"{count} rounds: median (min-max)."


def positive(text):
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def positives(text):
    return [positive(word) for word in text.split(",")]


positive.__name__, positives.__name__ = "number above 0", "list of numbers above 0"  # for argparse
