"""Tests programs that are started by hand, in any order: their waits, messages and timeouts."""
import os
import pathlib
import signal
import shutil
import socket

import lab as base
from lab import MLP, expect, first

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "digits"
UNREACHABLE, USAGE, DATA, PROTOCOL = 4, 2, 3, 6
SIGTERM_CODE = 128 + signal.SIGTERM


class Port:
    """A port that no other process gets while no server listens: reserved by a socket that does not listen,
    which the server's SO_REUSEADDR allows."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}"


def workers_wait_for_a_server_that_starts_later(lab):
    port = Port()
    early = [lab.start("pushpull-worker", "--join", port.address) for _ in range(2)]
    early.append(lab.start("pushpull-server", "--join", port.address))
    for process in early:
        process.prints(f"waiting for the server at {port.address}")
    out = lab.folder / "out"
    server = lab.start("pushpull-server", "--job", lab.job(MLP), "--listen", port.address,
                       "--servers", 2, "--workers", 2, "--out", out, "--slice-bytes", 4096)
    for process in (server, *early):
        expect(process.ends() == 0, f"{process.name}: {process.returncode}: {process.output()}")
    expect(min(base.summary_of(out)["slices_per_server"]) > 0, "the second server holds nothing")


@first("P6: an absent server is named")
def an_absent_coordinator_is_an_error_with_the_address(lab):
    port = Port()
    for program in ("pushpull-worker", "pushpull-server"):
        code, text = lab.call(program, "--join", port.address, "--join-timeout", 1)
        expect(code == UNREACHABLE, f"{program}: exit code {code}: {text}")
        expect(port.address in text and "--join-timeout" in text, f"{program}: {text}")


def a_server_without_workers_gives_up(lab):
    cluster = lab.cluster(lab.job(MLP), 1, 0, workers=2, join_timeout=2)
    server = cluster.servers[0]
    expect(server.ends(30) == UNREACHABLE, f"exit code {server.returncode}: {server.output()}")
    expect("0 of 2 workers" in server.output().splitlines()[-1], server.output())


def a_waiting_process_can_be_terminated(lab):
    port = Port()
    waiting = lab.start("pushpull-worker", "--join", port.address)
    waiting.prints("waiting for the server")
    waiting.terminate()
    expect(waiting.ends(20) == SIGTERM_CODE, f"exit code {waiting.returncode}: {waiting.output()}")
    cluster = lab.cluster(lab.job(MLP), 1, 1, workers=2)
    cluster.workers[0].terminate()
    expect(cluster.workers[0].ends(20) == SIGTERM_CODE, cluster.workers[0].output())


@first("P5: a loss before the start")
def a_worker_lost_before_the_start_can_be_replaced(lab):
    calm = lab.train(lab.job(MLP))["weights_sha256"]
    cluster = lab.cluster(lab.job(MLP), 1, 1, workers=2)
    lost = cluster.workers[0]
    os.kill(lost.pid, signal.SIGKILL)
    cluster.servers[0].prints(f"pid {lost.pid}) before the start")
    cluster.add_worker()
    cluster.add_worker()
    summary = cluster.ends_well(but=(lost,))
    expect(summary["weights_sha256"] == calm, "the weights differ")


def a_worker_that_fails_before_the_start_does_not_end_the_job(lab):
    """The worker has a wrong folder, and then the first worker has declared other data."""
    keys = {**MLP, "dataset": "idx", "data-dir": DIGITS}
    calm = lab.train(lab.job(keys))["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 1, 0, workers=2)
    server = cluster.servers[0]
    broken = cluster.add_worker("--data-dir", lab.folder / "nodata")
    expect(broken.ends(20) == DATA, f"exit code {broken.returncode}: {broken.output()}")
    server.prints(f"pid {broken.pid}) before the start: [data] {lab.folder / 'nodata'}")
    other = lab.folder / "other"
    shutil.copytree(DIGITS, other)
    images = next(other.glob("train-images*"))
    images.write_bytes(images.read_bytes()[:-1] + b"\x07")
    wrong = cluster.add_worker("--data-dir", other)
    server.prints(f"pid {wrong.pid}) joined, 1 of 2")
    refused = cluster.add_worker()
    expect(refused.ends(20) == PROTOCOL and "data differ" in refused.output(), refused.output())
    wrong.terminate()
    wrong.ends(20)
    server.prints(f"pid {wrong.pid}) before the start")
    cluster.add_worker()
    cluster.add_worker()
    summary = cluster.ends_well(but=(broken, wrong, refused))
    expect(summary["weights_sha256"] == calm, "the weights differ")


def a_server_lost_before_the_start_can_be_replaced(lab):
    calm = lab.train(lab.job(MLP))["weights_sha256"]
    cluster = lab.cluster(lab.job(MLP), 3, 0, workers=2)
    lost = cluster.servers[1]
    os.kill(lost.pid, signal.SIGKILL)
    cluster.servers[0].prints(f"lost server 1 ({socket.gethostname()}, pid {lost.pid}) before the start")
    cluster.servers.append(lab.start("pushpull-server", "--join", cluster.address))
    cluster.servers[-1].prints("server 1: joined")
    cluster.add_worker()
    cluster.add_worker()
    summary = cluster.ends_well(but=(lost,))
    expect(summary["weights_sha256"] == calm, "the weights differ")


def a_run_with_a_worker_that_cannot_begin_ends_at_once(lab):
    """A child of `pushpull run` would not be replaced."""
    for loss in ("abort", "wait", "continue"):
        code, text = lab.call("pushpull", "run", "--job", lab.job({**MLP, "dataset": "idx",
                              "data-dir": lab.folder / "nodata", "on-worker-loss": loss}),
                              "--workers", 2, "--out", lab.folder / loss, seconds=20)
        expect(code == DATA and "nodata" in text, f"{loss}: exit code {code}: {text}")


def a_surplus_server_is_refused(lab):
    cluster = lab.cluster(lab.job(MLP), 1, 1, workers=2)
    code, text = lab.call("pushpull-server", "--join", cluster.address)
    expect(code == USAGE and "--servers 2" in text, f"exit code {code}: {text}")
    expect("waiting" not in text, f"server 0 is not replaced by joining, and yet it waits: {text}")
    cluster.add_worker()
    cluster.ends_well()


def a_surplus_server_waits_while_a_server_may_be_dead(lab):
    cluster = lab.cluster(lab.job({**MLP, "heartbeat-timeout": lab.seconds(3)}), 2, 1, workers=2)
    # the coordinator answers all the time, so --join-timeout does not apply
    code, text = lab.call("pushpull-server", "--join", cluster.address, "--join-timeout", 2)
    expect(code == USAGE and "--servers 3" in text, f"exit code {code}: {text}")
    expect("waiting for a place: the job has all its 2 servers" in text, text)
    cluster.add_worker()
    cluster.ends_well()


@first("a surplus worker is a spare")
def a_surplus_worker_waits_as_a_spare(lab):
    cluster = lab.cluster(lab.job(MLP), 1, 1, workers=2)
    with cluster.workers[0].stopped():  # so that the job does not end before the spare joins
        cluster.add_worker()
        cluster.servers[0].prints("joined, 2 of 2")
        spare = cluster.add_worker()
        cluster.servers[0].prints(f"pid {spare.pid}) joined as a spare")
    summary = cluster.ends_well()
    expect(len(summary["samples_per_worker"]) == 2, f"{summary['samples_per_worker']}")


if __name__ == "__main__":
    base.main(globals())
