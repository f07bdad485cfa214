"""The faults of chaos. Each is a function of a case: it starts the job, injects the fault, and returns a verdict as
text, or throws Failed. FAULTS lists the roles for which each is defined."""
import contextlib
import os
import re
import signal
import subprocess
import time

from job import END_S, HEARTBEAT_S, Job, base, expect, keys_of, stopped, summary_of, woken
from launched import LaunchedJob
from stuck_test import compute_thread_stopped
from zmtp import Stranger, listening_ports

PEER_LOST, UNREACHABLE, IO, USAGE, REFUSED, STOPPED = 5, 4, 8, 2, 77, 75
KILLED, TERMINATED = 128 + signal.SIGKILL, 128 + signal.SIGTERM
PEERS = ("sync", "local:2")  # strategies of which recovery = peers repeats no step
PATIENCE_S = 6  # progress-timeout of jobs whose OUT freezes
FIRST_COPY = 64  # there is a copy of the servers' weights from this step on, with copy-every = 16


def is_all_reduce(case):
    return case.strategy.startswith("allreduce")


def begin(case, link="", times=1, **more):
    """Starts the job, with as many times the usual steps. If possible, the job waits for a replacement of a lost worker."""
    keys = {"recovery": case.recovery, "encrypt": case.encrypt}
    if not is_all_reduce(case):
        keys["on-worker-loss"] = "wait"
    keys = keys_of(case.lab, case.strategy, times, **{**keys, **more})
    case.job = LaunchedJob(case.lab, keys) if case.start == "run" else Job(case.lab, keys, link)
    return case.job


def at_a_moment(case, job, first=0.05, last=0.6):
    """Waits for a random moment between these parts of the training. Returns false if the job ended before."""
    there = job.reaches(int(job.keys["steps"] * case.rng.uniform(first, last)))
    time.sleep(case.rng.uniform(0, 0.1))
    return there and not job.over()


def moments(case, job, turns, part=0.3):
    """Yields one moment after the other at which a fault can be injected."""
    for turn in range(turns):
        if not at_a_moment(case, job, 0.02 + part * turn, part * (turn + 1)):
            if turn == 0:
                raise base.Skipped("the job was over before the fault")
            return
        yield turn


def well(case):
    case.job.ends_well()
    if case.recovery == "peers" and case.strategy in PEERS and case.role != "coordinator":
        repeats_no_step(case.job)
    return case.verdicts.judge(case.lab, case.job)


def repeats_no_step(job):
    """With recovery = peers the members go back to a checkpoint only for a documented reason: server 0 was lost, there
    is no copy yet, or a worker that has gone has pushed something since the copy."""
    output = "".join(process.output() for process in job.lab.processes)
    for step in re.findall(r"lost server [1-9]\d* .* at step (\d+): .*; all members go back", output):
        expect(int(step) < FIRST_COPY, f"all go back from step {step}, although peers could help: {output[-1500:]}")
    if "all members go back" not in output and "lacks its pushes" not in output:
        repeated = summary_of(job.out)["steps_repeated"]
        expect(repeated == 0, f"{repeated} steps repeated: {output[-1500:]}")


def lost_in_all_reduce(case, victim, more=(KILLED,)):
    """In all-reduce the job ends with a worker. Every process must report it."""
    job = case.job
    job.without(victim)
    job.ends_named((PEER_LOST, UNREACHABLE), more)
    return "ended, named"


def replaced(case, victim, more=(KILLED,)):
    """Replaces a lost member."""
    if case.role == "worker" and is_all_reduce(case):
        return lost_in_all_reduce(case, victim, more)
    time.sleep(case.rng.choice((0, 0.3, 1.5)))
    case.job.again(victim)
    return ""


def without_launcher(case):
    """The children of a killed launcher receive SIGTERM from the kernel, and stop with a checkpoint."""
    list(moments(case, case.job, 1, 0.6))
    codes = case.job.ends_without_launcher()
    if set(codes.values()) == {0}:  # its last steps were quicker than the signal
        return case.verdicts.judge(case.lab, case.job)
    expect(set(codes.values()) == {STOPPED}, f"exit codes {codes}: {case.job.coordinator.output()[-1500:]}")
    return stopped_well(case)


def stopped_well(case):
    """The job has stopped with a checkpoint, from which the same command continues."""
    summary = summary_of(case.job.out)
    folder = case.job.out / "checkpoints" / f"step-{summary['steps']:08}"
    expect(summary["stopped_by"] and (folder / "DONE").exists(), f"no checkpoint of step {summary['steps']}")
    return f"stopped, {case.verdicts.resumed(case.lab, case.job)}"


def lost_for_good(case):
    """With on-server-loss = abort the job ends with the server, also with recovery = peers."""
    list(moments(case, case.job, 1, 0.6))
    victim = case.job.of(case.role, case.rng)
    victim.kill()
    case.job.without(victim)
    case.job.ends_named((PEER_LOST,), (KILLED,))
    return f"aborted, named, {case.verdicts.resumed(case.lab, case.job)}"


def kill(case):
    """SIGKILL, once or twice; a worker or server also before training begins. Sometimes a server's loss ends the job."""
    aborts = case.role in ("server", "coordinator") and case.rng.random() < 0.15
    job = begin(case, **({"on-server-loss": "abort"} if aborts else {}))
    if case.role == "launcher":
        return without_launcher(case)
    if job.keys.get("on-server-loss") == "abort":
        return lost_for_good(case)
    early = case.role != "coordinator" and not is_all_reduce(case) and case.rng.random() < 0.2
    if early:
        time.sleep(case.rng.uniform(0, 0.5))
    for _ in [0] if early else moments(case, job, case.rng.choice((1, 1, 2))):
        victim = job.of(case.role, case.rng)
        victim.kill()
        victim.wait()
        verdict = replaced(case, victim)
        if verdict:
            return verdict
    return well(case)


def term(case):
    """SIGTERM: a worker or server is replaced; the coordinator stops the job with a checkpoint."""
    job = begin(case)
    list(moments(case, job, 1, 0.6))
    victim = job.of(case.role, case.rng)
    victim.send_signal(signal.SIGTERM)
    if case.role in ("coordinator", "launcher"):
        codes = job.end_codes()
        expect(set(codes.values()) == {STOPPED}, f"exit codes {codes}: {victim.output()[-400:]}")
        return stopped_well(case)
    code = victim.ends(END_S)
    if code == 0 and not (job.launched and is_all_reduce(case)):
        # The job finished before the coordinator released it, a second later, or the launcher has not reported it yet.
        if job.launched:
            job.again(victim)
        return well(case)
    expect(code == TERMINATED or code == 0 and job.launched, f"{victim.name} ended with {code}: {victim.output()[-400:]}")
    return replaced(case, victim, (TERMINATED,)) or well(case)


def pause(case):
    """SIGSTOP for less than heartbeat-timeout, then SIGCONT: nothing changes."""
    job = begin(case)
    for _ in moments(case, job, case.rng.choice((1, 2))):
        victim = job.of(case.role, case.rng)
        stopped(victim)
        time.sleep(case.lab.seconds(HEARTBEAT_S) * case.rng.uniform(0.05, 0.5))
        woken(victim)
    return well(case)


def sleep(case):
    """SIGSTOP until another process has taken its place, or the loss is reported; then it wakes up, and changes nothing."""
    job = begin(case)
    list(moments(case, job, 1, 0.6))
    victim = job.of(case.role, case.rng)
    stopped(victim)
    try:
        if case.role == "worker" and is_all_reduce(case):
            job.without(victim)
            rest = job.end_codes()
            expect(not {0} & set(rest.values()), f"exit codes {rest}")
            woken(victim)
            expect(job.launched or victim.ends(END_S) != 0, f"the sleeper ended well: {victim.output()[-400:]}")
            return "ended, named"
        job.again(victim)
        words = ("training goes on", "has the weights of step") if case.role == "server" else ("takes the free place",)
        if job.launched and case.rng.random() < 0.5:
            words = (f"pid {victim.pid}) at step",)  # it wakes up before the launcher kills it
        case.lab.until(lambda: job.over() or any(word in job.coordinator.output() for word in words), END_S,
                       lambda: f"not output: {words}: {job.coordinator.output()[-700:]}")
        woken(victim)
        verdict = well(case)
        code = victim.ends(END_S)
        expect(code != 0 or job.launched and job.joined_again(victim), f"the sleeper ended well: {victim.output()[-400:]}")
        return verdict
    finally:
        woken(victim)


def linked(command, link=None, **more):
    """Returns a fault of the link to the coordinator: of one worker, of the other server, or of all; or of another
    link."""
    def fault(case):
        job = begin(case, link=link or case.role, **more)
        try:
            for _ in moments(case, job, case.rng.choice((1, 2, 3)), 0.2):
                command(case, job.proxy)
            return well(case)
        finally:
            job.close_link()
    fault.__doc__ = command.__doc__
    return fault


def data(command):
    """Returns a fault of the data connections to the joined server."""
    return linked(command, link="data", transport="tcp")


def briefly(case):
    time.sleep(case.lab.seconds(HEARTBEAT_S) * case.rng.uniform(0.05, 0.4))


def held(case, proxy):
    """Nothing passes for a while; connections stay open."""
    proxy.do("hold")
    briefly(case)
    proxy.do("release")


def one_way(case, proxy):
    """One direction alone is held for a while."""
    proxy.do(f"oneway {case.rng.choice(('up', 'down'))}")
    briefly(case)
    proxy.do("release")


def reset(case, proxy):
    """RST to both ends of every connection."""
    del case
    proxy.do("reset")


def truncated(case, proxy):
    """Half of a piece passes, then RST."""
    del case
    proxy.do("truncate")


def corrupted(case, proxy):
    """One bit of a few pieces is flipped. The link is encrypted, so damage is noticed; but libzmq 4.3.4 may then stop
    reading from that connection, and keep it open. The member connects again before it counts as lost."""
    proxy.do(f"corrupt {case.rng.randint(1, 3)}")


def thread(case):
    """One thread stands still, by ptrace. A worker that computes nothing is given up and replaced."""
    worker = case.role == "worker"
    # It takes a second to find the thread.
    job = begin(case, times=6, **({"progress-timeout": case.lab.seconds(4)} if worker else {}))
    list(moments(case, job, 1, 0.2))
    victim = job.of(case.role, case.rng)
    with compute_thread_stopped(victim.pid):
        if not worker:
            briefly(case)
        elif is_all_reduce(case):
            job.without(victim)
            rest = job.end_codes()
            expect(not {0} & set(rest.values()), f"exit codes {rest}")
            victim.kill()
            return "ended, named"
        else:
            job.coordinator.prints("progress-timeout", END_S)
            job.again(victim)
            job.coordinator.prints("takes the free place", END_S)
            victim.kill()  # its other threads may or may not have been told
    return well(case)


def full_disk(case):
    """Checkpoints go to a full disk: the job reports it and ends, code 8."""
    folder = case.lab.folder / "full"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode != 0:
        raise base.Skipped("no tmpfs can be mounted here")
    try:
        job = begin(case, **{"checkpoint-dir": folder})
        job.ends_named((IO,))
        expect(not list(folder.rglob("DONE")), "a torn checkpoint looks whole")
        return "ended, named"
    finally:
        case.lab.end_processes()
        subprocess.run(["umount", folder], check=True)


def hanging_disk(case):
    """The file system of the checkpoints blocks for a while: the job waits and continues."""
    with case.lab.mounted() as (folder, freeze, thaw):
        job = begin(case, **{"checkpoint-dir": folder / "checkpoints"})
        for _ in moments(case, job, case.rng.choice((1, 2))):
            freeze()
            time.sleep(case.lab.seconds(HEARTBEAT_S) * case.rng.uniform(0.05, 2))
            thaw()
        return well(case)


def frozen_out(case):
    """The file system of OUT blocks, for less or more than progress-timeout; role worker or server: such a process is
    killed meanwhile. The job waits and continues, or ends with code 8, and the same command continues it later."""
    with case.lab.mounted() as (folder, freeze, thaw):
        (folder / "out").mkdir()
        os.symlink(folder / "out", case.lab.folder / "out")
        patience = case.lab.seconds(PATIENCE_S)
        longer = case.rng.random() < 0.5
        job = begin(case, times=4, **{"progress-timeout": patience})
        if not at_a_moment(case, job, 0.02, 0.9):
            raise base.Skipped("the job was over before the fault")
        began = time.monotonic()
        freeze()
        alone = is_all_reduce(case) and case.role == "worker"
        if case.role != "coordinator":
            victim = job.of(case.role, case.rng)
            victim.kill()
            victim.wait()
            job.without(victim) if alone else job.again(victim)
        if alone:
            job.members_end_named((PEER_LOST, UNREACHABLE), "lost")
            thaw()
            job.ends_named((PEER_LOST, UNREACHABLE), (KILLED,))
            return "ended, named"
        if not longer:
            time.sleep(max(0, began + patience * case.rng.uniform(0.05, 0.6) - time.monotonic()))
            thaw()
            return f"shorter, {well(case)}"
        job.members_end_named((IO,), "has waited")
        # A checkpoint may have been written for a while when the file system froze.
        expect(time.monotonic() - began > patience / 2, "the job ended long before progress-timeout")
        thaw()
        job.ends_named((IO,))
        return f"longer, ended, named, {case.verdicts.resumed(case.lab, job)}"


def strangers(case):
    """Garbage on every port, and a client without the key: both are refused, and nothing changes."""
    job = begin(case)
    list(moments(case, job, 1))
    victim = job.of(case.role, case.rng)
    for port in sorted(listening_ports(victim.pid)):
        for _ in range(case.rng.randint(1, 4)):
            with contextlib.suppress(OSError):
                guest = Stranger(f"tcp://127.0.0.1:{port}", 2.0)
                if case.rng.random() < 0.5:
                    guest.handshake()
                    guest.message(case.rng.randbytes(30), case.rng.randbytes(300))
                guest.bytes(case.rng.randbytes(case.rng.choice((1, 70, 5000))))
                guest.close()
    if case.role == "coordinator":
        code, output = case.lab.call("pushpull-worker", "--join", job.address(False), "--insecure", "--join-timeout", 5)
        expect(code == REFUSED, f"a client without the key ended with {code}: {output[-300:]}")
    return well(case)


def second_start(case):
    """The same command again. A second coordinator or server is refused, a worker becomes a spare; nothing changes."""
    job = begin(case)
    list(moments(case, job, 1))
    if case.role == "coordinator":
        code, output = job.second_start(case.rng)
        expect(code not in (0, STOPPED), f"a second coordinator ended with {code}: {output[-300:]}")
    elif case.role == "server":
        guest = job.start_server()
        verdict = well(case)
        code = guest.ends(END_S)
        expect(code != 0, f"a third server ended well: {guest.output()[-300:]}")
        return verdict
    else:
        guest = job.start_worker(1)
        verdict = well(case)
        guest.ends(END_S)
        return verdict
    return well(case)


ALL = ("worker", "server", "coordinator")
FAULTS = {
    "kill": (kill, (*ALL, "launcher")),
    "term": (term, (*ALL, "launcher")),
    "pause": (pause, ALL),
    "sleep": (sleep, ("worker", "server")),
    "held": (linked(held), ALL),
    "one-way": (linked(one_way), ALL),
    "reset": (linked(reset), ALL),
    "truncated": (linked(truncated), ALL),
    "corrupted": (linked(corrupted), ALL),
    "data-held": (data(held), ("server",)),
    "data-one-way": (data(one_way), ("server",)),
    "data-reset": (data(reset), ("server",)),
    "data-truncated": (data(truncated), ("server",)),
    "thread": (thread, ALL),
    "full-disk": (full_disk, ("coordinator",)),
    "hanging-disk": (hanging_disk, ("coordinator",)),
    "frozen-out": (frozen_out, ALL),
    "strangers": (strangers, ("server", "coordinator")),
    "second-start": (second_start, ALL),
}
LINKED = ("held", "one-way", "reset", "truncated", "corrupted")


def starts_of(fault, role):
    """Returns how a job with this fault can start: by hand, or by `pushpull run`, which leaves no room for a proxy."""
    if role == "launcher":
        return ("run",)
    return ("hand",) if fault.removeprefix("data-") in LINKED else ("hand", "run")
