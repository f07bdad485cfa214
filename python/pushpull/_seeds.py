"""Seeds of random generators for one micro-batch, equal in all workers."""
import hashlib
import random
import sys

# Uses of the seeds of one micro-batch, or of one sample of a stream.
COMPUTE, DATA, DIGEST, SHARDS = range(4)


def mixed(*numbers):
    """Returns 64 bits that depend on all numbers."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "little")


def seed_all(*numbers):
    """Seeds the generators of Python, of NumPy if the program uses it, and of PyTorch likewise."""
    seed = mixed(*numbers)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        _seed_torch(torch, seed)


_torch_seeders = None  # functions that seed PyTorch's generators


def _seed_torch(torch, seed):
    """Seeds as torch.manual_seed, which formats a stack trace for each kind of device that the host does not have."""
    global _torch_seeders
    if _torch_seeders is None:
        _torch_seeders = _find_torch_seeders(torch)
    for seeder in _torch_seeders:
        seeder(seed)


def _find_torch_seeders(torch):
    privates = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "")()
    for kind in ("xpu", "mtia", "mps", privates):
        module = getattr(torch, kind, None) if kind else None
        if module is not None and getattr(module, "is_available", lambda: True)():
            return [torch.manual_seed]
    processor = torch.default_generator.manual_seed
    return [torch.cuda.manual_seed_all, processor] if torch.cuda.is_available() else [processor]
