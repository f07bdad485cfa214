#!/usr/bin/env python3
"""Checks the model of terms (terms.pml) with spin: the protocol holds in every state, and each planted bug is found.

  terms_test.py [--long]    --long: also two faults with a late message, hours rather than seconds
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent / "terms.pml"
SKIPPED = 77
LIMIT_S = 500
LIMIT_MIB = 3500

# Name, macros of the model, flags of the search, of the searching program, of the compiler.
HOLDS = [
    ("one fault, with a late message", ["FAULTS=1"], ["SAFETY"], [], "-O1"),
    ("two faults", ["FAULTS=2", "NOTHING_LATE"], ["SAFETY"], [], "-O1"),
    ("no action repeats for ever", ["FAULTS=1", "NOTHING_LATE"], ["NP"], ["-l"], "-O0"),
]
LONG = [("two faults, with a late message", ["FAULTS=2"], ["SAFETY", "COLLAPSE"], [], "-O2")]

# Guards that are removed, and the part of spin's message that must appear.
LOST = "invalid end state"  # no process can move
APART = "fetched[0].holds==fetched[1].holds"  # a checkpoint of slices that do not belong together
BUGS = {  # second value: True if late messages matter
    "COUNTS_TWICE": (".holds>>", False),
    "JOINS_ON_TEXT": ("assertion violated 0", False),
    "OLDER_WEIGHTS_DROPPED": (LOST, False),
    "OLD_HEARTBEATS_UNANSWERED": (LOST, False),
    "OLD_PUSHES_COUNT": (APART, True),
    "OLD_SERVERS_ACKNOWLEDGE": (LOST, True),
    "OLD_SLICES_TAKEN": (APART, True),
    "OLD_TEXTS_TAKEN": (LOST, True),
    "OLD_WEIGHTS_TAKEN": ("late.term==member", True),
    "PART_OF_A_CHECKPOINT": (APART, False),
    "SERVER_KEEPS_WEIGHTS": (LOST, False),
    "TAKES_REPLACEMENT": (LOST, False),
    "TERM_USED_TWICE": ("assertion violated 0", False),
    "WORKER_KEEPS_PUSH": (LOST, False),
}


def search(macros, flags, words, limit_s=LIMIT_S, limit_mib=LIMIT_MIB, optimised="-O0"):
    """Returns the output of the searching program. Its C code is large: optimizing takes longer than most searches."""
    with tempfile.TemporaryDirectory(prefix="pushpull-model-") as folder:
        shutil.copy(MODEL, folder)
        subprocess.run(["spin", "-a", *[f"-D{macro}" for macro in macros], MODEL.name], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["cc", optimised, "-w", f"-DMEMLIM={limit_mib}", *[f"-D{flag}" for flag in flags],
                        "-o", "pan", "pan.c"], cwd=folder, check=True)
        try:
            return subprocess.run(["./pan", "-m5000", *words], cwd=folder, capture_output=True, text=True,
                                  timeout=limit_s).stdout
        except subprocess.TimeoutExpired:
            return f"Search not completed: no end within {limit_s} s"


def figure(text, word):
    found = re.search(rf"^\s*([0-9.e+]+)\s+{word}", text, re.MULTILINE)
    return found.group(1) if found else "?"


def holds(case, **limits):
    """Returns whether the whole state space was searched without an error."""
    name, macros, flags, words, optimised = case
    text = search(macros, flags, words, optimised=optimised, **limits)
    incomplete = [word for word in ("search depth too small", "out of memory", "Search not completed") if word in text]
    good = "errors: 0" in text and not incomplete
    print(f"{name}: {figure(text, 'states, stored')} states, {figure(text, 'total actual memory')} MiB: "
          f"{'holds' if good else 'FAILED'}", flush=True)
    if not good:
        print(text[-2000:], flush=True)
    return good


def is_seen(bug):
    want, late = BUGS[bug]
    text = search(["FAULTS=1", bug] + ([] if late else ["NOTHING_LATE"]), ["SAFETY"], [])
    verdict = next((line for line in text.splitlines() if line.startswith("pan:1:")), "nothing")
    good = verdict != "nothing" and want in verdict
    print(f"{bug}: {verdict}{'' if good else ': FAILED, want ' + want}", flush=True)
    return good


def planted():
    """Returns the guards that can be removed from the model."""
    named = set(re.findall(r"^#ifn?def ([A-Z_]+)$", MODEL.read_text(), re.MULTILINE))
    return named - {"FAULTS", "NOTHING_LATE"}


def main():
    if shutil.which("spin") is None or shutil.which("cc") is None:
        print("skipped: no spin, or no C compiler, here (scripts/install-deps.sh --tests)")
        sys.exit(SKIPPED)
    good = planted() == set(BUGS)
    if not good:
        print(f"FAILED: the model names {sorted(planted() ^ set(BUGS))}, or this test does, not both")
    with concurrent.futures.ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        good = all(list(pool.map(holds, HOLDS)) + list(pool.map(is_seen, BUGS))) and good
    if "--long" in sys.argv[1:]:
        good = all([holds(case, limit_s=6 * 3600, limit_mib=64000) for case in LONG]) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
