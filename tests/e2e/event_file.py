"""Reads TensorBoard's event files without TensorBoard or protobuf: an oracle for what pushpull writes.

Records: TFRecord. Fields: event.proto, summary.proto and histogram.proto of TensorFlow, as in
https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto. Each checksum and length is checked."""
import struct


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """Yields the contents of each record. Raises ValueError for a damaged or unfinished one."""
    at = 0
    while at < len(data):
        if len(data) < at + 12:
            raise ValueError(f"{len(data) - at} bytes after the last record")
        length, length_crc = struct.unpack_from("<QI", data, at)
        body = data[at + 12:at + 12 + length]
        if masked(data[at:at + 8]) != length_crc or len(data) < at + 16 + length:
            raise ValueError(f"bad length {length} at {at}")
        if masked(body) != struct.unpack_from("<I", data, at + 12 + length)[0]:
            raise ValueError(f"bad checksum of the record at {at}")
        yield body
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def fields(data):
    """Returns {number: [values]} of a protobuf message: int, float, double or bytes, by the wire type."""
    out, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            raise ValueError(f"wire type {kind}")
        out.setdefault(key >> 3, []).append(value)
    return out


def doubles(packed):
    return list(struct.unpack(f"<{len(packed) // 8}d", packed))


def histogram(data):
    """Returns the fields of a HistogramProto by name."""
    got = fields(data)
    out = {name: got.get(number, [0.0])[0]
           for number, name in enumerate(("min", "max", "num", "sum", "sum_squares"), 1)}
    return {**out, "bucket_limit": doubles(got[6][0]), "bucket": doubles(got[7][0])}


def read(path):
    """Returns the file's version, its scalars {tag: [(step, value)]}, its histograms likewise, and the steps at which
    training began."""
    version, scalars, histograms, starts, times = None, {}, {}, [], []
    for body in records(path.read_bytes()):
        event = fields(body)
        step = event.get(2, [0])[0]
        times.append(event[1][0])
        if 3 in event:
            version = event[3][0].decode()
        if 7 in event:
            starts.append(step)
        for value in fields(event[5][0]).get(1, []) if 5 in event else []:
            value = fields(value)
            tag = value[1][0].decode()
            if 2 in value:
                scalars.setdefault(tag, []).append((step, value[2][0]))
            if 5 in value:
                histograms.setdefault(tag, []).append((step, histogram(value[5][0])))
    return {"version": version, "scalars": scalars, "histograms": histograms, "starts": starts, "times": times}
