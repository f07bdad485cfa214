"""Another program takes the port of a server that was killed: it hears nothing of worth and is not believed."""
import contextlib
import os
import socket
import struct
import threading

import lab as base
from lab import MLP, expect, first
from zmtp import COMMAND, MORE, VERSION, Stranger, field, fields, frame_of, listening_ports, preamble, ready

STEPS = 1200
EXCHANGE, WEIGHTS, STATUS, CHALLENGE, CHALLENGE_ANSWER = 20, 30, 31, 144, 145
PLAIN_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"PLAIN".ljust(20, b"\0")


class Impostor:
    """Listens at a port, admits every peer, keeps all that it hears, and answers pulls with weights that are no numbers."""

    def __init__(self, port, answer=b""):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.answer = answer  # to challenges
        self.shown = []  # (name, password) of each connection
        self.kinds = []  # the body of each message
        self.pushes = []  # with their payloads
        self.forged = 0  # answers to pulls
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=[Stranger.over(peer)], daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self, peer):
        peer.bytes(PLAIN_GREETING + b"\1" + bytes(31))
        peer.receive(64)
        shown = peer.frame()
        name_end = 7 + shown[6]
        self.shown.append((shown[7:name_end], shown[name_end + 1:]))
        peer.bytes(bytes([COMMAND, 8]) + b"\x07WELCOME")
        peer.frame()
        peer.bytes(ready(b"ROUTER"))
        sizes = {}
        while parts := self.message(peer):
            ((kind, body),) = [(number, value) for number, value in fields(parts[0][8:]) if number < 200]
            self.kinds.append(kind)
            if kind == CHALLENGE:
                peer.message(preamble(VERSION) + field(CHALLENGE_ANSWER, field(1, self.answer)))
            if kind != EXCHANGE:
                continue
            exchange = dict(fields(body))
            if 2 in exchange:
                push = [value for number, value in fields(exchange[2]) if number == 5]
                slices = [dict(fields(part)).get(1, 0) for part in push]
                self.pushes.append(slices)
                sizes.update(zip(slices, map(len, parts[1:])))
            if 3 in exchange:
                self.pulled(peer, dict(fields(exchange[3])), sizes)

    def pulled(self, peer, pull, sizes):
        number, clock, lane, asked = (pull.get(i, 0) for i in (1, 2, 9, 12))
        if not sizes:  # asks for the pushes again, which tell how large slices are
            peer.message(preamble(VERSION) + field(STATUS, field(1, number) + field(5, lane) + field(6, asked)))
            return
        slices = b"".join(field(2, field(1, slice_) + field(2, clock)) for slice_ in sizes)
        weights = field(1, number) + slices + field(3, 1 << 40) + field(4, clock) + field(8, lane)
        self.forged += 1
        peer.message(preamble(VERSION) + field(WEIGHTS, weights),
                     *(struct.pack("<f", float("nan")) * (size // 4) for size in sizes.values()))

    @staticmethod
    def message(peer):
        parts, more = [], True
        while more:
            flags, body = frame_of(peer)
            if body is None:
                return []
            more = flags & MORE
            parts.append(body)
        return parts


def admits(port, shown):
    """Whether a listener lets a program in that shows what it has heard."""
    with contextlib.closing(Stranger(f"tcp://127.0.0.1:{port}")) as raw:
        raw.bytes(PLAIN_GREETING + bytes(32))
        raw.receive(64)
        name, password = shown
        body = b"\x05HELLO" + bytes([len(name)]) + name + bytes([len(password)]) + password
        raw.bytes(bytes([COMMAND, len(body)]) + body)
        return raw.frame().endswith(b"WELCOME")


def at_a_killed_servers_port(lab, more, answer):
    keys = lab.in_parts({**MLP, "checkpoint-every": lab.at(100, STEPS), "transport": "zmq", "slice-bytes": 4096, **more},
                        STEPS)
    calm = lab.train(lab.job(keys), 2, 2)["weights_sha256"]
    cluster = lab.cluster(lab.job(keys), 2, 2)
    cluster.reaches(lab.at(150, STEPS))
    first, killed = cluster.servers
    (port,) = listening_ports(killed.pid)
    others = listening_ports(first.pid) - {int(cluster.address.rsplit(":", 1)[1])}
    os.kill(killed.pid, base.signal.SIGKILL)
    killed.wait()
    impostor = Impostor(port, answer)
    lab.until(lambda: impostor.forged >= 2 or impostor.kinds.count(CHALLENGE) >= 6, 30,
              lambda: f"{len(impostor.shown)} connections, messages {impostor.kinds}")
    heard = [kind for kind in impostor.kinds if kind != CHALLENGE]
    expect(not heard, f"it was sent {len(impostor.pushes)} pushes, and {impostor.forged} of its answers to pulls may "
                      f"have been taken; messages of kinds {heard[:20]}; a worker: {cluster.workers[0].output()[-300:]}")
    expect(len(set(impostor.shown)) == len(impostor.shown), "two connections show the same")
    for shown in impostor.shown:
        for other in others:
            expect(not admits(other, shown), f"what it has heard opens another server: {shown}")
    if "recovery" in more:
        first.prints("waiting for a replacement")
    cluster.servers[1] = lab.start("pushpull-server", "--join", cluster.address)
    summary = cluster.ends_well()
    impostor.close()
    expect(impostor.forged == 0, "pulls were sent to it")
    expect(summary["weights_sha256"] == calm, "the weights differ from the undisturbed run")


@first("P7: an impostor is refused")
def a_program_at_a_killed_servers_port_changes_nothing(lab):
    at_a_killed_servers_port(lab, {}, b"")


def a_guessed_proof_on_several_connections_changes_nothing(lab):
    at_a_killed_servers_port(lab, {"connections": 2, "recovery": "peers"}, b"0" * 64)


if __name__ == "__main__":
    base.main(globals())
