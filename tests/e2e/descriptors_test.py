"""Strangers open as many connections as they can: the job and its checkpoints go on."""
import contextlib
import selectors
import socket
import threading

import lab as base
from lab import LONG, expect, summary_of
from zmtp import listening_ports

DESCRIPTORS = 200
STOPPED = 75


class Flood:
    """Keeps so many silent connections to each port, and opens another for each that is closed."""

    def __init__(self, ports, each):
        self.opened = self.closed = 0
        self.over = False
        self.thread = threading.Thread(target=self.run, args=[ports, each], daemon=True)
        self.thread.start()

    def connect(self, selector, port):
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", port))
        selector.register(peer, selectors.EVENT_READ, port)
        self.opened += 1

    def run(self, ports, each):
        with selectors.DefaultSelector() as selector:
            for port in list(ports) * each:
                self.connect(selector, port)
            while not self.over:
                for key, _ in selector.select(0.05):
                    with contextlib.suppress(BlockingIOError):
                        try:
                            if key.fileobj.recv(4096):
                                continue
                        except ConnectionError:
                            pass
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                        self.closed += 1
                        self.connect(selector, key.data)

    def ends(self):
        self.over = True
        self.thread.join()


def with_few_descriptors(lab, count):
    """From here on servers may have only so many."""
    folder = lab.folder / "bin"
    folder.mkdir()
    server = folder / "pushpull-server"
    server.write_text(f"#!/bin/sh\nulimit -n {count}\nexec {lab.bin_dir}/pushpull-server \"$@\"\n")
    server.chmod(0o755)
    (folder / "pushpull-worker").symlink_to(lab.bin_dir / "pushpull-worker")
    lab.bin_dir = folder


def newest_checkpoint(cluster):
    return max([int(path.name.split("-")[-1]) for path in (cluster.out / "checkpoints").glob("*-*")
                if (path / "DONE").exists()], default=-1)


def strangers_do_not_use_up_the_descriptors(lab):
    with_few_descriptors(lab, DESCRIPTORS)
    for key_words in ((), ("--insecure",)):
        cluster = lab.cluster(lab.job({**LONG, "checkpoint-every": 100}), 2, 2, key_words=key_words)
        first = cluster.servers[0]
        cluster.reaches(1)
        flood = Flood(set().union(*(listening_ports(server.pid) for server in cluster.servers)), 200)
        try:
            lab.until(lambda: flood.closed > 200, 60, lambda: f"{flood.closed} of {flood.opened} were closed")
            lab.until(lambda: "have not finished their handshake" in first.output(), 180, first.output)
            for _ in range(3):  # the first may have begun before
                before = newest_checkpoint(cluster)
                lab.until(lambda: newest_checkpoint(cluster) > before or first.poll() is not None, 120,
                          lambda: f"no checkpoint after step {before}: {first.output()[-1000:]}")
            first.terminate()
            codes = [process.ends(60) for process in cluster.all()]
        finally:
            flood.ends()
        expect(codes == [STOPPED] * 4, f"{codes}: {first.output()[-1000:]}")
        output = first.output().replace("descriptors (ulimit", "")
        expect("Too many open files" not in output and "cannot" not in output, output[-2000:])
        refused = summary_of(cluster.out)["refused_peers"]
        expect(refused > 100, f"refused_peers {refused}")


if __name__ == "__main__":
    base.main(globals())
