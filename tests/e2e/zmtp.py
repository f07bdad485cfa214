"""A hostile peer on a port: bare TCP with ZMTP 3.0 (rfc.zeromq.org/spec/23) and pushpull's preamble written by
hand, valid or invalid as a test needs."""
import contextlib
import os
import socket
import struct

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def ready(socket_type):
    body = b"\x05READY"
    for name, value in ((b"Socket-Type", socket_type), (b"Identity", b"")):
        body += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return bytes([COMMAND, len(body)]) + body


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7f | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """Encodes a protobuf field: integers as varints, bytes with their length."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def fixed(number, value):
    """Encodes a protobuf field of type fixed64: a number, or its eight bytes."""
    return varint(number << 3 | 1) + (value if isinstance(value, bytes) else struct.pack("<Q", value))


def fields(message):
    """Numbers and values of a protobuf message: whole numbers, and bytes."""
    at = 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or number()
        yield key >> 3, message[at:at + size]
        at += size


def frame_of(stranger):
    """Flags and body of the next frame; None when the other side has hung up or keeps silent."""
    flags = stranger.receive(1)
    if not flags:
        return 0, None
    size = stranger.receive(8 if flags[0] & LONG else 1)
    return flags[0], stranger.receive(int.from_bytes(size, "big"))


def preamble(version):
    return b"PUSHPL" + struct.pack(">H", version)


VERSION = 18  # kProtocolVersion


def hello(role, incarnation, endpoint=b"", version=VERSION):
    """Returns the first frame of a process that joins; common/net/wire.proto has the numbers."""
    body = field(1, role) + field(2, b"nowhere") + field(3, 1)
    body += fixed(4, incarnation) + field(5, b"0") + field(6, endpoint)
    return preamble(version) + field(1, body)


class Stranger:
    def __init__(self, address, timeout_s=10.0):
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    @classmethod
    def over(cls, accepted):
        """Wraps a connection that a listener has accepted."""
        stranger = cls.__new__(cls)
        stranger.socket = accepted
        return stranger

    def bytes(self, data):
        with contextlib.suppress(OSError):  # the peer may close the connection at any byte
            self.socket.sendall(data)

    def handshake(self, socket_type=b"DEALER"):
        self.bytes(GREETING)
        self.receive(len(GREETING))
        self.bytes(ready(socket_type))
        self.frame()

    def message(self, *parts):
        for i, part in enumerate(parts):
            more = MORE if i + 1 < len(parts) else 0
            if len(part) < 256:
                self.bytes(bytes([more, len(part)]) + part)
            else:
                self.bytes(bytes([more | LONG]) + struct.pack(">Q", len(part)) + part)

    def promise(self, size):
        """Sends a frame that announces this size, but only its first hundred bytes."""
        self.bytes(bytes([LONG]) + struct.pack(">Q", size) + bytes(100))

    def receive(self, size):
        data = b""
        with contextlib.suppress(OSError):
            while len(data) < size:
                more = self.socket.recv(size - len(data))
                if not more:
                    break
                data += more
        return data

    def frame(self):
        """Returns the next frame, or b"" if the peer has closed the connection or sends nothing."""
        head = self.receive(2)
        if len(head) < 2:
            return b""
        if head[0] & LONG:
            return self.receive(struct.unpack(">Q", head[1:] + self.receive(7))[0])
        return self.receive(head[1])

    def close(self):
        """Closes so that the sent bytes arrive: a close with unread bytes would reset the connection."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(0.05)
            while self.socket.recv(65536):
                pass
        self.socket.close()


def listening_ports(pid):
    """Returns the TCP ports (IPv4) that a process listens on, from /proc."""
    inodes = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = set()
    with open(f"/proc/{pid}/net/tcp") as table:
        for line in list(table)[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:  # LISTEN
                ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports
