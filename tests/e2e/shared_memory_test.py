"""Tests that processes of one host read gradients and weights in place, in the memory of the peer."""
import os
import pathlib
import resource
import signal
import subprocess

import lab as base
from lab import LONG, MLP, expect, first, living_below

SHARED = "shared memory with"
CLIPPED = {**MLP, "clip-norm": 0.5, "eval-every": 9, "checkpoint-every": 11, "optimizer": "adamw",
           "lr": 0.003}


def mapped(pid, rights):
    """Returns the segments that a process has mapped with these permissions."""
    lines = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "/memfd:pushpull" in line and line.split()[1] == rights]


@first("P1: the same bits over shared memory, ipc and tcp")
def every_transport_gives_the_same_bits(lab):
    job = lab.job({**CLIPPED, "slice-bytes": 4096})
    hashes = {}
    for servers, workers, transport in ((1, 1, "shm"), (1, 1, "tcp"), (1, 3, "auto"), (3, 4, "shm"), (2, 3, "tcp"), (2, 3, "zmq")):
        run = lab.run_with_answers(job, servers, workers, transport=transport)
        shares = run.text.count(SHARED)
        expect(shares == (0 if transport in ("tcp", "zmq") else workers),
               f"{transport}: {shares} of {workers} workers share memory: {run.text[-800:]}")
        hashes[servers, workers, transport] = run.summary()["weights_sha256"]
    expect(len(set(hashes.values())) == 1, f"hashes differ: {hashes}")


def every_strategy_trains(lab):
    """local has the bits of tcp; replay_test.py replays the records of the others."""
    for servers, strategy in enumerate(("async", "buffered:3", "ssp:2", "backup:1", "local:4")):
        job = lab.job({**MLP, "strategy": strategy, "eval-every": 10})
        run = lab.run_with_answers(job, 1 + servers % 2, 3, transport="shm", slice_bytes=4096)
        expect(run.text.count(SHARED) == 3 and "warning" not in run.text, f"{strategy}: {run.text[:3000]}")
    over_tcp = lab.train(job, 2, 3, transport="tcp")
    expect(run.summary()["weights_sha256"] == over_tcp["weights_sha256"], "local:4 has other bits over tcp")


def the_memory_of_a_peer_is_mapped_read_only_and_side_by_side(lab):
    cluster = lab.cluster(lab.job(LONG), 2, 2, transport="shm", slice_bytes=4096)
    cluster.reaches(5)

    def segments(process, rights):
        return {line.split()[4] for line in mapped(process.pid, rights)}

    # on a busy machine, memory is shared only after the first steps
    for worker in cluster.workers:
        for server in cluster.servers:
            lab.until(lambda: segments(worker, "rw-s") & segments(server, "r--s"), 30,
                      lambda: f"{server.name} reads no segment of {worker.name}")
            lab.until(lambda: segments(server, "rw-s") & segments(worker, "r--s"), 30,
                      lambda: f"{worker.name} reads no segment of {server.name}")
        if resource.getpagesize() != 4096:  # slices of this small model are no whole pages
            continue
        spans = [line.split()[0].split("-") for line in mapped(worker.pid, "r--s")]
        pages = sum(int(end, 16) - int(first, 16) == 4096 for first, end in spans)
        # 6,570 parameters are seven slices, and adjacent ones belong to different servers; each probe is a page too
        expect(pages >= 7 + 2, f"{worker.name} has mapped {pages} single pages of its servers")


def in_shared_folders():
    return {name for folder in ("/dev/shm", "/run/shm") if os.path.isdir(folder)
            for name in os.listdir(folder) if "pushpull" in name}


@first("P5: a killed process leaves nothing behind")
def a_killed_process_leaves_no_shared_memory(lab):
    job = lab.job({**LONG, "heartbeat-timeout": lab.seconds(5), "on-server-loss": "abort"})
    clusters = [lab.cluster(job, 2, 2, transport="shm", slice_bytes=4096) for _ in range(3)]
    for cluster in clusters:
        cluster.reaches(5)
    for victim in (clusters[0].workers[0], clusters[1].servers[1], clusters[2].servers[0]):
        os.kill(victim.pid, signal.SIGKILL)
    for cluster in clusters:
        for process in cluster.all():
            process.ends(60)
    expect(not in_shared_folders(), f"left over: {in_shared_folders()}")
    expect(not lab.left_behind(), f"still running: {lab.left_behind()}")
    expect(not [pid for pid in living_below(os.getpid()) if mapped(pid, "r--s")], "a process still maps a segment")


def a_killed_worker_is_replaced_with_the_same_bits(lab):
    keys = lab.in_parts({**MLP, "on-worker-loss": "continue", "transport": "shm"}, 1500)
    calm = lab.train(lab.job(keys), 1, 2)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 1, 2)
    cluster.reaches(20)
    lost = cluster.workers[0]
    os.kill(lost.pid, signal.SIGKILL)
    summary = cluster.ends_well(but=(lost,))
    expect(lost.returncode == -signal.SIGKILL, "it had ended before")
    expect(summary["weights_sha256"] == calm, "the loss has changed the weights")


@first("P6: no shared memory costs a line, not the job")
def without_shared_memory_a_run_says_so_and_uses_sockets(lab):
    job = lab.job({**MLP, "slice-bytes": 4096})
    want = lab.train(job, 1, 2, transport="tcp")["weights_sha256"]
    for transport, warned in (("auto", False), ("shm", True)):
        cluster = lab.cluster(job, 1, 1, workers=2, transport=transport)
        # limits files to 1,024 bytes; a log would be a file too
        limited = subprocess.Popen(
            [lab.bin_dir / "pushpull-worker", "--join", cluster.address], stderr=subprocess.PIPE, env=lab.environment,
            text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)))
        _, output = limited.communicate(timeout=lab.seconds(60))
        summary = cluster.ends_well()
        expect(limited.returncode == 0, f"the limited worker: {output[-600:]}")
        expect("sockets to server 0 (this worker can have no shared memory)" in output, output)
        expect("ulimit -f" in output, f"{transport}: no reason: {output}")
        expect(("warning: sockets" in output) == warned, f"{transport}: {output}")
        expect(summary["weights_sha256"] == want, "other weights")


if __name__ == "__main__":
    base.main(globals())
