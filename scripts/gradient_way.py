#!/usr/bin/env python3
"""Prints the files that a gradient passes in a steady step of `sync` over TCP on the CPU, from a run, in order of first entry.

  scripts/gradient_way.py                     builds in build/gradient-way, runs a job, prints the list
  scripts/gradient_way.py --check ARCHITECTURE.md   and compares it with the table of the page; ends with 1 if they differ
  scripts/gradient_way.py --all               also prints the files that run in that step and are not on the list, with the reason
  scripts/gradient_way.py --bin DIR           programs that are built already, with FLAGS

The programs are compiled with -finstrument-functions. A small library, preloaded, records each call of a function of ours with its time. The job
has one server and two workers on docs/examples/digits.ini; the steps LAPS of both workers count.

A .cpp file is on the list if a function that it defines is handed the gradient, or the weights that the gradient has moved, in such a step: as
floats, bytes, a payload, a message, a part, or a push (HANDED, found in the types of the function's parameters). Functions that a header defines
belong to the file that calls them. LEFT_OUT names the other files with such a function, and why they do not count. A file that is asked with
numbers alone (where a slice lies, whether a push is a duplicate, whether its grant is valid) decides about a gradient, but the gradient does not
pass it: --all prints these, too.
"""

import argparse
import collections
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "gradient-way"
PROGRAMS = ("pushpull-server", "pushpull-worker")
FLAGS = "-O0 -g1 -finstrument-functions -finstrument-functions-exclude-file-list=/usr/,.pb."
JOB = ["--job", "docs/examples/digits.ini", "--epochs", "1", "--strategy", "sync", "--transport", "zmq", "--workers", "2", "--insecure"]
LAPS = range(4, 9)  # the first steps fill buffers and caches
HEADING = "## The way of one gradient"

HANDED = re.compile(
    r"\b(?:float|std::byte|zmq::message_t|(?:pushpull::)?(?:Payload|Message|PartialSum|ReceivedPush|SliceUpdate|SliceWork|SliceAnswer|SumHalves|"
    r"TreePart|ToServer|Outgoing)|wire::(?:Push|Part|Exchange|Weights))\b")
LEFT_OUT = {  # prefix of a path -> why it does not count
    "models/": "computes the gradient; the way begins where the model has written it",
    "datasets/": "reads samples",
    "common/base/": "tools of all programs: memory, threads, text, time",
    "common/io/": "hashes and files",
    "common/shm/": "finds no reference to shared memory in a message over TCP",
    "worker/exchange/server_attachment.cpp": "passes a message over TCP on as it is",
    "ps/server/attached_workers.cpp": "passes a message over TCP on as it is",
    "common/direct/": "carries no message with `transport = zmq`",
    "worker/exchange/direct_links.cpp": "passes a message on as it is",
    "ps/server/direct_workers.cpp": "passes a message on as it is",
    "worker/member/": "control messages, on a connection of their own; records times",
    "common/net/member.cpp": "control messages, on a connection of their own",
    "ps/members/": "control messages; counts losses and samples",
    "ps/report/": "answers `pushpull status`",
    "ps/run/": "control messages; it hears that a push counts, with its losses",
}

# One file per process in $GRADIENT_WAY: load address, number of events, events (nanoseconds, address).
RECORDER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
enum { kMax = 1 << 24 };
struct event { uint64_t ns, function; };
static struct { uint64_t base; _Atomic uint64_t used; struct event events[]; } *trace;
static int program(struct dl_phdr_info *info, size_t size, void *base) {
  (void)size;
  *(uint64_t *)base = info->dlpi_addr;
  return 1;
}
__attribute__((constructor)) static void begin(void) {
  char path[4096];
  const char *folder = getenv("GRADIENT_WAY");
  if (folder == NULL) return;
  snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
  const size_t bytes = sizeof *trace + kMax * sizeof(struct event);
  if (file < 0 || ftruncate(file, bytes) != 0) return;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return;
  trace = at;
  dl_iterate_phdr(program, &trace->base);
}
void __cyg_profile_func_enter(void *function, void *site) {
  (void)site;
  if (trace == NULL) return;
  const uint64_t at = atomic_fetch_add_explicit(&trace->used, 1, memory_order_relaxed);
  if (at >= kMax) return;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  trace->events[at] = (struct event){now.tv_sec * 1000000000ull + now.tv_nsec, (uint64_t)function - trace->base};
}
void __cyg_profile_func_exit(void *function, void *site) { (void)function, (void)site; }
"""

Event = collections.namedtuple("Event", "ns file name")


def handed(name):
    """Whether the function of this demangled name has a parameter that holds a gradient or weights."""
    name = re.sub(r"\[abi:\w+\]", "", name.replace("(anonymous namespace)", "{}"))
    depth, first, last = 0, -1, -1
    for i, letter in enumerate(name):  # the last list of parameters at the outermost level
        if letter == "(":
            depth += 1
            if depth == 1:
                first = i
        elif letter == ")":
            depth -= 1
            if depth == 0:
                last = i
    return first >= 0 and bool(HANDED.search(name[first:last]))


def reason(file):
    """Why a file with such a function does not count; "" if it counts."""
    return next((why for prefix, why in LEFT_OUT.items() if file.startswith(prefix)), "")


def listed(page):
    """The files that the table below the heading links to, in order."""
    section = page.split(HEADING, 1)[-1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [path for row in rows for path in re.findall(r"\]\(([\w/.-]+\.(?:cpp|h))\)", row)]


def mistakes(found, named):
    """What a page with these files lacks or has too much."""
    out = [f"the page lacks {f}" for f in found if f not in named]
    out += [f"the page names {f}, which the gradient does not pass" for f in named if f not in found]
    return out + [f"the page names {f} twice" for f, n in collections.Counter(named).items() if n > 1]


def build():
    cache = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={tool}" for tool in ("ccache",) if subprocess.run(["which", tool], capture_output=True).returncode == 0]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DPUSHPULL_CUDA=OFF", "-DCMAKE_UNITY_BUILD=ON",
                    "-DCMAKE_UNITY_BUILD_BATCH_SIZE=16", "-DPUSHPULL_PRECOMPILE=ON", f"-DCMAKE_CXX_FLAGS_DEBUG={FLAGS}", *cache], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", *PROGRAMS], check=True, stdout=subprocess.DEVNULL)
    return BUILD / "bin"


def run_job(programs, folder):
    """Runs the job; traces lie in folder/traces."""
    source, library, traces = folder / "recorder.c", folder / "recorder.so", folder / "traces"
    source.write_text(RECORDER)
    traces.mkdir()
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PUSHPULL_")} | {"LD_PRELOAD": str(library), "GRADIENT_WAY": str(traces)}
    ours, theirs = os.pipe()
    server = subprocess.Popen([programs / PROGRAMS[0], *JOB, "--listen", "tcp://127.0.0.1:*", "--out", folder / "out", "--announce-fd", str(theirs)],
                              cwd=ROOT, env=variables, pass_fds=[theirs], stdout=subprocess.DEVNULL)
    os.close(theirs)
    with os.fdopen(ours) as announced:
        address = announced.readline().strip()
        workers = [subprocess.Popen([programs / PROGRAMS[1], "--join", address, "--insecure"], cwd=ROOT, env=variables, stdout=subprocess.DEVNULL)
                   for _ in range(2)]
        codes = [process.wait(timeout=300) for process in (*workers, server)]
    if any(codes):
        sys.exit(f"the job has failed: exit codes {codes} of the workers and the server")
    return {PROGRAMS[0]: [traces / str(server.pid)], PROGRAMS[1]: [traces / str(worker.pid) for worker in workers]}


def read_trace(path, program):
    """The events of a process, in order of time."""
    with open(path, "rb") as file:
        _, used = struct.unpack("<QQ", file.read(16))
        raw = list(struct.iter_unpack("<QQ", file.read(16 * used)))
    addresses = sorted({address for _, address in raw})
    lines = subprocess.run(["addr2line", "-f", "-C", "-e", program], input="\n".join(map(hex, addresses)), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    names = {}
    for i, address in enumerate(addresses):
        path = os.path.normpath(re.sub(r":[\d?]+( .*)?$", "", lines[2 * i + 1]))
        names[address] = (str(pathlib.Path(path).relative_to(ROOT)) if path.startswith(str(ROOT)) else path, lines[2 * i])
    return sorted(Event(ns, *names[address]) for ns, address in raw)


def in_order(server, workers):
    """All functions that run in the steps LAPS, in order of first entry: of a worker, from the moment at which the model hands over the first tensor
    until the push is sent; of the server, from the first message after that; of the worker again; and the rest."""
    laps = [[e.ns for e in worker if e.name.startswith("pushpull::Trainer::compute(")] for worker in workers]
    if any(len(starts) <= LAPS.stop for starts in laps):
        sys.exit("the trace has too few steps")
    begin, end = max(starts[LAPS.start] for starts in laps), min(starts[LAPS.stop] for starts in laps)
    steady = [[e for e in process if begin <= e.ns < end] for process in (*workers, server)]

    def since(events, name, ns=0):
        first = next((e.ns for e in events if e.ns >= ns and e.name.startswith(name)), 0)
        return first, [e for e in events if e.ns >= first]

    lap = [e for e in workers[0] if laps[0][LAPS.start] <= e.ns < laps[0][LAPS.start + 1]]
    _, outward = since(lap, "pushpull::GradientSum::tensor_ready(")
    pushed, _ = since(lap, "pushpull::PushPull::end_push(")
    sent, homeward = since(lap, "pushpull::Trainer::exchange(", pushed)
    _, served = since(steady[-1], "pushpull::DataPlane::take(", pushed)
    parts = [[e for e in outward if e.ns < sent], served, homeward, *steady]
    return list(dict.fromkeys((e.file, e.name) for part in parts for e in part))


def main(words):
    parser = argparse.ArgumentParser(prog="gradient_way.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="PAGE", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--bin", metavar="DIR", type=pathlib.Path)
    arguments = parser.parse_args(words)
    programs = arguments.bin.resolve() if arguments.bin else build()
    with tempfile.TemporaryDirectory(prefix="gradient-way-") as folder:
        traces = run_job(programs, pathlib.Path(folder))
        events = {program: [read_trace(path, programs / program) for path in paths] for program, paths in traces.items()}
    entered = [(file, name) for file, name in in_order(events[PROGRAMS[0]][0], events[PROGRAMS[1]]) if file.endswith(".cpp")]
    with_gradient = {file for file, name in entered if handed(name)}
    found = [file for file in dict.fromkeys(file for file, _ in entered) if file in with_gradient and not reason(file)]
    for file in found:
        print(file)
    print(f"{len(found)} files")
    if arguments.all:
        for file in dict.fromkeys(file for file, _ in entered):
            if file not in found:
                print(f"  not {file}: {reason(file) or 'is handed no gradient'}")
    if arguments.check:
        wrong = mistakes(found, listed(arguments.check.read_text()))
        print("\n".join(f"{arguments.check}: {line}" for line in wrong) or f"{arguments.check} names these files")
        return 1 if wrong else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
