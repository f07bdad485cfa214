"""Tests P7: strangers on every port of a running job are refused and counted, and the job's result stays the same. Jobs run
without keys (--insecure), so that messages arrive; keys_test.py tests the refusal before the first message."""
import contextlib
import pathlib
import random
import shutil
import socket
import struct

import lab as base
from lab import MLP, expect, first
from zmtp import VERSION, Stranger, field, fixed, hello, listening_ports, preamble, varint

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "datasets" / "digits"
PROTOCOL = 6
OPEN = ("--insecure",)
WORKER = 2


def ports_of(cluster):
    """Returns the addresses that the job listens on: control, and data of every server."""
    ports = set()
    for server in cluster.servers:
        ports |= listening_ports(server.pid)
    expect(len(ports) == 1 + len(cluster.servers), f"listening on {ports}")
    return [f"tcp://127.0.0.1:{port}" for port in sorted(ports)]


def messages(rng):
    """Returns messages that arrive complete but must be refused."""
    real = hello(WORKER, 7)
    flipped = bytearray(real)
    flipped[rng.randrange(8, len(flipped))] ^= 1 << rng.randrange(8)
    return [
        [rng.randbytes(40), rng.randbytes(400)],
        [b""] * 50,
        [preamble(VERSION)],
        [preamble(VERSION) + rng.randbytes(200)],
        [preamble(VERSION + 1) + real[8:]],
        [real[:len(real) // 2]],
        [bytes(flipped)],
        [real, rng.randbytes(1000)],  # a payload without a place in the header
        [preamble(VERSION) + field(rng.randrange(1, 40), rng.randbytes(30))],
        # an exchange, a load and a fetch from an unknown peer
        [preamble(VERSION) + field(20, field(1, varint(9) + rng.randbytes(8)))],
        [preamble(VERSION) + field(21, field(2, 0)), rng.randbytes(4096)],
        [preamble(VERSION) + field(22, field(2, 0) + field(3, 1 << 40))],
        # initial weights that nobody has asked for
        [preamble(VERSION) + field(9, fixed(1, rng.randrange(1, 1 << 60)) + field(2, 1 << 40)), rng.randbytes(256)],
        # a part of an all-reduce, far ahead, without a run
        [preamble(VERSION) + field(40, field(3, 1) + field(4, 1 << 40) + field(5, 1 << 30)
                                   + field(6, (1 << 31) - 1)), rng.randbytes(400)],
    ]


def attack(address, rng, kind):
    stranger = Stranger(address)
    with contextlib.closing(stranger):
        if kind == 0:
            stranger.bytes(rng.randbytes(2000))
            return
        stranger.handshake(rng.choice([b"DEALER", b"ROUTER", b"PUB"]))
        if kind == 1:
            stranger.promise(rng.choice([1 << 40, 1 << 62, (1 << 64) - 1, 1 << 33]))
        else:
            for parts in messages(rng):
                stranger.message(*parts)


def outlives_attacks(cluster, addresses, calm, most, seed):
    """Attacks the addresses in turn and checks that the job ends with the weights `calm`."""
    rng, attacks = random.Random(seed), 0
    while attacks < most and cluster.servers[0].poll() is None:
        with contextlib.suppress(OSError):  # the job may end during the attack
            attack(addresses[attacks % len(addresses)], rng, attacks // len(addresses) % 4)
        attacks += 1
    summary = cluster.ends_well()
    expect(attacks >= 12, f"the job was over after {attacks} attacks")
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")
    expect(summary["rejected_frames"] >= attacks / 2, f"{summary['rejected_frames']} refused")


@first("P7: garbage changes nothing")
def garbage_changes_nothing(lab):
    keys = {**MLP, "steps": lab.steps(4000), "clip-norm": 1.0}
    calm = lab.train(lab.job(keys), 1, 2)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 2, 2, slice_bytes=4096, key_words=OPEN)
    cluster.reaches(1)
    addresses = ports_of(cluster)
    outlives_attacks(cluster, addresses, calm, most=80, seed=5)
    for process in cluster.all():
        lines = [line for line in process.output().splitlines() if not line.startswith("step ")]
        expect(len(lines) < 60, f"{process.name} says {len(lines)} lines about strangers")


def garbage_sent_to_workers_changes_no_sum(lab):
    keys = {**MLP, "strategy": "allreduce:tree", "steps": lab.steps(4000)}
    calm = lab.train(lab.job(keys), 1, 3)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 1, 3, key_words=OPEN)
    cluster.reaches(1)
    addresses = []
    for worker in cluster.workers:
        ports = listening_ports(worker.pid)
        expect(len(ports) == 1, f"{worker.name} listens on {ports}")
        addresses.append(f"tcp://127.0.0.1:{ports.pop()}")
    outlives_attacks(cluster, addresses, calm, most=90, seed=6)


def silent_connections_do_not_disturb_a_job(lab):
    keys = {**MLP, "steps": lab.steps(4000)}
    calm = lab.train(lab.job(keys), 1, 2)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 2, 1, workers=2, slice_bytes=4096)
    addresses = ports_of(cluster)
    held = [Stranger(addresses[i % len(addresses)]) for i in range(300)]
    cluster.add_worker()  # a new worker must still be able to join
    summary = cluster.ends_well()
    for stranger in held:
        stranger.socket.close()
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


def a_member_that_joins_and_goes_silent_is_dropped(lab):
    keys = {**MLP, "steps": lab.steps(3000), "heartbeat-timeout": lab.seconds(2)}
    cluster = lab.cluster(lab.job(keys), 1, 1, workers=2, key_words=OPEN)
    held = []
    for incarnation in range(1, 20):
        stranger = Stranger(cluster.address)
        stranger.handshake()
        stranger.message(hello(WORKER, incarnation))
        expect(stranger.frame().startswith(preamble(VERSION)), "no answer to a Hello")
        held.append(stranger)
    cluster.add_worker()
    summary = cluster.ends_well()
    expect(summary["samples"] == keys["steps"] * 64, f"{summary}")


def run_of(answer):
    """Returns the number of the run, from a JobText."""
    body = answer.removeprefix(preamble(VERSION))
    expect(body[:1] == b"\x52", f"no JobText: {answer[:40]!r}")
    after_length = next(i for i in range(1, 9) if body[i] < 0x80) + 1
    expect(body[after_length:after_length + 1] == b"\x09", f"no run: {answer[:40]!r}")
    return body[after_length + 1:after_length + 9]


def refusals_are_counted_and_logged_by_reason(lab):
    keys = {**MLP, "steps": lab.steps(3000), "heartbeat-timeout": lab.seconds(2)}
    calm = lab.train(lab.job(keys), 1, 1)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 1, 1, key_words=OPEN)
    cluster.reaches(1)
    data, = (a for a in ports_of(cluster) if a.rsplit(":", 1)[1] != cluster.address.rsplit(":", 1)[1])
    with contextlib.closing(Stranger(cluster.address)) as stranger:
        stranger.handshake()
        stranger.message(hello(WORKER, 9))
        run = run_of(stranger.frame())
        stranger.message(hello(3, 5))
        for _ in range(2):
            stranger.message(hello(WORKER, 0))
        stranger.message(preamble(VERSION) + field(4, fixed(1, 4711)))  # results from no member
        stranger.message(preamble(VERSION) + field(9, fixed(1, 4711)), bytes(256))  # weights from no member
        stranger.message(preamble(VERSION) + field(31, b""))  # a Status
    with contextlib.closing(Stranger(data)) as stranger:
        stranger.handshake()
        mine, others = (field(1, fixed(1, r) + fixed(2, 9)) for r in (run, bytes(8)))
        for _ in range(3):
            stranger.message(preamble(VERSION) + field(20, others + field(2, b"")))  # a push
        stranger.message(preamble(VERSION) + field(21, mine), bytes(4096))  # weights to begin with
        stranger.message(preamble(VERSION) + field(22, mine + field(2, 0)))  # an answer would contain weights
        expect(b"\x18\x01" in stranger.frame(), "a stranger is served")  # Status.not_ready
        stranger.message(preamble(VERSION) + field(23, mine), bytes(4096))  # weights to keep
        expect(b"\x18\x01" in stranger.frame(), "a stranger's weights are kept")
        stranger.message(hello(WORKER, 5))
    summary = cluster.ends_well()
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")
    counts = summary["rejected_by_reason"]
    wanted = {"bad-role": 1, "no-incarnation": 2, "unknown-member": 2, "wrong-type": 1, "run": 3,
              "load-sender": 1, "message": 1}
    expect({reason: counts.get(reason) for reason in wanted} == wanted, f"{counts}")
    expect(sum(counts.values()) == summary["rejected_frames"], f"{counts} of {summary['rejected_frames']}")
    output = cluster.servers[0].output()
    for line in ("[no-incarnation] expected an incarnation, got 0", "[run] expected this run, got another one"):
        expect(output.count(line) == 1, f"'{line}' is not there once: {output}")


@first("P7: another version is refused")
def another_protocol_version_is_refused(lab):
    cluster = lab.cluster(lab.job(MLP), 1, 1, workers=2, key_words=OPEN)
    stranger = Stranger(cluster.address, lab.seconds(20))
    stranger.handshake()
    stranger.message(hello(WORKER, 5, version=VERSION + 8))
    answer = stranger.frame()
    expect(answer.startswith(preamble(VERSION)), f"no answer in our version: {answer!r}")
    expect(f"protocol version {VERSION + 8}".encode() in answer, f"no reason: {answer!r}")
    cluster.add_worker()
    expect(cluster.ends_well()["rejected_frames"] >= 1, "it was not counted")


def a_server_of_another_version_is_named(lab):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(lab.seconds(30))
        port = listener.getsockname()[1]
        worker = lab.start("pushpull-worker", "--join", f"tcp://127.0.0.1:{port}", *OPEN)
        accepted, _ = listener.accept()
        accepted.settimeout(lab.seconds(10))
        stranger = Stranger.over(accepted)
        stranger.handshake(b"ROUTER")
        expect(stranger.frame().startswith(preamble(VERSION)), "the worker says no Hello")
        stranger.message(preamble(VERSION + 1) + b"what only the future understands")
        expect(worker.ends(30) == PROTOCOL, f"exit code {worker.returncode}: {worker.output()}")
        expect(f"protocol version {VERSION + 1}" in worker.output() and str(port) in worker.output(),
               worker.output())
        accepted.close()


def copy_of_digits(lab, name):
    folder = lab.folder / name
    folder.mkdir()
    for path in DIGITS.glob("*ubyte"):
        shutil.copy(path, folder / path.name)
    return folder


def refused_in(lab, cluster, folder, *words):
    worker = cluster.add_worker("--data-dir", folder)
    code = worker.ends(60)
    expect(code == PROTOCOL, f"exit code {code}: {worker.output()}")
    for word in words:
        expect(word in worker.output(), f"no '{word}' in: {worker.output()}")
    lab.until(lambda: f"refused worker (" in cluster.servers[0].output(), 10,
              lambda: f"the server does not say so: {cluster.servers[0].output()}")
    expect(str(worker.pid) in cluster.servers[0].output(), cluster.servers[0].output())
    return worker


@first("P7: other data are refused")
def a_worker_with_other_data_is_refused(lab):
    right = copy_of_digits(lab, "right")
    other = copy_of_digits(lab, "other")
    images = other / "train-images.idx3-ubyte"
    data = bytearray(images.read_bytes())
    data[-1] ^= 1
    images.write_bytes(data)
    small = copy_of_digits(lab, "small")  # 7 x 7: another model
    for split in ("train", "t10k"):
        path = small / f"{split}-images.idx3-ubyte"
        count = struct.unpack_from(">I", path.read_bytes(), 4)[0]
        path.write_bytes(struct.pack(">4I", 0x803, count, 7, 7) + bytes(count * 49))
    keys = {**MLP, "dataset": "idx", "data-dir": right}
    calm = lab.train(lab.job(keys), 1, 2)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 1, 1, workers=2)
    refused = [refused_in(lab, cluster, other, "its data differ", "digest"),
               refused_in(lab, cluster, small, "its model does not fit", "weight")]
    cluster.add_worker()
    summary = cluster.ends_well(but=refused)
    expect(summary["weights_sha256"] == calm, "the weights differ")


if __name__ == "__main__":
    base.main(globals())
