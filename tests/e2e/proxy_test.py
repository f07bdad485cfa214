"""Tests pushpull-proxy, which simulates a network link: it loses no bytes and changes none except on
command."""
import hashlib
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import threading
import time

import lab as base
from lab import MLP, expect

PATIENCE = 60  # seconds, for every wait


class Proxy:
    """A pushpull-proxy in front of a listener of this test, with its commands."""

    def __init__(self, lab, *words, to=None, listen="127.0.0.1:0"):
        self.lab = lab
        self.back = None
        if to is None:
            self.back = socket.create_server(("127.0.0.1", 0), backlog=1000)
            self.back.settimeout(lab.seconds(PATIENCE))
            to = f"127.0.0.1:{self.back.getsockname()[1]}"
        reader, self.writer = os.pipe()
        self.process = lab.start("pushpull-proxy", "--listen", listen, "--to", to, *words, stdin=reader)
        os.close(reader)
        self.process.prints("listening on ")
        self.port = int(re.search(r"listening on 127[.0-9]*:(\d+)", self.process.output())[1])

    def do(self, command):
        """Sends a command and returns after the proxy has executed it."""
        since = len(self.process.output())
        os.write(self.writer, f"{command}\n".encode())
        self.process.prints(f" s: {command}\n", since=since)

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), self.lab.seconds(PATIENCE))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def pair(self):
        """Returns both ends of a new connection."""
        client = self.connect()
        server, _ = self.back.accept()
        server.settimeout(self.lab.seconds(PATIENCE))
        return client, server

    def counters(self):
        """Ends the proxy and returns its counters."""
        os.write(self.writer, b"quit\n")
        os.close(self.writer)
        expect(self.process.ends() == 0, f"exit code: {self.process.output()}")
        return {key: int(value) for key, value in
                re.findall(r"(\w+)=(\d+)", self.process.output().splitlines()[-1])}


def receive(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        expect(more, f"the connection ended after {len(data)} of {count} bytes")
        data += more
    return data


def nothing_comes(connection, seconds=0.3):
    before = connection.gettimeout()
    connection.settimeout(seconds)
    try:
        data = connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(before)
    return not expect(False, f"'{data}' came through a link that is held")


def is_reset(connection):
    """Reads to the end. Returns whether the end was an RST."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return False


def is_refused(proxy):
    try:
        return is_reset(proxy.connect())
    except ConnectionResetError:  # before connect() returned
        return True


def send_in_pieces(connection, data, seed):
    rng, at = random.Random(seed), 0
    while at < len(data):
        size = rng.choice((1, 7, 100, 1400, 65536, 300_000))
        connection.sendall(data[at:at + size])
        at += size
    connection.shutdown(socket.SHUT_WR)


def read_in_pieces(connection, seed):
    rng, digest, count = random.Random(seed), hashlib.sha256(), 0
    while True:
        data = connection.recv(rng.choice((1, 50, 4096, 200_000)))
        if not data:
            return digest.hexdigest(), count
        digest.update(data)
        count += len(data)


def bytes_arrive_unchanged_in_both_directions_over_many_connections(lab):
    proxy = Proxy(lab, "--delay-ms", 2, "--jitter-ms", 2, "--rate-mbit", 2000)
    found, threads = {}, []

    def start(function, *arguments):
        threads.append(threading.Thread(target=function, args=arguments, daemon=True))
        threads[-1].start()

    def reads(name, connection, seed):
        found[name] = read_in_pieces(connection, seed)

    sent = {}
    for number in range(8):
        ends = proxy.pair()
        for way in (0, 1):
            data = random.Random(10 * number + way).randbytes(2_000_000 + 12345 * number)
            sent[number, way] = hashlib.sha256(data).hexdigest(), len(data)
            start(send_in_pieces, ends[way], data, number)
            start(reads, (number, way), ends[1 - way], number)
    for thread in threads:
        thread.join(lab.seconds(120))
    expect(found == sent, f"sent {sent}, found {found}")
    counters = proxy.counters()
    total = sum(count for (_, way), (_, count) in sent.items() if way == 0)
    expect(counters["bytes_up"] == total and counters["resets"] == 0, f"{counters}, sent {total}")


def delay_applies_in_each_direction_and_keeps_the_order(lab):
    proxy = Proxy(lab, "--delay-ms", 30, "--jitter-ms", 10)
    client, server = proxy.pair()
    for _ in range(5):
        begin = time.monotonic()
        client.sendall(b"ping")
        receive(server, 4)
        half = time.monotonic()
        server.sendall(b"pong")
        receive(client, 4)
        expect(half - begin >= 0.020 and time.monotonic() - half >= 0.020,
               f"after {half - begin:.4f} s and {time.monotonic() - half:.4f} s: sooner than 30 - 10 ms")
    numbers = b"".join(struct.pack("<I", i) for i in range(2000))
    for at in range(0, len(numbers), 4):
        client.send(numbers[at:at + 4])
    expect(receive(server, len(numbers)) == numbers, "the order was lost")


def the_rate_is_shared_by_all_connections(lab):
    proxy = Proxy(lab, "--rate-mbit", 40)
    pairs = [proxy.pair() for _ in range(4)]
    begin = time.monotonic()
    for client, _ in pairs:
        threading.Thread(target=client.sendall, args=(bytes(500_000),), daemon=True).start()
    for _, server in pairs:
        receive(server, 500_000)
    seconds = time.monotonic() - begin
    # 2 MB at 5 MB/s, minus the 10 ms that a bucket may save
    expect(seconds >= 0.38, f"{seconds} s")


def held_bytes_flow_after_release(lab):
    proxy = Proxy(lab)
    client, server = proxy.pair()
    proxy.do("hold")
    client.sendall(b"up")
    server.sendall(b"down")
    nothing_comes(server)
    nothing_comes(client)
    proxy.do("release")
    expect(receive(server, 2) == b"up" and receive(client, 4) == b"down", "something else came")


def oneway_holds_one_direction_only(lab):
    proxy = Proxy(lab)
    client, server = proxy.pair()
    for way, still, flowing in (("up", (client, server), (server, client)),
                                ("down", (server, client), (client, server))):
        proxy.do(f"oneway {way}")
        still[0].sendall(b"a")
        flowing[0].sendall(b"b")
        expect(receive(flowing[1], 1) == b"b", "the other way does not flow")
        nothing_comes(still[1])
        proxy.do("release")
        expect(receive(still[1], 1) == b"a", "lost")


def the_end_of_a_stream_passes_in_one_direction(lab):
    proxy = Proxy(lab, "--delay-ms", 5)
    client, server = proxy.pair()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    expect(read_in_pieces(server, 1)[1] == 8, "not all came before the end")
    server.sendall(b"answer")
    expect(receive(client, 6) == b"answer", "no answer")
    server.close()
    expect(client.recv(1) == b"", "no end")
    expect(proxy.counters()["resets"] == 0, "that was no orderly end")


def a_broken_end_resets_the_other(lab):
    proxy = Proxy(lab, "--delay-ms", 5)
    for turn in (1, -1):
        gone, left = proxy.pair()[::turn]
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        expect(is_reset(left), "no RST")


def reset_ends_every_connection_and_later_ones_work(lab):
    proxy = Proxy(lab)
    pairs = [proxy.pair() for _ in range(3)]
    for client, server in pairs:  # all bytes pass before the reset
        client.sendall(b"x")
        receive(server, 1)
    proxy.do("reset")
    for client, server in pairs:
        expect(is_reset(client) and is_reset(server), "no RST")
    client, server = proxy.pair()
    client.sendall(b"again")
    expect(receive(server, 5) == b"again", "not usable after a reset")
    expect(proxy.counters()["resets"] >= 3, "not counted")


def drop_holds_then_resets(lab):
    proxy = Proxy(lab)
    client, server = proxy.pair()
    begin = time.monotonic()
    proxy.do("drop 2")
    client.sendall(b"lost")
    expect(is_reset(server) and is_reset(client), "no RST")
    expect(time.monotonic() - begin >= 2, "not held first")
    client, server = proxy.pair()
    client.sendall(b"x")
    receive(server, 1)


def refuse_lasts_until_accept(lab):
    proxy = Proxy(lab)
    proxy.do("refuse")
    expect(is_refused(proxy), "accepted")
    proxy.do("accept")
    client, server = proxy.pair()
    client.sendall(b"x")
    receive(server, 1)
    expect(proxy.counters()["refused"] == 1, "not counted")


def corrupt_flips_one_bit_of_a_piece(lab):
    proxy = Proxy(lab)
    client, server = proxy.pair()
    data = random.Random(3).randbytes(20_000)
    for flips in (2, 0):
        if flips:
            proxy.do(f"corrupt {flips}")
        found = b""
        for _ in range(4):  # one piece each: the next is sent after the last has arrived
            client.sendall(data)
            found += receive(server, len(data))
        wrong = sum(bin(a ^ b).count("1") for a, b in zip(found, 4 * data))
        expect(wrong == flips, f"{wrong} wrong bits, asked for {flips}")


def truncate_cuts_a_piece_and_resets(lab):
    proxy = Proxy(lab)
    client, server = proxy.pair()
    proxy.do("truncate")
    client.sendall(bytes(1000))
    count = 0
    try:
        while more := server.recv(65536):
            count += len(more)
        raise base.Failed("an orderly end")
    except ConnectionResetError:
        pass
    expect(count <= 500, f"{count} of 1,000 bytes came")
    expect(is_reset(client), "no RST for the sender")
    expect(proxy.counters()["truncated"] == 1, "not counted")


def a_full_proxy_blocks_the_sender(lab):
    proxy = Proxy(lab)
    client, server = proxy.pair()
    proxy.do("hold")
    client.settimeout(1)
    chunk, sent, digest = random.Random(5).randbytes(1 << 20), 0, hashlib.sha256()
    while sent < 256 << 20:
        try:
            count = client.send(chunk)
        except TimeoutError:
            break
        digest.update(chunk[:count])
        sent += count
    expect(sent < 256 << 20, "the sender never had to wait")
    peak = int(re.search(r"VmHWM:\s+(\d+)",
                         pathlib.Path(f"/proc/{proxy.process.pid}/status").read_text())[1])
    # 4 MiB of bytes; the rest is the program (and its sanitizer in slow builds)
    expect(peak < 64 << 10 or lab.scale > 1, f"{peak} KiB of memory for 4 MiB of buffer")
    proxy.do("release")
    client.shutdown(socket.SHUT_WR)
    expect(read_in_pieces(server, 2) == (digest.hexdigest(), sent), "other bytes than were sent")


def hundreds_of_connections_at_one_time(lab):
    proxy = Proxy(lab, "--delay-ms", 1)
    pairs = [proxy.pair() for _ in range(300)]
    for number, (client, _) in enumerate(pairs):
        client.sendall(struct.pack("<I", number))
    # they may be accepted in another order, so each pair has a number
    numbers = sorted(struct.unpack("<I", receive(server, 4))[0] for _, server in pairs)
    expect(numbers == list(range(300)), "some connections were lost")
    for client, _ in pairs:
        client.close()
    expect(proxy.counters()["connections"] == 300, "not all were counted")


def a_connection_to_an_absent_listener_is_reset(lab):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    proxy = Proxy(lab, to=f"127.0.0.1:{port}")
    expect(is_refused(proxy), "no RST")


def a_script_is_executed(lab):
    script = lab.folder / "script"
    script.write_text("# two lines\n+0.1 delay 7\n+0.3 quit\n")
    code, text = lab.call("pushpull-proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1",
                          "--script", script)
    expect(code == 0 and re.search(r"\d\.\d+ s: delay 7\n\d\.\d+ s: quit\nconnections=0 ", text), text)


def mistakes_on_the_proxys_command_line_are_named(lab):
    script = lab.folder / "script"
    script.write_text("+1 sleep\n")
    to = ("--to", "127.0.0.1:1")
    for words, message in ((("--listen", "127.0.0.1:0"), "--to names 0"),
                        (("--listen", "nonsense", *to), "--listen nonsense: expected HOST:PORT"),
                        (("--listen", "0.0.0.0:0", *to), "--insecure allows it"),
                        (("--listen", "127.0.0.1:0", *to, "--delay-ms", "-1"), "--delay-ms -1: must be"),
                        (("--listen", "127.0.0.1:0", *to, "--script", "/none"), "/none: cannot be read"),
                        (("--listen", "127.0.0.1:0", *to, "--script", script), "'sleep' is not a command")):
        code, text = lab.call("pushpull-proxy", *words)
        expect(code == 2 and message in text and text.count("\n") == 1, f"{words}: {code}, {text}")


def measuring_finds_delay_and_rate(lab):
    answerer = lab.start("pushpull-proxy", "--answer", "127.0.0.1:0")
    answerer.prints("listening on ")
    to = re.search(r"listening on (\S+)", answerer.output())[1]
    proxy = Proxy(lab, "--delay-ms", 10, "--rate-mbit", 80, to=to)
    code, text = lab.call("pushpull-proxy", "--measure", f"127.0.0.1:{proxy.port}", "--for-s", 1)
    found = dict(word.split("=") for word in text.split())
    expect(code == 0 and float(found["round_trip_ms"]) >= 20 and 0 < float(found["rate_mbit"]) <= 85,
           f"{code}: {text}")
    expect(found["congestion_control"].isalnum(), text)
    expect(answerer.ends() == 0, answerer.output())


def listening_ports(pid):
    """Returns the ports on which a process listens, the first one first."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        if match := re.match(r"socket:\[(\d+)\]", os.readlink(fd)):
            inodes.add(match[1])
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return [int(line.split()[1].split(":")[1], 16) for line in lines
            if line.split()[3] == "0A" and line.split()[9] in inodes]


def a_sync_run_over_a_slow_link_has_the_same_bits(lab):
    job = lab.job({**MLP, "transport": "tcp"})
    wanted = lab.train(job)["weights_sha256"]
    out = lab.folder / "slow"
    # the same ports on another loopback address, which the server advertises
    server = lab.start("pushpull-server", "--job", job, "--listen", "tcp://127.0.0.2:*", "--advertise",
                       "127.0.0.3", "--workers", 2, "--out", out)
    server.prints("listening on tcp://127.0.0.3:")
    control = int(re.search(r"listening on tcp://127.0.0.3:(\d+)", server.output())[1])
    ports = listening_ports(server.pid)
    expect(control in ports and len(ports) == 2, f"{control} in {ports}")
    proxy = lab.start("pushpull-proxy", "--listen", ",".join(f"127.0.0.3:{port}" for port in ports),
                      "--to", ",".join(f"127.0.0.2:{port}" for port in ports),
                      "--delay-ms", 3, "--jitter-ms", 2, "--rate-mbit", 200)
    proxy.prints("listening on ")
    workers = [lab.start("pushpull-worker", "--join", f"tcp://127.0.0.3:{control}") for _ in range(2)]
    for process in (server, *workers):
        expect(process.ends(120) == 0, process.output())
    found = base.summary_of(out)
    expect(found["weights_sha256"] == wanted, f"{found['weights_sha256']}, without a link {wanted}")
    proxy.send_signal(subprocess.signal.SIGTERM)
    expect(proxy.ends() == 0, proxy.output())
    up = int(re.search(r"bytes_up=(\d+)", proxy.output())[1])
    expect(up > 40 * 6570 * 4, f"only {up} bytes went over the link: the gradients took another way")


if __name__ == "__main__":
    base.main(globals())
