"""The faults of chaos. Each is a function of a case: it starts the job, injects the fault, and returns a verdict as
text, or throws Failed. FAULTS lists the roles for which each is defined."""
import contextlib
import shutil
import signal
import subprocess
import time

from job import END_S, HEARTBEAT_S, Job, base, expect, keys_of, stopped, woken
from stuck_test import the_thread_that_computes_stands_still
from zmtp import Stranger, listening_ports

PEER_LOST, UNREACHABLE, IO, USAGE, REFUSED, STOPPED = 5, 4, 8, 2, 77, 75


def is_all_reduce(case):
    return case.strategy.startswith("allreduce")


def begin(case, link="", **more):
    """Starts the job. If possible, the job waits for a replacement of a lost worker."""
    keys = {} if is_all_reduce(case) else {"on-worker-loss": "wait"}
    job = Job(case.lab, keys_of(case.lab, case.strategy, **{**keys, **more}), link)
    case.job = job
    return job


def at_a_moment(case, job, first=0.05, last=0.6):
    """Waits for a random moment between these parts of the training. Returns false if the job ended before."""
    there = job.reaches(int(job.keys["steps"] * case.rng.uniform(first, last)))
    time.sleep(case.rng.uniform(0, 0.1))
    return there


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
    return case.verdicts.judge(case.lab, case.job)


def lost_in_all_reduce(case, victim):
    """In all-reduce the job ends with a worker. Every process must report it."""
    job = case.job
    job.without(victim)
    job.ends_named((PEER_LOST, UNREACHABLE))
    return "ended, named"


def replaced(case, victim):
    """Replaces a lost member."""
    if case.role == "worker" and is_all_reduce(case):
        return lost_in_all_reduce(case, victim)
    time.sleep(case.rng.choice((0, 0.3, 1.5)))
    case.job.again(victim)
    return ""


def kill(case):
    """SIGKILL, once or twice; a worker or server also before training begins."""
    job = begin(case)
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
    if case.role == "coordinator":
        codes = job.end_codes()
        expect(set(codes.values()) == {STOPPED}, f"exit codes {codes}: {victim.said()[-400:]}")
        summary = base.summary_of(job.out)
        folder = job.out / "checkpoints" / f"step-{summary['steps']:08}"
        expect(summary["stopped_by"] and (folder / "DONE").exists(), f"no checkpoint of step {summary['steps']}")
        return "stopped"
    code = victim.ends(END_S)
    if code == 0:  # the job finished before the coordinator released it, a second later
        return well(case)
    expect(code == 128 + signal.SIGTERM, f"{victim.name} ended with {code}: {victim.said()[-400:]}")
    return replaced(case, victim) or well(case)


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
    """SIGSTOP until another process has taken its place; then it wakes up, and must change nothing."""
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
            expect(victim.ends(END_S) != 0, f"the sleeper ended well: {victim.said()[-400:]}")
            return "ended, named"
        job.again(victim)
        if case.role == "server":
            job.coordinator.says("training goes on", END_S)
        else:
            job.coordinator.says("takes the free place", END_S)
        woken(victim)
        job.ends_well()
        code = victim.ends(END_S)
        expect(code != 0, f"the sleeper ended well: {victim.said()[-400:]}")
    finally:
        woken(victim)
    return case.verdicts.judge(case.lab, job)


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
    job = begin(case, **({"progress-timeout": case.lab.seconds(4)} if worker else {}))
    list(moments(case, job, 1, 0.6))
    victim = job.of(case.role, case.rng)
    with the_thread_that_computes_stands_still(victim.pid):
        if not worker:
            briefly(case)
        elif is_all_reduce(case):
            job.without(victim)
            rest = job.end_codes()
            expect(not {0} & set(rest.values()), f"exit codes {rest}")
            victim.kill()
            return "ended, named"
        else:
            job.coordinator.says("progress-timeout", END_S)
            job.again(victim)
            job.coordinator.says("takes the free place", END_S)
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
    image, folder = case.lab.folder / "image", case.lab.folder / "hanging"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    for words in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, folder]):
        if not shutil.which(words[0]) or subprocess.run(words, capture_output=True, check=False).returncode != 0:
            raise base.Skipped("no file system can be mounted here")
    try:
        job = begin(case, **{"checkpoint-dir": folder / "checkpoints"})
        for _ in moments(case, job, case.rng.choice((1, 2))):
            subprocess.run(["fsfreeze", "-f", folder], check=True)
            try:
                time.sleep(case.lab.seconds(HEARTBEAT_S) * case.rng.uniform(0.05, 2))
            finally:
                subprocess.run(["fsfreeze", "-u", folder], check=True)
        return well(case)
    finally:
        case.lab.end_processes()
        subprocess.run(["umount", folder], check=True)


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
        code, said = case.lab.call("pushpull-worker", "--join", job.address(False), "--insecure", "--join-timeout", 5)
        expect(code == REFUSED, f"a client without the key ended with {code}: {said[-300:]}")
    return well(case)


def second_start(case):
    """The same command again. A second coordinator or server is refused, a worker becomes a spare; nothing changes."""
    job = begin(case)
    list(moments(case, job, 1))
    if case.role == "coordinator":
        words = job.coordinator_words()
        if case.rng.random() < 0.5:
            words[words.index("--listen") + 1] = "tcp://127.0.0.1:*"
        code, said = case.lab.call("pushpull-server", *words)
        expect(code not in (0, STOPPED), f"a second coordinator ended with {code}: {said[-300:]}")
    elif case.role == "server":
        guest = job.start_server()
        verdict = well(case)
        code = guest.ends(END_S)
        expect(code != 0, f"a third server ended well: {guest.said()[-300:]}")
        return verdict
    else:
        guest = job.start_worker(1)
        verdict = well(case)
        guest.ends(END_S)
        return verdict
    return well(case)


ALL = ("worker", "server", "coordinator")
FAULTS = {
    "kill": (kill, ALL),
    "term": (term, ALL),
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
    "strangers": (strangers, ("server", "coordinator")),
    "second-start": (second_start, ALL),
}
