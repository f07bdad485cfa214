"""Tests a worker that is alive but computes nothing: it is named, then given up, and the others continue."""
import contextlib
import ctypes
import os
import pathlib
import signal
import time

import lab as base
from lab import LONG, Skipped, expect, first

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
WALL = 0x40000000  # waitpid: also for threads
PROGRESS_TIMEOUT_S = 3  # less than the 10 s after which a stalled step is reported, which stall_watch_test.cpp tests


def ticks_of(pid, thread):
    """Returns the processor time of a thread, or 0 if it has ended."""
    try:
        words = pathlib.Path(f"/proc/{pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(words[11]) + int(words[12])


def hold(thread, ready):
    """Stops a thread and waits until it ends. The thread continues when this process ends."""
    base.die_with_parent()
    ptrace = base.LIBC.ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    stopped = ptrace(PTRACE_SEIZE, thread, None, None) == 0 and ptrace(PTRACE_INTERRUPT, thread, None, None) == 0
    os.write(ready, b"y" if stopped else b"n")
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(thread, WALL)  # the tracer must reap the thread before its parent can


@contextlib.contextmanager
def compute_thread_stopped(pid):
    """Stops only the thread that computes: the process still sends heartbeats. Another process stops it, because a parent
    that traces the thread would take the stop for the end of the process."""
    # the busiest thread from now on; until now it may have been the one that joins and loads
    before = {thread: ticks_of(pid, thread) for thread in map(int, os.listdir(f"/proc/{pid}/task"))}
    time.sleep(1)
    thread = max(before, key=lambda t: ticks_of(pid, t) - before[t])
    reader, ready = os.pipe()
    holder = os.fork()
    if holder == 0:
        try:
            hold(thread, ready)
        finally:
            os._exit(0)
    os.close(ready)
    try:
        if os.read(reader, 1) != b"y":
            raise Skipped("the thread has ended, or ptrace is not allowed here")
        yield
    finally:
        os.close(reader)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)


@first("P6: progress as well as silence")
def a_worker_with_a_stopped_trainer_is_named_and_given_up(lab):
    cluster = lab.cluster(lab.job({**LONG, "on-worker-loss": "continue", "progress-timeout": lab.seconds(PROGRESS_TIMEOUT_S)}))
    cluster.reaches(100)
    victim = cluster.workers[0]
    server = cluster.servers[0]
    since = len(server.output())
    with compute_thread_stopped(victim.pid):
        server.prints(f"pid {victim.pid}) at step ", 30, since)
        lost = [line for line in server.output(since).splitlines() if "lost worker" in line]
        expect(len(lost) == 1 and f"pid {victim.pid})" in lost[0], f"not named, or the other one, too: {lost}")
        step = cluster.step()
        code = victim.ends(30)
    expect(code == 5, f"the worker that was given up ended with {code}: {victim.output()[-300:]}")
    expect("computed nothing" in victim.output(), f"it does not say why: {victim.output()[-300:]}")
    lab.until(lambda: cluster.step() > step, 60, lambda: "the other worker does not continue")


if __name__ == "__main__":
    base.main(globals())
