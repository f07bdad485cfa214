"""Text that differs if data differ."""
import hashlib

from pushpull._seeds import DIGEST, seed_all

_SAMPLES = 16  # of a split


def data_digest(data, size, seed):
    """Hashes some samples, evenly spread. Data sets that draw at random are seeded first."""
    if size == 0:
        return "none"
    digest = hashlib.sha256()
    for place in range(min(_SAMPLES, size)):
        index = place * (size - 1) // max(1, min(_SAMPLES, size) - 1)
        seed_all(seed, DIGEST, index)
        add(digest, data[index])
    return f"{size}-{digest.hexdigest()[:16]}"


def add(digest, value):
    """Adds a sample: tensors and arrays by shape, type and bytes, collections by their elements."""
    if isinstance(value, dict):
        for key in value:
            digest.update(repr(key).encode())
            add(digest, value[key])
    elif isinstance(value, (list, tuple)):
        digest.update(f"{len(value)}(".encode())
        for each in value:
            add(digest, each)
    elif isinstance(value, (str, int, float, bool, type(None))):
        digest.update(repr(value).encode())
    elif isinstance(value, (bytes, bytearray)):
        digest.update(value)
    else:
        _add_array(digest, value)


def _add_array(digest, value):
    dtype, shape = getattr(value, "dtype", ""), tuple(getattr(value, "shape", ()))
    digest.update(f"{type(value).__name__}{dtype}{shape}".encode())
    if hasattr(value, "detach"):
        digest.update(_bytes_of(value))
    elif getattr(dtype, "hasobject", False):  # its bytes are addresses
        add(digest, value.tolist())
    elif hasattr(value, "tobytes"):
        digest.update(value.tobytes())


def _bytes_of(tensor):
    """Returns the bytes of a tensor of any type, NumPy's or not."""
    import ctypes

    dense = tensor.detach() if "strided" in str(tensor.layout) else tensor.detach().to_dense()
    whole = dense.cpu().contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
