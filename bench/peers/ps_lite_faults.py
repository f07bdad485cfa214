#!/usr/bin/env python3
"""Reproduces three known failures of ps-lite, and the same situations in pushpull: a server is killed; a killed server
or worker is started again; ten runs of the same job. Prints one table, after about fifteen minutes.

  bench/peers/ps_lite_faults.py --ps-lite byteps-0.2.5.post15/3rdparty/ps-lite [--bin BIN] [--silence 30] [--runs 10]

Compiles ps-lite's sources unmodified, with the ZeroMQ van; ps_lite_app.cpp drives them. A ps-lite job is a scheduler,
2 servers and 3 workers; with 2 workers the order of a sum would not matter, since a + b = b + a. Each fault is tried
with ps-lite's defaults, with its heartbeats, and with its heartbeats and its resending of messages. The script expects
nothing of either program: the table reports observations.
"""
import argparse
import collections
import ctypes
import hashlib
import os
import pathlib
import re
import signal
import socket
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [f"{ROOT}/tests/e2e", f"{ROOT}/bench"]
import lab as base  # noqa: E402
from figures import BIN, caption, machine, markdown, positive, say  # noqa: E402
from lab import MLP, Failed, Lab, expect, living_below, metrics_of, summary_of  # noqa: E402

SERVERS, WORKERS = 2, 3
RELEASE = "byteps==0.2.5.post15"
FLOATS = 256        # of each server
STEPS = 20          # of a ps-lite job that loses a process
STEPS_OF_A_RUN = 8  # of one of the ten runs
KILL_AT = 3
BUILD_S, START_S, END_S = 900, 120, 300
DEAD_S = 10         # PS_HEARTBEAT_TIMEOUT
HEARTBEATS = {"PS_HEARTBEAT_INTERVAL": 1, "PS_HEARTBEAT_TIMEOUT": DEAD_S}
SETTINGS = {"as it comes": {}, "heartbeats": HEARTBEATS,
            "heartbeats, resending": {**HEARTBEATS, "PS_RESEND": 1, "PS_RESEND_TIMEOUT": 5000}}  # up to ten times
# situation, role, restarts (0: one process is killed and not restarted), settings of ps-lite
SITUATIONS = [("a server is killed", "server", 0, SETTINGS), ("a server is killed, and started again by hand", "server", 1, SETTINGS),
              ("a worker is killed, and started again by hand", "worker", 1, SETTINGS),
              ("that happens to two workers, one after the other", "worker", 2, ["heartbeats"])]
KEYS = {**MLP, "clip-norm": 1, "checkpoint-every": 250, "steps": 3000, "eval-every": 250}
KEYS_OF_A_RUN = {**MLP, "steps": 200}


def built(lab, source, folder):
    """Returns the program of ps_lite_app.cpp with the library's unmodified sources."""
    app, files = HERE / "ps_lite_app.cpp", sorted((source / "src").glob("*.cc"))
    program = folder / "ps_lite_app"
    words = ["g++", "-std=c++17", "-O2", "-w", f"-I{source / 'include'}", f"-I{source / 'src'}", app, *files, "-o", program,
             "-lzmq", "-pthread"]
    say(f"building ps-lite: {len(files)} sources and {app.name}")
    compiler = base.Process(lab, "g++", words)
    lab.processes.append(compiler)
    code = compiler.ends(BUILD_S)
    expect(code == 0, "ps-lite cannot be compiled as it is; g++ and libzmq3-dev must be there. "
                      f"g++ ended with {code}: {compiler.output()[:1500]}")
    return program


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class PsLite:
    """One job of ps-lite."""

    def __init__(self, lab, program, steps, settings):
        self.lab, self.steps = lab, steps
        variables = {"DMLC_NUM_WORKER": WORKERS, "DMLC_NUM_SERVER": SERVERS, "DMLC_PS_ROOT_URI": "127.0.0.1",
                     "DMLC_PS_ROOT_PORT": free_port(), "DMLC_NODE_HOST": "127.0.0.1", **settings}
        self.words = [*(f"{key}={value}" for key, value in variables.items()), program, steps, FLOATS]
        self.members = []
        self.start("scheduler")
        self.servers = [self.start("server") for _ in range(SERVERS)]
        self.workers = [self.start("worker") for _ in range(WORKERS)]

    def start(self, role):
        process = base.Process(self.lab, self.lab.name(role), ["env", f"DMLC_ROLE={role}", *self.words])
        process.role = role
        self.lab.processes.append(process)
        self.members.append(process)
        return process

    def step(self):
        """Returns the newest step that a worker has done, or -1 before the first."""
        return max((int(n) for worker in self.workers for n in re.findall(r"^step (\d+)$", worker.output(), re.M)), default=-1)

    def reaches(self, step):
        def reached():
            expect(all(member.poll() is None or member.returncode == 0 for member in self.members),
                   f"ps-lite ended before step {step}: {self.ended()}")
            return self.step() >= step
        self.lab.until(reached, START_S, lambda: f"ps-lite did not reach step {step}")

    def group(self, role):
        return self.servers if role == "server" else self.workers

    def kill(self, role):
        """Kills the oldest process of the role with SIGKILL."""
        lost = self.group(role).pop(0)
        os.kill(lost.pid, signal.SIGKILL)
        lost.wait(START_S)
        self.members.remove(lost)

    def makes_progress(self, silence):
        """Returns whether two more steps are done before a process ends and within `silence` seconds."""
        wanted, end = self.step() + 2, time.monotonic() + silence
        while self.step() < wanted and time.monotonic() < end and all(member.poll() is None for member in self.members):
            time.sleep(0.05)
        return self.step() >= wanted

    def traces(self):
        """Returns values that change when a process prints something or ends."""
        return [(member.log.stat().st_size, member.poll()) for member in self.members]

    def watched(self, silence):
        """Waits until all processes have ended, or none prints for `silence` seconds. Returns whether one is alive.
        Fails after END_S."""
        last, since, end = self.traces(), time.monotonic(), time.monotonic() + END_S
        while any(member.poll() is None for member in self.members):
            expect(time.monotonic() < end, f"ps-lite still prints after {END_S} s: {self.members[-1].output()[-300:]}")
            if self.traces() != last:
                last, since = self.traces(), time.monotonic()
            if time.monotonic() - since >= silence:
                return True
            time.sleep(0.05)
        return False

    def ended(self):
        """Describes the processes that failed, with their exit status and error line."""
        ends = collections.Counter((member.role, f"{end_of(member.returncode)}: {failed_check(member.output())}")
                                   for member in self.members if member.poll())
        return "; ".join(f"{count} {role}{'s' if count > 1 else ''} end{'' if count > 1 else 's'} with {end}"
                         for (role, end), count in ends.items())

    def close(self):
        for member in self.members:
            if member.poll() is None:
                member.kill()
            member.wait(START_S)


def end_of(code):
    return signal.Signals(-code).name if code < 0 else f"code {code}"


def failed_check(text):
    """Returns the line of a failed CHECK, without time and folder."""
    lines = [line for line in text.splitlines() if "Check failed" in line] or text.splitlines()[-1:]
    return f"`{re.sub(r'^.*/', '', lines[0])[:160].strip()}`" if lines else "no word"


def seen(job, silence):
    """Describes the fate of a ps-lite job that has lost a process."""
    alive, rejoined = job.watched(silence), sum("rejoined as" in member.output() for member in job.members)
    parts = [f"{rejoined} new {'process gets its' if rejoined == 1 else 'processes get their'} place"] if rejoined else []
    bad, living = job.ended(), sum(member.poll() is None for member in job.members)
    if bad:
        parts.append(bad)
    if alive:
        parts.append(f"{'the remaining' if bad else 'all'} {living} processes: no line and no end within {silence} s")
    elif not bad:
        parts.append("all end with code 0")
    return f"{'; '.join(parts)}; last step {job.step() + 1} of {job.steps}"


def ps_lite_loses(lab, program, settings, role, times, silence):
    """Describes a ps-lite job in which a process of that role is killed. times: how often one is killed and restarted;
    0: one is killed and not restarted."""
    job = PsLite(lab, program, STEPS, settings)
    try:
        job.reaches(KILL_AT)
        for _ in range(max(1, times)):
            job.kill(role)
            if times:
                time.sleep(DEAD_S + 3 if settings else 1)  # a replacement is accepted only after the lost process is
                                                           # declared dead
                job.group(role).append(job.start(role))
            if times < 2 or not job.makes_progress(silence):
                break
        return seen(job, silence)
    finally:
        job.close()


def ps_lite_hash(lab, program):
    """Returns (SHA-256 of the final weights, seconds) of an undisturbed run."""
    begin = time.monotonic()
    job = PsLite(lab, program, STEPS_OF_A_RUN, {})
    try:
        for member in job.members:
            expect(member.ends(END_S) == 0, f"{member.name} of ps-lite: {member.output()[-400:]}")
        found = {re.search(r"^weights (\w+)$", worker.output(), re.M).group(1) for worker in job.workers}
        expect(len(found) == 1, "ps-lite's workers have different weights")
        return hashlib.sha256(bytes.fromhex(found.pop())).hexdigest(), time.monotonic() - begin
    finally:
        job.close()


def compared(want, got, seconds):
    """Returns the cell of a pushpull job that has lost a process."""
    bits = "the same" if got["weights_sha256"] == want["weights_sha256"] else "OTHER"
    return (f"goes on, all end with code 0; {bits} `weights_sha256` as undisturbed; "
            f"{got['steps_repeated']} of {got['steps']} steps repeated, {seconds:.0f} s in all")


def newest_step(out):
    return max([line["step"] for line in metrics_of(out) if line.get("step") is not None], default=-1)


def server_below(run):
    """Returns the pid of a server of `pushpull run` other than the coordinator."""
    for pid in living_below(run.pid):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if words[0].endswith("pushpull-server") and "--job" not in words:
            return pid
    raise Failed(f"no server below pushpull run: {run.output()[-600:]}")


def run_loses_a_server(lab, want):
    began = time.monotonic()
    run = lab.launch(lab.job(KEYS), SERVERS, WORKERS)
    lab.until(lambda: newest_step(run.out) >= 400, START_S, lambda: f"no step 400: {run.output()[-600:]}")
    os.kill(server_below(run), signal.SIGKILL)
    code = run.ends(END_S)
    expect(code == 0, f"pushpull run ended with {code}: {run.output()[-600:]}")
    expect(summary_of(run.out)["recoveries"] == 1, "pushpull did not count a lost server")
    return compared(want, summary_of(run.out), time.monotonic() - began)


def by_hand(lab, want, role, times):
    """Kills a process of that role `times` times, and repeats the command that started it."""
    cluster = lab.cluster(lab.job({**KEYS, "on-worker-loss": "wait"}), SERVERS, WORKERS)
    group = cluster.servers if role == "server" else cluster.workers
    began = time.monotonic()
    for index in range(times):
        cluster.reaches(400 + 1000 * index, START_S)
        os.kill(group[-1 - index].pid, signal.SIGKILL)
        group[-1 - index] = lab.start(f"pushpull-{role}", "--join", cluster.address)
    got = cluster.ends_well(END_S)
    return compared(want, got, time.monotonic() - began)


def distinct(hashes):
    return f"{len(set(hashes))} different SHA-256 of the weights in {len(hashes)} runs"


def rows_of_faults(lab, program, silence):
    want = lab.train(lab.job(KEYS), SERVERS, WORKERS)
    for what, role, times, names in SITUATIONS:
        found = by_hand(lab, want, role, times) if times else run_loses_a_server(lab, want)
        for name in names:
            say(f"{what}; ps-lite {name}")
            yield [f"{what}; ps-lite {name}", ps_lite_loses(lab, program, SETTINGS[name], role, times, silence), found]
            found = "as above"


def row_of_runs(lab, program, runs):
    theirs, ours = [], []
    for index in range(runs):
        theirs.append(ps_lite_hash(lab, program))
        ours.append(lab.train(lab.job(KEYS_OF_A_RUN), SERVERS, WORKERS)["weights_sha256"])
        say(f"run {index + 1} of {runs}: {theirs[-1][0][:12]} in {theirs[-1][1]:.0f} s, pushpull {ours[-1][:12]}")
    slowest = max(seconds for _, seconds in theirs)
    return [f"{runs} runs of the same, {WORKERS} workers", f"{distinct([found for found, _ in theirs])} "
            f"({STEPS_OF_A_RUN} steps, at most {slowest:.0f} s)", f"{distinct(ours)} (`sync`, {KEYS_OF_A_RUN['steps']} steps)"]


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ps-lite", type=pathlib.Path, required=True, metavar="DIR",
                        help="unpacked source tree of ps-lite: 3rdparty/ps-lite in the archive that "
                             f"`pip download --no-deps --no-binary :all: {RELEASE}` fetches")
    parser.add_argument("--bin", type=pathlib.Path, default=BIN, help="folder of pushpull's programs")
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR", help="folder for the build; default: a temporary one")
    parser.add_argument("--silence", type=positive, default=30, metavar="N",
                        help="seconds without a line or an end that count as hanging [30]")
    parser.add_argument("--runs", type=positive, default=10, help="of the same job [10]")
    arguments = parser.parse_args()
    if not (arguments.ps_lite / "include/ps/ps.h").exists():
        parser.error(f"no include/ps/ps.h in {arguments.ps_lite}")
    if not (arguments.bin / "pushpull").exists():
        parser.error(f"no {arguments.bin}/pushpull; build it: cmake --preset release && cmake --build --preset release")
    return arguments


def clean(variables):
    """Removes a caller's settings, which would be part of every ps-lite job."""
    return {key: value for key, value in variables.items() if not key.startswith(("DMLC_", "PS_", "BYTEPS_"))}


def stop(number, _):
    raise SystemExit(128 + number)


def watch_over_children():
    """Makes all children end with this program: it adopts all processes below it, and a signal unwinds to
    Lab.close()."""
    ctypes.CDLL(None).prctl(base.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def close(lab):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # killing must not be interrupted
        signal.signal(number, signal.SIG_IGN)
    lab.close()


def main():
    arguments, here = arguments_of(), machine()
    watch_over_children()
    lab = Lab(arguments.bin.resolve(), 1)
    lab.environment = clean(lab.environment)
    try:
        folder = (arguments.build or lab.folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        program = built(lab, arguments.ps_lite.resolve(), folder)
        rows = [*rows_of_faults(lab, program, arguments.silence), row_of_runs(lab, program, arguments.runs)]
    finally:
        close(lab)
    print(markdown(["situation", "ps-lite", "pushpull"], rows).replace("---:", "---"))
    print("\n" + caption("bench/peers/ps_lite_faults.py", here) + " ps-lite's sources are compiled unmodified.")


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"[bench] {failure}")
